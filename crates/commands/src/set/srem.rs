//! `SREM`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::Lookup;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Remove] };

const ROW: CommandSpec = CommandSpec {
    name: "srem",
    arity: AtLeast(3),
    since: "1.0.0",
    summary: "Removes members from a set, and answers how many there were. Without members left the key goes.",
    complexity: "O(N+M) where N is the length of the set and M the number of given members.",
    arguments: &[Argument::key(), Argument::string("member").multiple()],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..SET
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Remove { members: args.all[2..].to_vec() }))
}

/// There is at least one member.
struct Remove<'a> {
    members: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for Remove<'a> {
    const CODE: u8 = 89;
    const EXAMPLES: Examples =
        &[("SREM k m", b"\x59\x01m"), ("SREM k a  bc", b"\x59\x01a\x00\x02bc")];

    fn encode(&self, out: &mut impl Sink) {
        out.blobs(&self.members);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Remove<'a>, Malformed> {
        Ok(Remove { members: operation::blobs(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.members.clone())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        remove(cx, &self.members)
    }
}

pub(super) fn remove(cx: &Context<'_>, members: &[&[u8]]) -> RunResult {
    let Some(set) = cx.set()? else { return unchanged(Reply::Integer(0)) };
    let gone = Lookup::of(members.iter().copied(), cx.clock.seed);
    let reply = |removed| Reply::Integer(removed as i64);
    super::retain(set, |member| !gone.contains(member), reply)
}
