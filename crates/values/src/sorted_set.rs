//! Sorted sets: the type byte, a byte for the encoding that redis-server would have, the elements.
//! They ascend by score, those of equal scores by member.
//!
//! An element is its score and its member, which is a length and as many bytes. No count stands in
//! front, so a change of one element changes one run of bytes: it travels as a small delta.

mod change;
mod score;

use std::cmp::Ordering;

use crate::{DecodeError, Kind, blobs};

pub use change::{Builder, Found};

/// The form in which redis-server would keep the elements. It grows and does not go back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    Listpack = 1,
    Skiplist = 2,
}

impl Encoding {
    /// Most elements of a listpack (`zset-max-listpack-entries`).
    pub const ENTRIES_MAX: usize = 128;
    /// Bytes of the longest member in a listpack (`zset-max-listpack-value`).
    pub const MEMBER_LEN_MAX: usize = 64;

    /// The encoding that holds so many elements, the longest of `len` bytes.
    #[must_use]
    pub fn fitting(elements: usize, len: usize) -> Encoding {
        let is_small = elements <= Encoding::ENTRIES_MAX && len <= Encoding::MEMBER_LEN_MAX;
        if is_small { Encoding::Listpack } else { Encoding::Skiplist }
    }

    /// The greater one.
    #[must_use]
    pub fn or(self, other: Encoding) -> Encoding {
        if self == Encoding::Listpack { other } else { self }
    }

    /// The score that redis-server keeps: a listpack has no minus zero.
    #[must_use]
    pub fn keep(self, score: f64) -> f64 {
        if self == Encoding::Listpack && score == 0.0 { 0.0 } else { score }
    }

    /// The reply of `OBJECT ENCODING`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Listpack => "listpack",
            Encoding::Skiplist => "skiplist",
        }
    }

    fn of(byte: u8) -> Option<Encoding> {
        [Encoding::Listpack, Encoding::Skiplist].into_iter().find(|it| *it as u8 == byte)
    }
}

/// A member and its score, which is not NaN.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Element<'a> {
    pub score: f64,
    pub member: &'a [u8],
}

impl Element<'_> {
    /// The order of a sorted set.
    #[must_use]
    pub fn order(&self, other: &Element<'_>) -> Ordering {
        let by_score = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| self.member.cmp(other.member))
    }

    fn put(&self, out: &mut Vec<u8>) {
        score::put(out, self.score);
        blobs::put(out, self.member);
    }

    /// Bytes of the encoded element.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        score::len(self.score) + blobs::encoded_len(self.member.len())
    }
}

/// A sorted set whose bytes were checked: iteration cannot fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortedSet<'a> {
    encoding: Encoding,
    elements: &'a [u8],
    len: usize,
}

impl<'a> SortedSet<'a> {
    /// A key that does not exist.
    pub const EMPTY: SortedSet<'static> =
        SortedSet { encoding: Encoding::Listpack, elements: &[], len: 0 };

    /// # Errors
    /// [`DecodeError`] when `value` is no sorted set.
    pub fn decode(value: &'a [u8]) -> Result<SortedSet<'a>, DecodeError> {
        let damaged = DecodeError::Elements(Kind::SortedSet);
        let (&encoding, elements) = Kind::SortedSet.strip(value)?.split_first().ok_or(damaged)?;
        let encoding = Encoding::of(encoding).ok_or(damaged)?;
        let len = count(elements).ok_or(damaged)?;
        if len == 0 { Err(damaged) } else { Ok(SortedSet { encoding, elements, len }) }
    }

    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// From the lowest score to the highest.
    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        Iter { rest: self.elements, left: self.len }
    }

    /// Bytes of the value.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEADER_LEN + self.elements.len()
    }
}

/// Bytes in front of the elements.
const HEADER_LEN: usize = 2;

impl<'a> IntoIterator for SortedSet<'a> {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The number of elements. `None` unless each is whole and stands behind all lower ones.
fn count(mut rest: &[u8]) -> Option<usize> {
    let mut count = 0;
    let mut last: Option<Element<'_>> = None;
    while !rest.is_empty() {
        let element = take(&mut rest)?;
        if last.is_some_and(|last| last.order(&element) != Ordering::Less) {
            return None;
        }
        last = Some(element);
        count += 1;
    }
    Some(count)
}

pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let mut from = *rest;
    let element = Element { score: score::take(&mut from)?, member: blobs::take(&mut from)? };
    *rest = from;
    Some(element)
}

/// Elements from first to last.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let element = take(&mut self.rest)?;
        self.left -= 1;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn build(elements: &[(f64, &[u8])], encoding: Encoding) -> Vec<u8> {
        let mut builder = Builder::new(encoding);
        for &(score, member) in elements {
            builder.push(Element { score, member });
        }
        builder.finish().to_vec()
    }

    #[test]
    fn bytes_never_change() {
        let value = build(
            &[(f64::NEG_INFINITY, b"x"), (-1.0, b"ab"), (-0.0, b""), (1.0, b"b"), (64.0, b"c")],
            Encoding::Skiplist,
        );
        let expected: &[&[u8]] = &[
            b"\x05\x02",
            b"\x01\0\0\0\0\0\0\xf0\xff\x01x",
            b"\x02\x02ab",
            b"\x01\0\0\0\0\0\0\0\x80\x00",
            b"\x04\x01b",
            b"\x80\x02\x01c",
        ];
        assert_eq!(value, expected.concat());
        assert_eq!(
            build(&[(0.5, b"m")], Encoding::Listpack),
            b"\x05\x01\x01\0\0\0\0\0\0\xe0\x3f\x01m"
        );
        let wrong = DecodeError::WrongKind { wanted: Kind::SortedSet, found: Kind::String };
        assert_eq!(SortedSet::decode(b"\x01x"), Err(wrong));
    }

    #[test]
    fn damage_is_found() {
        for bytes in [
            &b"\x05"[..],
            b"\x05\x00\x04\x01a",
            b"\x05\x03\x04\x01a",
            b"\x05\x01",
            b"\x05\x01\x04",
            b"\x05\x01\x04\x02a",
            b"\x05\x01\x03\x01a",
            // An integer with a mark, NaN, a longer varint.
            b"\x05\x01\x01\0\0\0\0\0\0\xf0\x3f\x01a",
            b"\x05\x01\x01\0\0\0\0\0\0\xf8\x7f\x01a",
            b"\x05\x01\x84\x00\x01a",
            // Wrong order, the same element twice.
            b"\x05\x01\x04\x01b\x04\x01a",
            b"\x05\x01\x04\x01a\x00\x01b",
            b"\x05\x01\x04\x01a\x04\x01a",
        ] {
            let damaged = Err(DecodeError::Elements(Kind::SortedSet));
            assert_eq!(SortedSet::decode(bytes), damaged, "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn noise_has_one_form(bytes in prop::collection::vec(0..8_u8, 0..24)) {
            let value = [&[Kind::SortedSet as u8][..], &bytes].concat();
            if let Ok(set) = SortedSet::decode(&value) {
                let elements: Vec<_> = set.iter().map(|it| (it.score, it.member)).collect();
                prop_assert_eq!(build(&elements, set.encoding()), value);
            }
        }
    }
}
