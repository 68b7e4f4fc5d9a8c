//! `GET`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Get] };

const ROW: CommandSpec = CommandSpec {
    name: "get",
    arity: Exactly(2),
    summary: "Answers the string at a key.",
    arguments: &[Argument::key()],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Null),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Get))
}

pub(super) struct Get;

impl Operation<'_> for Get {
    const CODE: u8 = 1;
    const EXAMPLES: Examples = &[("GET k", b"\x01")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Get, Malformed> {
        Ok(Get)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        unchanged(Reply::copy_or_null(cx.string()?))
    }
}
