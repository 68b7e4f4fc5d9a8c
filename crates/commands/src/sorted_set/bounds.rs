//! Ranges of a sorted set: by rank, by score and by member.

use std::ops::Range;

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use values::SortedSet;
use values::double;
use values::sorted_set::{Element, Encoding};

use crate::errors::{self, ErrorReply};
use crate::operation::{self, Sink};

const NOT_FLOATS: ErrorReply = errors::fixed(b"ERR min or max is not a float");
const NOT_MEMBERS: ErrorReply = errors::fixed(b"ERR min or max not valid string range item");

/// A range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Bounds<'a> {
    /// First and last rank; negative ones count from the end.
    Ranks {
        start: i64,
        stop: i64,
    },
    Scores {
        min: ScoreEnd,
        max: ScoreEnd,
    },
    /// Of elements with equal scores.
    Members {
        min: MemberEnd<'a>,
        max: MemberEnd<'a>,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ScoreEnd {
    score: f64,
    is_open: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum MemberEnd<'a> {
    /// Before all members.
    Least,
    /// Behind all members.
    Greatest,
    Closed(&'a [u8]),
    Open(&'a [u8]),
}

/// The order of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    Rank,
    Score,
    Member,
}

impl<'a> Bounds<'a> {
    /// # Errors
    /// The reply to send.
    pub(super) fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>, ErrorReply> {
        match by {
            By::Rank => {
                let rank = |text| parse_i64(text).ok_or(errors::NOT_AN_INTEGER);
                Ok(Bounds::Ranks { start: rank(min)?, stop: rank(max)? })
            }
            By::Score => {
                let end = |text| ScoreEnd::parse(text).ok_or(NOT_FLOATS);
                Ok(Bounds::Scores { min: end(min)?, max: end(max)? })
            }
            By::Member => {
                let end = |text| MemberEnd::parse(text).ok_or(NOT_MEMBERS);
                Ok(Bounds::Members { min: end(min)?, max: end(max)? })
            }
        }
    }

    pub(super) fn encode(&self, out: &mut impl Sink) {
        match self {
            Bounds::Ranks { start, stop } => {
                out.byte(0);
                out.integer(*start);
                out.integer(*stop);
            }
            Bounds::Scores { min, max } => {
                out.byte(1);
                [min, max].into_iter().for_each(|end| end.encode(out));
            }
            Bounds::Members { min, max } => {
                out.byte(2);
                [min, max].into_iter().for_each(|end| end.encode(out));
            }
        }
    }

    pub(super) fn decode(fields: &mut Reader<'a>) -> Result<Bounds<'a>, Malformed> {
        match fields.u8()? {
            0 => {
                let start = operation::integer(fields)?;
                Ok(Bounds::Ranks { start, stop: operation::integer(fields)? })
            }
            1 => {
                let min = ScoreEnd::decode(fields)?;
                Ok(Bounds::Scores { min, max: ScoreEnd::decode(fields)? })
            }
            2 => {
                let min = MemberEnd::decode(fields)?;
                Ok(Bounds::Members { min, max: MemberEnd::decode(fields)? })
            }
            _ => Err(Malformed),
        }
    }

    /// The ranks of the elements in the range, from the lowest score. `is_reverse`: ranks count
    /// from the highest score.
    pub(super) fn select(&self, set: &SortedSet<'_>, is_reverse: bool) -> Range<usize> {
        match self {
            Bounds::Ranks { start, stop } => {
                let ranks = within(*start, *stop, set.len());
                if is_reverse && !ranks.is_empty() {
                    set.len() - ranks.end..set.len() - ranks.start
                } else {
                    ranks
                }
            }
            Bounds::Scores { min, max } => {
                let mut scores = set.iter().map(|element| element.score);
                let below = |score: &f64| !min.is_below(*score);
                let mut start = 0;
                let mut next = scores.next();
                while next.as_ref().is_some_and(below) {
                    start += 1;
                    next = scores.next();
                }
                let within = next.into_iter().chain(scores).take_while(|it| max.is_above(*it));
                start..start + within.count()
            }
            Bounds::Members { min, max } => select_members(set, min, max, is_reverse, 0),
        }
    }

    /// [`select`](Bounds::select), and of those the ranks that `LIMIT offset count` leaves.
    ///
    /// A negative `offset` has no result in a listpack. In a skiplist it counts from the other end
    /// of the range. A negative `count` is no limit.
    pub(super) fn select_some(
        &self,
        set: &SortedSet<'_>,
        is_reverse: bool,
        offset: i64,
        count: i64,
    ) -> Range<usize> {
        if let (Bounds::Members { min, max }, Ok(offset)) = (self, usize::try_from(offset)) {
            let ranks = select_members(set, min, max, is_reverse, offset);
            return limit(ranks, set.encoding(), is_reverse, 0, count);
        }
        limit(self.select(set, is_reverse), set.encoding(), is_reverse, offset, count)
    }
}

/// Ranks `start` to `stop` of `len`, as Redis counts them.
fn within(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from_end = |rank: i64| if rank < 0 { len + rank } else { rank };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

/// The members from the `skipped`-th of the range on.
///
/// redis-server walks from one end of the range to the other one. Both walks find the same members
/// where scores are equal. Elsewhere the order is unspecified, and this is that of its listpacks.
fn select_members(
    set: &SortedSet<'_>,
    min: &MemberEnd<'_>,
    max: &MemberEnd<'_>,
    is_reverse: bool,
    skipped: usize,
) -> Range<usize> {
    let members: Vec<&[u8]> = set.iter().map(|element| element.member).collect();
    let is_outside =
        |(first, last): (&&[u8], &&[u8])| !min.is_before(last) || !max.is_behind(first);
    if members.first().zip(members.last()).is_none_or(is_outside) {
        return 0..0;
    }
    let is_within = |at: &usize| min.is_before(members[*at]) && max.is_behind(members[*at]);
    if is_reverse {
        let last = members.iter().rposition(|it| max.is_behind(it));
        let Some(last) = last.filter(is_within) else { return 0..0 };
        let end = (last + 1).saturating_sub(skipped);
        let count = members[..end].iter().rev().take_while(|it| min.is_before(it)).count();
        end - count..end
    } else {
        let first = members.iter().position(|it| min.is_before(it));
        let Some(first) = first.filter(is_within) else { return 0..0 };
        let start = first.saturating_add(skipped).min(members.len());
        let count = members[start..].iter().take_while(|it| max.is_behind(it)).count();
        start..start + count
    }
}

/// The ranks that `LIMIT` leaves of `ranks`.
fn limit(
    ranks: Range<usize>,
    encoding: Encoding,
    is_reverse: bool,
    offset: i64,
    count: i64,
) -> Range<usize> {
    let from_end = || ranks.len().checked_sub(usize::try_from(offset.unsigned_abs()).ok()?);
    let skipped = match usize::try_from(offset) {
        Ok(offset) => Some(offset),
        Err(_) if encoding == Encoding::Listpack => None,
        Err(_) => from_end(),
    };
    let Some(skipped) = skipped.filter(|&skipped| skipped < ranks.len()) else { return 0..0 };
    let left = ranks.len() - skipped;
    let taken = usize::try_from(count).map_or(left, |count| count.min(left));
    if is_reverse {
        let end = ranks.end - skipped;
        end - taken..end
    } else {
        let start = ranks.start + skipped;
        start..start + taken
    }
}

/// The elements of these ranks, the highest score first if `is_reverse`.
pub(super) fn elements<'a>(
    set: &SortedSet<'a>,
    ranks: Range<usize>,
    is_reverse: bool,
) -> Vec<Element<'a>> {
    let mut elements: Vec<_> = set.iter().skip(ranks.start).take(ranks.len()).collect();
    if is_reverse {
        elements.reverse();
    }
    elements
}

impl ScoreEnd {
    fn parse(text: &[u8]) -> Option<ScoreEnd> {
        let (is_open, text) = match text {
            [b'(', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        Some(ScoreEnd { score: double::parse_bound(text)?, is_open })
    }

    fn encode(&self, out: &mut impl Sink) {
        out.byte(u8::from(self.is_open));
        out.bytes(&self.score.to_le_bytes());
    }

    fn decode(fields: &mut Reader<'_>) -> Result<ScoreEnd, Malformed> {
        let is_open = operation::variant(&[false, true], fields.u8()?)?;
        let score = f64::from_bits(fields.u64()?);
        if score.is_nan() { Err(Malformed) } else { Ok(ScoreEnd { score, is_open }) }
    }

    /// As the least score of a range, it lets `score` in.
    fn is_below(&self, score: f64) -> bool {
        if self.is_open { score > self.score } else { score >= self.score }
    }

    /// As the greatest score of a range, it lets `score` in.
    fn is_above(&self, score: f64) -> bool {
        if self.is_open { score < self.score } else { score <= self.score }
    }
}

impl<'a> MemberEnd<'a> {
    fn parse(text: &'a [u8]) -> Option<MemberEnd<'a>> {
        match text {
            // redis-server reads a text up to its first zero byte here.
            [b'-'] | [b'-', 0, ..] => Some(MemberEnd::Least),
            [b'+'] | [b'+', 0, ..] => Some(MemberEnd::Greatest),
            [b'[', member @ ..] => Some(MemberEnd::Closed(member)),
            [b'(', member @ ..] => Some(MemberEnd::Open(member)),
            _ => None,
        }
    }

    fn encode(&self, out: &mut impl Sink) {
        match self {
            MemberEnd::Least => out.byte(0),
            MemberEnd::Greatest => out.byte(1),
            MemberEnd::Closed(member) => {
                out.byte(2);
                out.blob(member);
            }
            MemberEnd::Open(member) => {
                out.byte(3);
                out.blob(member);
            }
        }
    }

    fn decode(fields: &mut Reader<'a>) -> Result<MemberEnd<'a>, Malformed> {
        let tag = fields.u8()?;
        let mut member = || fields.blob(types::limits::RECORD_LEN_MAX);
        match tag {
            0 => Ok(MemberEnd::Least),
            1 => Ok(MemberEnd::Greatest),
            2 => Ok(MemberEnd::Closed(member()?)),
            3 => Ok(MemberEnd::Open(member()?)),
            _ => Err(Malformed),
        }
    }

    /// As the least member of a range, it lets `member` in.
    fn is_before(&self, member: &[u8]) -> bool {
        match self {
            MemberEnd::Least => true,
            MemberEnd::Greatest => false,
            MemberEnd::Closed(end) => member >= *end,
            MemberEnd::Open(end) => member > *end,
        }
    }

    /// As the greatest member of a range, it lets `member` in.
    fn is_behind(&self, member: &[u8]) -> bool {
        match self {
            MemberEnd::Least => false,
            MemberEnd::Greatest => true,
            MemberEnd::Closed(end) => member <= *end,
            MemberEnd::Open(end) => member < *end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_ranks_count_from_the_end() {
        for (start, stop, expected) in [
            (0, -1, 0..5),
            (-2, -1, 3..5),
            (-9, 1, 0..2),
            (1, 99, 1..5),
            (3, 2, 0..0),
            (5, 9, 0..0),
            (0, -6, 0..0),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(within(start, stop, 5), expected, "{start} {stop}");
        }
        assert_eq!(within(0, -1, 0), 0..0);
    }

    #[test]
    fn limits_count_from_the_first_end() {
        let (small, large) = (Encoding::Listpack, Encoding::Skiplist);
        for (encoding, is_reverse, offset, count, expected) in [
            (small, false, 0, -1, 10..15),
            (small, false, 1, 2, 11..13),
            (small, true, 1, 2, 12..14),
            (small, true, 4, 9, 10..11),
            (small, false, 5, -1, 0..0),
            (small, false, 0, 0, 10..10),
            (small, false, -1, 9, 0..0),
            (large, false, -2, 9, 13..15),
            (large, true, -2, 9, 10..12),
            (large, false, -6, 9, 0..0),
            (large, false, i64::MIN, 9, 0..0),
            (large, false, i64::MAX, i64::MAX, 0..0),
        ] {
            let found = limit(10..15, encoding, is_reverse, offset, count);
            assert_eq!(found, expected, "{encoding:?} {is_reverse} {offset} {count}");
        }
    }
}
