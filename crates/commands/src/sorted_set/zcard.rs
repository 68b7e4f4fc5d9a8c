//! `ZCARD`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Count] };

const ROW: CommandSpec = CommandSpec {
    name: "zcard",
    arity: Exactly(2),
    since: "1.2.0",
    summary: "Answers the number of elements of the sorted set at a key.",
    complexity: "O(N) where N is the number of elements.",
    arguments: &[Argument::key()],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Integer(0)),
    ..SORTED_SET
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Count))
}

struct Count;

impl Operation<'_> for Count {
    const CODE: u8 = 105;
    const EXAMPLES: Examples = &[("ZCARD k", b"\x69")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Count, Malformed> {
        Ok(Count)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let len = cx.sorted_set()?.map_or(0, |set| set.len());
        unchanged(Reply::Integer(len as i64))
    }
}
