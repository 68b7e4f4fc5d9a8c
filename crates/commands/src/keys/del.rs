//! `DEL` and `UNLINK`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Delete] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "del",
        arity: AtLeast(2),
        summary: "Deletes keys, each on its own, and answers how many there were.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Write],
        tips: SUM_TIPS,
        keys: all_keys(&["RM", "delete"]),
        access: Some(Access::Delete),
        execution: PerKey(plan, Combine::Sum),
        ..GENERIC
    },
    CommandSpec {
        name: "unlink",
        arity: AtLeast(2),
        since: "4.0.0",
        summary: "Deletes keys, each on its own, and answers how many there were.",
        complexity: "O(N) where N is the number of keys.",
        arguments: &[Argument::key().multiple()],
        flags: &[Write, Fast],
        tips: SUM_TIPS,
        keys: all_keys(&["RM", "delete"]),
        access: Some(Access::Delete),
        execution: PerKey(plan, Combine::Sum),
        ..GENERIC
    },
];

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Delete))
}

struct Delete;

impl Operation<'_> for Delete {
    const CODE: u8 = 13;
    const EXAMPLES: Examples = &[("DEL k", b"\x0d"), ("UNLINK k l", b"\x0d")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Delete, Malformed> {
        Ok(Delete)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        if cx.exists() { deleted(Reply::count(true)) } else { unchanged(Reply::count(false)) }
    }
}
