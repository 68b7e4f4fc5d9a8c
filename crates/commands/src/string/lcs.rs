//! `LCS`: the longest common subsequence of two strings.

use base::decimal::parse_i64;
use types::Reply;

use super::LEN_MAX;
use crate::errors::{self, ErrorReply};
use crate::row::*;
use crate::space::{Halt, Space};
use crate::work;

pub(super) const MODULE: Module = Module { rows: &[ROW], operations: &[] };

const ROW: CommandSpec = CommandSpec {
    name: "lcs",
    arity: AtLeast(3),
    since: "7.0.0",
    summary: "Answers the longest sequence of bytes that two strings have in common, not always side by side.",
    complexity: "O(N*M) where N and M are the lengths of the strings.",
    arguments: &[
        Argument::new("key1", ArgumentKind::Key),
        Argument::new("key2", ArgumentKind::Key),
        Argument::word("len", "LEN").optional(),
        Argument::word("idx", "IDX").optional(),
        Argument::integer("min-match-len").after("MINMATCHLEN").optional(),
        Argument::word("withmatchlen", "WITHMATCHLEN").optional(),
    ],
    flags: &[Readonly],
    keys: two_keys(&["RO", "access"]),
    access: Some(Access::Read),
    execution: Keys(run),
    is_heavy: true,
    ..STRING
};

const NO_STRINGS: ErrorReply = errors::fixed(b"ERR The specified keys must contain string values");
const BOTH: ErrorReply =
    errors::fixed(b"ERR If you want both the length and indexes, please just use IDX.");
const TOO_LONG: ErrorReply =
    errors::fixed(b"ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");

/// redis-server keeps so many bytes for each pair of ends. Here they are two bits, but the limit is
/// the same.
const CELL_LEN: u64 = 4;

#[derive(Default)]
struct Options {
    len: bool,
    indexes: bool,
    match_lens: bool,
    match_len_min: i64,
}

impl Options {
    fn parse(mut rest: &[&[u8]]) -> Result<Options, ErrorReply> {
        let mut options = Options::default();
        while let [word, tail @ ..] = rest {
            rest = match (word.to_ascii_uppercase().as_slice(), tail) {
                (b"LEN", tail) => {
                    options.len = true;
                    tail
                }
                (b"IDX", tail) => {
                    options.indexes = true;
                    tail
                }
                (b"WITHMATCHLEN", tail) => {
                    options.match_lens = true;
                    tail
                }
                (b"MINMATCHLEN", [min, tail @ ..]) => {
                    options.match_len_min = parse_i64(min).ok_or(errors::NOT_AN_INTEGER)?;
                    tail
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        if options.len && options.indexes { Err(BOTH) } else { Ok(options) }
    }
}

fn run(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    let (first, second) = (space.context(args.all[1])?, space.context(args.all[2])?);
    let (Ok(first), Ok(second)) = (first.string(), second.string()) else {
        return Err(NO_STRINGS.into());
    };
    let (first, second) = (first.unwrap_or_default(), second.unwrap_or_default());
    let options = Options::parse(&args.all[3..])?;
    let cells = (first.len() as u64 + 1).saturating_mul(second.len() as u64 + 1);
    if cells.saturating_mul(CELL_LEN) > LEN_MAX {
        return Err(TOO_LONG.into());
    }
    space.charge(cells.saturating_mul(work::CELL))?;
    if options.len {
        return Ok(Reply::Integer(fill(first, second, |_, _| {}).into()));
    }
    let mut table = Steps::new(first, second);
    let len = fill(first, second, |cell, goes_back| table.set(cell, goes_back));
    let matches = table.matches();
    Ok(if options.indexes {
        let shown = matches.iter().filter(|it| it.len as i64 >= options.match_len_min);
        Reply::map([
            ("matches", Reply::array(shown.map(|it| it.reply(options.match_lens)))),
            ("len", Reply::Integer(len.into())),
        ])
    } else {
        let parts = matches.iter().rev().map(|it| &first[it.first..it.first + it.len]);
        Reply::bulk(parts.collect::<Vec<_>>().concat())
    })
}

/// The length of the longest common subsequence, by those of all pairs of prefixes. Calls `step`
/// for each pair whose last bytes differ, and says whether the first prefix is the one to shorten.
fn fill(first: &[u8], second: &[u8], mut step: impl FnMut(usize, bool)) -> u32 {
    // The lengths for one prefix of `first` and each of `second`.
    let mut lens = vec![0_u32; second.len() + 1];
    for (row, &byte) in first.iter().enumerate() {
        let mut shorter_both = 0;
        for (column, &other) in second.iter().enumerate() {
            let (shorter_first, shorter_second) = (lens[column + 1], lens[column]);
            lens[column + 1] = if byte == other {
                shorter_both + 1
            } else {
                step(row * second.len() + column, shorter_first > shorter_second);
                shorter_first.max(shorter_second)
            };
            shorter_both = shorter_first;
        }
    }
    lens[second.len()]
}

/// One bit for each pair of prefixes whose last bytes differ: the prefix to shorten.
struct Steps<'a> {
    first: &'a [u8],
    second: &'a [u8],
    bits: Vec<u64>,
}

/// A piece that both strings have, as a part of the sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Match {
    first: usize,
    second: usize,
    len: usize,
}

impl<'a> Steps<'a> {
    fn new(first: &'a [u8], second: &'a [u8]) -> Steps<'a> {
        let bits = vec![0; (first.len() * second.len()).div_ceil(64)];
        Steps { first, second, bits }
    }

    fn set(&mut self, cell: usize, shortens_first: bool) {
        self.bits[cell / 64] |= u64::from(shortens_first) << (cell % 64);
    }

    /// Matches from last to first.
    fn matches(&self) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        let (mut row, mut column) = (self.first.len(), self.second.len());
        while row > 0 && column > 0 {
            let cell = (row - 1) * self.second.len() + column - 1;
            if self.first[row - 1] == self.second[column - 1] {
                (row, column) = (row - 1, column - 1);
                match matches.last_mut() {
                    Some(last) if (last.first, last.second) == (row + 1, column + 1) => {
                        *last = Match { first: row, second: column, len: last.len + 1 };
                    }
                    _ => matches.push(Match { first: row, second: column, len: 1 }),
                }
            } else if self.bits[cell / 64] >> (cell % 64) & 1 == 1 {
                row -= 1;
            } else {
                column -= 1;
            }
        }
        matches
    }
}

impl Match {
    fn reply(self, with_len: bool) -> Reply {
        let span = |start: usize| {
            let ends = [start, start + self.len - 1];
            Reply::array(ends.map(|end| Reply::Integer(end as i64)))
        };
        let len = with_len.then_some(Reply::Integer(self.len as i64));
        Reply::array([span(self.first), span(self.second)].into_iter().chain(len))
    }
}
