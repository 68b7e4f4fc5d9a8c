//! Sets: the type byte, a byte for the encoding, then the members as [`Blobs`].
//!
//! The members of an intset are integers in ascending order. Others stand in the order in which
//! they were added. A set has at least one member, and each one once.

mod growth;

use base::decimal::parse_i64;
use bytes::Bytes;

pub use self::growth::Growth;
use crate::lookup::Lookup;
use crate::{Blobs, DecodeError, Kind, blobs};

/// Bytes in front of the members.
pub const OVERHEAD: usize = 2;

/// The way in which redis-server would keep a set. The numbers are on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    /// Integers only, in ascending order.
    Intset = 1,
    Listpack = 2,
    Hashtable = 3,
}

impl Encoding {
    pub const ALL: [Encoding; 3] = [Encoding::Intset, Encoding::Listpack, Encoding::Hashtable];

    /// The reply of `OBJECT ENCODING`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Intset => "intset",
            Encoding::Listpack => "listpack",
            Encoding::Hashtable => "hashtable",
        }
    }
}

/// A set whose bytes were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set<'a> {
    encoding: Encoding,
    members: Blobs<'a>,
}

/// The set that `value` holds.
///
/// Takes members on trust to differ: looking for duplicates would cost more than most commands.
///
/// # Errors
/// [`DecodeError`] when it is no set, or damaged.
pub fn decode(value: &[u8]) -> Result<Set<'_>, DecodeError> {
    let damaged = DecodeError::Elements(Kind::Set);
    let (&code, members) = Kind::Set.strip(value)?.split_first().ok_or(damaged)?;
    let encoding = Encoding::ALL.into_iter().find(|encoding| *encoding as u8 == code);
    let set =
        Set { encoding: encoding.ok_or(damaged)?, members: Blobs::decode(members).ok_or(damaged)? };
    let is_sound = set.encoding != Encoding::Intset || set.is_ascending();
    if is_sound && !set.is_empty() { Ok(set) } else { Err(damaged) }
}

impl<'a> Set<'a> {
    /// The set at a key that does not exist. It has no bytes.
    pub const EMPTY: Set<'static> = Set { encoding: Encoding::Intset, members: Blobs::EMPTY };

    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The members in their order.
    #[must_use]
    pub fn members(&self) -> Blobs<'a> {
        self.members
    }

    #[must_use]
    pub fn iter(&self) -> blobs::Iter<'a> {
        self.members.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        self.iter().any(|other| other == member)
    }

    /// Those of `wanted` that are members.
    #[must_use]
    pub fn find(&self, wanted: &[&[u8]], seed: u64) -> Lookup<'a> {
        let wanted = Lookup::of(wanted.iter().copied(), seed);
        Lookup::of(self.iter().filter(|member| wanted.contains(member)), seed)
    }

    /// The value without the members that `keeps` rejects, and their number. The encoding stays.
    #[must_use]
    pub fn retain(&self, mut keeps: impl FnMut(&'a [u8]) -> bool) -> (Bytes, usize) {
        let all = self.members.bytes();
        let mut value = Vec::with_capacity(OVERHEAD + all.len());
        value.extend([Kind::Set as u8, self.encoding as u8]);
        let (mut iter, mut removed) = (self.iter(), 0);
        // Members that stay are copied in runs.
        let (mut run, mut at) = (0, 0);
        while let Some(member) = iter.next() {
            let end = all.len() - iter.rest().len();
            if !keeps(member) {
                value.extend_from_slice(&all[run..at]);
                run = end;
                removed += 1;
            }
            at = end;
        }
        value.extend_from_slice(&all[run..]);
        (value.into(), removed)
    }

    fn is_ascending(&self) -> bool {
        let mut last = None;
        self.iter().all(|member| {
            let number = parse_i64(member);
            let is_next = number.is_some() && number > last;
            last = number;
            is_next
        })
    }
}

impl<'a> IntoIterator for Set<'a> {
    type Item = &'a [u8];
    type IntoIter = blobs::Iter<'a>;

    fn into_iter(self) -> blobs::Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_never_change() {
        for (members, bytes) in [
            (&[&b"3"[..], b"-20", b"1"][..], &b"\x04\x01\x03-20\x011\x013"[..]),
            (&[b"3", b"b", b"1"], b"\x04\x02\x013\x01b\x011"),
            (&[&[b'x'; 65]], &[&b"\x04\x03\x41"[..], &[b'x'; 65]].concat()),
        ] {
            let mut growth = Growth::first(members[0], 1);
            members.iter().for_each(|member| growth.push(member));
            assert_eq!(
                growth.encode().escape_ascii().to_string(),
                bytes.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn damage_is_refused() {
        let damaged = Err(DecodeError::Elements(Kind::Set));
        for value in [
            &b"\x04"[..],
            b"\x04\x00\x011",
            b"\x04\x04\x011",
            b"\x04\x02",
            b"\x04\x02\x02a",
            b"\x04\x01\x01a",
            b"\x04\x01\x012\x011",
            b"\x04\x01\x011\x011",
            b"\x04\x01\x0201",
        ] {
            assert_eq!(decode(value), damaged, "{value:?}");
        }
        let wrong = DecodeError::WrongKind { wanted: Kind::Set, found: Kind::String };
        assert_eq!(decode(b"\x01a"), Err(wrong));
        assert_eq!(decode(b""), Err(DecodeError::Empty));
    }

    fn hashtable(members: &[Vec<u8>]) -> Bytes {
        let mut growth = Growth::new(Encoding::Hashtable);
        members.iter().for_each(|member| growth.push(member));
        growth.encode()
    }

    proptest! {
        #[test]
        fn members_come_back(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..9)) {
            let value = hashtable(&all);
            let set = decode(&value).unwrap();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), all.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(set.len(), all.len());
            prop_assert!(all.iter().all(|member| set.contains(member)));
        }

        #[test]
        fn retained_members_stay(all in prop::collection::vec((0..9_u8, any::<bool>()), 1..30)) {
            let name = |(byte, _): &(u8, bool)| vec![*byte; usize::from(*byte)];
            let value = hashtable(&all.iter().map(name).collect::<Vec<_>>());
            let mut keeps = all.iter().map(|(_, keeps)| *keeps);
            let (rest, removed) = decode(&value).unwrap().retain(|_| keeps.next().unwrap());
            let kept: Vec<_> = all.iter().filter(|(_, keeps)| *keeps).map(name).collect();
            prop_assert_eq!(removed, all.len() - kept.len());
            if kept.is_empty() {
                prop_assert_eq!(rest.as_ref(), b"\x04\x03");
            } else {
                prop_assert_eq!(rest, hashtable(&kept));
            }
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(0..60_u8, 0..30)) {
            let value = [&[Kind::Set as u8][..], &bytes].concat();
            if let Ok(set) = decode(&value) {
                prop_assert!(!set.is_empty());
                prop_assert_eq!(set.retain(|_| true), (Bytes::from(value.clone()), 0));
            }
        }
    }
}
