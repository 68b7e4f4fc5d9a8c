//! The model store: exactly the freedom that the interface of `storage` gives a medium.
//!
//! It keeps records in memory, and the world completes its flushes and reads. On a crash only
//! flushed data surely survives. It is the simulator's fast default; other runs use the real
//! engines.

mod model_store;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use base::Prng;
use bytes::Bytes;
use storage::{Completion, Load, Place, Store};
use types::key::SHARDS;
use types::log::LOG_RECORD_OVERHEAD;
use types::{Database, Key, LogChanges, LogImage, Shard, Ticket};

pub use self::model_store::ModelStore;

/// Bytes of a log's ring: little, so that fronts are cut off.
const LOG_LEN: u64 = 256 << 10;
/// Records that were cut off the front of a log and may be back after a crash.
const CUT_RETURNS: u64 = 16;

/// The promise of a medium.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Durability {
    /// All state ends with the process.
    Volatile,
    /// A submitted batch is durable at once.
    Pmem,
    /// A submitted batch is durable once its flush has completed.
    Disk,
}

/// The unflushed batches that a crash leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survival {
    /// None of them.
    Nothing,
    /// Whole batches, in order, none or some or all.
    Prefix,
    /// After such a prefix any part of the next batch.
    Torn,
}

#[derive(Clone, Debug)]
enum StoredCell {
    Record(Bytes),
    Damaged,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PendingChange {
    Put(Place, Bytes),
    Remove(Place),
    Forgotten(Database, Shard, bool),
    Log(Database, LogChanges),
}

#[derive(Debug)]
struct UnflushedBatch {
    ticket: Ticket,
    changes: Vec<PendingChange>,
}

#[derive(Debug)]
enum PendingRead {
    Load(Place),
    Scan { id: u64, database: Database, from_hash: u64, limit: usize },
}

/// A set of shards, of few databases.
#[derive(Clone, Debug, Default)]
struct Shards {
    databases: Vec<(Database, [bool; SHARDS])>,
}

impl Shards {
    fn all(databases: &[Database]) -> Shards {
        Shards { databases: databases.iter().map(|&it| (it, [true; SHARDS])).collect() }
    }

    fn has(&self, database: Database, shard: Shard) -> bool {
        let found = self.databases.iter().find(|(known, _)| *known == database);
        found.is_some_and(|(_, shards)| shards[usize::from(shard.0)])
    }

