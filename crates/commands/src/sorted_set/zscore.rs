//! `ZSCORE` and `ZMSCORE`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::SortedSet;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::double;
use crate::sorted_set::members::{self, Named};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Score, Scores] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zmscore",
        arity: AtLeast(3),
        since: "6.2.0",
        summary: "Answers the scores of members of the sorted set at a key.",
        complexity: "O(N + M) for M members and N elements of the sorted set.",
        arguments: &[Argument::key(), Argument::string("member").multiple()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(plan_scores),
        ..SORTED_SET
    },
    CommandSpec {
        name: "zscore",
        arity: Exactly(3),
        since: "1.2.0",
        summary: "Answers the score of a member of the sorted set at a key.",
        complexity: "O(N) where N is the number of elements.",
        arguments: &[Argument::key(), Argument::string("member")],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(plan_score),
        miss: Some(Miss::Null),
        ..SORTED_SET
    },
];

fn plan_score(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Score { member: args.all[2] }))
}

fn plan_scores(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Scores { members: args.all[2..].to_vec() }))
}

struct Score<'a> {
    member: &'a [u8],
}

impl<'a> Operation<'a> for Score<'a> {
    const CODE: u8 = 106;
    const EXAMPLES: Examples = &[("ZSCORE k m", b"\x6am")];

    fn encode(&self, out: &mut impl Sink) {
        out.bytes(self.member);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Score<'a>, Malformed> {
        Ok(Score { member: operation::rest(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(vec![self.member])
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let found = cx.sorted_set()?.and_then(|set| set.find(self.member));
        unchanged(found.map_or(Reply::Null, |found| double(found.score)))
    }
}

struct Scores<'a> {
    members: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for Scores<'a> {
    const CODE: u8 = 107;
    const EXAMPLES: Examples = &[("ZMSCORE k a bc", b"\x6b\x01a\x02bc")];

    fn encode(&self, out: &mut impl Sink) {
        members::encode(out, &self.members);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Scores<'a>, Malformed> {
        Ok(Scores { members: members::decode(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.members.clone())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let set = cx.sorted_set()?.unwrap_or(SortedSet::EMPTY);
        let named = Named::find(&set, self.members.iter().copied(), cx.clock.seed);
        let score = |slot: &usize| {
            named.slots[*slot].found.map_or(Reply::Null, |found| double(found.score))
        };
        unchanged(Reply::array(named.slot_of.iter().map(score)))
    }
}
