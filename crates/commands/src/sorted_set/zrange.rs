//! `ZRANGE` and the older commands that it replaces.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::SortedSet;
use values::sorted_set::Element;

use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::bounds::{self, Bounds, By};
use crate::sorted_set::elements_reply;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Query] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zrange",
        since: "1.2.0",
        summary: "Answers the elements of a range of ranks, scores or members.",
        arguments: &[
            Argument::key(),
            Argument::string("start"),
            Argument::string("stop"),
            SORT_BY.since("6.2.0"),
            Argument::word("rev", "REV").optional().since("6.2.0"),
            LIMIT.since("6.2.0"),
            WITH_SCORES,
        ],
        execution: Key(plan_any),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zrangebylex",
        since: "2.8.9",
        summary: "Answers the elements whose members are in a range, of equal scores.",
        arguments: &[Argument::key(), Argument::string("min"), Argument::string("max"), LIMIT],
        deprecated: Some(Deprecated {
            since: "6.2.0",
            replaced_by: "`ZRANGE` with the `BYLEX` argument",
        }),
        execution: Key(plan_members),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zrangebyscore",
        since: "1.0.5",
        summary: "Answers the elements whose scores are in a range.",
        arguments: &[
            Argument::key(),
            Argument::new("min", ArgumentKind::Double),
            Argument::new("max", ArgumentKind::Double),
            WITH_SCORES.since("2.0.0"),
            LIMIT,
        ],
        deprecated: Some(Deprecated {
            since: "6.2.0",
            replaced_by: "`ZRANGE` with the `BYSCORE` argument",
        }),
        execution: Key(plan_scores),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zrevrange",
        since: "1.2.0",
        summary: "Answers the elements of a range of ranks, the highest score first.",
        arguments: &[
            Argument::key(),
            Argument::integer("start"),
            Argument::integer("stop"),
            WITH_SCORES,
        ],
        deprecated: Some(Deprecated {
            since: "6.2.0",
            replaced_by: "`ZRANGE` with the `REV` argument",
        }),
        execution: Key(plan_reverse),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zrevrangebylex",
        since: "2.8.9",
        summary: "Answers the elements whose members are in a range, the greatest first.",
        arguments: &[Argument::key(), Argument::string("max"), Argument::string("min"), LIMIT],
        deprecated: Some(Deprecated {
            since: "6.2.0",
            replaced_by: "`ZRANGE` with the `REV` and `BYLEX` arguments",
        }),
        execution: Key(plan_members_reverse),
        ..ON_RANGE
    },
    CommandSpec {
        name: "zrevrangebyscore",
        since: "2.2.0",
        summary: "Answers the elements whose scores are in a range, the highest score first.",
        arguments: &[
            Argument::key(),
            Argument::new("max", ArgumentKind::Double),
            Argument::new("min", ArgumentKind::Double),
            WITH_SCORES,
            LIMIT,
        ],
        deprecated: Some(Deprecated {
            since: "6.2.0",
            replaced_by: "`ZRANGE` with the `REV` and `BYSCORE` arguments",
        }),
        execution: Key(plan_scores_reverse),
        ..ON_RANGE
    },
];

const ON_RANGE: CommandSpec = CommandSpec {
    arity: AtLeast(4),
    complexity: "O(N) where N is the number of elements.",
    flags: &[Readonly],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    miss: Some(Miss::Empty),
    ..SORTED_SET
};

pub(super) const SORT_BY: Argument = Argument::one_of(
    "sortby",
    &[Argument::word("byscore", "BYSCORE"), Argument::word("bylex", "BYLEX")],
)
.optional();

pub(super) const LIMIT: Argument =
    Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
        .after("LIMIT")
        .optional();

pub(super) const WITH_SCORES: Argument = Argument::word("withscores", "WITHSCORES").optional();

const LIMIT_OF_RANKS: ErrorReply = errors::fixed(
    b"ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
);
const SCORES_OF_MEMBERS: ErrorReply =
    errors::fixed(b"ERR syntax error, WITHSCORES not supported in combination with BYLEX");

fn plan_any(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, None, None)
}

fn plan_members(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Some(By::Member), Some(false))
}

fn plan_scores(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Some(By::Score), Some(false))
}

fn plan_reverse(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Some(By::Rank), Some(true))
}

fn plan_members_reverse(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Some(By::Member), Some(true))
}

fn plan_scores_reverse(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, Some(By::Score), Some(true))
}

fn plan(
    args: &Arguments<'_>,
    by: Option<By>,
    is_reverse: Option<bool>,
) -> Result<Command, ErrorReply> {
    let words = Words { by, is_reverse, ..Words::default() };
    Ok(args.command(&words.parse(&args.all[2..], true)?))
}

