//! The `volatile` store in virtual time: the real one. It answers at once and is gone with its
//! process.

use std::sync::{Arc, Mutex, MutexGuard};

use storage::volatile::{Beginning, VolatileStore};
use storage::{Completion, Load, Place, Store};
use types::key::SHARDS;
use types::{Database, Shard, Ticket};

#[derive(Debug)]
struct VolatileState {
    /// The databases of the shards in question.
    databases: &'static [Database],
    beginning: Beginning,
    /// The stores of the running process, one per worker.
    stores: Vec<SharedStore>,
}

/// The memory of one node; clones share it.
#[derive(Clone, Debug)]
pub struct VolatileMedium(Arc<Mutex<VolatileState>>);

impl VolatileMedium {
    #[must_use]
    pub fn new(databases: &'static [Database]) -> VolatileMedium {
        let state = VolatileState { databases, beginning: Beginning::New, stores: Vec::new() };
        VolatileMedium(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, VolatileState> {
        self.0.lock().expect("no holder panics")
    }

    /// The stores of a process that starts.
    #[must_use]
    pub fn open(&self, workers: usize) -> Vec<Box<dyn Store>> {
        let mut state = self.lock();
        let beginning = state.beginning;
        state.stores = (0..workers).map(|_| SharedStore::new(beginning)).collect();
        state.stores.iter().map(|store| Box::new(store.clone()) as _).collect()
    }

    /// The process ends, or its memory is wiped: every later one knows that it has forgotten
    /// everything.
    pub fn forget(&self) {
        let mut state = self.lock();
        state.stores.clear();
        state.beginning = Beginning::Forgotten;
    }

    /// True while a shard is forgotten.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        let state = self.lock();
        let workers = state.stores.len();
        if workers == 0 {
            return state.beginning == Beginning::Forgotten;
        }
        let store_of = |shard: usize| &state.stores[shard % workers];
        let is_forgotten = |shard: usize| {
            let mut all = state.databases.iter();
            all.any(|&database| store_of(shard).is_forgotten(database, Shard(shard as u8)))
        };
        (0..SHARDS).any(is_forgotten)
    }
}

/// A worker's store that the world can inspect too.
#[derive(Clone, Debug)]
struct SharedStore(Arc<Mutex<VolatileStore>>);

impl SharedStore {
    fn new(beginning: Beginning) -> SharedStore {
        SharedStore(Arc::new(Mutex::new(VolatileStore::new(beginning))))
    }

    fn lock(&self) -> MutexGuard<'_, VolatileStore> {
        self.0.lock().expect("no holder panics")
    }
}

impl Store for SharedStore {
    fn load(&mut self, place: &Place) -> Load {
        self.lock().load(place)
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.lock().put(place, record);
    }

    fn remove(&mut self, place: &Place) {
        self.lock().remove(place);
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        self.lock().set_forgotten(database, shard, forgotten);
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.lock().is_forgotten(database, shard)
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        self.lock().scan(id, database, from_hash, limit);
    }

    fn ticket(&self) -> Ticket {
        self.lock().ticket()
    }

    fn submit(&mut self) {
        self.lock().submit();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.lock().poll(completions);
    }

    fn outlives_process(&self) -> bool {
        self.lock().outlives_process()
    }
}
