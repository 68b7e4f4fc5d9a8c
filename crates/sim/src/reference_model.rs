//! Reference model of a node's storage: checks the answers of storage against the changes made.
//!
//! [`CheckedStore`] stands between a worker and its store on any medium. A load must return the
//! newest record, or one put while the load was under way. After a crash it returns the last
//! durable record or a later one. Only a worker that learned of a higher loss since it heard that a
//! shard is forgotten may call the shard known. The model accepts any of several records that a
//! crash may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use storage::{Completion, Load, Place, Room, ScrubScope, Share, Store};
use types::{Database, Key, LogChanges, LogImage, Shard, Ticket};

use crate::medium::Medium;

/// A possible content of a place.
#[derive(Clone, Debug)]
struct PossibleRecord {
    /// Versions of equal number are equally possible.
    number: u64,
    /// Durable from here on.
    after: Ticket,
    record: Option<Bytes>,
}

#[derive(Clone, Debug)]
struct PlaceHistory {
    /// Oldest first; never empty.
    versions: Vec<PossibleRecord>,
    /// For loads under way: the newest number when the first of them began.
    asked: Option<u64>,
}

impl Default for PlaceHistory {
    fn default() -> PlaceHistory {
        let absent = PossibleRecord { number: 0, after: Ticket::DURABLE, record: None };
        PlaceHistory { versions: vec![absent], asked: None }
    }
}

impl PlaceHistory {
    fn newest(&self) -> u64 {
        self.versions.last().expect("a history has versions").number
    }

    fn put(&mut self, after: Ticket, record: Option<Bytes>) {
        let number = self.newest() + 1;
        self.versions.push(PossibleRecord { number, after, record });
    }

    /// Everything up to this ticket is durable: older versions are gone, unless a load may return
    /// them.
    fn settle(&mut self, upto: Ticket) {
        for version in &mut self.versions {
            if version.after <= upto {
                version.after = Ticket::DURABLE;
            }
        }
        let durable = self.newest_durable().min(self.asked.unwrap_or(u64::MAX));
        self.versions.retain(|version| version.number >= durable);
    }

    fn newest_durable(&self) -> u64 {
        let durable = self.versions.iter().filter(|version| version.after == Ticket::DURABLE);
        durable.map(|version| version.number).max().unwrap_or(0)
    }

    /// The process ended: any version that may be durable may be there.
    fn end(&mut self) {
        let (durable, newest) = (self.newest_durable(), self.newest());
        self.asked = None;
        self.versions.retain(|version| version.number >= durable);
        for version in &mut self.versions {
            (version.number, version.after) = (newest, Ticket::DURABLE);
        }
    }

    /// The newest record may have been forgotten.
    fn forget(&mut self) {
        let newest = self.versions.last().expect("a history has versions");
        let absent = PossibleRecord { record: None, ..newest.clone() };
        self.versions.push(absent);
    }

    fn may_be(&self, from: u64, record: Option<&Bytes>) -> bool {
        let possible = self.versions.iter().filter(|version| version.number >= from);
        possible.into_iter().any(|version| version.record.as_ref() == record)
    }
}

/// The model of one node; outlives its process.
#[derive(Debug, Default)]
struct ExpectedState {
    cells: BTreeMap<(Database, Key), PlaceHistory>,
    metas: BTreeMap<(Database, Shard), PlaceHistory>,
    /// Shards that a worker heard to be forgotten, without a higher loss since.
    awaiting_amnesia: BTreeSet<(Database, Shard)>,
    /// Of those, the shards called known in this turn.
    known_early: Vec<Shard>,
    complaint: Option<String>,
    is_excused: bool,
}

impl ExpectedState {
    fn history(&mut self, place: &Place) -> &mut PlaceHistory {
        match place {
            Place::Cell(database, key) => self.cells.entry((*database, key.clone())).or_default(),
            Place::Meta(database, shard) => self.metas.entry((*database, *shard)).or_default(),
        }
    }

    fn histories(&mut self) -> impl Iterator<Item = ((Database, Shard), &mut PlaceHistory)> {
        let cells = self.cells.iter_mut();
        let cells = cells.map(|((database, key), history)| ((*database, key.shard()), history));
        cells.chain(self.metas.iter_mut().map(|(place, history)| (*place, history)))
    }

    fn complain(&mut self, reason: String) {
        if !self.is_excused {
            self.complaint.get_or_insert(reason);
        }
    }

    fn hear_forgotten(&mut self, database: Database, shard: Shard) {
        self.awaiting_amnesia.insert((database, shard));
        for (_, history) in self.histories().filter(|(of, _)| *of == (database, shard)) {
            history.forget();
        }
    }

