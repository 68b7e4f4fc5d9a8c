//! A part of the index: the places whose hashes share their top bits.

use super::slot::Slot;

/// Top bits of the hash that choose the part.
const PART_BITS: u32 = 15;
/// Parts of an index.
pub(super) const PARTS: usize = 1 << PART_BITS;

/// A part that is full grows by one of so many: half of that is unused on average.
const GROWTH_PARTS: usize = 4;

/// How far from where it should be a hash is looked for before all of the part is searched.
const NEAR_MAX: usize = 18;

/// Places that a part grows by at least.
const GROWTH_MIN: usize = 4;

/// Bytes of memory that a place takes besides its entries.
pub(super) const PLACE_LEN: usize =
    size_of::<Hashed>() * (2 * GROWTH_PARTS + 1) / (2 * GROWTH_PARTS);

/// The part of a hash.
pub(super) fn part_of(hash: u64) -> usize {
    (hash >> (64 - PART_BITS)) as usize
}

/// A place of the index, and its hash.
#[derive(Debug)]
pub(super) struct Hashed {
    pub(super) hash: u64,
    pub(super) slot: Slot,
}

/// Entries whose hashes share their top bits, ordered by hash, then tie.
#[derive(Default, Debug)]
pub(super) struct Part {
    pub(super) places: Vec<Hashed>,
}

impl Part {
    /// Where the places of a hash begin.
    pub(super) fn first(&self, hash: u64) -> usize {
        let places = &self.places;
        let mut at = self.near(hash);
        for _ in 0..NEAR_MAX {
            if at > 0 && places[at - 1].hash >= hash {
                at -= 1;
            } else if at < places.len() && places[at].hash < hash {
                at += 1;
            } else {
                return at;
            }
        }
        places.partition_point(|known| known.hash < hash)
    }

    /// Where a hash would be if all were spread evenly, as they nearly are.
    fn near(&self, hash: u64) -> usize {
        let share = u128::from(hash << PART_BITS) * self.places.len() as u128;
        (share >> u64::BITS) as usize
    }

    /// Of hashes on both sides of where this one is about: for the processor's caches.
    pub(super) fn around(&self, hash: u64) -> u64 {
        let near = self.near(hash);
        let known = |at: usize| self.places.get(at).map_or(0, |place| place.hash);
        known(near.saturating_sub(1)) ^ known(near + 1)
    }

    /// The place at an index if it is of this hash.
    pub(super) fn is_at(&self, at: usize, hash: u64) -> Option<&Slot> {
        let place = self.places.get(at).filter(|place| place.hash == hash);
        place.map(|place| &place.slot)
    }

    pub(super) fn insert(&mut self, at: usize, hash: u64, slot: Slot) {
        if self.places.len() == self.places.capacity() {
            self.places.reserve_exact((self.places.len() / GROWTH_PARTS).max(GROWTH_MIN));
        }
        self.places.insert(at, Hashed { hash, slot });
    }

    /// The places of one hash, by where they stand.
    pub(super) fn same(&self, hash: u64) -> impl Iterator<Item = usize> {
        self.same_from(self.first(hash), hash)
    }

    /// The same, from where they begin.
    pub(super) fn same_from(&self, first: usize, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let same = self.places[first..].iter().take_while(|place| place.hash == hash).count();
        first..first + same
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;

    fn check(mut hashes: Vec<u64>) {
        hashes.sort_unstable();
        let shared = Arc::new(Bytes::new());
        let place = |&hash: &u64| Hashed { hash, slot: Slot::new(&shared, 0, 0) };
        let part = Part { places: hashes.iter().map(place).collect() };
        let around = |hash: u64| [hash.saturating_sub(1), hash, hash.saturating_add(1)];
        for hash in hashes.iter().copied().chain([0, u64::MAX]).flat_map(around) {
            assert_eq!(part.first(hash), hashes.partition_point(|&known| known < hash));
        }
    }

    #[test]
    fn a_hash_is_found_wherever_the_others_are() {
        let mut prng = base::Prng::new(1);
        for len in [0, 1, 2, 40, 400] {
            for common in [0, PART_BITS, PART_BITS + 9, 62] {
                // Within an interval of those that begin alike, at either end of the part too.
                for base in [0, u64::MAX, prng.next_u64()] {
                    let low = u64::MAX >> common;
                    check((0..len).map(|_| base & !low | prng.next_u64() & low).collect());
                }
            }
        }
    }
}
