//! The `volatile` medium: records in memory, as small as they can be, for as long as the process
//! lives.
//!
//! It keeps the registers that a worker's cells have let go; a put or a removal takes effect at
//! once. Shard fields never leave a worker's memory, so there are none here. It does not survive a
//! restart: a node that comes back builds it with [`Beginning::Forgotten`] and recovers from a
//! quorum before it votes.

mod packed;
mod records;

use bytes::Bytes;
use types::key::SHARDS;
use types::limits::SPACES;
use types::{Database, Positions, Shard, Ticket};

use self::records::Records;
use crate::store::{Completion, Load, Place, Store};

/// The claim of a node without durable records when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// The first start of a new cluster: an absent record was never there.
    New,
    /// Any later start: everything that was known is forgotten.
    Forgotten,
}

/// The kept records of a shard.
#[derive(Debug)]
struct Kept {
    forgotten: bool,
    records: Records,
}

/// A [`Store`] whose records live no longer than it does.
#[derive(Debug)]
pub struct VolatileStore {
    databases: Vec<Vec<Kept>>,
    /// Answers to scans, taken by the next poll.
    scanned: Vec<Completion>,
}

impl VolatileStore {
    #[must_use]
    pub fn new(beginning: Beginning) -> VolatileStore {
        let forgotten = beginning == Beginning::Forgotten;
        let shard = |database| Kept { forgotten, records: Records::new(database) };
        let database = |it| (0..SHARDS).map(|_| shard(Database(it as u8))).collect();
        VolatileStore { databases: (0..SPACES).map(database).collect(), scanned: Vec::new() }
    }

    fn shard(&self, database: Database, shard: Shard) -> &Kept {
        &self.databases[usize::from(database.0)][usize::from(shard.0)]
    }

    fn shard_mut(&mut self, database: Database, shard: Shard) -> &mut Kept {
        &mut self.databases[usize::from(database.0)][usize::from(shard.0)]
    }
}

impl Store for VolatileStore {
    fn load(&mut self, place: &Place) -> Load {
        let (kept, record) = match place {
            Place::Cell(database, key) => {
                let kept = self.shard(*database, key.shard());
                (kept, kept.records.get(key))
            }
            Place::Meta(database, shard) => (self.shard(*database, *shard), None),
        };
        match record {
            Some(record) => Load::Found(Bytes::copy_from_slice(record)),
            None if kept.forgotten => Load::Lost,
            None => Load::Absent,
        }
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        if let Place::Cell(database, key) = place {
            self.shard_mut(*database, key.shard()).records.put(key, record);
        }
    }

    fn remove(&mut self, place: &Place) {
        if let Place::Cell(database, key) = place {
            self.shard_mut(*database, key.shard()).records.remove(key);
        }
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        self.shard_mut(database, shard).forgotten = forgotten;
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.shard(database, shard).forgotten
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        let shard = Shard((from_hash >> 56) as u8);
        let (records, next_hash) = self.shard(database, shard).records.list(from_hash, limit);
        self.scanned.push(Completion::Scanned { id, records, next_hash });
    }

    fn ticket(&self) -> Ticket {
        Ticket::DURABLE
    }

    fn submit(&mut self) {}

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.scanned);
    }

    fn set_positions(&mut self, positions: &Positions) {
        let all = self.databases.iter_mut().flatten();
        all.for_each(|kept| kept.records.set_positions(positions));
    }

    fn outlives_process(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use types::Key;

    use super::*;

    fn cell(key: &[u8]) -> Place {
        Place::Cell(Database(3), Key::new(key))
    }

    #[test]
    fn what_is_put_is_there_at_once() {
        let mut store = VolatileStore::new(Beginning::New);
        assert_eq!(store.load(&cell(b"a")), Load::Absent);
        store.put(&cell(b"a"), b"record");
        assert_eq!(store.ticket(), Ticket::DURABLE);
        assert_eq!(store.load(&cell(b"a")), Load::Found(Bytes::from("record")));
        assert_eq!(store.load(&Place::Cell(Database(4), Key::new(b"a"))), Load::Absent);
        store.remove(&cell(b"a"));
        assert_eq!(store.load(&cell(b"a")), Load::Absent);
    }

    #[test]
    fn a_restarted_node_has_lost_every_shard_until_each_is_recovered() {
        let mut store = VolatileStore::new(Beginning::Forgotten);
        let key = Key::new(b"a");
        assert_eq!(store.load(&cell(b"a")), Load::Lost);
        store.put(&cell(b"a"), b"recovered");
        assert_eq!(store.load(&cell(b"a")), Load::Found(Bytes::from("recovered")));
        store.remove(&cell(b"a"));
        assert_eq!(store.load(&cell(b"a")), Load::Lost);
        store.set_forgotten(Database(3), key.shard(), false);
        assert_eq!(store.load(&cell(b"a")), Load::Absent);
        assert_eq!(store.load(&Place::Meta(Database(3), key.shard())), Load::Absent);
        assert_eq!(store.load(&Place::Cell(Database(4), key)), Load::Lost);
    }

    #[test]
    fn a_scan_is_answered_once() {
        let mut store = VolatileStore::new(Beginning::New);
        let key = Key::new(b"a");
        store.put(&cell(b"a"), b"1");
        store.scan(7, Database(3), key.shard().first_hash(), 10);
        let mut completions = Vec::new();
        store.poll(&mut completions);
        store.poll(&mut completions);
        let records = vec![(key, Bytes::from("1"))];
        assert_eq!(completions, [Completion::Scanned { id: 7, records, next_hash: None }]);
    }
}
