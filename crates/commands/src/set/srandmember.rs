//! `SRANDMEMBER`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::set::Set;

use crate::context::{Context, RunResult, unchanged};
use crate::elements::draw;
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Random] };

const ROW: CommandSpec = CommandSpec {
    name: "srandmember",
    arity: AtLeast(2),
    since: "1.0.0",
    summary: "Answers random members of a set: different ones, or any if the count is negative.",
    complexity: "O(N+M) where N is the length of the set and M the absolute value of the count.",
    arguments: &[Argument::key(), Argument::integer("count").optional().since("2.6.0")],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..SET
};

const COUNT_OUT_OF_RANGE: ErrorReply = errors::fixed(
    b"ERR value is out of range, \
value must between -9223372036854775807 and 9223372036854775807",
);

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let count = match args.all[2..] {
        [] => None,
        [count] => match parse_i64(count).ok_or(errors::NOT_AN_INTEGER)? {
            i64::MIN => return Err(COUNT_OUT_OF_RANGE),
            count => Some(count),
        },
        _ => return Err(errors::SYNTAX),
    };
    Ok(args.command(&Random { count }))
}

struct Random {
    /// Without it the reply is one member, not a list of them.
    count: Option<i64>,
}

impl Operation<'_> for Random {
    const CODE: u8 = 95;
    const EXAMPLES: Examples = &[
        ("SRANDMEMBER k", b"\x5f"),
        ("SRANDMEMBER k 2", b"\x5f\x02\x00\x00\x00\x00\x00\x00\x00"),
        ("SRANDMEMBER k -1", b"\x5f\xff\xff\xff\xff\xff\xff\xff\xff"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        if let Some(count) = self.count {
            out.integer(count);
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Random, Malformed> {
        let count = if fields.is_empty() { None } else { Some(operation::integer(fields)?) };
        Ok(Random { count })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let seed = cx.clock.seed;
        unchanged(match (cx.set()?, self.count) {
            (None, None) => Reply::Null,
            (None, Some(_)) => Reply::Array(Vec::new()),
            (Some(set), None) => Reply::copy(super::random(set, seed)),
            (Some(set), Some(count)) => Reply::Array(random_members(set, count, seed)?),
        })
    }
}

fn random_members(set: Set<'_>, count: i64, seed: u64) -> Result<Vec<Reply>, ErrorReply> {
    let all: Vec<&[u8]> = set.iter().collect();
    let reply_len = |index: usize| Reply::EMPTY.len() + all[index].len();
    let mut drawn = draw(all.len(), count, seed, reply_len)?;
    if count > 0 {
        drawn.sort_unstable();
    }
    Ok(super::copies(drawn.into_iter().map(|index| all[index])))
}
