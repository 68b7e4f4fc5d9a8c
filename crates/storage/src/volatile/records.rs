//! The records of one shard.

use std::hash::BuildHasher;

use bytes::Bytes;
use hashbrown::HashTable;
use types::key::ByHash;
use types::positions::PUBLIC;
use types::{Database, Key, Positions};

use super::packed::Packed;
use crate::store::LISTED_LEN_MAX;

/// Records that the table keeps room for.
const KEPT_CAPACITY: usize = 64;

/// Keys of one shard with their records.
#[derive(Debug)]
pub(super) struct Records {
    table: HashTable<Packed>,
    database: Database,
    positions: Positions,
}

impl Records {
    pub(super) fn new(database: Database) -> Records {
        Records { table: HashTable::new(), database, positions: PUBLIC.clone() }
    }

    /// # Panics
    /// If there are records already.
    pub(super) fn set_positions(&mut self, positions: &Positions) {
        assert!(self.table.is_empty(), "records lie where other positions put them");
        self.positions = positions.clone();
    }

    pub(super) fn get(&self, key: &Key) -> Option<&[u8]> {
        let is_it = |packed: &Packed| packed.parts().0 == key.bytes();
        Some(self.table.find(place_of(key.hash()), is_it)?.parts().1)
    }

    pub(super) fn put(&mut self, key: &Key, record: &[u8]) {
        let is_it = |packed: &Packed| packed.parts().0 == key.bytes();
        let packed = Packed::new(key.bytes(), record);
        match self.table.find_mut(place_of(key.hash()), is_it) {
            Some(known) => *known = packed,
            None => {
                let place_again =
                    |packed: &Packed| place_again((&self.positions, self.database), packed);
                self.table.insert_unique(place_of(key.hash()), packed, place_again);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let is_it = |packed: &Packed| packed.parts().0 == key.bytes();
        if let Ok(entry) = self.table.find_entry(place_of(key.hash()), is_it) {
            entry.remove();
            self.shrink();
        }
    }

    /// Gives back the memory of a table that has become nearly empty.
    fn shrink(&mut self) {
        let table = &mut self.table;
        if table.capacity() > KEPT_CAPACITY && table.capacity() / 8 > table.len() {
            let place_again =
                |packed: &Packed| place_again((&self.positions, self.database), packed);
            table.shrink_to(2 * table.len(), place_again);
        }
    }

    /// About `limit` records in key order from `from_hash` on, and where to go on; fewer if they are
    /// long. Never splits a hash.
    pub(super) fn list(&self, from_hash: u64, limit: usize) -> (Vec<(Key, Bytes)>, Option<u64>) {
        let hashed = self
            .table
            .iter()
            .map(|packed| (hash_of((&self.positions, self.database), packed), packed));
        let mut found: Vec<_> = hashed.filter(|(hash, _)| *hash >= from_hash).collect();
        let mut next_hash = None;
        if limit < found.len() {
            // Selecting is linear: a shard of a large database is not sorted for every step of a listing.
            let first = found.iter().map(|(hash, _)| *hash).min();
            let end = found.select_nth_unstable_by_key(limit, |(hash, _)| *hash).1.0;
            // One hash that fills the whole step is taken whole.
            let end = if first < Some(end) { Some(end) } else { end.checked_add(1) };
            found.retain(|(hash, _)| end.is_none_or(|end| *hash < end));
            next_hash = end;
        }
        found.sort_unstable_by_key(|(hash, _)| *hash);
        let (mut len, mut last) = (0, None);
        let cut = found.iter().position(|(hash, packed)| {
            let is_cut = len >= LISTED_LEN_MAX && last != Some(*hash);
            len += packed.parts().1.len();
            last = Some(*hash);
            is_cut
        });
        if let Some(at) = cut {
            next_hash = Some(found[at].0);
            found.truncate(at);
        }
        let read = |(position, packed): (u64, &Packed)| {
            let (key, record) = packed.parts();
            (Key::at(position, key), Bytes::copy_from_slice(record))
        };
        let mut records: Vec<_> = found.into_iter().map(read).collect();
        records.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        (records, next_hash)
    }
}

/// The position of its key in the hash space.
fn hash_of((positions, database): (&Positions, Database), packed: &Packed) -> u64 {
    positions.of_database(database, packed.parts().0)
}

fn place_of(hash: u64) -> u64 {
    ByHash.hash_one(hash)
}

fn place_again(of: (&Positions, Database), packed: &Packed) -> u64 {
    place_of(hash_of(of, packed))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<Key, Bytes>;

    /// Every record, by steps of `limit`.
    fn listed(records: &Records, limit: usize) -> Vec<(Key, Bytes)> {
        let (mut all, mut from_hash) = (Vec::new(), 0);
        loop {
            let (step, next_hash) = records.list(from_hash, limit);
            assert!(step.iter().all(|(key, _)| key.hash() >= from_hash));
            all.extend(step);
            match next_hash {
                Some(next) => from_hash = next,
                None => return all,
            }
        }
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0_u8..40).prop_map(|number| vec![number]),
            1 => (0_u8..4, 0_usize..300).prop_map(|(byte, len)| vec![byte; len]),
        ]
    }

    fn step() -> impl Strategy<Value = (Vec<u8>, Option<Vec<u8>>)> {
        (keys(), proptest::option::weighted(0.7, vec(any::<u8>(), 0..200)))
    }

    proptest! {
        #[test]
        fn records_are_a_map_in_key_order(
            steps in vec(step(), 0..200),
            limit in 1_usize..20,
            is_hidden in any::<bool>(),
        ) {
            let database = if is_hidden { Database(3).hidden() } else { Database(3) };
            let (mut records, mut model) = (Records::new(database), Model::new());
            for (bytes, record) in steps {
                let key = Key::at(PUBLIC.of_database(database, &bytes), &bytes);
                match &record {
                    Some(record) => records.put(&key, record),
                    None => records.remove(&key),
                }
                match record {
                    Some(record) => model.insert(key.clone(), record.into()),
                    None => model.remove(&key),
                };
                prop_assert_eq!(records.get(&key), model.get(&key).map(|record| &record[..]));
            }
            prop_assert_eq!(listed(&records, limit), model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_table_grows_and_gives_its_memory_back() {
        let mut records = Records::new(Database(3));
        let key = |number: u32| Key::new(&number.to_le_bytes());
        (0..5_000).for_each(|number| records.put(&key(number), &number.to_be_bytes()));
        assert!((0..5_000).all(|n| records.get(&key(n)) == Some(&n.to_be_bytes()[..])));
        (0..5_000).for_each(|number| records.remove(&key(number)));
        assert!(records.list(0, 10).0.is_empty());
        assert!(records.table.capacity() <= 2 * KEPT_CAPACITY);
    }

    /// Records are copied: a step takes no more memory than one of other media.
    #[test]
    fn long_records_make_short_steps() {
        let mut records = Records::new(Database(0));
        let long = vec![b'v'; LISTED_LEN_MAX / 2];
        for number in 0..7_u8 {
            records.put(&Key::new(&[number]), &long);
        }
        let (step, next_hash) = records.list(0, 1_000);
        assert_eq!(step.len(), 2);
        assert!(next_hash.is_some());
        assert_eq!(listed(&records, 1_000).len(), 7);
    }
}
