//! `PERSIST`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply, TimeToLive};

use crate::context::{Context, RunResult, expires, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Persist] };

const ROW: CommandSpec = CommandSpec {
    name: "persist",
    arity: Exactly(2),
    since: "2.2.0",
    summary: "Removes the time to live of a key.",
    arguments: &[Argument::key()],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "update"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..GENERIC
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Persist))
}

struct Persist;

impl Operation<'_> for Persist {
    const CODE: u8 = 20;
    const EXAMPLES: Examples = &[("PERSIST k", b"\x14")];

    fn encode(&self, _: &mut impl Sink) {}

    fn decode(_: &mut Reader<'_>) -> Result<Persist, Malformed> {
        Ok(Persist)
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        if !cx.exists() || cx.view.ttl == TimeToLive::Never {
            return unchanged(Reply::count(false));
        }
        expires(TimeToLive::Never, Reply::count(true))
    }
}
