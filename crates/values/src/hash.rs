//! Hashes: fields with values. A field may have an end, a time at which it is gone.
//!
//! Behind the type byte and the [`Encoding`] stand the fields: name and value of each, as
//! [`blobs`]. In an encoding with ends, a varint precedes both: Unix milliseconds, or 0 for a field
//! that stays. Fields with an end come first, the earliest ahead, so the first number tells whether
//! any field is over. Other fields keep the order in which they were added.

mod draft;
mod encoding;
mod lapse;

use std::ops::Range;

use base::varint;
use bytes::Bytes;

use crate::blobs;
use crate::{DecodeError, Kind};

pub use draft::Draft;
pub use encoding::Encoding;
pub use lapse::{Lapsed, lapse};

/// Bytes before the fields: the type and the encoding.
const HEAD_LEN: usize = 2;

/// A hash whose fields were checked: iteration cannot fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hash<'a> {
    encoding: Encoding,
    /// The fields, encoded.
    bytes: &'a [u8],
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// Unix milliseconds.
    pub end: Option<u64>,
}

impl<'a> Hash<'a> {
    /// The state of a missing key.
    pub const EMPTY: Hash<'static> = Hash { encoding: Encoding::ListPack, bytes: b"", len: 0 };

    /// Checks all fields and counts them.
    ///
    /// # Errors
    /// [`DecodeError`] when `value` is no hash, or has no field.
    pub fn decode(value: &'a [u8]) -> Result<Hash<'a>, DecodeError> {
        let broken = DecodeError::Elements(Kind::Hash);
        let (&encoding, bytes) = Kind::Hash.strip(value)?.split_first().ok_or(broken)?;
        let encoding = Encoding::from_byte(encoding).ok_or(broken)?;
        let (mut rest, mut len, mut last) = (bytes, 0, 0);
        while !rest.is_empty() {
            let field = take(&mut rest, encoding.has_ends()).ok_or(broken)?;
            // A field without an end is behind all others.
            let end = field.end.unwrap_or(u64::MAX);
            if end < last {
                return Err(broken);
            }
            (last, len) = (end, len + 1);
        }
        if len == 0 { Err(broken) } else { Ok(Hash { encoding, bytes, len }) }
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

    /// The field called `name`.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<Field<'a>> {
        self.iter().find(|field| field.name == name)
    }

    /// The fields in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        Iter { rest: self.bytes, has_ends: self.encoding.has_ends(), left: self.len }
    }

    /// The value with the same fields in an encoding with ends.
    #[must_use]
    pub fn with_ends(&self) -> Vec<u8> {
        let encoding = self.encoding.with_ends();
        let mut value = head(encoding, self.bytes.len() + self.len);
        self.iter().for_each(|field| field.put(encoding, &mut value));
        value
    }

    /// Each field with its place among the bytes.
    fn places(&self) -> impl Iterator<Item = (Range<usize>, Field<'a>)> + use<'a> {
        let (mut iter, len) = (self.iter(), self.bytes.len());
        std::iter::from_fn(move || {
            let start = len - iter.rest.len();
            let field = iter.next()?;
            Some((start..len - iter.rest.len(), field))
        })
    }
}

impl<'a> IntoIterator for Hash<'a> {
    type Item = Field<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Fields from first to last.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
    has_ends: bool,
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let field = take(&mut self.rest, self.has_ends)?;
        self.left -= 1;
        Some(field)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl Field<'_> {
    fn put(&self, encoding: Encoding, out: &mut Vec<u8>) {
        if encoding.has_ends() {
            varint::put(out, self.end.unwrap_or(0));
        }
        blobs::put(out, self.name);
        blobs::put(out, self.value);
    }

    fn encoded_len(&self) -> usize {
        let end = varint::len(self.end.unwrap_or(0));
        end + blobs::encoded_len(self.name.len()) + blobs::encoded_len(self.value.len())
    }
}

/// Takes the first field off `rest`. `None` at the end, and when it is cut.
pub(crate) fn take<'a>(rest: &mut &'a [u8], has_ends: bool) -> Option<Field<'a>> {
    let end = if has_ends { varint::take(rest)? } else { 0 };
    let (name, value) = (blobs::take(rest)?, blobs::take(rest)?);
    Some(Field { name, value, end: (end != 0).then_some(end) })
}

/// The value of fields whose names differ, in an encoding that fits them. Those with an end come
/// first, the earliest ahead.
///
/// # Panics
/// If there is no field, or one has an end and `has_ends` is false.
#[must_use]
pub fn encode(mut fields: Vec<Field<'_>>, has_ends: bool) -> Bytes {
    assert!(!fields.is_empty(), "a hash has fields");
    assert!(has_ends || fields.iter().all(|field| field.end.is_none()), "ends need their encoding");
    fields.sort_by_key(|field| field.end.unwrap_or(u64::MAX));
    let encoding = Encoding::fitting(&fields, has_ends);
    let len = fields.iter().map(Field::encoded_len).sum();
    let mut value = head(encoding, len);
    fields.iter().for_each(|field| field.put(encoding, &mut value));
    // `Bytes` would move a vector with spare room.
    value.shrink_to_fit();
    value.into()
}

/// The start of a value, with room for `len` bytes of fields.
fn head(encoding: Encoding, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD_LEN + len);
    value.extend([Kind::Hash as u8, encoding as u8]);
    value
}

#[cfg(test)]
mod tests;
