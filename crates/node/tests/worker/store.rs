//! A store that completes operations on the test's command.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard, Ticket};

type Batch = BTreeMap<Place, Option<Bytes>>;

/// The state that the store and its script share.
#[derive(Default, Debug)]
pub struct State {
    pub durable: BTreeMap<Place, Bytes>,
    open: Batch,
    flags: BTreeMap<(Database, Shard), bool>,
    flying: VecDeque<(Ticket, Batch)>,
    ticket: u64,
    /// Every put and remove, in order.
    pub writes: Vec<Place>,
    /// Loads of registers (of metas) are answered by `finish_loads`.
    pub slow_registers: bool,
    pub slow_metas: bool,
    pub loading: Vec<Place>,
    pub scans: Vec<(u64, Database, u64, usize)>,
    /// Places that are damaged.
    pub lost: BTreeSet<Place>,
    pub forgotten: BTreeSet<(Database, Shard)>,
    pub completions: Vec<Completion>,
    /// Batches are durable when submitted.
    pub at_once: bool,
    pub full: bool,
    pub overrun: bool,
    pub memory: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Script(Arc<Mutex<State>>);

impl Script {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    pub fn store(&self) -> Box<dyn Store> {
        self.state().ticket = 1;
        Box::new(FakeStore(self.clone()))
    }

    /// Makes the oldest submitted batch durable. False when there is none.
    pub fn complete_one(&self) -> bool {
        self.state().complete_one()
    }

    pub fn complete_all(&self) {
        while self.complete_one() {}
    }

    /// Answers the reads under way as the store is now.
    pub fn finish_loads(&self) {
        let mut state = self.state();
        for place in std::mem::take(&mut state.loading) {
            let load = state.look_up(&place);
            state.completions.push(Completion::Loaded { place, load });
        }
    }

    /// Answers a read with something else than the store holds now.
    pub fn finish_load_with(&self, place: &Place, load: Load) {
        let mut state = self.state();
        state.loading.retain(|loading| loading != place);
        state.completions.push(Completion::Loaded { place: place.clone(), load });
    }

    pub fn finish_scans(&self) {
        let mut state = self.state();
        for (id, database, from_hash, limit) in std::mem::take(&mut state.scans) {
            let (records, next_hash) = state.scan(database, from_hash, limit);
            state.completions.push(Completion::Scanned { id, records, next_hash });
        }
    }

    pub fn complete(&self, completion: Completion) {
        self.state().completions.push(completion);
    }
}

impl State {
    fn complete_one(&mut self) -> bool {
        let Some((ticket, batch)) = self.flying.pop_front() else { return false };
        for (place, record) in batch {
            match record {
                Some(record) => self.durable.insert(place, record),
                None => self.durable.remove(&place),
            };
        }
        self.completions.push(Completion::Stored(ticket));
        true
    }

    fn look_up(&self, place: &Place) -> Load {
        let batches = std::iter::once(&self.open)
            .chain(self.flying.iter().rev().map(|(_, batch)| batch))
            .find_map(|batch| batch.get(place));
        let shard = match place {
            Place::Cell(database, key) => (*database, key.shard()),
            Place::Meta(database, shard) => (*database, *shard),
        };
        let found = match batches {
            Some(record) => record.as_ref(),
            None if self.lost.contains(place) => return Load::Lost,
            None => self.durable.get(place),
        };
        match found {
            Some(record) => Load::Found(record.clone()),
            None if self.forgotten.contains(&shard) => Load::Lost,
            None => Load::Absent,
        }
    }

    /// Lists durable records only. The worker overlays newer ones.
    fn scan(
        &self,
        database: Database,
        from_hash: u64,
        limit: usize,
    ) -> (Vec<(Key, Bytes)>, Option<u64>) {
        let mut records: Vec<(Key, Bytes)> = Vec::new();
        for (place, record) in &self.durable {
            let Place::Cell(of, key) = place else { continue };
            let in_shard = key.shard() == Shard((from_hash >> 56) as u8);
            if *of != database || !in_shard || key.hash() < from_hash {
                continue;
            }
            if records.len() >= limit
                && records.last().is_some_and(|(last, _)| last.hash() < key.hash())
            {
                return (records, Some(key.hash()));
            }
            records.push((key.clone(), record.clone()));
        }
        (records, None)
    }
}

struct FakeStore(Script);

impl Store for FakeStore {
    fn load(&mut self, place: &Place) -> Load {
        let mut state = self.0.state();
        let is_slow = match place {
            Place::Cell(..) => state.slow_registers,
            Place::Meta(..) => state.slow_metas,
        };
        if is_slow {
            state.loading.push(place.clone());
            return Load::Pending;
        }
        state.look_up(place)
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        let mut state = self.0.state();
        state.writes.push(place.clone());
        state.open.insert(place.clone(), Some(Bytes::copy_from_slice(record)));
    }

    fn remove(&mut self, place: &Place) {
        let mut state = self.0.state();
        state.writes.push(place.clone());
        state.open.insert(place.clone(), None);
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        let mut state = self.0.state();
        state.flags.insert((database, shard), forgotten);
        if forgotten {
            state.forgotten.insert((database, shard));
        } else {
            state.forgotten.remove(&(database, shard));
        }
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.0.state().forgotten.contains(&(database, shard))
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        self.0.state().scans.push((id, database, from_hash, limit));
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.0.state().ticket)
    }

    fn submit(&mut self) {
        let mut state = self.0.state();
        if state.open.is_empty() && state.flags.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut state.open);
        state.flags.clear();
        let ticket = Ticket(state.ticket);
        state.ticket += 1;
        state.flying.push_back((ticket, batch));
        if state.at_once {
            state.complete_one();
        }
    }

    fn memory(&self) -> usize {
        self.0.state().memory
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.0.state().completions);
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        self.0.state().full
    }

    fn is_overrun(&self) -> bool {
        self.0.state().overrun
    }
}
