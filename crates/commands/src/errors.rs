//! Error replies. The texts are redis-server's, byte by byte: clients match them.

use bytes::Bytes;
use types::{Malformed, Reply};
use values::DecodeError;

/// The text of an error reply: its code first, no line ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorReply(Bytes);

pub const SYNTAX: ErrorReply = fixed(b"ERR syntax error");
pub const WRONG_TYPE: ErrorReply =
    fixed(b"WRONGTYPE Operation against a key holding the wrong kind of value");
pub const NOT_AN_INTEGER: ErrorReply = fixed(b"ERR value is not an integer or out of range");
pub const NOT_A_FLOAT: ErrorReply = fixed(b"ERR value is not a valid float");
pub const INCREMENT_OVERFLOW: ErrorReply = fixed(b"ERR increment or decrement would overflow");
pub const DECREMENT_OVERFLOW: ErrorReply = fixed(b"ERR decrement would overflow");
pub const INCREMENT_NOT_FINITE: ErrorReply = fixed(b"ERR increment would produce NaN or Infinity");
pub const OFFSET_OUT_OF_RANGE: ErrorReply = fixed(b"ERR offset is out of range");
pub(crate) const EXPIRE_NX_AND_OTHERS: ErrorReply =
    fixed(b"ERR NX and XX, GT or LT options at the same time are not compatible");
pub(crate) const EXPIRE_GT_AND_LT: ErrorReply =
    fixed(b"ERR GT and LT options at the same time are not compatible");
