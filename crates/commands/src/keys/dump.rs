//! `DUMP`: a value as redis-server 7.4 writes it, without compression.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Dump] };

const ROW: CommandSpec = CommandSpec {
    name: "dump",
    arity: Exactly(2),
    since: "2.6.0",
    summary: "Answers the value at a key as bytes that RESTORE reads, here or in redis-server.",
    complexity: "O(N) where N is the size of the value.",
    arguments: &[Argument::key()],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Null),
    ..GENERIC
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Dump))
}

struct Dump;

impl Operation<'_> for Dump {
    const CODE: u8 = 168;
    const EXAMPLES: Examples = &[("DUMP k", b"\xa8")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Dump, Malformed> {
        Ok(Dump)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let dump = cx.view.value.map(values::rdb::save).transpose()?;
        unchanged(dump.map_or(Reply::Null, Reply::bulk))
    }
}
