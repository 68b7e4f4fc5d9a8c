//! The commands of a transaction on one key: one transition of its register.

use bytes::Bytes;
use types::wire::{Malformed, Reader};
use types::{Access, Applied, Change, Command, Reply};

use crate::context::{Context, RunResult};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::space::{Halt, Space};
use crate::table;
use crate::trace::Trace;

pub(super) const MODULE: Module = Module { rows: &[], operations: handlers![Lines] };

/// Bytes of the replies of one transaction.
pub const REPLIES_LEN_MAX: usize = 64 << 20;

struct Lines<'a> {
    lines: Vec<Vec<&'a [u8]>>,
}

/// The command that runs all lines on the one key that they name. Its reply is a list.
#[must_use]
pub fn lines_on_one_key(lines: Vec<Vec<&[u8]>>) -> Command {
    Command::new(Access::Update, Lines { lines }.body())
}

impl<'a> Operation<'a> for Lines<'a> {
    const CODE: u8 = 24;
    const EXAMPLES: Examples = &[];

    fn encode(&self, out: &mut impl Sink) {
        encode(&self.lines, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Lines<'a>, Malformed> {
        Ok(Lines { lines: decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let (change, replies, _) = run(&self.lines, None, cx)?;
        Ok(Applied { change, reply: Reply::Array(replies) })
    }
}

/// Writes last fields: lines, each behind the number of its words.
pub(super) fn encode(lines: &[Vec<&[u8]>], out: &mut impl Sink) {
    for line in lines {
        out.varint(line.len() as u64);
        line.iter().for_each(|arg| out.blob(arg));
    }
}

pub(super) fn decode<'a>(fields: &mut Reader<'a>) -> Result<Vec<Vec<&'a [u8]>>, Malformed> {
    let mut lines = Vec::new();
    while !fields.is_empty() {
        let count = fields.varint()?;
        let mut line = Vec::new();
        for _ in 0..count {
            line.push(fields.blob(types::limits::RECORD_LEN_MAX)?);
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Runs lines on the key of the context.
pub(super) fn run(
    lines: &[Vec<&[u8]>],
    trace: Option<Trace>,
    cx: &Context<'_>,
) -> Result<(Change, Vec<Reply>, Option<Trace>), ErrorReply> {
    let key_of = |line: &Vec<&[u8]>| {
        let spec = table::find(line).ok()?;
        let key = spec.key_indexes(line).first().copied()?;
        line.get(key).map(|key| Bytes::copy_from_slice(key))
    };
    let key = lines.iter().find_map(key_of).ok_or(errors::NOT_UNDERSTOOD)?;
    let mut space = Space::new(&cx.interpreter(), cx.clock);
    if let Some(trace) = trace {
        space = space.with_trace(trace);
    }
    space.load(key, cx.view);
    let mut replies: Vec<Reply> = Vec::with_capacity(lines.len());
    let mut len = 0;
    for line in lines {
        len += replies.last().map_or(0, Reply::len);
        if len > REPLIES_LEN_MAX {
            return Err(errors::REPLIES_TOO_LARGE);
        }
        replies.push(match space.execute(line) {
            Ok(reply) => reply,
            Err(Halt::Error(error)) => error.into(),
            Err(Halt::Unloaded(_) | Halt::TooLong) => return Err(errors::RUN_AS_TRANSACTION),
        });
        space.trace_mut().into_iter().for_each(Trace::end_line);
    }
    let change = space.changes().map(|(_, change)| change).next();
    Ok((change.unwrap_or(Change::None), replies, space.take_trace()))
}

#[cfg(test)]
mod tests {
    use base::Millis;
    use types::{Clock, TimeToLive, Update, View};

    use super::*;
    use crate::Interpreter;

    fn run(lines: &[&str]) -> Applied {
        let lines = lines.iter().map(|line| line.split(' ').map(str::as_bytes).collect()).collect();
        let command = lines_on_one_key(lines);
        let clock = Clock { unix: Millis(1), seed: 0 };
        let view = View { value: None, ttl: TimeToLive::Never, ends: None };
        Interpreter::default().apply(view, &command.body, clock)
    }

    #[test]
    fn lines_are_one_change_and_a_list_of_replies() {
        let applied = run(&["SET k 1", "INCR k", "LPUSH k x", "GET k"]);
        let Reply::Array(replies) = applied.reply else { panic!("{applied:?}") };
        assert_eq!(replies[1], Reply::Integer(2));
        assert_eq!(replies[2], Reply::from(errors::WRONG_TYPE));
        assert_eq!(replies[3], Reply::copy(b"2"));
        assert!(matches!(applied.change, Change::Put { .. }));
    }

    #[test]
    fn bytes_never_change() {
        let lines = vec![vec![&b"GET"[..], b"k"], vec![b"PING"]];
        assert_eq!(&lines_on_one_key(lines).body[..], b"\x18\x02\x03GET\x01k\x01\x04PING");
    }

    #[test]
    fn other_keys_are_refused() {
        let applied = run(&["SET k 1", "GET other"]);
        assert_eq!((applied.change, applied.reply.is_error()), (Change::None, true));
    }
}
