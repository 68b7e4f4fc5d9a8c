//! The type of a value: its first byte.

use crate::SortedSet;

/// The type of a value. The numbers are on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    String = 1,
    Hash = 2,
    List = 3,
    Set = 4,
    SortedSet = 5,
    Stream = 6,
}

/// Bytes that are not a value of the wanted type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("a value has at least one byte")]
    Empty,
    /// Written by a newer version, or damaged.
    #[error("unknown type {0}")]
    UnknownKind(u8),
    /// Written by a newer version, or damaged.
    #[error("the elements of a {} cannot be read", .0.name())]
    Elements(Kind),
    #[error("found a {} where a {} is needed", found.name(), wanted.name())]
    WrongKind { wanted: Kind, found: Kind },
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::String, Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet, Kind::Stream];

    /// # Errors
    /// [`DecodeError`] when the first byte is missing or names no type.
    pub fn of(value: &[u8]) -> Result<Kind, DecodeError> {
        let &first = value.first().ok_or(DecodeError::Empty)?;
        let is_it = |kind: &Kind| *kind as u8 == first;
        Kind::ALL.into_iter().find(is_it).ok_or(DecodeError::UnknownKind(first))
    }

    /// The bytes behind the first one.
    ///
    /// # Errors
    /// [`DecodeError`] when `value` is not of this type.
    pub fn strip(self, value: &[u8]) -> Result<&[u8], DecodeError> {
        match Kind::of(value)? {
            found if found == self => Ok(&value[1..]),
            found => Err(DecodeError::WrongKind { wanted: self, found }),
        }
    }

    /// The reply of `TYPE` (Redis 7).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }
}

/// Checks that a value of any type can be read.
///
/// # Errors
/// [`DecodeError`] when it cannot.
pub fn check(value: &[u8]) -> Result<(), DecodeError> {
    match Kind::of(value)? {
        Kind::String => Ok(()),
        Kind::Hash => crate::Hash::decode(value).map(drop),
        Kind::Set => crate::set::decode(value).map(drop),
        Kind::List => crate::list::decode(value).map(drop),
        Kind::SortedSet => SortedSet::decode(value).map(drop),
        unknown => Err(DecodeError::UnknownKind(unknown as u8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_never_change() {
        let bytes: Vec<u8> = Kind::ALL.iter().map(|kind| *kind as u8).collect();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6]);
        for kind in Kind::ALL {
            assert_eq!(Kind::of(&[kind as u8, 9]), Ok(kind));
        }
        assert_eq!(Kind::of(&[]), Err(DecodeError::Empty));
        assert_eq!(Kind::of(&[0]), Err(DecodeError::UnknownKind(0)));
        assert_eq!(Kind::of(&[7]), Err(DecodeError::UnknownKind(7)));
    }
}
