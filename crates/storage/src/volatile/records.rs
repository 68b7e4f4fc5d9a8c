//! The records of one shard, each in one piece of memory with its key.

use std::hash::BuildHasher;

use bytes::Bytes;
use hashbrown::HashTable;
use types::key::ByHash;
use types::limits::KEY_LEN_MAX;
use types::wire::put_blob;
use types::{Key, Reader};

/// Records that the table keeps room for.
const KEPT_CAPACITY: usize = 64;

/// A key behind its length, and its record: nothing else is kept of a register that nobody uses.
#[derive(Debug)]
struct Packed(Box<[u8]>);

impl Packed {
    fn new(key: &Key, record: &[u8]) -> Packed {
        let key = key.bytes();
        // Exact for nearly all: more would be moved once again.
        let len_len = if key.len() < 128 { 1 } else { 3 };
        let mut bytes = Vec::with_capacity(len_len + key.len() + record.len());
        put_blob(&mut bytes, key);
        bytes.extend_from_slice(record);
        Packed(bytes.into_boxed_slice())
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        let mut reader = Reader::new(&self.0);
        let key = reader.blob(KEY_LEN_MAX).expect("a packed record begins with its key");
        (key, reader.rest())
    }

    fn key(&self) -> &[u8] {
        self.parts().0
    }

    /// The position of its key in the hash space.
    fn hash(&self) -> u64 {
        base::checksum::hash(self.key())
    }
}

/// Keys of one shard with their records.
#[derive(Debug, Default)]
pub(super) struct Records {
    table: HashTable<Packed>,
}

impl Records {
    pub(super) fn get(&self, key: &Key) -> Option<&[u8]> {
        let is_it = |packed: &Packed| packed.key() == key.bytes();
        Some(self.table.find(place_of(key.hash()), is_it)?.parts().1)
    }

    pub(super) fn put(&mut self, key: &Key, record: &[u8]) {
        let is_it = |packed: &Packed| packed.key() == key.bytes();
        let packed = Packed::new(key, record);
        match self.table.find_mut(place_of(key.hash()), is_it) {
            Some(known) => *known = packed,
            None => drop(self.table.insert_unique(place_of(key.hash()), packed, place_again)),
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let is_it = |packed: &Packed| packed.key() == key.bytes();
        if let Ok(entry) = self.table.find_entry(place_of(key.hash()), is_it) {
            entry.remove();
            self.shrink();
        }
    }

    /// Gives back the memory of a table that has become nearly empty.
    fn shrink(&mut self) {
        let table = &mut self.table;
        if table.capacity() > KEPT_CAPACITY && table.capacity() / 8 > table.len() {
            table.shrink_to(2 * table.len(), place_again);
        }
    }

    /// About `limit` records in key order from `from_hash` on, and where to go on. Never splits a hash.
    pub(super) fn list(&self, from_hash: u64, limit: usize) -> (Vec<(Key, Bytes)>, Option<u64>) {
        let hashed = self.table.iter().map(|packed| (packed.hash(), packed));
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
        let read = |(_, packed): (u64, &Packed)| {
            let (key, record) = packed.parts();
            (Key::new(key), Bytes::copy_from_slice(record))
        };
        let mut records: Vec<_> = found.into_iter().map(read).collect();
        records.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        (records, next_hash)
    }
}

fn place_of(hash: u64) -> u64 {
    ByHash.hash_one(hash)
}

fn place_again(packed: &Packed) -> u64 {
    place_of(packed.hash())
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

    fn keys() -> impl Strategy<Value = Key> {
        prop_oneof![
            4 => (0_u8..40).prop_map(|number| Key::new(&[number])),
            1 => (0_u8..4, 0_usize..300).prop_map(|(byte, len)| Key::new(&vec![byte; len])),
        ]
    }

    fn step() -> impl Strategy<Value = (Key, Option<Vec<u8>>)> {
        (keys(), proptest::option::weighted(0.7, vec(any::<u8>(), 0..200)))
    }

    proptest! {
        #[test]
        fn records_are_a_map_in_key_order(steps in vec(step(), 0..200), limit in 1_usize..20) {
            let (mut records, mut model) = (Records::default(), Model::new());
            for (key, record) in steps {
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
        let mut records = Records::default();
        let key = |number: u32| Key::new(&number.to_le_bytes());
        (0..5_000).for_each(|number| records.put(&key(number), &number.to_be_bytes()));
        assert!((0..5_000).all(|n| records.get(&key(n)) == Some(&n.to_be_bytes()[..])));
        (0..5_000).for_each(|number| records.remove(&key(number)));
        assert!(records.list(0, 10).0.is_empty());
        assert!(records.table.capacity() <= 2 * KEPT_CAPACITY);
    }
}
