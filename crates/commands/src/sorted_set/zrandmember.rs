//! `ZRANDMEMBER`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::sorted_set::Element;

use crate::context::{Context, RunResult, unchanged};
use crate::elements;
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::elements_reply;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![Random] };

const ROW: CommandSpec = CommandSpec {
    name: "zrandmember",
    arity: AtLeast(2),
    since: "6.2.0",
    summary: "Answers random elements; the same ones several times if the count is negative.",
    complexity: "O(N + M) for M drawn elements and N elements of the sorted set.",
    arguments: &[
        Argument::key(),
        Argument::block(
            "options",
            &[Argument::integer("count"), Argument::word("withscores", "WITHSCORES").optional()],
        )
        .optional(),
    ],
    flags: &[Readonly],
    tips: &["nondeterministic_output"],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    ..SORTED_SET
};

const OUT_OF_RANGE: ErrorReply = errors::fixed(b"ERR value is out of range");
const NOT_BETWEEN: ErrorReply = errors::fixed(
    b"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

/// Bytes of an element in a reply besides the member, about.
const ELEMENT_LEN: usize = 32;

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let [count, words @ ..] = &args.all[2..] else {
        return Ok(args.command(&Random { draw: None }));
    };
    let count = parse_i64(count).ok_or(errors::NOT_AN_INTEGER)?;
    if count == i64::MIN {
        return Err(NOT_BETWEEN);
    }
    let with_scores = match words {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"WITHSCORES") => true,
        _ => return Err(errors::SYNTAX),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE);
    }
    Ok(args.command(&Random { draw: Some(Draw { count, with_scores }) }))
}

struct Random {
    /// `None`: one member, not in an array.
    draw: Option<Draw>,
}

struct Draw {
    count: i64,
    with_scores: bool,
}

impl Operation<'_> for Random {
    const CODE: u8 = 114;
    const EXAMPLES: Examples = &[
        ("ZRANDMEMBER k", b"\x72"),
        ("ZRANDMEMBER k 5", b"\x72\x05\0\0\0\0\0\0\0\x00"),
        ("ZRANDMEMBER k -1 WITHSCORES", b"\x72\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        if let Some(draw) = &self.draw {
            out.integer(draw.count);
            out.byte(u8::from(draw.with_scores));
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Random, Malformed> {
        if fields.is_empty() {
            return Ok(Random { draw: None });
        }
        let count = operation::integer(fields)?;
        let with_scores = operation::variant(&[false, true], fields.u8()?)?;
        Ok(Random { draw: Some(Draw { count, with_scores }) })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(set) = cx.sorted_set()? else {
            let is_single = self.draw.is_none();
            return unchanged(if is_single { Reply::Null } else { Reply::Array(Vec::new()) });
        };
        let all: Vec<Element<'_>> = set.iter().collect();
        let Some(Draw { count, with_scores }) = self.draw else {
            let drawn = elements::draw(all.len(), 1, cx.clock.seed, |_| 0)?;
            return unchanged(Reply::copy_or_null(drawn.first().map(|&at| all[at].member)));
        };
        let reply_len = |at: usize| all[at].member.len() + ELEMENT_LEN;
        let mut drawn = elements::draw(all.len(), count, cx.clock.seed, reply_len)?;
        if usize::try_from(count).is_ok_and(|count| count >= all.len()) {
            // As redis-server, which walks from the highest score.
            drawn.reverse();
        }
        let elements: Vec<Element<'_>> = drawn.into_iter().map(|at| all[at]).collect();
        unchanged(elements_reply(&elements, with_scores))
    }
}
