//! Strings: the commands on them, and how an operation reads and replaces one.

mod condition;
mod expiration;

use types::{Applied, Change, ExpiryChange, Reply};

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};

crate::module::modules! {
    append,
    delex,
    delifeq,
    digest,
    get,
    getdel,
    getex,
    getrange,
    incr,
    incrbyfloat,
    lcs,
    mget,
    mset,
    set,
    setrange,
    strlen,
}

/// Longest string that redis-server makes.
pub(crate) const LEN_MAX: u64 = 512 << 20;

impl<'a> Context<'a> {
    /// The string at the key, `None` if there is no key.
    ///
    /// # Errors
    /// `WRONGTYPE` if the key holds another type.
    pub(crate) fn string(&self) -> Result<Option<&'a [u8]>, ErrorReply> {
        Ok(self.view.value.map(values::string::decode).transpose()?)
    }

    /// Puts the string that `parts` make up.
    ///
    /// # Errors
    /// `value too large`.
    pub(crate) fn put_string(
        &self,
        parts: &[&[u8]],
        expiry: ExpiryChange,
        reply: Reply,
    ) -> RunResult {
        self.change_string(b"", parts, expiry, reply)
    }

    /// Puts the string that `parts` make up, a change of `old`.
    ///
    /// # Errors
    /// `value too large`.
    pub(crate) fn change_string(
        &self,
        old: &[u8],
        parts: &[&[u8]],
        expiry: ExpiryChange,
        reply: Reply,
    ) -> RunResult {
        self.check_string(old, parts.iter().map(|part| part.len() as u64).sum())?;
        let value = values::string::encode_parts(parts);
        Ok(Applied { change: Change::Put { value, expiry }, reply })
    }

    /// Refuses to change `old` into a string of `len` bytes that exceeds a limit.
    ///
    /// # Errors
    /// `value too large`, and redis-server's error for a string longer than its limit.
    pub(crate) fn check_string(&self, old: &[u8], len: u64) -> Result<(), ErrorReply> {
        if len > LEN_MAX {
            return Err(errors::STRING_TOO_LONG);
        }
        self.check_len(old.len(), len)
    }
}
