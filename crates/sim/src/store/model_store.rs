//! A worker's view of the model medium.

use super::*;

/// One worker's store on a [`ModelMedium`].
#[derive(Debug)]
pub struct ModelStore {
    pub(super) medium: ModelMedium,
    pub(super) worker: usize,
}

impl ModelStore {
    fn change(&mut self, change: PendingChange) {
        let mut state = self.medium.lock();
        let handle = &mut state.handles[self.worker];
        let ticket = handle.open_ticket;
        match &change {
            PendingChange::Put(place, record) => {
                handle.overlay.insert(place.clone(), (ticket, Some(record.clone())));
            }
            PendingChange::Remove(place) => {
                handle.overlay.insert(place.clone(), (ticket, None));
            }
            PendingChange::Forgotten(..) | PendingChange::Log(..) => {}
        }
        handle.open.push(change);
    }
}

impl Store for ModelStore {
    fn load(&mut self, place: &Place) -> Load {
        let mut state = self.medium.lock();
        let is_durable = !state.handles[self.worker].overlay.contains_key(place);
        let slow_read_ppm = state.slow_read_ppm;
        if is_durable && slow_read_ppm > 0 && state.rng.chance_ppm(slow_read_ppm) {
            let handle = &mut state.handles[self.worker];
            handle.reads.push_back(PendingRead::Load(place.clone()));
            handle.has_new_reads = true;
            return Load::Pending;
        }
        state.forget_damage(self.worker, place);
        let load = state.load(self.worker, place);
        if load == Load::Lost && state.is_unheard(self.worker, shard_of(place)) {
            let loaded = Completion::Loaded { place: place.clone(), load };
            state.handles[self.worker].completions.push(loaded);
            return Load::Pending;
        }
        load
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.change(PendingChange::Put(place.clone(), Bytes::copy_from_slice(record)));
    }

    fn remove(&mut self, place: &Place) {
        self.change(PendingChange::Remove(place.clone()));
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        let forgotten = {
            let mut state = self.medium.lock();
            // A worker that has not heard of damage cannot have recovered from it.
            let forgotten = forgotten || state.is_unheard(self.worker, (database, shard));
            state.forgotten.set(database, shard, forgotten);
            forgotten
        };
        self.change(PendingChange::Forgotten(database, shard, forgotten));
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.medium.lock().forgotten.has(database, shard)
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        let mut state = self.medium.lock();
        let read = PendingRead::Scan { id, database, from_hash, limit };
        let slow_read_ppm = state.slow_read_ppm;
        if slow_read_ppm > 0 && state.rng.chance_ppm(slow_read_ppm) {
            let handle = &mut state.handles[self.worker];
            handle.reads.push_back(read);
            handle.has_new_reads = true;
            return;
        }
        let completions = state.read(self.worker, read);
        state.handles[self.worker].completions.extend(completions);
    }

    fn ticket(&self) -> Ticket {
        self.medium.lock().handles[self.worker].open_ticket
    }

    fn submit(&mut self) {
        let mut state = self.medium.lock();
        let durability = state.durability;
        let handle = &mut state.handles[self.worker];
        if handle.open.is_empty() {
            return;
        }
        let ticket = handle.open_ticket;
        let changes = std::mem::take(&mut handle.open);
        handle.pending.push_back(UnflushedBatch { ticket, changes });
        handle.open_ticket = Ticket(ticket.0 + 1);
        if durability == Durability::Pmem {
            state.settle(self.worker, ticket);
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.medium.lock().handles[self.worker].completions);
    }

    fn open_log(&mut self, database: Database) -> LogImage {
        let mut image = LogImage::empty(LOG_LEN);
        if let Some((first, records)) = self.medium.lock().logs.get(&database) {
            (image.first, image.records) = (*first, records.iter().cloned().collect());
        }
        image
    }

    fn change_log(&mut self, database: Database, changes: LogChanges) {
        self.change(PendingChange::Log(database, changes));
    }

    fn outlives_process(&self) -> bool {
        true
    }
}
