//! A set that takes in members, and changes its encoding where redis-server does.

use base::decimal::parse_i64;
use bytes::Bytes;

use super::{Encoding, OVERHEAD, Set};
use crate::{Blobs, Kind, blobs};

/// Members of an intset (`set-max-intset-entries`).
pub const INTSET_LEN_MAX: usize = 512;
/// Members of a listpack (`set-max-listpack-entries`).
pub const LISTPACK_LEN_MAX: usize = 128;
/// Bytes of a member of a listpack (`set-max-listpack-value`).
pub const LISTPACK_MEMBER_LEN_MAX: usize = 64;

/// A set and the members that it took in.
#[derive(Clone, Debug)]
pub struct Growth<'a> {
    encoding: Encoding,
    old: Blobs<'a>,
    /// In the order in which they came, while this is an intset, too.
    added: Vec<&'a [u8]>,
}

impl<'a> Growth<'a> {
    /// No members yet.
    #[must_use]
    pub fn new(encoding: Encoding) -> Growth<'a> {
        Growth { encoding, old: Blobs::EMPTY, added: Vec::new() }
    }

    /// No members yet. `first` and `count - 1` others, which may repeat, are about to come.
    #[must_use]
    pub fn first(first: &[u8], count: usize) -> Growth<'a> {
        Growth::new(match parse_i64(first) {
            Some(_) if count <= INTSET_LEN_MAX => Encoding::Intset,
            _ if count <= LISTPACK_LEN_MAX => Encoding::Listpack,
            _ => Encoding::Hashtable,
        })
    }

    /// All of `set`. `count` members, which may be known, are about to come.
    #[must_use]
    pub fn of(set: Set<'a>, count: usize) -> Growth<'a> {
        let is_too_much = match set.encoding {
            Encoding::Intset => count > INTSET_LEN_MAX,
            Encoding::Listpack => count > LISTPACK_LEN_MAX,
            Encoding::Hashtable => false,
        };
        let encoding = if is_too_much { Encoding::Hashtable } else { set.encoding };
        Growth { encoding, old: set.members, added: Vec::new() }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.old.len() + self.added.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a member that is not there.
    pub fn push(&mut self, member: &'a [u8]) {
        let is_small = self.len() < LISTPACK_LEN_MAX && member.len() <= LISTPACK_MEMBER_LEN_MAX;
        match self.encoding {
            Encoding::Intset if parse_i64(member).is_some() => {
                self.added.push(member);
                if self.len() > INTSET_LEN_MAX {
                    self.leave_intset(Encoding::Hashtable);
                }
                return;
            }
            Encoding::Intset if is_small => self.leave_intset(Encoding::Listpack),
            Encoding::Intset => self.leave_intset(Encoding::Hashtable),
            Encoding::Listpack if !is_small => self.encoding = Encoding::Hashtable,
            Encoding::Listpack | Encoding::Hashtable => {}
        }
        self.added.push(member);
    }

    /// Removes the members that `keeps` rejects. The encoding stays.
    pub fn retain(&mut self, mut keeps: impl FnMut(&[u8]) -> bool) {
        self.sort();
        let mut all: Vec<&[u8]> = self.members().collect();
        all.retain(|member| keeps(member));
        (self.old, self.added) = (Blobs::EMPTY, all);
    }

    /// Becomes an intset, if all members are integers and not too many.
    pub fn shrink(&mut self) {
        let are_integers = || self.members().all(|member| parse_i64(member).is_some());
        if self.len() <= INTSET_LEN_MAX && are_integers() {
            self.encoding = Encoding::Intset;
        }
    }

    /// The members in their order.
    #[must_use]
    pub fn into_members(mut self) -> Vec<&'a [u8]> {
        self.sort();
        self.members().collect()
    }

    /// Bytes of the value.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let added = self.added.iter().map(|member| blobs::encoded_len(member.len()));
        OVERHEAD + self.old.bytes().len() + added.sum::<usize>()
    }

    /// The value.
    ///
    /// # Panics
    /// If there is no member.
    #[must_use]
    pub fn encode(mut self) -> Bytes {
        assert!(!self.is_empty(), "a set has members");
        self.sort();
        let mut value = Vec::with_capacity(self.encoded_len());
        value.extend([Kind::Set as u8, self.encoding as u8]);
        value.extend_from_slice(self.old.bytes());
        self.added.iter().for_each(|member| blobs::put(&mut value, member));
        value.into()
    }

    fn members(&self) -> impl Iterator<Item = &'a [u8]> {
        self.old.iter().chain(self.added.iter().copied())
    }

    /// The members of an intset keep the order that they have as integers.
    fn leave_intset(&mut self, to: Encoding) {
        self.sort();
        self.encoding = to;
    }

    fn sort(&mut self) {
        if self.encoding != Encoding::Intset || self.added.is_empty() {
            return;
        }
        let mut all: Vec<&[u8]> = self.members().collect();
        all.sort_by_cached_key(|member| parse_i64(member));
        (self.old, self.added) = (Blobs::EMPTY, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::decode;

    fn grown<'a>(mut growth: Growth<'a>, members: &'a [String]) -> Growth<'a> {
        members.iter().for_each(|member| growth.push(member.as_bytes()));
        growth
    }

    fn integers(range: std::ops::Range<i64>) -> Vec<String> {
        range.map(|number| number.to_string()).collect()
    }

    #[test]
    fn integers_stay_an_intset_up_to_512() {
        let (few, many) = (integers(0..512), integers(0..513));
        let start = || Growth::new(Encoding::Intset);
        assert_eq!(grown(start(), &few).encoding, Encoding::Intset);
        let mut growth = grown(start(), &many);
        assert_eq!(growth.encoding, Encoding::Hashtable);
        growth.shrink();
        assert_eq!(growth.encoding, Encoding::Hashtable);
        growth.retain(|member| member != b"7");
        growth.shrink();
        assert_eq!(growth.encoding, Encoding::Intset);
    }

    #[test]
    fn texts_stay_a_listpack_up_to_128() {
        let text = |number: i64| format!("t{number}");
        let all: Vec<String> = (0..129).map(text).collect();
        let start = || Growth::first(b"t", 1);
        assert_eq!(grown(start(), &all[..128]).encoding, Encoding::Listpack);
        assert_eq!(grown(start(), &all).encoding, Encoding::Hashtable);
        assert_eq!(grown(start(), &["x".repeat(64)]).encoding, Encoding::Listpack);
        assert_eq!(grown(start(), &["x".repeat(65)]).encoding, Encoding::Hashtable);
        assert_eq!(Growth::first(b"t", 128).encoding, Encoding::Listpack);
        assert_eq!(Growth::first(b"t", 129).encoding, Encoding::Hashtable);
    }

    #[test]
    fn text_turns_integers_into_a_listpack() {
        for (count, text, encoding) in [
            (127, "t".to_owned(), Encoding::Listpack),
            (128, "t".to_owned(), Encoding::Hashtable),
            (1, "t".repeat(65), Encoding::Hashtable),
        ] {
            let mut all = integers(0..count);
            all.reverse();
            all.push(text);
            assert_eq!(grown(Growth::first(b"1", all.len()), &all).encoding, encoding, "{count}");
        }
        let all = ["9", "1", "x", "5", "3"].map(str::to_owned);
        let members = grown(Growth::new(Encoding::Intset), &all).into_members();
        assert_eq!(members, [b"1", b"9", b"x", b"5", b"3"]);
    }

    #[test]
    fn old_members_come_first() {
        let old = grown(Growth::new(Encoding::Intset), &integers(3..6)).encode();
        let set = decode(&old).unwrap();
        let (few, more) = (integers(1..2), ["x", "2"].map(str::to_owned));
        let value = grown(Growth::of(set, 1), &few).encode();
        assert_eq!(value.as_ref(), b"\x04\x01\x011\x013\x014\x015");
        let value = grown(Growth::of(set, 2), &more).encode();
        assert_eq!(value.as_ref(), b"\x04\x02\x013\x014\x015\x01x\x012");
    }

    #[test]
    fn large_request_makes_a_hashtable() {
        let old = grown(Growth::new(Encoding::Listpack), &integers(3..6)).encode();
        let set = decode(&old).unwrap();
        assert_eq!(Growth::of(set, 128).encoding, Encoding::Listpack);
        assert_eq!(Growth::of(set, 129).encoding, Encoding::Hashtable);
    }

    #[test]
    fn length_is_known_before_encoding() {
        let all = integers(0..300);
        let growth = grown(Growth::new(Encoding::Listpack), &all);
        let len = growth.encoded_len();
        assert_eq!(growth.encode().len(), len);
    }
}