    /// Checks the answer to a load that began when `from` was the newest.
    fn on_answer(&mut self, place: &Place, from: u64, load: &Load) {
        let record = match load {
            Load::Found(record) => Some(record),
            Load::Absent => None,
            Load::Lost | Load::Pending => return,
        };
        let history = self.history(place);
        if !history.may_be(from, record) {
            let reason = format!("storage answers {load:?} of {place:?}, which holds {history:?}");
            self.complain(reason);
        }
    }
}

/// A handle to a node's model; clones share it.
#[derive(Clone, Debug, Default)]
pub struct ReferenceModel(Arc<Mutex<ExpectedState>>);

impl ReferenceModel {
    fn lock(&self) -> MutexGuard<'_, ExpectedState> {
        self.0.lock().expect("no holder of the model panics")
    }

    /// Stops checking: the test has made the store return false answers.
    pub fn excuse(&self) {
        self.lock().is_excused = true;
    }

    /// The process has ended.
    pub fn end(&self) {
        let mut state = self.lock();
        state.awaiting_amnesia.clear();
        state.histories().for_each(|(_, history)| history.end());
    }

    /// The medium is empty.
    pub fn wipe(&self) {
        let mut state = self.lock();
        (state.cells, state.metas) = (BTreeMap::new(), BTreeMap::new());
    }

    /// Ends a turn of the worker with this index. `hears_of_loss`: its loss was raised. Only a node
    /// that is no replica may know a shard again in that turn: others wait for answers.
    pub fn end_turn(
        &self,
        (worker, workers): (usize, usize),
        hears_of_amnesia: bool,
        is_replica: impl Fn(Shard) -> bool,
    ) {
        let is_its = |shard: Shard| usize::from(shard.0) % workers == worker;
        let mut state = self.lock();
        for shard in std::mem::take(&mut state.known_early) {
            if !hears_of_amnesia || is_replica(shard) {
                state.complain(format!("{shard:?} is called known, and its loss was not raised"));
            }
        }
        if hears_of_amnesia {
            state.awaiting_amnesia.retain(|(_, shard)| !is_its(*shard));
        }
    }

    /// The first violation.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.lock().complaint.clone()
    }
}

/// A store whose answers are checked against a [`ReferenceModel`].
pub struct CheckedStore {
    store: Box<dyn Store>,
    medium: Medium,
    model: ReferenceModel,
    /// Changed and not durable yet.
    changed: Vec<(Ticket, Place)>,
}

impl CheckedStore {
    /// The store of a worker in a process that starts.
    #[must_use]
    pub fn new(
        store: Box<dyn Store>,
        medium: Medium,
        model: ReferenceModel,
        databases: &[Database],
        (worker, workers): (usize, usize),
    ) -> CheckedStore {
        for &database in databases {
            for shard in (worker..types::key::SHARDS).step_by(workers) {
                let shard = Shard(shard as u8);
                if store.is_forgotten(database, shard) {
                    model.lock().hear_forgotten(database, shard);
                }
            }
        }
        CheckedStore { store, medium, model, changed: Vec::new() }
    }

    fn change(&mut self, place: &Place, record: Option<Bytes>) {
        let ticket = self.store.ticket();
        let mut state = self.model.lock();
        let history = state.history(place);
        history.put(ticket, record);
        match ticket {
            Ticket::DURABLE => history.settle(ticket),
            _ => self.changed.push((ticket, place.clone())),
        }
    }

    fn hear(&mut self, completion: &Completion) {
        let mut state = self.model.lock();
        match completion {
            // A turn's completions are void after its medium has ended the process.
            Completion::Stored(_) if self.medium.has_failed() => {}
            Completion::Stored(upto) => {
                for (_, place) in self.changed.extract_if(.., |(ticket, _)| *ticket <= *upto) {
                    state.history(&place).settle(*upto);
                }
            }
            Completion::Loaded { place, load } => {
                let from = state.history(place).asked.take().unwrap_or(0);
                state.on_answer(place, from, load);
            }
            Completion::Forgotten { database, shard } => state.hear_forgotten(*database, *shard),
            Completion::Scanned { .. }
            | Completion::Warning(_)
            | Completion::Scrubbed(_)
            | Completion::Failed(_) => {}
        }
    }
}

impl Store for CheckedStore {
    fn load(&mut self, place: &Place) -> Load {
        let load = self.store.load(place);
        let mut state = self.model.lock();
        let history = state.history(place);
        let newest = history.newest();
        match load {
            Load::Pending => drop(history.asked.get_or_insert(newest)),
            _ => state.on_answer(place, newest, &load),
        }
        drop(state);
        load
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.change(place, Some(Bytes::copy_from_slice(record)));
        self.store.put(place, record);
    }

    fn remove(&mut self, place: &Place) {
        self.change(place, None);
        self.store.remove(place);
    }

