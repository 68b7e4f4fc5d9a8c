//! `ZCOUNT` and `ZLEXCOUNT`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::ErrorReply;
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::bounds::{Bounds, By};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Count] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zcount",
        since: "2.0.0",
        summary: "Answers the number of elements whose scores are in a range.",
        arguments: &[
            Argument::key(),
            Argument::new("min", ArgumentKind::Double),
            Argument::new("max", ArgumentKind::Double),
        ],
        execution: Key(plan_scores),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zlexcount",
        since: "2.8.9",
        summary: "Answers the number of elements whose members are in a range, of equal scores.",
        arguments: &[Argument::key(), Argument::string("min"), Argument::string("max")],
        execution: Key(plan_members),
        ..ON_RANGE
    },
];

const ON_RANGE: CommandSpec = CommandSpec {
    arity: Exactly(4),
    complexity: "O(N) where N is the number of elements.",
    flags: &[Readonly, Fast],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    miss: Some(Miss::Integer(0)),
    ..SORTED_SET
};

fn plan_scores(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, By::Score)
}

fn plan_members(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, By::Member)
}

fn plan(args: &Arguments<'_>, by: By) -> Result<Command, ErrorReply> {
    Ok(args.command(&Count { bounds: Bounds::parse(by, args.all[2], args.all[3])? }))
}

struct Count<'a> {
    bounds: Bounds<'a>,
}

impl<'a> Operation<'a> for Count<'a> {
    const CODE: u8 = 110;
    const EXAMPLES: Examples = &[
        ("ZCOUNT k (1 +inf", b"\x6e\x01\x01\0\0\0\0\0\0\xf0\x3f\x00\0\0\0\0\0\0\xf0\x7f"),
        ("ZLEXCOUNT k - [ab", b"\x6e\x02\x00\x02\x02ab"),
        ("ZLEXCOUNT k (a +", b"\x6e\x02\x03\x01a\x01"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.bounds.encode(out);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Count<'a>, Malformed> {
        Ok(Count { bounds: Bounds::decode(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let count = cx.sorted_set()?.map_or(0, |set| self.bounds.select(&set, false).len());
        unchanged(Reply::Integer(count as i64))
    }
}
