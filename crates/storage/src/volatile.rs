//! The `volatile` medium: nothing is stored anywhere.
//!
//! The worker's own cells are the only copy of a register, so this store holds no records at all; it only
//! knows which shards have been forgotten. It does not survive a restart and does not pretend to: a node that
//! comes back builds it with [`Beginning::Forgotten`] and recovers from a quorum before it votes.

use types::key::SHARDS;
use types::limits::DATABASES;
use types::{Database, Key, Shard, Ticket};

use crate::store::{Completion, Load, Place, Store};

/// What a node without durable records may claim when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// The first start of a new cluster: what is absent was never there.
    New,
    /// Any later start: everything that was known is forgotten.
    Forgotten,
}

/// A [`Store`] that keeps no records.
#[derive(Debug)]
pub struct VolatileStore {
    forgotten: Box<[[bool; SHARDS]; DATABASES]>,
    // Scans asked for since the last poll; each is answered by it.
    scanned: Vec<u64>,
}

impl VolatileStore {
    #[must_use]
    pub fn new(beginning: Beginning) -> VolatileStore {
        let forgotten = beginning == Beginning::Forgotten;
        VolatileStore { forgotten: Box::new([[forgotten; SHARDS]; DATABASES]), scanned: Vec::new() }
    }

    fn unknown(&self, database: Database, shard: Shard) -> Load {
        if self.is_forgotten(database, shard) { Load::Lost } else { Load::Absent }
    }
}

impl Store for VolatileStore {
    fn load(&mut self, place: &Place) -> Load {
        match place {
            Place::Cell(database, key) => self.unknown(*database, Key::shard(key)),
            Place::Meta(database, shard) => self.unknown(*database, *shard),
        }
    }

    fn put(&mut self, _place: &Place, _record: &[u8]) {}

    fn remove(&mut self, _place: &Place) {}

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        self.forgotten[usize::from(database.0)][usize::from(shard.0)] = forgotten;
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.forgotten[usize::from(database.0)][usize::from(shard.0)]
    }

    fn scan(&mut self, id: u64, _database: Database, _from_hash: u64, _limit: usize) {
        self.scanned.push(id);
    }

    fn ticket(&self) -> Ticket {
        Ticket::DURABLE
    }

    fn submit(&mut self) {}

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let answer = |id| Completion::Scanned { id, records: Vec::new(), next_hash: None };
        completions.extend(self.scanned.drain(..).map(answer));
    }

    fn keeps_records(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(key: &[u8]) -> Place {
        Place::Cell(Database(3), Key::new(key))
    }

    #[test]
    fn nothing_is_kept_and_nothing_needs_waiting() {
        let mut store = VolatileStore::new(Beginning::New);
        store.put(&cell(b"a"), b"record");
        assert_eq!(store.ticket(), Ticket::DURABLE);
        store.submit();
        assert_eq!(store.load(&cell(b"a")), Load::Absent);
        assert!(!store.keeps_records());
    }

    #[test]
    fn a_restarted_node_has_lost_every_shard_until_each_is_recovered() {
        let mut store = VolatileStore::new(Beginning::Forgotten);
        let key = Key::new(b"a");
        assert_eq!(store.load(&cell(b"a")), Load::Lost);
        store.set_forgotten(Database(3), key.shard(), false);
        assert_eq!(store.load(&cell(b"a")), Load::Absent);
        assert_eq!(store.load(&Place::Meta(Database(3), key.shard())), Load::Absent);
        assert_eq!(store.load(&Place::Cell(Database(4), key)), Load::Lost);
    }

    #[test]
    fn a_scan_is_answered_once_and_empty() {
        let mut store = VolatileStore::new(Beginning::New);
        store.scan(7, Database(0), 0, 10);
        let mut completions = Vec::new();
        store.poll(&mut completions);
        store.poll(&mut completions);
        let empty = Completion::Scanned { id: 7, records: Vec::new(), next_hash: None };
        assert_eq!(completions, [empty]);
    }
}
