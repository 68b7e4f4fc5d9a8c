//! Lists: the type byte, the encoding byte, then the elements from head to tail.
//!
//! A push adds one run of bytes at either end of the elements.

use bytes::Bytes;

use crate::{Blobs, DecodeError, Kind};

/// Bytes of an encoded list beyond its elements.
pub const OVERHEAD: usize = 2;

/// How redis-server would keep the list. The numbers are on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    Listpack = 1,
    Quicklist = 2,
}

impl Encoding {
    /// The reply of `OBJECT ENCODING`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Listpack => "listpack",
            Encoding::Quicklist => "quicklist",
        }
    }
}

/// A decoded list. It may be empty only before it is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List<'a> {
    pub encoding: Encoding,
    pub elements: Blobs<'a>,
}

impl List<'_> {
    pub const EMPTY: List<'static> = List { encoding: Encoding::Listpack, elements: Blobs::EMPTY };
}

/// The value that holds the encoded elements that `parts` make up.
#[must_use]
pub fn encode_parts(encoding: Encoding, parts: &[&[u8]]) -> Bytes {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut value = Vec::with_capacity(OVERHEAD + len);
    value.extend_from_slice(&[Kind::List as u8, encoding as u8]);
    for part in parts {
        value.extend_from_slice(part);
    }
    value.into()
}

/// The list that `value` holds.
///
/// # Errors
/// [`DecodeError`] when it is no list, or an empty one.
pub fn decode(value: &[u8]) -> Result<List<'_>, DecodeError> {
    const MALFORMED: DecodeError = DecodeError::Elements(Kind::List);
    let [encoding, elements @ ..] = Kind::List.strip(value)? else { return Err(MALFORMED) };
    let encoding = match encoding {
        1 => Encoding::Listpack,
        2 => Encoding::Quicklist,
        _ => return Err(MALFORMED),
    };
    let elements = Blobs::decode(elements).filter(|elements| !elements.is_empty());
    Ok(List { encoding, elements: elements.ok_or(MALFORMED)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::blobs;

    #[test]
    fn bytes_never_change() {
        let value = encode_parts(Encoding::Listpack, &[b"\x01a", b"\x00\x02bc"]);
        assert_eq!(value.as_ref(), b"\x03\x01\x01a\x00\x02bc");
        let list = decode(&value).unwrap();
        assert_eq!(list.encoding, Encoding::Listpack);
        assert_eq!(list.elements.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc"]);
        let value = encode_parts(Encoding::Quicklist, &[b"\x01a"]);
        assert_eq!(value.as_ref(), b"\x03\x02\x01a");
        assert_eq!(decode(&value).unwrap().encoding, Encoding::Quicklist);
    }

    #[test]
    fn malformed_lists_are_rejected() {
        let malformed = DecodeError::Elements(Kind::List);
        for value in
            [&b"\x03"[..], b"\x03\x01", b"\x03\x00\x01a", b"\x03\x03\x01a", b"\x03\x01\x02a"]
        {
            assert_eq!(decode(value), Err(malformed), "{value:?}");
            assert_eq!(crate::check(value), Err(malformed), "{value:?}");
        }
        let wrong = DecodeError::WrongKind { wanted: Kind::List, found: Kind::String };
        assert_eq!(decode(b"\x01a"), Err(wrong));
        assert_eq!(decode(b""), Err(DecodeError::Empty));
    }

    proptest! {
        #[test]
        fn lists_come_back(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..9)) {
            let mut elements = Vec::new();
            all.iter().for_each(|blob| blobs::put(&mut elements, blob));
            let value = encode_parts(Encoding::Quicklist, &[&elements]);
            prop_assert_eq!(crate::check(&value), Ok(()));
            let list = decode(&value).unwrap();
            prop_assert_eq!(list.elements.iter().collect::<Vec<_>>(), all);
        }
    }
}
