//! `LLEN`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LLen] };

const ROW: CommandSpec = CommandSpec {
    name: "llen",
    arity: Exactly(2),
    summary: "Answers the length of the list at a key, 0 if there is none.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[Argument::key()],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Integer(0)),
    ..LIST
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&LLen))
}

struct LLen;

impl Operation<'_> for LLen {
    const CODE: u8 = 66;
    const EXAMPLES: Examples = &[("LLEN k", b"\x42")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<LLen, Malformed> {
        Ok(LLen)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        unchanged(Reply::Integer(cx.list()?.map_or(0, |list| list.elements.len() as i64)))
    }
}
