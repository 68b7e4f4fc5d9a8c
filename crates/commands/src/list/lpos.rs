//! `LPOS`.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::Blobs;

use super::OUT_OF_RANGE;
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: handlers![LPos] };

const ROW: CommandSpec = CommandSpec {
    name: "lpos",
    arity: AtLeast(3),
    since: "6.0.6",
    summary: "Answers the indexes of elements that equal a value.",
    complexity: "O(N) where N is the length of the list.",
    arguments: &[
        Argument::key(),
        Argument::string("element"),
        Argument::integer("rank").after("RANK").optional(),
        Argument::integer("num-matches").after("COUNT").optional(),
        Argument::integer("len").after("MAXLEN").optional(),
    ],
    flags: &[Readonly],
    keys: one_key(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Key(plan),
    miss: Some(Miss::Null),
    ..LIST
};

const RANK_IS_ZERO: ErrorReply = errors::fixed(
    b"ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
      or use negative to start from the end of the list",
);
const COUNT_IS_NEGATIVE: ErrorReply = errors::fixed(b"ERR COUNT can't be negative");
const MAXLEN_IS_NEGATIVE: ErrorReply = errors::fixed(b"ERR MAXLEN can't be negative");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let mut lpos = LPos { rank: 1, count: None, maxlen: 0, element: args.all[2] };
    let mut rest = &args.all[3..];
    while let [word, tail @ ..] = rest {
        rest = match (word.to_ascii_uppercase().as_slice(), tail) {
            (b"RANK", [rank, tail @ ..]) => {
                lpos.rank = parse_rank(rank)?;
                tail
            }
            (b"COUNT", [count, tail @ ..]) => {
                lpos.count = Some(parse_count(count, COUNT_IS_NEGATIVE)?);
                tail
            }
            (b"MAXLEN", [maxlen, tail @ ..]) => {
                lpos.maxlen = parse_count(maxlen, MAXLEN_IS_NEGATIVE)?;
                tail
            }
            _ => return Err(errors::SYNTAX),
        };
    }
    Ok(args.command(&lpos))
}

fn parse_rank(text: &[u8]) -> Result<i64, ErrorReply> {
    match parse_i64(text).ok_or(errors::NOT_AN_INTEGER)? {
        i64::MIN => Err(OUT_OF_RANGE),
        0 => Err(RANK_IS_ZERO),
        rank => Ok(rank),
    }
}

fn parse_count(text: &[u8], error: ErrorReply) -> Result<i64, ErrorReply> {
    parse_i64(text).filter(|&count| count >= 0).ok_or(error)
}

struct LPos<'a> {
    /// Number of the first match that counts, from the tail if negative. Not 0.
    rank: i64,
    /// 0: all matches. They are answered as an array.
    count: Option<i64>,
    /// Number of elements to compare. 0: all.
    maxlen: i64,
    element: &'a [u8],
}

impl<'a> Operation<'a> for LPos<'a> {
    const CODE: u8 = 73;
    const EXAMPLES: Examples = &[
        ("LPOS k a", b"\x49\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0a"),
        (
            "LPOS k a RANK -1 COUNT 0 MAXLEN 2",
            b"\x49\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0a",
        ),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.integer(self.rank);
        out.integer(self.count.unwrap_or(-1));
        out.integer(self.maxlen);
        out.bytes(self.element);
    }

    fn decode(fields: &mut Reader<'a>) -> Result<LPos<'a>, Malformed> {
        let rank = operation::integer(fields)?;
        let count = operation::integer(fields)?;
        let maxlen = operation::integer(fields)?;
        if rank == 0 || count < -1 || maxlen < 0 {
            return Err(Malformed);
        }
        let count = (count >= 0).then_some(count);
        Ok(LPos { rank, count, maxlen, element: operation::rest(fields)? })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let list = cx.list()?;
        let found = list.map_or(Vec::new(), |list| self.search(list.elements));
        let mut replies = found.into_iter().map(|index| Reply::Integer(index as i64));
        unchanged(match self.count {
            Some(_) => Reply::Array(replies.collect()),
            None => replies.next().unwrap_or(Reply::Null),
        })
    }
}

impl LPos<'_> {
    /// Indexes of the wanted matches, in the order of the search.
    fn search(&self, elements: Blobs<'_>) -> Vec<usize> {
        let all_if_zero = |number: i64| match usize::try_from(number) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(number) => number,
        };
        let compared = all_if_zero(self.maxlen).min(elements.len());
        let skipped = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let wanted = all_if_zero(self.count.unwrap_or(1));
        let matches = |&(_, element): &(usize, &[u8])| element == self.element;
        let all = elements.iter().enumerate();
        if self.rank > 0 {
            let found = all.take(compared).filter(matches).map(|(index, _)| index);
            return found.skip(skipped).take(wanted).collect();
        }
        let found = all.skip(elements.len() - compared).filter(matches).map(|(index, _)| index);
        let found: Vec<usize> = found.collect();
        found.into_iter().rev().skip(skipped).take(wanted).collect()
    }
}
