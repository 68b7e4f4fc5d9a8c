//! What the staging ring holds, by hash: the newest entry of every place that has not gone home yet.
//!
//! Ordered by hash, because write-back takes a bucket's interval at once and listings merge it with the pages.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::entry::{Entry, Identity};

/// A hash, and a number that tells apart places of one hash.
pub(super) type At = (u64, u32);

/// The newest entry of a place.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Head and body; checked when it came in.
    raw: Bytes,
    /// The stripe that carries it.
    pub(super) stripe: u64,
    /// True where the entry refers to an extent.
    pub(super) has_reference: bool,
}

impl Slot {
    pub(super) fn entry(&self) -> Entry<'_> {
        Entry::read(&self.raw).expect("entries are checked before they enter the index")
    }
}

/// The newest entries, by hash.
#[derive(Default, Debug)]
pub(super) struct Index {
    slots: BTreeMap<At, Slot>,
    bytes: usize,
}

impl Index {
    /// Bytes of the entries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn find(&self, identity: &Identity) -> Option<Entry<'_>> {
        self.slots
            .range((identity.hash, 0)..=(identity.hash, u32::MAX))
            .map(|(_, slot)| slot.entry())
            .find(|entry| identity.matches(entry))
    }

    /// Puts an entry in the place of an older one; returns that.
    pub(super) fn insert(&mut self, raw: Bytes, stripe: u64) -> Option<Slot> {
        let entry = Entry::read(&raw).expect("entries are checked before they enter the index");
        let (hash, len, has_reference) = (entry.hash, raw.len(), entry.kind.is_in_extent());
        let mut at = (hash, 0);
        for (&known, slot) in self.slots.range((hash, 0)..=(hash, u32::MAX)) {
            at = known;
            if slot.entry().has_identity_of(&entry) {
                break;
            }
            at.1 += 1;
        }
        self.bytes += len;
        let old = self.slots.insert(at, Slot { raw, stripe, has_reference });
        self.bytes -= old.as_ref().map_or(0, |slot| slot.raw.len());
        old
    }

    /// Removes an entry if it is still the one of this stripe.
    pub(super) fn remove(&mut self, at: At, stripe: u64) -> Option<Slot> {
        if self.slots.get(&at)?.stripe != stripe {
            return None;
        }
        let slot = self.slots.remove(&at)?;
        self.bytes -= slot.raw.len();
        Some(slot)
    }

    /// The entries of an interval of hashes, both ends included.
    pub(super) fn range(&self, first: u64, last: u64) -> impl Iterator<Item = (At, &Slot)> {
        let bounds = (Bound::Included((first, 0)), Bound::Included((last, u32::MAX)));
        self.slots.range(bounds).map(|(&at, slot)| (at, slot))
    }

    /// The places of one hash whose newest entry is in this stripe.
    pub(super) fn is_newest_in(&self, hash: u64, stripe: u64) -> bool {
        self.range(hash, hash).any(|(_, slot)| slot.stripe == stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Kind;
    use super::*;

    fn raw(hash: u64, key: &[u8], record: &[u8]) -> Bytes {
        let body = [key, record].concat();
        let entry = Entry {
            hash,
            checksum: 0,
            kind: Kind::CELL,
            database: 0,
            key_len: key.len(),
            body: &body,
        };
        let mut out = Vec::new();
        entry.append_to(&mut out);
        Bytes::from(out)
    }

    #[test]
    fn places_of_one_hash_are_kept_apart() {
        let mut index = Index::default();
        for (i, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            assert!(index.insert(raw(5, key, b"1"), i as u64).is_none());
        }
        assert_eq!(index.insert(raw(5, b"b", b"22"), 9).map(|slot| slot.stripe), Some(1));
        assert!(index.remove((5, 0), 0).is_some());
        assert!(index.insert(raw(5, b"b", b"333"), 10).is_some_and(|slot| slot.stripe == 9));
        let keys: Vec<Vec<u8>> =
            index.range(5, 5).map(|(_, slot)| slot.entry().body.to_vec()).collect();
        assert_eq!(keys, [b"b333".to_vec(), b"c1".to_vec()]);
        assert!(index.is_newest_in(5, 10) && !index.is_newest_in(5, 9));
    }
}
