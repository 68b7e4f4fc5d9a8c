//! `ZREM`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::members::{self, Named};

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Remove] };

const ROW: CommandSpec = CommandSpec {
    name: "zrem",
    arity: AtLeast(3),
    since: "1.2.0",
    summary: "Removes members of the sorted set at a key. Removes the key with its last element.",
    complexity: "O(N + M*log(M)) for M members and N elements of the sorted set.",
    arguments: &[Argument::key(), Argument::string("member").multiple()],
    flags: &[Write, Fast],
    keys: one_key(&["RW", "delete"]),
    access: Some(Access::Update),
    execution: Key(plan),
    ..SORTED_SET
};

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    Ok(args.command(&Remove { members: args.all[2..].to_vec() }))
}

struct Remove<'a> {
    members: Vec<&'a [u8]>,
}

impl<'a> Operation<'a> for Remove<'a> {
    const CODE: u8 = 109;
    const EXAMPLES: Examples = &[("ZREM k a bc", b"\x6d\x01a\x02bc")];

    fn encode(&self, out: &mut impl Sink) {
        members::encode(out, &self.members);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Remove<'a>, Malformed> {
        Ok(Remove { members: members::decode(fields)? })
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.members.clone())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(set) = cx.sorted_set()? else { return unchanged(Reply::Integer(0)) };
        let ranks = Named::find(&set, self.members.iter().copied(), cx.clock.seed).ranks();
        let reply = Reply::Integer(ranks.len() as i64);
        if ranks.is_empty() {
            return unchanged(reply);
        }
        if ranks.len() == set.len() {
            return deleted(reply);
        }
        cx.change_sorted_set(&set, set.changed(set.encoding(), ranks, &[]), reply)
    }
}
