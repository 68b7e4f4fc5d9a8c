//! Sorted sets: the commands on them, and how an operation reads and replaces one.

mod bounds;
mod members;
mod store;

use bytes::Bytes;
use types::{Applied, Change, Double, ExpiryChange, Reply};
use values::SortedSet;
use values::sorted_set::Element;

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};

crate::module::modules! {
    combine,
    zadd,
    zcard,
    zcount,
    zmpop,
    zpop,
    zrandmember,
    zrange,
    zrangestore,
    zrank,
    zrem,
    zremrange,
    zscan,
    zscore,
}

const NOT_POSITIVE: ErrorReply = errors::fixed(b"ERR value is out of range, must be positive");

impl<'a> Context<'a> {
    /// The sorted set at the key, `None` if there is no key.
    ///
    /// # Errors
    /// `WRONGTYPE` if the key holds another type.
    pub(crate) fn sorted_set(&self) -> Result<Option<SortedSet<'a>>, ErrorReply> {
        Ok(self.view.value.map(SortedSet::decode).transpose()?)
    }

    /// Puts a change of the sorted set `old`.
    ///
    /// # Errors
    /// `value too large`.
    fn change_sorted_set(&self, old: &SortedSet<'_>, value: Bytes, reply: Reply) -> RunResult {
        self.check_len(old.encoded_len(), value.len() as u64)?;
        Ok(Applied { change: Change::Put { value, expiry: ExpiryChange::Keep }, reply })
    }
}

fn double(score: f64) -> Reply {
    Reply::Double(Double(score))
}

/// Members, each with its score if `with_scores`.
fn elements_reply(elements: &[Element<'_>], with_scores: bool) -> Reply {
    let member = |element: &Element<'_>| Reply::copy(element.member);
    if with_scores {
        Reply::Pairs(elements.iter().map(|it| (member(it), double(it.score))).collect())
    } else {
        Reply::array(elements.iter().map(member))
    }
}

#[cfg(test)]
mod tests;