    fn set(&mut self, database: Database, shard: Shard, is_in: bool) {
        let found = self.databases.iter_mut().find(|(known, _)| *known == database);
        match found {
            Some((_, shards)) => shards[usize::from(shard.0)] = is_in,
            None if is_in => {
                let mut shards = [false; SHARDS];
                shards[usize::from(shard.0)] = true;
                self.databases.push((database, shards));
            }
            None => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.databases.iter().all(|(_, shards)| !shards.contains(&true))
    }
}

/// One worker's queue on the medium; gone with its process.
#[derive(Debug)]
struct WorkerQueue {
    open: Vec<PendingChange>,
    open_ticket: Ticket,
    pending: VecDeque<UnflushedBatch>,
    /// The newest change of each place that is not durable yet.
    overlay: BTreeMap<Place, (Ticket, Option<Bytes>)>,
    completions: Vec<Completion>,
    reads: VecDeque<PendingRead>,
    /// Set by a new read until the world has seen it.
    has_new_reads: bool,
    is_flushing: bool,
}

#[derive(Debug)]
struct ModelState {
    durability: Durability,
    /// The databases whose shards a wiped medium has forgotten.
    databases: &'static [Database],
    /// For each database in use, one map per shard.
    cells: BTreeMap<Database, Vec<BTreeMap<Key, StoredCell>>>,
    metas: BTreeMap<(Database, Shard), StoredCell>,
    /// Durable logs: the first index and the records.
    logs: BTreeMap<Database, (u64, VecDeque<Bytes>)>,
    /// The last record of each log that cannot be read. It is found when the log is opened.
    damaged_logs: BTreeMap<Database, u64>,
    forgotten: Shards,
    forgotten_durably: Shards,
    handles: Vec<WorkerQueue>,
    /// How often a read takes time.
    slow_read_ppm: u32,
    rng: Prng,
}

/// One node's medium, shared by its workers' stores and the world. Outlives the process.
#[derive(Clone, Debug)]
pub struct ModelMedium {
    state: Arc<Mutex<ModelState>>,
}

/// Work that a worker's last turn left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Begun {
    /// A flush was begun that covers everything up to here.
    pub flush: Option<Ticket>,
    pub has_reads: bool,
}

impl ModelMedium {
    #[must_use]
    pub fn new(
        durability: Durability,
        databases: &'static [Database],
        slow_read_ppm: u32,
        rng: Prng,
    ) -> ModelMedium {
        assert!(durability != Durability::Volatile, "whatever is modelled outlives the process");
        let state = ModelState {
            durability,
            databases,
            cells: BTreeMap::new(),
            metas: BTreeMap::new(),
            logs: BTreeMap::new(),
            damaged_logs: BTreeMap::new(),
            forgotten: Shards::default(),
            forgotten_durably: Shards::default(),
            handles: Vec::new(),
            slow_read_ppm,
            rng,
        };
        ModelMedium { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().expect("no holder panics")
    }

    /// The stores of a process that starts with `workers` workers.
    pub fn open(&self, workers: usize) -> Vec<ModelStore> {
        let mut state = self.lock();
        state.handles = (0..workers).map(|_| WorkerQueue::new()).collect();
        state.forgotten = state.forgotten_durably.clone();
        (0..workers).map(|worker| ModelStore { medium: self.clone(), worker }).collect()
    }

    /// Begins a flush if there is data to flush and no flush is under way.
    #[must_use]
    pub fn take_work(&self, worker: usize) -> Begun {
        let mut state = self.lock();
        let is_disk = state.durability == Durability::Disk;
        let handle = &mut state.handles[worker];
        let mut work = Begun { flush: None, has_reads: std::mem::take(&mut handle.has_new_reads) };
        if is_disk
            && !handle.is_flushing
            && let Some(last) = handle.pending.back()
        {
            handle.is_flushing = true;
            work.flush = Some(last.ticket);
        }
        work
    }

    /// Completes a flush.
    pub fn finish_flush(&self, worker: usize, upto: Ticket) {
        let mut state = self.lock();
        state.handles[worker].is_flushing = false;
        state.settle(worker, upto);
    }

    /// Completes all reads.
    pub fn finish_reads(&self, worker: usize) {
        let mut state = self.lock();
        while let Some(read) = state.handles[worker].reads.pop_front() {
            let completion = state.read(worker, read);
            state.handles[worker].completions.extend(completion);
        }
    }

    /// The process ends.
    pub fn crash(&self, survival: Survival) {
        let mut state = self.lock();
        let mut handles = std::mem::take(&mut state.handles);
        for handle in &mut handles {
            state.lose_unflushed(handle, survival);
        }
    }

    /// Wipes the medium: the new one knows that it has forgotten everything.
    pub fn wipe(&self) {
        self.lock().forget_everything();
    }

    /// Damages one durable record that `may` allows, drawn from all and a log. False when there is
    /// none.
    pub fn damage(&self, mut may: impl FnMut(&Place) -> bool) -> bool {
        let mut state = self.lock();
        let mut places: Vec<Option<Place>> =
            state.places().filter(|place| may(place)).map(Some).collect();
        let log = state.draw_log(0).filter(|(database, _)| may(&place_of_log(*database)));
        places.extend(log.map(|_| None));
        if places.is_empty() {
            return false;
        }
        match (state.rng.pick(&places).clone(), log) {
            (Some(place), _) => state.set_slot(&place, Some(StoredCell::Damaged)),
            (None, Some((database, index))) => state.damage_log(database, index),
            (None, None) => {}
        }
        true
    }

    /// Gives the place of a log's record its content from before. Later records reveal that when
    /// the log is opened. So the last record stays: it would look as if it was never written.
    pub fn roll_back_log(&self, mut may: impl FnMut(&Place) -> bool) -> bool {
        let mut state = self.lock();
        let log = state.draw_log(1).filter(|(database, _)| may(&place_of_log(*database)));
        log.iter().for_each(|&(database, index)| state.damage_log(database, index));
        log.is_some()
    }

    /// A log cannot be opened: the node has to be reset.
    #[must_use]
    pub fn has_damaged_log(&self) -> bool {
        !self.lock().damaged_logs.is_empty()
    }

    /// True when anything of the place's shard is forgotten, noticed or not.
    #[must_use]
    pub fn has_forgotten(&self, place: &Place) -> bool {
        let state = self.lock();
        let (database, shard) = shard_of(place);
        state.forgotten_durably.has(database, shard) || state.has_damage(database, shard)
    }

    /// True while a shard is known to be forgotten.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        !self.lock().forgotten.is_empty()
    }

