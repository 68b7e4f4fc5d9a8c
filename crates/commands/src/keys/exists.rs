//! `EXISTS` and `TOUCH`: the store keeps no times of access, so both count keys.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Exists] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "exists",
        arity: AtLeast(2),
        summary: "Answers how many of the given keys exist, each read on its own.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly, Fast],
        tips: SUM_TIPS,
        keys: all_keys(&["RO"]),
        access: Some(Access::Read),
        execution: PerKey(plan, Combine::Sum),
        miss: Some(Miss::Integer(0)),
        ..GENERIC
    },
    CommandSpec {
        name: "touch",
        arity: AtLeast(2),
        since: "3.2.1",
        summary: "Answers how many of the given keys exist, each read on its own.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Readonly, Fast],
        tips: SUM_TIPS,
        keys: all_keys(&["RO"]),
        access: Some(Access::Read),
        execution: PerKey(plan, Combine::Sum),
        miss: Some(Miss::Integer(0)),
        ..GENERIC
    },
];

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Exists))
}

struct Exists;

impl Operation<'_> for Exists {
    const CODE: u8 = 16;
    const EXAMPLES: Examples = &[("EXISTS k", b"\x10"), ("TOUCH k l", b"\x10")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Exists, Malformed> {
        Ok(Exists)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        unchanged(Reply::count(cx.exists()))
    }
}
