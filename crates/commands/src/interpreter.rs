//! Runs commands on states: one entry for all of them.

use types::{Applied, Change, Clock, ExpiryChange, Reply, TimeToLive, Update, View};

use crate::errors::{self, ErrorReply};
use crate::keys::{expire, inspect, key, time_left};
use crate::operation::Operation;
use crate::string::{compare, get, increment, range, set};

/// Longest string that redis-server makes.
const STRING_LEN_MAX: u64 = 512 << 20;

/// The semantics of all commands. The same on every node of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interpreter {
    /// Bytes of the value of one key (`max-value-size`).
    pub max_value_len: usize,
}

impl Default for Interpreter {
    fn default() -> Interpreter {
        Interpreter { max_value_len: types::limits::VALUE_LEN_DEFAULT }
    }
}

impl Update for Interpreter {
    fn apply(&self, view: View<'_>, body: &[u8], clock: Clock) -> Applied {
        let cx = Context { view, clock, max_value_len: self.max_value_len };
        let applied = Operation::decode(body).map_err(ErrorReply::from).and_then(|op| run(&cx, op));
        applied.unwrap_or_else(|error| Applied::unchanged(error.into()))
    }
}

/// What a command finds and must respect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) view: View<'a>,
    pub(crate) clock: Clock,
    max_value_len: usize,
}

/// A command ends with a change and a reply, or with an error and no change.
pub(crate) type Ran = Result<Applied, ErrorReply>;

fn run(cx: &Context<'_>, operation: Operation<'_>) -> Ran {
    match operation {
        Operation::Get => get::get(cx),
        Operation::GetOrNull => get::get_or_null(cx),
        Operation::StrLen => get::str_len(cx),
        Operation::Digest => get::digest(cx),
        Operation::GetRange { start, end } => range::get_range(cx, start, end),
        Operation::GetDelete => get::get_delete(cx),
        Operation::GetExpire(expiry) => get::get_expire(cx, expiry),
        Operation::Set(what) => set::set(cx, what),
        Operation::Append(tail) => range::append(cx, tail),
        Operation::SetRange { offset, patch } => range::set_range(cx, offset, patch),
        Operation::Increment(by) => increment::increment(cx, by),
        Operation::IncrementFloat(by) => increment::increment_float(cx, by),
        Operation::Delete => key::delete(cx),
        Operation::DeleteIf(condition) => compare::delete_if(cx, condition),
        Operation::DeleteIfEqual(value) => compare::delete_if_equal(cx, value),
        Operation::Exists => key::exists(cx),
        Operation::Type => key::type_name(cx),
        Operation::TimeLeft { unit, form } => time_left::time_left(cx, unit, form),
        Operation::Expire(what) => expire::expire(cx, what),
        Operation::Persist => expire::persist(cx),
        Operation::Inspect(what) => inspect::inspect(cx, what),
        Operation::MemoryUsage { key_len } => inspect::memory_usage(cx, key_len),
    }
}

impl<'a> Context<'a> {
    pub(crate) fn exists(&self) -> bool {
        self.view.value.is_some()
    }

    /// The string at the key, `None` if there is no key.
    ///
    /// # Errors
    /// `WRONGTYPE` when there is something else.
    pub(crate) fn string(&self) -> Result<Option<&'a [u8]>, ErrorReply> {
        Ok(self.view.value.map(values::string::decode).transpose()?)
    }

    /// When the key expires, in milliseconds of Unix time by the clock of the node that set it: constant.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.view.ends.map(|ends| ends.0)
    }

    /// What is left of the key's time to live, in milliseconds.
    pub(crate) fn time_left(&self) -> Option<u64> {
        match self.view.ttl {
            TimeToLive::Never => None,
            TimeToLive::After(rest) => Some(rest.0),
            TimeToLive::At { unix } => Some(unix.0.saturating_sub(self.clock.unix.0)),
        }
    }

    /// Puts the string that `parts` make up.
    ///
    /// # Errors
    /// `value too large`.
    pub(crate) fn put(&self, parts: &[&[u8]], expiry: ExpiryChange, reply: Reply) -> Ran {
        self.put_in_place_of(b"", parts, expiry, reply)
    }

    /// Puts the string that `parts` make up, a change of `old`.
    ///
    /// # Errors
    /// `value too large`.
    pub(crate) fn put_in_place_of(
        &self,
        old: &[u8],
        parts: &[&[u8]],
        expiry: ExpiryChange,
        reply: Reply,
    ) -> Ran {
        self.check_growth(old, parts.iter().map(|part| part.len() as u64).sum())?;
        let value = values::string::encode_parts(parts);
        Ok(Applied { change: Change::Put { value, expiry }, reply })
    }

    /// A value longer than a limit that was lowered later may change, and must not grow.
    ///
    /// # Errors
    /// `value too large`, and what redis-server says of more than it can hold.
    pub(crate) fn check_growth(&self, old: &[u8], len: u64) -> Result<(), ErrorReply> {
        if len > STRING_LEN_MAX {
            return Err(errors::STRING_TOO_LONG);
        }
        if len > (self.max_value_len as u64).max(old.len() as u64) {
            return Err(errors::value_too_large(len, self.max_value_len));
        }
        Ok(())
    }
}

pub(crate) fn unchanged(reply: Reply) -> Ran {
    Ok(Applied::unchanged(reply))
}

pub(crate) fn deleted(reply: Reply) -> Ran {
    Ok(Applied { change: Change::Delete, reply })
}

pub(crate) fn expires(to: TimeToLive, reply: Reply) -> Ran {
    Ok(Applied { change: Change::Expire(ExpiryChange::Set(to)), reply })
}