    /// True when any shard is forgotten, noticed or not.
    #[must_use]
    pub fn has_forgotten_anything(&self) -> bool {
        let state = self.lock();
        !state.forgotten_durably.is_empty()
            || !state.damaged_logs.is_empty()
            || state.places().any(|place| matches!(state.slot(&place), Some(StoredCell::Damaged)))
    }
}

/// Stands for a log in a question about a place. Damage to it is as bad as to all.
fn place_of_log(database: Database) -> Place {
    Place::Meta(database, Shard(0))
}

fn shard_of(place: &Place) -> (Database, Shard) {
    match place {
        Place::Cell(database, key) => (*database, key.shard()),
        Place::Meta(database, shard) => (*database, *shard),
    }
}

impl WorkerQueue {
    fn new() -> WorkerQueue {
        WorkerQueue {
            open: Vec::new(),
            open_ticket: Ticket(1),
            pending: VecDeque::new(),
            overlay: BTreeMap::new(),
            completions: Vec::new(),
            reads: VecDeque::new(),
            has_new_reads: false,
            is_flushing: false,
        }
    }
}

impl ModelState {
    fn slot(&self, place: &Place) -> Option<&StoredCell> {
        match place {
            Place::Cell(database, key) => {
                self.cells.get(database)?[usize::from(key.shard().0)].get(key)
            }
            Place::Meta(database, shard) => self.metas.get(&(*database, *shard)),
        }
    }

    fn set_slot(&mut self, place: &Place, slot: Option<StoredCell>) {
        match (place, slot) {
            (Place::Cell(database, key), slot) => {
                let shards =
                    self.cells.entry(*database).or_insert_with(|| vec![BTreeMap::new(); SHARDS]);
                let cells = &mut shards[usize::from(key.shard().0)];
                match slot {
                    Some(slot) => cells.insert(key.clone(), slot),
                    None => cells.remove(key),
                };
            }
            (Place::Meta(database, shard), Some(slot)) => {
                self.metas.insert((*database, *shard), slot);
            }
            (Place::Meta(database, shard), None) => {
                self.metas.remove(&(*database, *shard));
            }
        }
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let cells = self.cells.iter().flat_map(|(&database, shards)| {
            shards
                .iter()
                .flat_map(BTreeMap::keys)
                .map(move |key| Place::Cell(database, key.clone()))
        });
        cells.chain(self.metas.keys().map(|&(database, shard)| Place::Meta(database, shard)))
    }

    fn apply(&mut self, change: PendingChange) {
        match change {
            PendingChange::Put(place, record) => {
                self.set_slot(&place, Some(StoredCell::Record(record)))
            }
            PendingChange::Remove(place) => self.set_slot(&place, None),
            // Damaged records are forgotten with their shard.
            PendingChange::Forgotten(database, shard, true) => {
                self.forgotten_durably.set(database, shard, true);
                self.drop_damage(database, shard);
            }
            // Undetected damage stays where it is, to be met later.
            PendingChange::Forgotten(database, shard, false) => {
                self.forgotten_durably.set(database, shard, false);
            }
            PendingChange::Log(database, changes) => self.change_log(database, changes),
        }
    }

    /// A record of a log that has so many behind it.
    fn draw_log(&mut self, behind: u64) -> Option<(Database, u64)> {
        let mut lens = self.logs.iter().map(|(&it, log)| (it, log.0, log.1.len() as u64));
        let (database, first, len) = lens.find(|(.., len)| *len > behind)?;
        Some((database, first + self.rng.below(len - behind)))
    }

    fn damage_log(&mut self, database: Database, index: u64) {
        let last = self.damaged_logs.entry(database).or_insert(index);
        *last = index.max(*last);
    }

