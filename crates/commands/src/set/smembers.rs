//! `SMEMBERS`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::set::Set;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Members] };

const ROW: CommandSpec = CommandSpec {
    name: "smembers",
    arity: Exactly(2),
    since: "1.0.0",
    summary: "Answers all members of a set.",
    complexity: "O(N) where N is the length of the set.",
    arguments: &[Argument::key()],
    flags: &[Readonly],
    tips: &["nondeterministic_output_order"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Empty),
    ..SET
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Members))
}

struct Members;

impl Operation<'_> for Members {
    const CODE: u8 = 91;
    const EXAMPLES: Examples = &[("SMEMBERS k", b"\x5b")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Members, Malformed> {
        Ok(Members)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let set = cx.set()?.unwrap_or(Set::EMPTY);
        unchanged(Reply::Set(super::copies(set)))
    }
}
