//! `LRANGE`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::position;
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LRange] };

const ROW: CommandSpec = CommandSpec {
    name: "lrange",
    arity: Exactly(4),
    summary: "Answers the elements of a list between two indexes, both included.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[Argument::key(), Argument::integer("start"), Argument::integer("stop")],
    flags: &[Readonly],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Empty),
    ..LIST
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let start = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let stop = parse_i64(args.all[3]).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(args.command(&LRange { start, stop }))
}

struct LRange {
    start: i64,
    stop: i64,
}

impl Operation<'_> for LRange {
    const CODE: u8 = 67;
    const EXAMPLES: Examples =
        &[("LRANGE k 1 -1", b"\x43\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff")];

    fn encode(&self, out: &mut impl Sink) {
        out.integer(self.start);
        out.integer(self.stop);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<LRange, Malformed> {
        Ok(LRange { start: operation::integer(fields)?, stop: operation::integer(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(list) = cx.list()? else { return unchanged(Reply::Array(Vec::new())) };
        let range = position::range(self.start, self.stop, list.elements.len());
        let elements = list.elements.iter().skip(range.start).take(range.len());
        unchanged(Reply::array(elements.map(Reply::copy)))
    }
}