/// The options of a range, as far as they were read.
#[derive(Default)]
struct Words {
    by: Option<By>,
    is_reverse: Option<bool>,
    with_scores: bool,
    offset: i64,
    count: Option<i64>,
}

impl Words {
    /// Parses `min max` and options. An option that the command's name implies is an error.
    fn parse<'a>(mut self, args: &[&'a [u8]], knows_scores: bool) -> Result<Query<'a>, ErrorReply> {
        let integer = |text| parse_i64(text).ok_or(errors::NOT_AN_INTEGER);
        let mut rest = &args[2..];
        while let [word, tail @ ..] = rest {
            rest = match (word.to_ascii_uppercase().as_slice(), tail) {
                (b"WITHSCORES", tail) if knows_scores => {
                    self.with_scores = true;
                    tail
                }
                (b"LIMIT", [offset, count, tail @ ..]) => {
                    self.offset = integer(offset)?;
                    self.count = Some(integer(count)?);
                    tail
                }
                (b"REV", tail) if self.is_reverse.is_none() => {
                    self.is_reverse = Some(true);
                    tail
                }
                (b"BYLEX", tail) if self.by.is_none() => {
                    self.by = Some(By::Member);
                    tail
                }
                (b"BYSCORE", tail) if self.by.is_none() => {
                    self.by = Some(By::Score);
                    tail
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        self.query(args[0], args[1])
    }

    fn query<'a>(self, min: &'a [u8], max: &'a [u8]) -> Result<Query<'a>, ErrorReply> {
        let (by, is_reverse) = (self.by.unwrap_or(By::Rank), self.is_reverse.unwrap_or(false));
        let count = self.count.unwrap_or(-1);
        if by == By::Rank && count != -1 {
            return Err(LIMIT_OF_RANKS);
        }
        if by == By::Member && self.with_scores {
            return Err(SCORES_OF_MEMBERS);
        }
        let (min, max) = if is_reverse && by != By::Rank { (max, min) } else { (min, max) };
        let bounds = Bounds::parse(by, min, max)?;
        let with_scores = self.with_scores;
        Ok(Query { is_reverse, with_scores, bounds, offset: self.offset, count })
    }
}

/// The elements of a range.
#[derive(Debug)]
pub(super) struct Query<'a> {
    is_reverse: bool,
    with_scores: bool,
    bounds: Bounds<'a>,
    offset: i64,
    count: i64,
}

impl<'a> Query<'a> {
    /// Parses the arguments of `ZRANGESTORE` from `min` on.
    ///
    /// # Errors
    /// The reply to send.
    pub(super) fn parse_stored(args: &[&'a [u8]]) -> Result<Query<'a>, ErrorReply> {
        Words::default().parse(args, false)
    }

    pub(super) fn has_rank_bounds(&self) -> bool {
        matches!(self.bounds, Bounds::Ranks { .. })
    }

    pub(super) fn elements<'s>(&self, set: &SortedSet<'s>) -> Vec<Element<'s>> {
        let ranks = if self.has_rank_bounds() {
            self.bounds.select(set, self.is_reverse)
        } else {
            self.bounds.select_some(set, self.is_reverse, self.offset, self.count)
        };
        bounds::elements(set, ranks, self.is_reverse)
    }
}

const REVERSE: u8 = 1;
const SCORES: u8 = 2;

impl<'a> Operation<'a> for Query<'a> {
    const CODE: u8 = 112;
    const EXAMPLES: Examples = &[
        (
            "ZRANGE k 0 -1",
            b"\x70\x00\x00\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        (
            "ZREVRANGEBYLEX k + - LIMIT 1 2",
            b"\x70\x01\x02\x00\x01\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
        ),
        (
            "ZRANGE k (0 0 BYSCORE WITHSCORES LIMIT 0 3",
            b"\x70\x02\x01\x01\0\0\0\0\0\0\0\0\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0",
        ),
    ];

    fn encode(&self, out: &mut impl Sink) {
        let option = |is_set: bool, option: u8| if is_set { option } else { 0 };
        out.byte(option(self.is_reverse, REVERSE) | option(self.with_scores, SCORES));
        self.bounds.encode(out);
        out.integer(self.offset);
        out.integer(self.count);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Query<'a>, Malformed> {
        let options = fields.u8()?;
        if options > REVERSE | SCORES {
            return Err(Malformed);
        }
        Ok(Query {
            is_reverse: options & REVERSE != 0,
            with_scores: options & SCORES != 0,
            bounds: Bounds::decode(fields)?,
            offset: operation::integer(fields)?,
            count: operation::integer(fields)?,
        })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let Some(set) = cx.sorted_set()? else { return unchanged(Reply::Array(Vec::new())) };
        unchanged(elements_reply(&self.elements(&set), self.with_scores))
    }
}
