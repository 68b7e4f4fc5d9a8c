//! `SADD`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::Lookup;
use values::set::{Growth, Set};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Add] };

const ROW: CommandSpec = CommandSpec {
    name: "sadd",
    arity: AtLeast(3),
    since: "1.0.0",
    summary: "Adds members to a set, which begins empty, and answers how many were new.",
    complexity: "O(N+M) where N is the length of the set and M the number of given members.",
    arguments: &[Argument::key(), Argument::string("member").multiple()],
    flags: &[Write, DenyOom, Fast],
    keys: one_key(&["RW", "insert"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..SET
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Add { members: args.all[2..].to_vec() }))
}

/// There is at least one member.
struct Add<'a> {
    members: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for Add<'a> {
    const CODE: u8 = 88;
    const EXAMPLES: Examples =
        &[("SADD k m", b"\x58\x01m"), ("SADD k a  bc", b"\x58\x01a\x00\x02bc")];

    fn encode(&self, out: &mut impl Sink) {
        out.blobs(&self.members);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Add<'a>, Malformed> {
        Ok(Add { members: operation::blobs(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.members.clone())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        add(cx, &self.members)
    }
}

/// There is at least one member.
pub(super) fn add(cx: &Context<'_>, members: &[&[u8]]) -> RunResult {
    let old = cx.set()?;
    let growth = grown(old, members, cx.clock.seed);
    match growth.len() - old.map_or(0, |set| set.len()) {
        0 => unchanged(Reply::Integer(0)),
        added => cx.put_grown(growth, Reply::Integer(added as i64)),
    }
}

fn grown<'a>(old: Option<Set<'a>>, members: &[&'a [u8]], seed: u64) -> Growth<'a> {
    let (mut growth, mut known) = match old {
        Some(set) => (Growth::of(set, members.len()), set.find(members, seed)),
        None => (Growth::first(members[0], members.len()), Lookup::new(seed)),
    };
    for member in members {
        if known.insert(member) {
            growth.push(member);
        }
    }
    growth
}
