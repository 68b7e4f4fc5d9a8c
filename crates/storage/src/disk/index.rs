//! The index of the ring: the newest entry of every place that has not gone home, by hash.
//!
//! Older entries stand behind it until it is durable. Until then the medium needs them, and may
//! bring one home to make room in the ring.
//!
//! It is ordered by hash: write-back takes a bucket's interval at once, and listings merge it with
//! the pages. Top bits of the hash cut it into short parts, so that a lookup touches little memory
//! and an insertion moves little.

mod part;
mod slot;

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::entry::{Entry, Identity, Reference};
use super::sizes::Sizes;
use super::stripe;
use part::{Hashed, PARTS, PLACE_LEN, Part, part_of};
pub(super) use slot::Slot;

/// A hash, and a number that tells apart places of one hash.
pub(super) type At = (u64, u32);

/// Places that are brought into the processor's caches together.
pub(super) const WARMED: usize = 32;

/// The entry that another one has replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Replaced {
    pub(super) at: At,
    pub(super) stripe: u64,
    pub(super) reference: Option<Reference>,
}

/// The newest entries, by hash.
#[derive(Debug)]
pub(super) struct Index {
    parts: Vec<Part>,
    len: usize,
    sizes: Sizes,
    /// Entries that refer to extents, the replaced ones included.
    references: usize,
}

impl Default for Index {
    fn default() -> Index {
        let parts = (0..PARTS).map(|_| Part::default()).collect();
        Index { parts, len: 0, sizes: Sizes::default(), references: 0 }
    }
}

impl Index {
    fn part(&self, hash: u64) -> &Part {
        &self.parts[part_of(hash)]
    }

    /// Of the newest entries.
    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// False if no entry refers to an extent.
    pub(super) fn has_references(&self) -> bool {
        self.references > 0
    }

    /// Lets go of an entry. Skips the look at it if no entry refers to an extent.
    fn forget(&mut self, slot: &Slot) {
        if self.references > 0 {
            self.references -= usize::from(slot.entry().kind.is_in_extent());
        }
    }

    /// Bytes of memory that it takes besides those of entries, about.
    pub(super) fn overhead(&self) -> usize {
        self.len * PLACE_LEN
    }

