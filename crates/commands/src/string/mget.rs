//! `MGET`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![GetOrNull] };

const ROW: CommandSpec = CommandSpec {
    name: "mget",
    arity: AtLeast(2),
    summary: "Answers the strings at all the given keys, as they are at one time.",
    complexity: "O(N) where N is the number of keys.",
    arguments: &[Argument::key().multiple()],
    flags: &[Readonly, Fast],
    tips: &["request_policy:multi_shard"],
    keys: all_keys(&["RO", "access"]),
    access: Some(Access::Read),
    execution: PerKey(plan, Combine::Array),
    miss: Some(Miss::Null),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&GetOrNull))
}

/// A value of another type is null.
struct GetOrNull;

impl Operation<'_> for GetOrNull {
    const CODE: u8 = 2;
    const EXAMPLES: Examples = &[("MGET k l", b"\x02")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<GetOrNull, Malformed> {
        Ok(GetOrNull)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        unchanged(Reply::copy_or_null(cx.string().unwrap_or(None)))
    }
}