    fn change_log(&mut self, database: Database, changes: LogChanges) {
        let log = self.logs.entry(database).or_insert((1, VecDeque::new()));
        let cuts_first = changes.cuts_first();
        let LogChanges { from, records, below } = changes;
        if cuts_first {
            cut_log(log, below);
        }
        if let Some(from) = from {
            let (first, next) = (log.0, log.0 + log.1.len() as u64);
            assert!(from >= first && from <= next, "a log of {first}..{next} changes from {from}");
            log.1.truncate((from - first) as usize);
            log.1.extend(records);
        }
        if !cuts_first {
            cut_log(log, below);
        }
        // Records that are cut off are not read any more.
        let first = log.0;
        self.damaged_logs.retain(|owner, last| *owner != database || *last >= first);
        let len: u64 = log.1.iter().map(|it| it.len() as u64 + LOG_RECORD_OVERHEAD).sum();
        assert!(len <= LOG_LEN, "a log of {LOG_LEN} bytes keeps {len}");
    }

    fn has_damage(&self, database: Database, shard: Shard) -> bool {
        let is_damaged = |slot: &StoredCell| matches!(slot, StoredCell::Damaged);
        self.metas.get(&(database, shard)).is_some_and(is_damaged)
            || (self.cells.get(&database))
                .is_some_and(|shards| shards[usize::from(shard.0)].values().any(is_damaged))
    }

    fn drop_damage(&mut self, database: Database, shard: Shard) {
        if let Some(shards) = self.cells.get_mut(&database) {
            shards[usize::from(shard.0)].retain(|_, slot| !matches!(slot, StoredCell::Damaged));
        }
        if matches!(self.metas.get(&(database, shard)), Some(StoredCell::Damaged)) {
            self.metas.remove(&(database, shard));
        }
    }

    /// Makes batches durable and reports that.
    fn settle(&mut self, worker: usize, upto: Ticket) {
        while self.handles[worker].pending.front().is_some_and(|batch| batch.ticket <= upto) {
            let handle = &mut self.handles[worker];
            let Some(batch) = handle.pending.pop_front() else { return };
            for change in &batch.changes {
                if let PendingChange::Put(place, _) | PendingChange::Remove(place) = change
                    && handle.overlay.get(place).is_some_and(|(ticket, _)| *ticket == batch.ticket)
                {
                    handle.overlay.remove(place);
                }
            }
            handle.completions.push(Completion::Stored(batch.ticket));
            for change in batch.changes {
                self.apply(change);
            }
        }
    }

    fn load(&self, worker: usize, place: &Place) -> Load {
        let (database, shard) = shard_of(place);
        let unknown = match self.forgotten.has(database, shard) {
            true => Load::Lost,
            false => Load::Absent,
        };
        match self.handles[worker].overlay.get(place) {
            Some((_, Some(record))) => return Load::Found(record.clone()),
            Some((_, None)) => return unknown,
            None => {}
        }
        match self.slot(place) {
            Some(StoredCell::Record(record)) => Load::Found(record.clone()),
            Some(StoredCell::Damaged) => Load::Lost,
            None => unknown,
        }
    }

    /// Makes a damaged shard forgotten before any worker hears of the loss.
    fn forget_damage(&mut self, worker: usize, place: &Place) {
        let is_overlaid = self.handles[worker].overlay.contains_key(place);
        if !is_overlaid && matches!(self.slot(place), Some(StoredCell::Damaged)) {
            let (database, shard) = shard_of(place);
            let forgotten = self.forget(worker, database, shard);
            self.handles[worker].completions.push(forgotten);
        }
    }

    fn forget(&mut self, worker: usize, database: Database, shard: Shard) -> Completion {
        self.forgotten.set(database, shard, true);
        self.apply(PendingChange::Forgotten(database, shard, true));
        // A pending declaration that the shard is known did not see this damage.
        let WorkerQueue { open, pending, .. } = &mut self.handles[worker];
        let changes = pending.iter_mut().flat_map(|batch| &mut batch.changes).chain(open);
        for change in changes {
            if *change == PendingChange::Forgotten(database, shard, false) {
                *change = PendingChange::Forgotten(database, shard, true);
            }
        }
        Completion::Forgotten { database, shard }
    }

    /// True while the worker has not heard of damage to a shard.
    fn is_unheard(&self, worker: usize, (database, shard): (Database, Shard)) -> bool {
        let forgotten = Completion::Forgotten { database, shard };
        self.handles[worker].completions.contains(&forgotten)
    }

    fn read(&mut self, worker: usize, read: PendingRead) -> Vec<Completion> {
        match read {
            PendingRead::Load(place) => {
                self.forget_damage(worker, &place);
                let load = self.load(worker, &place);
                vec![Completion::Loaded { place, load }]
            }
            PendingRead::Scan { id, database, from_hash, limit } => {
                self.scan(worker, id, database, from_hash, limit)
            }
        }
    }

