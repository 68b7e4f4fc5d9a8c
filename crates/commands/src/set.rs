//! Sets: the commands on them, and how an operation reads and changes one.

mod algebra;
#[cfg(test)]
mod tests;

use base::Prng;
use bytes::Bytes;
use types::{Applied, Change, ExpiryChange, Reply};
use values::set::{Growth, Set};

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::ErrorReply;

crate::module::modules! {
    sadd,
    scard,
    sdiff,
    sinter,
    sismember,
    smembers,
    smove,
    spop,
    srandmember,
    srem,
    sscan,
    sunion,
}

impl<'a> Context<'a> {
    /// The set at the key, `None` if there is no key.
    ///
    /// # Errors
    /// `WRONGTYPE` if the key holds another type.
    pub(crate) fn set(&self) -> Result<Option<Set<'a>>, ErrorReply> {
        Ok(self.view.value.map(values::set::decode).transpose()?)
    }

    /// Puts the set that has grown.
    ///
    /// # Errors
    /// `value too large`.
    fn put_grown(&self, growth: Growth<'_>, reply: Reply) -> RunResult {
        let old_len = self.view.value.map_or(0, <[u8]>::len);
        self.check_len(old_len, growth.encoded_len() as u64)?;
        put(growth.encode(), reply)
    }
}

/// Removes the members that `keeps` rejects; without any member left, the key.
fn retain(
    set: Set<'_>,
    keeps: impl FnMut(&[u8]) -> bool,
    reply: impl FnOnce(usize) -> Reply,
) -> RunResult {
    let (value, removed) = set.retain(keeps);
    match removed {
        0 => unchanged(reply(0)),
        all if all == set.len() => deleted(reply(all)),
        some => put(value, reply(some)),
    }
}

fn random(set: Set<'_>, seed: u64) -> &[u8] {
    let index = Prng::new(seed).below(set.len() as u64);
    set.iter().nth(index as usize).unwrap_or_default()
}

fn put(value: Bytes, reply: Reply) -> RunResult {
    Ok(Applied { change: Change::Put { value, expiry: ExpiryChange::Keep }, reply })
}

fn copies<'a>(members: impl IntoIterator<Item = &'a [u8]>) -> Vec<Reply> {
    members.into_iter().map(Reply::copy).collect()
}
