//! The surroundings of a running operation: the state of its key, a clock and a limit.

use types::{Applied, Change, Clock, ExpiryChange, Reply, TimeToLive, View};

use crate::errors::{self, ErrorReply};
use crate::interpreter::Interpreter;
use crate::scripting::ScriptEngine;

/// A key's state, a clock and a limit. The methods for one type of value stand in the file of that
/// type: see `string.rs`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) view: View<'a>,
    pub(crate) clock: Clock,
    /// Bytes of a value.
    pub(crate) max_value_len: usize,
    pub(crate) scripts: Option<ScriptEngine>,
}

/// A change and a reply, or an error and no change.
pub(crate) type RunResult = Result<Applied, ErrorReply>;

impl Context<'_> {
    /// The interpreter that runs the operation.
    pub(crate) fn interpreter(&self) -> Interpreter {
        Interpreter { max_value_len: self.max_value_len, scripts: self.scripts }
    }

    pub(crate) fn exists(&self) -> bool {
        self.view.value.is_some()
    }

    /// The end of the key's time to live, in milliseconds of Unix time. It is constant: the node
    /// that set it read its own clock.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.view.ends.map(|ends| ends.0)
    }

    /// The rest of the key's time to live, in milliseconds.
    pub(crate) fn time_left(&self) -> Option<u64> {
        match self.view.ttl {
            TimeToLive::Never => None,
            TimeToLive::After(rest) => Some(rest.0),
            TimeToLive::At { unix } => Some(unix.0.saturating_sub(self.clock.unix.0)),
        }
    }

    /// Refuses a value of `len` bytes in place of one of `old_len` bytes. A value that exceeds a
    /// limit lowered later may change, but not grow.
    ///
    /// # Errors
    /// `value too large`.
    pub(crate) fn check_len(&self, old_len: usize, len: u64) -> Result<(), ErrorReply> {
        if len > self.max_value_len.max(old_len) as u64 {
            return Err(errors::value_too_large(len, self.max_value_len));
        }
        Ok(())
    }
}

pub(crate) fn unchanged(reply: Reply) -> RunResult {
    Ok(Applied::unchanged(reply))
}

pub(crate) fn deleted(reply: Reply) -> RunResult {
    Ok(Applied { change: Change::Delete, reply })
}

pub(crate) fn expires(to: TimeToLive, reply: Reply) -> RunResult {
    Ok(Applied { change: Change::Expire(ExpiryChange::Set(to)), reply })
}