    fn scan(
        &mut self,
        worker: usize,
        id: u64,
        database: Database,
        from_hash: u64,
        limit: usize,
    ) -> Vec<Completion> {
        let shard = Shard((from_hash >> 56) as u8);
        let mut found: BTreeMap<Key, Option<Bytes>> = BTreeMap::new();
        let cells = self.cells.get(&database).map(|shards| &shards[usize::from(shard.0)]);
        for (key, slot) in cells.into_iter().flatten() {
            found.insert(
                key.clone(),
                match slot {
                    StoredCell::Record(record) => Some(record.clone()),
                    StoredCell::Damaged => None,
                },
            );
        }
        let overlay = &self.handles[worker].overlay;
        for (place, (_, record)) in overlay {
            let Place::Cell(owner, key) = place else { continue };
            if (*owner, key.shard()) != (database, shard) {
                continue;
            }
            match record {
                Some(record) => found.insert(key.clone(), Some(record.clone())),
                None => found.remove(key),
            };
        }
        let mut completions = Vec::new();
        if found.values().any(Option::is_none) {
            completions.push(self.forget(worker, database, shard));
        }
        let (records, next_hash) = page(found, from_hash, limit);
        completions.push(Completion::Scanned { id, records, next_hash });
        completions
    }

    fn lose_unflushed(&mut self, handle: &mut WorkerQueue, survival: Survival) {
        if survival == Survival::Nothing {
            return;
        }
        let kept = self.rng.below(handle.pending.len() as u64 + 1);
        for _ in 0..kept {
            for change in
                handle.pending.pop_front().map(|batch| batch.changes).into_iter().flatten()
            {
                self.apply(change);
            }
        }
        if survival == Survival::Torn
            && let Some(batch) = handle.pending.pop_front()
        {
            self.tear(batch.changes);
        }
    }

    /// Keeps any part of a batch: metas come before removals, and a shard is known again only if
    /// all is kept.
    fn tear(&mut self, changes: Vec<PendingChange>) {
        let chance_ppm = self.rng.below(1_000_001) as u32;
        let (first, rest): (Vec<PendingChange>, Vec<PendingChange>) =
            changes.into_iter().partition(|change| {
                matches!(
                    change,
                    PendingChange::Put(Place::Meta(..), _) | PendingChange::Forgotten(_, _, true)
                )
            });
        // A batch has one change of a log at most, which is whole or not there.
        let mut is_whole = true;
        for change in first {
            match self.rng.chance_ppm(chance_ppm) {
                true => self.apply(change),
                false => is_whole = false,
            }
        }
        for change in rest {
            let needs_all =
                matches!(change, PendingChange::Remove(_) | PendingChange::Forgotten(_, _, false));
            match self.rng.chance_ppm(chance_ppm) && (is_whole || !needs_all) {
                true => self.apply(change),
                false => is_whole = false,
            }
        }
    }

    fn forget_everything(&mut self) {
        self.cells.clear();
        self.metas.clear();
        self.logs.clear();
        self.damaged_logs.clear();
        self.forgotten_durably = Shards::all(self.databases);
        self.forgotten = self.forgotten_durably.clone();
    }
}

/// Cuts a log's front off. A crash may bring back records that were cut off shortly before. Here it
/// brings back all, until more are cut off.
fn cut_log((first, log): &mut (u64, VecDeque<Bytes>), below: u64) {
    let next = *first + log.len() as u64;
    if below > next || below >= *first + CUT_RETURNS {
        log.drain(..(below - *first).min(log.len() as u64) as usize);
        *first = below;
    }
}

/// About `limit` whole records from `from_hash` on, and the next position.
fn page(
    found: BTreeMap<Key, Option<Bytes>>,
    from_hash: u64,
    limit: usize,
) -> (Vec<(Key, Bytes)>, Option<u64>) {
    let mut records: Vec<(Key, Bytes)> = Vec::new();
    for (key, record) in found {
        let Some(record) = record.filter(|_| key.hash() >= from_hash) else { continue };
        let is_new_hash = records.last().is_some_and(|(last, _)| last.hash() != key.hash());
        if records.len() >= limit && is_new_hash {
            return (records, Some(key.hash()));
        }
        records.push((key, record));
    }
    (records, None)
}

#[cfg(test)]
mod tests;
