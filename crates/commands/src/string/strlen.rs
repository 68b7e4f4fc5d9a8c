//! `STRLEN`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![StrLen] };

const ROW: CommandSpec = CommandSpec {
    name: "strlen",
    arity: Exactly(2),
    since: "2.2.0",
    summary: "Answers the length of the string at a key, 0 if there is none.",
    arguments: &[Argument::key()],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Integer(0)),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&StrLen))
}

struct StrLen;

impl Operation<'_> for StrLen {
    const CODE: u8 = 3;
    const EXAMPLES: Examples = &[("STRLEN k", b"\x03")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<StrLen, Malformed> {
        Ok(StrLen)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        unchanged(Reply::Integer(cx.string()?.map_or(0, |string| string.len() as i64)))
    }
}
