//! `SISMEMBER` and `SMISMEMBER`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::set::Set;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module =
    Module { rows: ROWS, operations: handlers![IsMember, AreMembers] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "sismember",
        arity: Exactly(3),
        since: "1.0.0",
        summary: "Answers 1 for a member of a set, 0 for any other string.",
        complexity: "O(N) where N is the length of the set.",
        arguments: &[Argument::key(), Argument::string("member")],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO"]),
        access: Some(Access::Read),
        execution: Key(plan_one),
        miss: Some(Miss::Integer(0)),
        ..SET
    },
    CommandSpec {
        name: "smismember",
        arity: AtLeast(3),
        since: "6.2.0",
        summary: "Answers for each string whether it is a member of a set.",
        complexity: "O(N+M) where N is the length of the set and M the number of strings.",
        arguments: &[Argument::key(), Argument::string("member").multiple()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(plan_all),
        ..SET
    },
];

fn plan_one(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&IsMember { member: args.all[2] }))
}

fn plan_all(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&AreMembers { members: args.all[2..].to_vec() }))
}

struct IsMember<'a> {
    member: &'a [u8],
}

impl<'a> Operation<'a> for IsMember<'a> {
    const CODE: u8 = 92;
    const EXAMPLES: Examples = &[("SISMEMBER k m", b"\x5cm"), ("SISMEMBER k ", b"\x5c")];

    fn encode(&self, out: &mut impl Sink) {
        out.bytes(self.member);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<IsMember<'a>, Malformed> {
        Ok(IsMember { member: operation::rest(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(vec![self.member])
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let is_member = cx.set()?.is_some_and(|set| set.contains(self.member));
        unchanged(Reply::count(is_member))
    }
}

/// There is at least one member.
struct AreMembers<'a> {
    members: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for AreMembers<'a> {
    const CODE: u8 = 93;
    const EXAMPLES: Examples = &[("SMISMEMBER k a  bc", b"\x5d\x01a\x00\x02bc")];

    fn encode(&self, out: &mut impl Sink) {
        out.blobs(&self.members);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<AreMembers<'a>, Malformed> {
        Ok(AreMembers { members: operation::blobs(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.members.clone())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let set = cx.set()?.unwrap_or(Set::EMPTY);
        let known = set.find(&self.members, cx.clock.seed);
        let replies = self.members.iter().map(|member| Reply::count(known.contains(member)));
        unchanged(Reply::array(replies))
    }
}