    fn open_log(&mut self, database: Database) -> LogImage {
        self.store.open_log(database)
    }

    fn change_log(&mut self, database: Database, changes: LogChanges) {
        self.store.change_log(database, changes);
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        let mut state = self.model.lock();
        if forgotten {
            state.hear_forgotten(database, shard);
        } else if state.awaiting_amnesia.contains(&(database, shard)) {
            state.known_early.push(shard);
        }
        drop(state);
        self.store.set_forgotten(database, shard, forgotten);
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.store.is_forgotten(database, shard)
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        self.store.scan(id, database, from_hash, limit);
    }

    fn ticket(&self) -> Ticket {
        self.store.ticket()
    }

    fn submit(&mut self) {
        self.store.submit();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let known = completions.len();
        self.store.poll(completions);
        completions[known..].iter().for_each(|completion| self.hear(completion));
    }

    fn outlives_process(&self) -> bool {
        self.store.outlives_process()
    }

    fn is_full(&self) -> bool {
        self.store.is_full()
    }

    fn has_many_loads(&self) -> bool {
        self.store.has_many_loads()
    }

    fn is_overrun(&self) -> bool {
        self.store.is_overrun()
    }

    fn room(&self) -> Room {
        self.store.room()
    }

    fn memory(&self) -> usize {
        self.store.memory()
    }

    fn scrub_scope(&self) -> ScrubScope {
        self.store.scrub_scope()
    }

    fn scrub(&mut self, share: Share, bytes: u64) {
        self.store.scrub(share, bytes);
    }
}

#[cfg(test)]
mod tests {
    use base::Prng;

    use super::*;
    use crate::medium::MediumConfig;
    use crate::store::Durability;

    const DATABASE: Database = Database(0);

    fn place() -> Place {
        Place::Cell(DATABASE, Key::new(b"k"))
    }

    fn checked_store() -> (CheckedStore, ReferenceModel) {
        let medium = Medium::new(&MediumConfig::model(Durability::Pmem), &[DATABASE], Prng::new(1));
        let store = medium.open(1).expect("a model opens").pop().expect("one store was asked for");
        let model = ReferenceModel::default();
        (CheckedStore::new(store, medium, model.clone(), &[DATABASE], (0, 1)), model)
    }

    #[test]
    fn older_missing_and_invented_records_are_found() {
        let (mut store, model) = checked_store();
        store.put(&place(), b"1");
        store.submit();
        store.poll(&mut Vec::new());
        store.put(&place(), b"2");
        assert_eq!(store.load(&place()), Load::Found(Bytes::from_static(b"2")));
        assert_eq!(model.complaint(), None);
        for wrong in [Load::Found(Bytes::from_static(b"1")), Load::Absent] {
            let (store, model) = (&mut store, ReferenceModel::default());
            model.lock().cells.clone_from(&store.model.lock().cells);
            let newest = model.lock().history(&place()).newest();
            model.lock().on_answer(&place(), newest, &wrong);
            assert!(model.complaint().is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn crash_keeps_durable_record_or_later() {
        let mut history = PlaceHistory::default();
        for (ticket, record) in [(1, "a"), (2, "b"), (3, "c")] {
            history.put(Ticket(ticket), Some(Bytes::from(record)));
        }
        history.settle(Ticket(2));
        history.end();
        let newest = history.newest();
        assert!(history.may_be(newest, Some(&Bytes::from("b"))));
        assert!(history.may_be(newest, Some(&Bytes::from("c"))));
        assert!(!history.may_be(newest, Some(&Bytes::from("a"))) && !history.may_be(newest, None));
    }

    #[test]
    fn shard_known_before_raised_loss_is_reported() {
        let (mut store, model) = checked_store();
        let shard = Shard(7);
        store.set_forgotten(DATABASE, shard, true);
        model.end_turn((0, 1), true, |_| true);
        store.set_forgotten(DATABASE, shard, false);
        model.end_turn((0, 1), false, |_| true);
        assert_eq!(model.complaint(), None);
        store.set_forgotten(DATABASE, shard, true);
        store.set_forgotten(DATABASE, shard, false);
        model.end_turn((0, 1), true, |_| false);
        assert_eq!(model.complaint(), None, "it is no replica, and its loss was raised");
        store.set_forgotten(DATABASE, shard, true);
        store.set_forgotten(DATABASE, shard, false);
        model.end_turn((0, 1), true, |_| true);
        assert!(model.complaint().is_some(), "no answer can have come in that turn");
    }

    #[test]
    fn shard_known_without_raised_loss_is_reported() {
        let (mut store, model) = checked_store();
        store.set_forgotten(DATABASE, Shard(7), true);
        store.set_forgotten(DATABASE, Shard(7), false);
        model.end_turn((0, 1), false, |_| false);
        assert!(model.complaint().is_some());
    }
}
