//! Listing a shard: leaf by leaf in hash order, with the open batch laid over it.

use bytes::Bytes;
use types::Key;

use super::shards::PmemStore;
use crate::pmem::directory::{Damaged, Entry};
use crate::pmem::layout::ShardId;
use crate::pmem::memory::Memory;
use crate::pmem::slot::Kind;
use crate::store::LISTED_LEN_MAX;

impl<M: Memory> PmemStore<M> {
    /// The records from `from_hash` on, in key order, and where to go on.
    pub(super) fn list(
        &mut self,
        shard: ShardId,
        from_hash: u64,
        limit: usize,
    ) -> (Vec<(Key, Bytes)>, Option<u64>) {
        let mut entries = Vec::new();
        let mut next = Some(from_hash);
        while let Some(hash) = next.filter(|_| entries.len() < limit.max(1)) {
            let listed = entries.len();
            next = self.shared.list(shard, hash, &mut entries).unwrap_or_else(|damage| {
                entries.truncate(listed);
                self.forget_way(shard, hash, damage);
                // An entry that is still unreadable after that is forgotten, and the shard says so.
                self.shared.list(shard, hash, &mut entries).unwrap_or(None)
            });
        }
        entries.sort_unstable_by_key(|entry| entry.hash);
        if let Some(cut) = entries.get(limit.max(1)).map(|entry| entry.hash) {
            // All of one hash stay together; the first hash is listed whatever the limit.
            let is_first = entries[0].hash == cut;
            let cut = if is_first { cut.checked_add(1) } else { Some(cut) };
            entries.retain(|entry| cut.is_none_or(|cut| entry.hash < cut));
            next = cut.filter(|cut| cut >> 56 == u64::from(shard.shard.0));
        }
        let (records, cut) = self.read_all(shard, entries);
        (records, cut.or(next))
    }

    pub(super) fn forget_way(&mut self, shard: ShardId, hash: u64, damage: Damaged) {
        self.forget(shard, None, damage);
        if self.failure.is_none() {
            self.shared.repair(shard, hash, damage.entry);
        }
    }

    /// The records of entries in hash order, and where to go on if they were too long for one listing.
    fn read_all(
        &mut self,
        shard: ShardId,
        entries: Vec<Entry>,
    ) -> (Vec<(Key, Bytes)>, Option<u64>) {
        let mut records = Vec::with_capacity(entries.len());
        let (mut len, mut last) = (0, None);
        for entry in entries {
            if len >= LISTED_LEN_MAX && last != Some(entry.hash) {
                return (records, Some(entry.hash));
            }
            last = Some(entry.hash);
            let buffers = &mut self.scratch.buffers;
            let found = self.shared.read_live(entry.slot, shard, Kind::Cell, buffers);
            let whole = found.and_then(|(_, reading, content)| {
                let key = reading.key(&content, buffers);
                let position = self.shared.positions().of_database(shard.database, key);
                let key = Key::at(position, key);
                let record = Bytes::copy_from_slice(reading.record(&content, buffers));
                (key.hash() == entry.hash).then_some((key, record))
            });
            match whole {
                Some(record) => {
                    len += record.0.bytes().len() + record.1.len();
                    records.push(record);
                }
                None => self.forget_way(shard, entry.hash, Damaged { entry: Some(entry.at) }),
            }
        }
        (records, None)
    }

    /// Lays the open batch's changes of some hashes over records that were listed.
    pub(super) fn overlay(
        &self,
        shard: ShardId,
        hashes: impl Fn(u64) -> bool,
        records: &mut Vec<(Key, Bytes)>,
    ) {
        for (_, key, record) in
            self.batch.cells().filter(|(of, key, _)| *of == shard && hashes(key.hash()))
        {
            records.retain(|(other, _)| other != key);
            records.extend(record.map(|record| (key.clone(), Bytes::copy_from_slice(record))));
        }
    }
}
