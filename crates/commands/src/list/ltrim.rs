//! `LTRIM`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use super::{encoding, position};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LTrim] };

const ROW: CommandSpec = CommandSpec {
    name: "ltrim",
    arity: Exactly(4),
    summary: "Keeps the elements of a list between two indexes, both included.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[Argument::key(), Argument::integer("start"), Argument::integer("stop")],
    flags: &[Write],
    keys: one_key(&["RW", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..LIST
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let start = parse_i64(args.all[2]).ok_or(errors::NOT_AN_INTEGER)?;
    let stop = parse_i64(args.all[3]).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(args.command(&LTrim { start, stop }))
}

struct LTrim {
    start: i64,
    stop: i64,
}

impl Operation<'_> for LTrim {
    const CODE: u8 = 71;
    const EXAMPLES: Examples =
        &[("LTRIM k 1 -1", b"\x47\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff")];

    fn encode(&self, out: &mut impl Sink) {
        out.integer(self.start);
        out.integer(self.stop);
    }

    fn decode(fields: &mut Reader<'_>) -> Result<LTrim, Malformed> {
        Ok(LTrim { start: operation::integer(fields)?, stop: operation::integer(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(list) = cx.list()? else { return unchanged(Reply::OK) };
        let range = position::range(self.start, self.stop, list.elements.len());
        let (_, tail) = list.elements.split_at(range.start);
        let (kept, _) = tail.split_at(range.len());
        let parts = &[kept.bytes()];
        cx.put_list(encoding::shrunk(list.encoding, parts), parts, Reply::OK)
    }
}
