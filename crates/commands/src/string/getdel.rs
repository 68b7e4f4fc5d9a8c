//! `GETDEL`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![GetDelete] };

const ROW: CommandSpec = CommandSpec {
    name: "getdel",
    arity: Exactly(2),
    since: "6.2.0",
    summary: "Answers the string at a key and deletes the key.",
    arguments: &[Argument::key()],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "access", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    miss: Some(Miss::Null),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&GetDelete))
}

struct GetDelete;

impl Operation<'_> for GetDelete {
    const CODE: u8 = 6;
    const EXAMPLES: Examples = &[("GETDEL k", b"\x06")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<GetDelete, Malformed> {
        Ok(GetDelete)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        match cx.string()? {
            Some(string) => deleted(Reply::copy(string)),
            None => unchanged(Reply::Null),
        }
    }
}
