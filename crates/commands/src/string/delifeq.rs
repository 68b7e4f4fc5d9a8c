//! `DELIFEQ`: deletes a key if its value equals the given one (Valkey 9.0).

use types::Command;
use types::wire::{Malformed, Reader};

use super::condition::Condition;
use super::delex::delete_when;
use crate::context::{Context, RunResult};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![DeleteIfEqual] };

const ROW: CommandSpec = CommandSpec {
    name: "delifeq",
    arity: Exactly(3),
    since: "9.0.0",
    summary: "Deletes a key if its value is equal to the given one (Valkey 9.0).",
    complexity: "O(N) where N is the length of the value.",
    arguments: &[Argument::key(), Argument::string("value")],
    flags: &[Write, Fast],
    keys: one_key(&["RM", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&DeleteIfEqual { value: args.all[2] }))
}

struct DeleteIfEqual<'a> {
    value: &'a [u8],
}

impl<'a> Operation<'a> for DeleteIfEqual<'a> {
    const CODE: u8 = 15;
    const EXAMPLES: Examples = &[("DELIFEQ k value", b"\x0fvalue")];

    fn encode(&self, out: &mut impl Sink) {
        out.bytes(self.value);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<DeleteIfEqual<'a>, Malformed> {
        Ok(DeleteIfEqual { value: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        delete_when(Condition::Equal(self.value).holds(cx)?)
    }
}
