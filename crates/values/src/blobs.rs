//! A sequence of byte strings, each behind its length as a varint: the elements of collections.
//!
//! No count stands in front, so a change of one element changes one run of bytes: it travels as a
//! small delta.

use base::varint;

/// Elements whose lengths were checked: iteration cannot fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blobs<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Blobs<'a> {
    pub const EMPTY: Blobs<'static> = Blobs { bytes: &[], count: 0 };

    /// Checks all lengths and counts the elements. `None` when `bytes` is no such sequence.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Blobs<'a>> {
        let (mut rest, mut count) = (bytes, 0);
        while !rest.is_empty() {
            take(&mut rest)?;
            count += 1;
        }
        Some(Blobs { bytes, count })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded sequence.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The first `count` elements and the rest. All elements, if there are fewer.
    #[must_use]
    pub fn split_at(self, count: usize) -> (Blobs<'a>, Blobs<'a>) {
        let count = count.min(self.count);
        let mut tail = self.iter();
        tail.by_ref().take(count).for_each(drop);
        let (head, tail) = self.bytes.split_at(self.bytes.len() - tail.rest.len());
        (Blobs { bytes: head, count }, Blobs { bytes: tail, count: self.count - count })
    }

    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        Iter { rest: self.bytes, left: self.count }
    }
}

impl<'a> IntoIterator for Blobs<'a> {
    type Item = &'a [u8];
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Elements from first to last.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iter<'a> {
    /// The encoded elements that are left.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let blob = take(&mut self.rest)?;
        self.left -= 1;
        Some(blob)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Appends an element.
pub fn put(out: &mut Vec<u8>, blob: &[u8]) {
    varint::put(out, blob.len() as u64);
    out.extend_from_slice(blob);
}

/// Takes the first element off `rest`. `None` at the end, and when it is cut.
pub fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut from = *rest;
    let len = usize::try_from(varint::take(&mut from)?).ok()?;
    if len > from.len() {
        return None;
    }
    let (blob, tail) = from.split_at(len);
    *rest = tail;
    Some(blob)
}

/// Bytes of an encoded element of `len` bytes.
#[must_use]
pub fn encoded_len(len: usize) -> usize {
    varint::len(len as u64) + len
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_never_change() {
        let mut out = Vec::new();
        put(&mut out, b"ab");
        put(&mut out, b"");
        put(&mut out, &[7; 128]);
        assert_eq!(out[..6], *b"\x02ab\x00\x80\x01");
        assert_eq!(out.len(), encoded_len(2) + encoded_len(0) + encoded_len(128));
    }

    #[test]
    fn lengths_have_one_form() {
        for bytes in [&b"\x80\x00"[..], b"\x02a", b"\x80", &[0xff; 10], b"\x01"] {
            assert_eq!(Blobs::decode(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn elements_come_back(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..9)) {
            let mut out = Vec::new();
            all.iter().for_each(|blob| put(&mut out, blob));
            let blobs = Blobs::decode(&out).unwrap();
            prop_assert_eq!(blobs.len(), all.len());
            prop_assert_eq!(blobs.iter().collect::<Vec<_>>(), all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }

        #[test]
        fn parts_make_up_the_whole(lens in prop::collection::vec(0..200_usize, 0..9), at in 0..12_usize) {
            let mut out = Vec::new();
            lens.iter().for_each(|&len| put(&mut out, &vec![7; len]));
            let whole = Blobs::decode(&out).unwrap();
            let (head, tail) = whole.split_at(at);
            prop_assert_eq!((Some(head), Some(tail)), (Blobs::decode(head.bytes()), Blobs::decode(tail.bytes())));
            prop_assert_eq!(head.len(), at.min(lens.len()));
            prop_assert_eq!([head.bytes(), tail.bytes()].concat(), out);
        }

        #[test]
        fn noise_has_one_form(bytes in prop::collection::vec(0..5_u8, 0..30)) {
            if let Some(blobs) = Blobs::decode(&bytes) {
                let mut out = Vec::new();
                blobs.iter().for_each(|blob| put(&mut out, blob));
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