pub(crate) const CONDITION_UNKNOWN: ErrorReply =
    fixed(b"ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
pub(crate) const CONDITION_NEEDS_STRING: ErrorReply =
    fixed(b"ERR Key should be of string type if conditions are specified");
pub(crate) const DIGEST_LEN: ErrorReply =
    fixed(b"ERR digest must be exactly 16 hexadecimal characters");
pub(crate) const ONCE_NESTED: ErrorReply = fixed(b"ERR ONCE calls can not be nested");
pub(crate) const STRING_TOO_LONG: ErrorReply =
    fixed(b"ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(crate) const FREQUENCY_NOT_TRACKED: ErrorReply = fixed(
    b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
pub(crate) const IDLE_TIME_NOT_TRACKED: ErrorReply =
    fixed(b"ERR idle time not tracked: this store keeps no times of access");
pub const REPLIES_TOO_LARGE: ErrorReply = fixed(b"ERR replies too large: split the transaction");
pub const NO_ROOM: ErrorReply = fixed(
    b"OOM command not allowed while this node's file system has too little room; \
it had no effect, make room or ask another node",
);
pub const NO_SCRIPT: ErrorReply = fixed(b"NOSCRIPT No matching script. Please use EVAL.");
pub(crate) const NO_SCRIPT_ENGINE: ErrorReply = fixed(b"ERR this node runs no scripts");
pub(crate) const TOO_MANY_KEYS: ErrorReply =
    fixed(b"ERR Number of keys can't be greater than number of args");
pub(crate) const NEGATIVE_KEYS: ErrorReply = fixed(b"ERR Number of keys can't be negative");
/// A script needs a further key or more time: it had no effect, and runs again as a transaction. No
/// reply of a script has this text.
pub const RUN_AS_TRANSACTION: ErrorReply = fixed(b"\0run as a transaction");
pub(crate) const NO_KEYS: ErrorReply = fixed(b"ERR The command has no key arguments");
pub(crate) const INVALID_COMMAND: ErrorReply = fixed(b"ERR Invalid command specified");
pub(crate) const INVALID_ARGUMENTS: ErrorReply =
    fixed(b"ERR Invalid arguments specified for command");
pub(crate) const INVALID_ARITY: ErrorReply =
    fixed(b"ERR Invalid number of arguments specified for command");

/// A body that this node cannot read: it comes from a peer of a newer version.
pub(crate) const NOT_UNDERSTOOD: ErrorReply =
    fixed(b"ERR this node does not know the command that a peer sent: upgrade it");

/// Redis shows as many bytes of an unknown name.
const SHOWN_LEN_MAX: usize = 128;

/// A text that a command always answers alike.
pub(crate) const fn fixed(text: &'static [u8]) -> ErrorReply {
    ErrorReply(Bytes::from_static(text))
}

impl ErrorReply {
    /// `text` starts with its code: `ERR …`. Line ends become blanks.
    #[must_use]
    pub fn new(text: &[u8]) -> ErrorReply {
        let on_line = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        ErrorReply(text.iter().map(on_line).collect())
    }

    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.0
    }
}

impl From<ErrorReply> for Reply {
    fn from(error: ErrorReply) -> Reply {
        Reply::Error(error.0)
    }
}

impl From<DecodeError> for ErrorReply {
    /// An unknown type counts as a wrong one: it was written by a newer version.
    fn from(_: DecodeError) -> ErrorReply {
        WRONG_TYPE
    }
}

impl From<Malformed> for ErrorReply {
    fn from(_: Malformed) -> ErrorReply {
        NOT_UNDERSTOOD
    }
}

/// `name` is the row's: `get`, `client|getname`.
#[must_use]
pub fn wrong_arity(name: &str) -> ErrorReply {
    ErrorReply::new(format!("ERR wrong number of arguments for '{name}' command").as_bytes())
}

/// `args` with the name that no command has.
#[must_use]
pub fn unknown_command(args: &[&[u8]]) -> ErrorReply {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(shown(args.first().copied().unwrap_or_default(), SHOWN_LEN_MAX));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for arg in args.iter().skip(1) {
        let room = SHOWN_LEN_MAX.saturating_sub(text.len() - start);
        if room == 0 {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(shown(arg, room));
        text.extend_from_slice(b"' ");
    }
    ErrorReply::new(&text)
}

/// `container` as the client wrote it.
#[must_use]
pub fn unknown_subcommand(container: &[u8], subcommand: &[u8]) -> ErrorReply {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(shown(subcommand, SHOWN_LEN_MAX));
    text.extend_from_slice(b"'. Try ");
    text.extend_from_slice(&container.to_ascii_uppercase());
    text.extend_from_slice(b" HELP.");
    ErrorReply::new(&text)
}

#[must_use]
pub fn invalid_expire_time(name: &str) -> ErrorReply {
    ErrorReply::new(format!("ERR invalid expire time in '{name}' command").as_bytes())
}

pub(crate) fn unsupported_option(option: &[u8]) -> ErrorReply {
    ErrorReply::new(&[b"ERR Unsupported option ", option].concat())
}

/// The contract's own: a state of `len` bytes where `max` are allowed.
#[must_use]
pub fn value_too_large(len: u64, max: usize) -> ErrorReply {
    let text = format!("ERR value too large: {len} bytes, and max-value-size is {max}");
    ErrorReply::new(text.as_bytes())
}

pub(crate) fn once_session(len: usize) -> ErrorReply {
    let max = types::limits::ONCE_SESSION_LEN_MAX;
    ErrorReply::new(format!("ERR ONCE session must be 1 to {max} bytes, not {len}").as_bytes())
}

/// `name` is that of the inner command's row.
pub(crate) fn once_without_keys(name: &str) -> ErrorReply {
    let text = format!("ERR ONCE runs commands on keys, and EXEC: '{name}' is neither");
    ErrorReply::new(text.as_bytes())
}

#[must_use]
pub fn key_too_large(len: usize) -> ErrorReply {
    let max = types::limits::KEY_LEN_MAX;
    ErrorReply::new(format!("ERR key too large: {len} bytes, at most {max} are allowed").as_bytes())
}

/// C prints a string up to its first zero byte.
fn shown(bytes: &[u8], len_max: usize) -> &[u8] {
    let len = bytes.len().min(len_max);
    bytes[..len].split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &ErrorReply, text: &str) {
        assert_eq!(String::from_utf8_lossy(error.text()), text);
    }

    /// Replies of redis-server 7.0.15.
    #[test]
    fn unknown_commands_are_told_with_their_first_arguments() {
        let text = "ERR unknown command 'foo', with args beginning with: 'a' 'b' ";
        check(&unknown_command(&[b"foo", b"a", b"b"]), text);
        check(
            &unknown_command(&[b"f\r\n\0o"]),
            "ERR unknown command 'f  ', with args beginning with: ",
        );
        let (long, shown) = (b"x".repeat(200), "x".repeat(128));
        check(
            &unknown_command(&[&long, &long, b"never"]),
            &format!("ERR unknown command '{shown}', with args beginning with: '{shown}' "),
        );
    }

    #[test]
    fn unknown_subcommands_point_to_help() {
        check(
            &unknown_subcommand(b"client", b"MAINT_NOTIFICATIONS"),
            "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
        );
    }
}
