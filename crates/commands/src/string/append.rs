//! `APPEND`.

use types::wire::{Malformed, Reader};
use types::{Command, ExpiryChange, Reply};

use crate::context::{Context, RunResult};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Append] };

const ROW: CommandSpec = CommandSpec {
    name: "append",
    arity: Exactly(3),
    since: "2.0.0",
    summary: "Appends to the string at a key, which begins empty, and answers its length.",
    complexity: "O(N) where N is the length of the resulting string.",
    arguments: &[Argument::key(), Argument::string("value")],
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "insert"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..STRING
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Append { tail: args.all[2] }))
}

struct Append<'a> {
    tail: &'a [u8],
}

impl<'a> Operation<'a> for Append<'a> {
    const CODE: u8 = 9;
    const EXAMPLES: Examples = &[("APPEND k tail", b"\x09tail"), ("APPEND k ", b"\x09")];

    fn encode(&self, out: &mut impl Sink) {
        out.bytes(self.tail);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Append<'a>, Malformed> {
        Ok(Append { tail: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let string = cx.string()?.unwrap_or_default();
        let reply = Reply::Integer((string.len() + self.tail.len()) as i64);
        cx.change_string(string, &[string, self.tail], ExpiryChange::Keep, reply)
    }
}