    pub(super) fn find(&self, identity: &Identity) -> Option<Entry<'_>> {
        let part = self.part(identity.hash);
        let mut entries = part.same(identity.hash).map(|i| part.places[i].slot.entry());
        entries.find(|entry| identity.matches(entry))
    }

    /// Inserts the entries of a durable batch that a start has found and checked. `replaced` is
    /// told the batch of each entry that they replace.
    pub(super) fn insert_durable(
        &mut self,
        payload: &Bytes,
        stripe: u64,
        mut replaced: impl FnMut(u64),
    ) {
        let (entries, _) = stripe::entries(payload).expect("it was checked when it was found");
        let shared = Arc::new(payload.slice_ref(entries));
        let (mut at, mut cold) = (0, 0);
        for (raw, entry) in Entry::all(&shared) {
            if cold == 0 {
                cold = WARMED;
                self.warm(Entry::hashes(&shared[at..]));
            }
            cold -= 1;
            let start = at;
            at += raw.len();
            if entry.mark().is_some() {
                continue;
            }
            if let Some(old) = self.insert(&shared, start, stripe) {
                let settled = self.settle(old.at, stripe);
                assert!(settled.is_none_or(|settled| settled == old.stripe), "only one is older");
                replaced(old.stripe);
            }
        }
    }

    /// Brings the entries of these hashes into the processor's caches, at most [`WARMED`] at a
    /// time. Their cache misses overlap; those of one insertion after the other would not.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        let places: SmallVec<[(u64, &Part); WARMED]> =
            hashes.take(WARMED).map(|hash| (hash, &self.parts[part_of(hash)])).collect();
        black_box(places.iter().fold(0, |all, (hash, part)| all ^ part.around(*hash)));
        // Only one of the same hash is looked into.
        let known: SmallVec<[&Slot; WARMED]> =
            places.iter().filter_map(|(hash, part)| part.is_at(part.first(*hash), *hash)).collect();
        black_box(known.iter().map(|slot| slot.shared.len()).fold(0, |all, one| all ^ one));
        let bytes = known.iter().filter_map(|slot| slot.shared.get(slot.at as usize));
        let older = known.iter().filter_map(|slot| slot.older.as_ref()).map(|older| older.stripe);
        black_box(bytes.map(|&byte| u64::from(byte)).chain(older).fold(0, |all, one| all ^ one));
    }

    /// Brings the entries of an interval of hashes into the processor's caches, both ends included:
    /// see [`Index::warm`].
    pub(super) fn warm_range(&self, first: u64, last: u64) {
        let bytes = self.range(first, last).map(|(_, slot)| slot.shared.get(slot.at as usize));
        black_box(bytes.flatten().fold(0, |all, one| all ^ one));
    }

    /// Puts the entry at `at`, which was checked, in front of an older one. That stays behind it
    /// until [`Index::settle`], unless it is of the same batch.
    pub(super) fn insert(
        &mut self,
        shared: &Arc<Bytes>,
        at: usize,
        stripe: u64,
    ) -> Option<Replaced> {
        let mut new = Slot::new(shared, at, stripe);
        let entry = Entry::known(&shared[at..]);
        let hash = entry.hash;
        let part = &mut self.parts[part_of(hash)];
        let mut at = part.first(hash);
        let mut known = None;
        for i in part.same_from(at, hash) {
            if part.places[i].slot.entry().has_identity_of(&entry) {
                known = Some(i);
                break;
            }
            (at, new.tie) = (i + 1, part.places[i].slot.tie + 1);
        }
        self.sizes.add(&entry);
        self.references += usize::from(entry.kind.is_in_extent());
        if let Some(i) = known {
            let slot = &mut part.places[i].slot;
            new.tie = slot.tie;
            let mut old = std::mem::replace(slot, new);
            let entry = old.entry();
            self.sizes.remove(&entry);
            let (at, reference) = ((hash, slot.tie), entry.reference());
            let replaced = Replaced { at, stripe: old.stripe, reference };
            if old.stripe == stripe {
                slot.older = old.older.take();
                self.references -= usize::from(reference.is_some());
            } else {
                slot.older = Some(Box::new(old));
            }
            return Some(replaced);
        }
        part.insert(at, hash, new);
        self.len += 1;
        None
    }

    /// The batch is durable, so no older entry of this place is needed; returns the batch of the
    /// older one.
    pub(super) fn settle(&mut self, (hash, tie): At, stripe: u64) -> Option<u64> {
        let part = &mut self.parts[part_of(hash)];
        let at = part.same(hash).find(|&i| part.places[i].slot.tie == tie)?;
        let mut slot = &mut part.places[at].slot;
        while slot.stripe > stripe {
            slot = slot.older.as_mut()?;
        }
        let older = slot.older.take()?;
        assert!(older.older.is_none(), "stripe {} was not settled", older.stripe);
        self.forget(&older);
        Some(older.stripe)
    }

    /// Removes the entry that this ring batch has of a place, if it is still there.
    pub(super) fn remove(&mut self, (hash, tie): At, stripe: u64) -> Option<Slot> {
        let part = &mut self.parts[part_of(hash)];
        let at = part.same(hash).find(|&i| part.places[i].slot.tie == tie)?;
        if part.places[at].slot.stripe != stripe {
            let mut link = &mut part.places[at].slot.older;
            while link.as_ref()?.stripe != stripe {
                link = &mut link.as_mut()?.older;
            }
            let mut found = link.take()?;
            *link = found.older.take();
            self.forget(&found);
            return Some(*found);
        }
        let Hashed { slot, .. } = part.places.remove(at);
        self.sizes.remove(&slot.entry());
        self.len -= 1;
        if part.places.is_empty() {
            // A store at rest keeps no room for the entries of a full ring.
            *part = Part::default();
        }
        self.forget(&slot);
        Some(slot)
    }

    /// The entries of an interval of hashes, both ends included.
    pub(super) fn range(&self, first: u64, last: u64) -> impl Iterator<Item = (At, &Slot)> {
        (part_of(first)..=part_of(last)).flat_map(move |number| {
            let part = &self.parts[number];
            let places = part.places[part.first(first)..].iter();
            let places = places.take_while(move |place| place.hash <= last);
            places.map(|Hashed { hash, slot }| ((*hash, slot.tie), slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Kind, REFERENCE_LEN};
    use super::*;

    fn raw(hash: u64, key: &[u8], record: &[u8]) -> Arc<Bytes> {
        let body = [key, record].concat();
        // A record that is long enough and begins so counts as a reference.
        let is_reference = record.len() >= REFERENCE_LEN && record[0] % 2 == 1;
        let kind = if is_reference { Kind::CELL.in_extent() } else { Kind::CELL };
        let entry = Entry { hash, checksum: 0, kind, database: 0, key_len: key.len(), body: &body };
        let mut out = Vec::new();
        entry.append_to(&mut out);
        Arc::new(Bytes::from(out))
    }

    fn bytes(slot: &Slot) -> Vec<u8> {
        let mut out = Vec::new();
        slot.entry().append_to(&mut out);
        out
    }

    #[test]
    fn places_of_one_hash_are_kept_apart() {
        let mut index = Index::default();
        for (i, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            assert!(index.insert(&raw(5, key, b"1"), 0, i as u64).is_none());
        }
        assert_eq!(index.insert(&raw(5, b"b", b"22"), 0, 9).map(|old| old.stripe), Some(1));
        assert!(index.remove((5, 0), 0).is_some());
        assert!(index.insert(&raw(5, b"b", b"333"), 0, 10).is_some_and(|old| old.stripe == 9));
        let keys: Vec<Vec<u8>> =
            index.range(5, 5).map(|(_, slot)| slot.entry().body.to_vec()).collect();
        assert_eq!(keys, [b"b333".to_vec(), b"c1".to_vec()]);
        let stripes: Vec<u64> = index.range(5, 5).map(|(_, slot)| slot.stripe).collect();
        assert_eq!(stripes, [10, 2]);
    }

    #[test]
    fn entries_that_a_start_found_are_durable_at_once() {
        let mut prng = base::Prng::new(7);
        let (mut index, mut wanted) = (Index::default(), Index::default());
        let (mut dead, mut wanted_dead) = (Vec::new(), Vec::new());
        for stripe in 4..13 {
            let mut writer = stripe::StripeWriter::new();
            for _ in 0..40 {
                // Few hashes, in several parts, with several keys each.
                let hash = prng.below(12) << 58 | prng.below(2);
                let record = vec![prng.below(9) as u8; *prng.pick(&[1, REFERENCE_LEN])];
                let entry = raw(hash, &[b'a' + prng.below(3) as u8], &record);
                writer.push(&entry);
                if let Some(old) = wanted.insert(&entry, 0, stripe) {
                    wanted.settle(old.at, stripe);
                    wanted_dead.push(old.stripe);
                }
            }
            let len = writer.payload_len();
            let sectors = writer.finish(1, 0);
            let payload: Vec<u8> = sectors
                .chunks(stripe::SECTOR)
                .flat_map(|sector| &sector[..stripe::PAYLOAD])
                .copied()
                .take(len)
                .collect();
            index.insert_durable(&payload.into(), stripe, |stripe| dead.push(stripe));
        }
        let all = |index: &Index| {
            let slots = index.range(0, u64::MAX);
            slots.map(|(at, slot)| (at, slot.stripe, bytes(slot))).collect::<Vec<_>>()
        };
        assert_eq!(all(&index), all(&wanted));
        assert_eq!((index.sizes(), index.len), (wanted.sizes(), wanted.len));
        assert_eq!((index.references, dead), (wanted.references, wanted_dead));
    }

    #[test]
    fn what_is_replaced_stays_until_its_successor_is_durable() {
        let mut index = Index::default();
        for stripe in 1..=3 {
            index.insert(&raw(5, b"a", &[stripe as u8]), 0, stripe);
        }
        let durable_at = |index: &Index, stripe| {
            let (_, slot) = index.range(0, 9).next()?;
            slot.durable(stripe).map(|slot| slot.stripe)
        };
        assert_eq!([0, 1, 2, 9].map(|s| durable_at(&index, s)), [None, Some(1), Some(2), Some(3)]);
        assert_eq!(index.settle((5, 0), 2), Some(1));
        assert_eq!(durable_at(&index, 1), None);
        assert!(index.remove((5, 0), 2).is_some_and(|slot| slot.stripe == 2), "it goes home");
        assert!(index.remove((5, 0), 2).is_none());
        assert_eq!(index.settle((5, 0), 3), None);
        assert!(index.remove((5, 0), 3).is_some() && index.range(0, 9).next().is_none());
        assert_eq!((index.sizes(), index.len), (Sizes::default(), 0));
    }

    /// The versions of a place, newest first: batch and record.
    type Had = Vec<(u64, Vec<u8>)>;

    #[test]
    fn an_index_is_a_map_of_versions_whatever_goes_home_meanwhile() {
        use std::collections::BTreeMap;

        for seed in 0..100 {
            let mut prng = base::Prng::new(seed);
            let mut index = Index::default();
            let mut model: BTreeMap<(u64, Vec<u8>), Had> = BTreeMap::new();
            let (mut stripe, mut durable) = (5, 4);
            let mut awaited: Vec<(u64, At)> = Vec::new();
            let mut going: Vec<(At, u64, (u64, Vec<u8>))> = Vec::new();
            for _ in 0..120 {
                match prng.below(10) {
                    0..5 => {
                        let mut batch = Vec::new();
                        let mut starts = Vec::new();
                        for _ in 0..prng.between(1, 6) {
                            let hash = prng.below(4) << 60 | prng.below(2);
                            let key = vec![b'a' + prng.below(3) as u8];
                            let record = vec![prng.next_u64() as u8; prng.below(40) as usize];
                            starts.push((batch.len(), hash, key.clone(), record.clone()));
                            batch.extend_from_slice(&raw(hash, &key, &record));
                        }
                        let shared = Arc::new(Bytes::from(batch));
                        for (at, hash, key, record) in starts {
                            let old = index.insert(&shared, at, stripe);
                            let had = model.entry((hash, key)).or_default();
                            assert_eq!(old.map(|old| old.stripe), had.first().map(|it| it.0));
                            match old {
                                Some(old) if old.stripe != stripe => awaited.push((stripe, old.at)),
                                Some(_) => drop(had.remove(0)),
                                None => {}
                            }
                            had.insert(0, (stripe, record));
                        }
                    }
                    5 => stripe += 1,
                    6 if durable + 1 < stripe => {
                        durable += 1;
                        let due = awaited.iter().filter(|it| it.0 == durable).map(|it| it.1);
                        for at in due.collect::<Vec<_>>() {
                            index.settle(at, durable);
                        }
                        awaited.retain(|it| it.0 > durable);
                        for had in model.values_mut() {
                            if let Some(newest) = had.iter().position(|it| it.0 <= durable) {
                                had.truncate(newest + 1);
                            }
                        }
                    }
                    7 if going.is_empty() => {
                        for (at, slot) in index.range(0, u64::MAX) {
                            if let Some(slot) = slot.durable(durable).filter(|_| prng.chance(0.5)) {
                                let entry = slot.entry();
                                let key = entry.body[..entry.key_len].to_vec();
                                going.push((at, slot.stripe, (at.0, key)));
                            }
                        }
                    }
                    8 => {
                        for (at, stripe, place) in going.drain(..) {
                            let gone = index.remove(at, stripe).map(|slot| bytes(&slot));
                            let had = model.entry(place.clone()).or_default();
                            let known = had.iter().position(|it| it.0 == stripe);
                            let wanted = known.map(|known| had.remove(known));
                            let wanted = wanted.map(|(_, it)| raw(place.0, &place.1, &it).to_vec());
                            assert_eq!(gone, wanted, "seed {seed}");
                        }
                        model.retain(|_, had| !had.is_empty());
                    }
                    _ => {}
                }
                let mut found = BTreeMap::new();
                let mut last = None;
                for (at, slot) in index.range(0, u64::MAX) {
                    assert!(last < Some(at), "seed {seed}: in order, and none twice");
                    last = Some(at);
                    let version = |slot: &Slot| {
                        let entry = slot.entry();
                        (slot.stripe, entry.body[entry.key_len..].to_vec())
                    };
                    let entry = slot.entry();
                    let place = (entry.hash, entry.body[..entry.key_len].to_vec());
                    found.insert(place, slot.versions().map(version).collect::<Had>());
                }
                assert_eq!(found, model, "seed {seed}");
                let newest =
                    model.iter().map(|((hash, key), had)| raw(*hash, key, &had[0].1).len());
                assert_eq!(index.sizes().staged, newest.sum::<usize>(), "seed {seed}");
                assert_eq!(index.len, model.len(), "seed {seed}");
                let versions = index.range(0, u64::MAX).flat_map(|(_, slot)| slot.versions());
                let references = versions.filter(|slot| slot.entry().kind.is_in_extent());
                assert_eq!(index.references, references.count(), "seed {seed}");
            }
        }
    }
}
