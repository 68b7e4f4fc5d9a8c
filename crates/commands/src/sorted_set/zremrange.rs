//! `ZREMRANGEBYRANK`, `ZREMRANGEBYSCORE` and `ZREMRANGEBYLEX`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, deleted, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::bounds::{Bounds, By};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![RemoveRange] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zremrangebylex",
        since: "2.8.9",
        summary: "Removes the elements whose members are in a range, of equal scores.",
        arguments: &[Argument::key(), Argument::string("min"), Argument::string("max")],
        execution: Key(plan_members),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zremrangebyrank",
        since: "2.0.0",
        summary: "Removes the elements of a range of ranks.",
        arguments: &[Argument::key(), Argument::integer("start"), Argument::integer("stop")],
        execution: Key(plan_ranks),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zremrangebyscore",
        since: "1.2.0",
        summary: "Removes the elements whose scores are in a range.",
        arguments: &[
            Argument::key(),
            Argument::new("min", ArgumentKind::Double),
            Argument::new("max", ArgumentKind::Double),
        ],
        execution: Key(plan_scores),
        ..ON_RANGE
    },
];

const ON_RANGE: CommandSpec = CommandSpec {
    arity: Exactly(4),
    complexity: "O(N) where N is the number of elements.",
    flags: &[Write],
    keys: one_key(&["RW", "delete"]),
    access: Some(Access::Update),
    ..SORTED_SET
};

fn plan_members(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, By::Member)
}

fn plan_ranks(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, By::Rank)
}

fn plan_scores(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, By::Score)
}

fn plan(args: &Arguments<'_>, by: By) -> Result<Command, ErrorReply> {
    Ok(args.command(&RemoveRange { bounds: Bounds::parse(by, args.all[2], args.all[3])? }))
}

struct RemoveRange<'a> {
    bounds: Bounds<'a>,
}

impl<'a> Operation<'a> for RemoveRange<'a> {
    const CODE: u8 = 111;
    const EXAMPLES: Examples = &[
        ("ZREMRANGEBYRANK k 1 -1", b"\x6f\x00\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("ZREMRANGEBYLEX k - (", b"\x6f\x02\x00\x03\x00"),
        ("ZREMRANGEBYSCORE k 0 (0", b"\x6f\x01\x00\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.bounds.encode(out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<RemoveRange<'a>, Malformed> {
        Ok(RemoveRange { bounds: Bounds::decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(set) = cx.sorted_set()? else { return unchanged(Reply::Integer(0)) };
        let ranks = self.bounds.select(&set, false);
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
