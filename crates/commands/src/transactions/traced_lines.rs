//! Command lines on one key, scripts among them: their reply tells the calls of the scripts.

use types::wire::{Malformed, Reader};
use types::{Access, Applied, Command, Reply};

use super::lines;
use crate::context::{Context, RunResult};
use crate::errors;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::trace::Trace;

pub(super) const MODULE: Module = Module { rows: &[], operations: handlers![TracedLines] };

/// The reply is a list, one element per line.
const IS_LIST: u8 = 1;
/// The calls are listed, not only counted.
const HAS_CALLS: u8 = 2;

struct TracedLines<'a> {
    flags: u8,
    lines: Vec<Vec<&'a [u8]>>,
}

/// The command that runs all lines on the one key that they name. Its reply is for
/// [`Trace::unwrap`].
#[must_use]
pub fn traced_lines_on_one_key(
    lines: Vec<Vec<&[u8]>>,
    is_list: bool,
    has_calls: bool,
    access: Access,
) -> Command {
    let flags = (u8::from(is_list) * IS_LIST) | (u8::from(has_calls) * HAS_CALLS);
    Command::new(access, TracedLines { flags, lines }.body())
}

impl<'a> Operation<'a> for TracedLines<'a> {
    const CODE: u8 = 25;
    const EXAMPLES: Examples = &[];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.flags);
        lines::encode(&self.lines, out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<TracedLines<'a>, Malformed> {
        let flags = fields.u8()?;
        if flags & !(IS_LIST | HAS_CALLS) != 0 {
            return Err(Malformed);
        }
        Ok(TracedLines { flags, lines: lines::decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let trace = Trace::new(self.flags & HAS_CALLS != 0);
        let (change, mut replies, trace) = lines::run(&self.lines, Some(trace), cx)?;
        let reply = match self.flags & IS_LIST != 0 {
            true => Reply::Array(replies),
            false => replies.pop().ok_or(errors::NOT_UNDERSTOOD)?,
        };
        Ok(Applied { change, reply: trace.unwrap_or_default().wrap(reply) })
    }
}

#[cfg(test)]
mod tests {
    use types::{Clock, TimeToLive, Update, View};

    use super::*;
    use crate::Interpreter;

    fn command(is_list: bool) -> Command {
        let lines = vec![vec![&b"INCR"[..], b"k"], vec![b"GET", b"k"]];
        let lines = lines.into_iter().skip(usize::from(!is_list)).collect();
        traced_lines_on_one_key(lines, is_list, true, Access::Update)
    }

    fn run(command: &Command) -> (Reply, Option<Trace>) {
        let clock = Clock { unix: base::Millis(1), seed: 0 };
        let view = View { value: None, ttl: TimeToLive::Never, ends: None };
        Trace::unwrap(Interpreter::default().apply(view, &command.body, clock).reply)
    }

    #[test]
    fn replies_carry_a_trace() {
        let (reply, trace) = run(&command(true));
        assert_eq!(reply, Reply::array([Reply::Integer(1), Reply::copy(b"1")]));
        assert_eq!(trace.and_then(|trace| trace.lines().map(|it| it.len())), Some(3));
        assert_eq!(run(&command(false)).0, Reply::Null);
    }

    #[test]
    fn bytes_never_change() {
        assert_eq!(&command(false).body[..], b"\x19\x02\x02\x03GET\x01k");
        assert_eq!(&command(true).body[..], b"\x19\x03\x02\x04INCR\x01k\x02\x03GET\x01k");
    }
}
