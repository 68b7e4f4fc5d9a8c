//! Strings: the type byte, then the bytes as they are, so that a reply can take them in one copy.

use bytes::Bytes;

use crate::{DecodeError, Kind};

/// Bytes of an encoded string beyond its own.
pub const OVERHEAD: usize = 1;

/// The value that holds `bytes`.
#[must_use]
pub fn encode(bytes: &[u8]) -> Bytes {
    encode_parts(&[bytes])
}

/// The value that holds `parts`, one after the other.
#[must_use]
pub fn encode_parts(parts: &[&[u8]]) -> Bytes {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut value = Vec::with_capacity(OVERHEAD + len);
    value.push(Kind::String as u8);
    for part in parts {
        value.extend_from_slice(part);
    }
    value.into()
}

/// The bytes that `value` holds.
///
/// # Errors
/// [`DecodeError`] when it is no string.
pub fn decode(value: &[u8]) -> Result<&[u8], DecodeError> {
    match Kind::of(value)? {
        Kind::String => Ok(&value[OVERHEAD..]),
        found => Err(DecodeError::WrongKind { wanted: Kind::String, found }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_never_change() {
        assert_eq!(encode(b"ab").as_ref(), b"\x01ab");
        assert_eq!(encode_parts(&[b"a", b"", b"bc"]).as_ref(), b"\x01abc");
        assert_eq!(decode(b"\x01"), Ok(b"".as_slice()));
        let wrong = DecodeError::WrongKind { wanted: Kind::String, found: Kind::Hash };
        assert_eq!(decode(b"\x02ab"), Err(wrong));
        assert_eq!(decode(b""), Err(DecodeError::Empty));
    }

    proptest! {
        #[test]
        fn a_string_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let value = encode(&bytes);
            prop_assert_eq!(decode(&value), Ok(bytes.as_slice()));
        }
    }
}
