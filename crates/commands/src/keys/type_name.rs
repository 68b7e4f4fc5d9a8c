//! `TYPE`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::Kind;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Type] };

const ROW: CommandSpec = CommandSpec {
    name: "type",
    arity: Exactly(2),
    summary: "Answers the type of the value at a key.",
    arguments: &[Argument::key()],
    flags: &[Readonly, Fast],
    keys: one_key(&["RO"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Simple("none")),
    ..GENERIC
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Type))
}

struct Type;

impl Operation<'_> for Type {
    const CODE: u8 = 17;
    const EXAMPLES: Examples = &[("TYPE k", b"\x11")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Type, Malformed> {
        Ok(Type)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let name = match cx.view.value {
            Some(value) => Kind::of(value)?.name(),
            None => "none",
        };
        unchanged(Reply::simple(name))
    }
}
