//! A store with logs beside it: one ticket covers the registers and the logs of a batch.
//!
//! [`Logged`] counts tickets of its own. A batch is durable once its part of the store is, and
//! everything that was appended to the logs until then. A [`Driver`] carries the stores of a log
//! out, so no worker waits for a device.

use std::collections::VecDeque;

use bytes::Bytes;
use types::log::RECORDS_PER_RING;
use types::{Database, LogChanges, LogImage, Positions, Shard, Ticket};

use super::device::Store as Writes;
use super::engine::{AppendError, Engine};
use crate::disk::stripe::SECTOR;
use crate::store::{Completion, Load, Place, Room, ScrubScope, Share, Staging, Store};

/// Bytes of records that may wait for room at the front of a log. A protocol that obeys
/// [`LogImage::capacity`] never has so many.
const WAITING_LEN_MAX: usize = 64 << 20;

/// Bytes of a batch and of a record in it, besides the records' content.
const BATCH_HEAD_LEN: usize = 16;
const RECORD_HEAD_LEN: usize = 4;

/// Carries out the stores of one log, at most one at a time.
pub trait Driver: Send {
    /// Begins a store.
    fn begin(&mut self, store: Writes);

    /// The outcome of the store that was begun, once.
    fn ended(&mut self) -> Option<Result<(), String>>;
}

/// A log that was opened, with the means to write it.
pub struct OpenLog {
    pub database: Database,
    pub engine: Engine,
    pub driver: Box<dyn Driver>,
}

struct LogState {
    database: Database,
    engine: Engine,
    driver: Box<dyn Driver>,
    /// Batches that found no room yet.
    waiting: VecDeque<(u64, Vec<Bytes>)>,
    waiting_len: usize,
    /// Batches that were asked for, and those of them that are durable.
    asked: u64,
    durable: u64,
    /// Batches in the engine, each with its ticket there.
    taken: VecDeque<(u64, Ticket)>,
    failure: Option<String>,
}

#[derive(Debug)]
struct Batch {
    ticket: Ticket,
    /// The last ticket of the store until then, and the batches of each log.
    store: Ticket,
    logs: Vec<u64>,
}

/// A [`Store`] and the logs of its worker.
pub struct Logged {
    store: Box<dyn Store>,
    logs: Vec<LogState>,
    open: Ticket,
    has_changes: bool,
    batches: VecDeque<Batch>,
    /// The store's last submitted ticket, and its durable one.
    submitted: Ticket,
    durable: Ticket,
    has_failed: bool,
}

impl Logged {
    /// A store with these logs.
    #[must_use]
    pub fn new(store: Box<dyn Store>, logs: Vec<OpenLog>) -> Logged {
        let log = |OpenLog { database, engine, driver }| LogState {
            database,
            engine,
            driver,
            waiting: VecDeque::new(),
            waiting_len: 0,
            asked: 0,
            durable: 0,
            taken: VecDeque::new(),
            failure: None,
        };
        Logged {
            store,
            logs: logs.into_iter().map(log).collect(),
            open: Ticket(1),
            has_changes: false,
            batches: VecDeque::new(),
            submitted: Ticket::DURABLE,
            durable: Ticket::DURABLE,
            has_failed: false,
        }
    }

    fn log(&mut self, database: Database) -> Option<&mut LogState> {
        self.logs.iter_mut().find(|log| log.database == database)
    }
}

impl LogState {
    fn change(&mut self, changes: LogChanges) {
        let cuts_first = changes.cuts_first();
        let LogChanges { from, records, below } = changes;
        if cuts_first && below > self.engine.first() {
            self.cut(below);
        }
        if let Some(from) = from {
            self.ask(from, records);
        }
        if !cuts_first && below > self.engine.first() {
            self.cut(below);
        }
    }

    /// Queues the records as batches, each as long as one may be.
    fn ask(&mut self, mut from: u64, records: Vec<Bytes>) {
        let len_max = self.engine.batch_len_max();
        let (mut batch, mut len) = (Vec::new(), BATCH_HEAD_LEN);
        for record in records {
            let more = record.len() + RECORD_HEAD_LEN;
            if len + more > len_max && !batch.is_empty() {
                let next = from + batch.len() as u64;
                self.push(from, std::mem::take(&mut batch));
                (from, len) = (next, BATCH_HEAD_LEN);
            }
            len += more;
            batch.push(record);
        }
        self.push(from, batch);
    }

    fn push(&mut self, from: u64, records: Vec<Bytes>) {
        self.asked += 1;
        self.waiting_len += records.iter().map(Bytes::len).sum::<usize>();
        self.waiting.push_back((from, records));
    }

    /// Cuts the front off at once: it makes room for the batches that wait.
    fn cut(&mut self, below: u64) {
        self.take_waiting();
        // Waiting records below go with the front; an empty batch keeps their numbers. They may
        // replace records that the engine holds.
        for (from, records) in &mut self.waiting {
            let gone = below.saturating_sub(*from).min(records.len() as u64) as usize;
            self.waiting_len -= records.drain(..gone).map(|it| it.len()).sum::<usize>();
            *from = (*from).max(below);
        }
        self.engine.cut_front(below - 1);
    }

    /// Hands waiting batches to the engine, as far as it has room.
    fn take_waiting(&mut self) {
        while let Some((from, records)) = self.waiting.front() {
            match self.engine.append(*from, records.clone()) {
                Ok(ticket) => {
                    let number = self.asked - self.waiting.len() as u64 + 1;
                    self.waiting_len -= records.iter().map(Bytes::len).sum::<usize>();
                    self.waiting.pop_front();
                    self.taken.push_back((number, ticket));
                }
                Err(AppendError::Full) if self.waiting_len <= WAITING_LEN_MAX => return,
                Err(why) => {
                    self.failure.get_or_insert_with(|| why.to_string());
                    return;
                }
            }
        }
    }

    /// Moves on: outcomes of the driver, batches that wait, the next store.
    fn drive(&mut self) {
        if self.failure.is_some() {
            return;
        }
        loop {
            if let Some(stored) = self.driver.ended() {
                self.engine.on_stored(stored);
            }
            self.take_waiting();
            let Some(store) = self.engine.next_store() else { break };
            self.driver.begin(store);
        }
        while self.taken.front().is_some_and(|(_, ticket)| *ticket <= self.engine.durable()) {
            self.durable = self.taken.pop_front().map_or(self.durable, |(number, _)| number);
        }
        if let Some(why) = self.engine.failure() {
            self.failure = Some(why.to_owned());
        }
    }
}

/// The same on all media with rings of this length.
fn record_len_max(engine: &Engine) -> usize {
    let fits = engine.batch_len_max() - BATCH_HEAD_LEN - RECORD_HEAD_LEN;
    fits.min((engine.ring() * SECTOR as u64 / RECORDS_PER_RING) as usize)
}

/// The records of an engine, for a protocol.
fn image(engine: &Engine) -> LogImage {
    LogImage {
        first: engine.first(),
        records: engine.range(engine.first()..=u64::MAX).map(|(_, it)| it.clone()).collect(),
        capacity: engine.ring() * SECTOR as u64 / 2,
        record_len_max: record_len_max(engine),
    }
}

impl Store for Logged {
    fn load(&mut self, place: &Place) -> Load {
        self.store.load(place)
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.store.put(place, record);
    }

    fn remove(&mut self, place: &Place) {
        self.store.remove(place);
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        self.store.set_forgotten(database, shard, forgotten);
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.store.is_forgotten(database, shard)
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        self.store.scan(id, database, from_hash, limit);
    }

    fn ticket(&self) -> Ticket {
        self.open
    }

    fn submit(&mut self) {
        let ticket = self.store.ticket();
        self.store.submit();
        let is_submitted = self.store.ticket() != ticket;
        if is_submitted {
            self.submitted = ticket;
        }
        if !is_submitted && !std::mem::take(&mut self.has_changes) {
            return;
        }
        self.has_changes = false;
        let logs = self.logs.iter().map(|log| log.asked).collect();
        self.batches.push_back(Batch { ticket: self.open, store: self.submitted, logs });
        self.open = Ticket(self.open.0 + 1);
        self.logs.iter_mut().for_each(LogState::drive);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let from = completions.len();
        self.store.poll(completions);
        let durable = &mut self.durable;
        let mut at = 0;
        completions.retain(|completion| {
            at += 1;
            match completion {
                Completion::Stored(upto) if at > from => {
                    *durable = (*durable).max(*upto);
                    false
                }
                _ => true,
            }
        });
        self.logs.iter_mut().for_each(LogState::drive);
        let is_durable = |batch: &Batch| {
            batch.store <= self.durable
                && self.logs.iter().zip(&batch.logs).all(|(log, upto)| *upto <= log.durable)
        };
        let count = self.batches.iter().take_while(|batch| is_durable(batch)).count();
        if let Some(last) = self.batches.drain(..count).next_back() {
            completions.push(Completion::Stored(last.ticket));
        }
        let failure = self.logs.iter().find_map(|log| log.failure.as_ref());
        if let Some(why) = failure
            && !std::mem::replace(&mut self.has_failed, true)
        {
            completions.push(Completion::Failed(format!("the log: {why}")));
        }
    }

    fn open_log(&mut self, database: Database) -> LogImage {
        self.log(database).map_or_else(LogImage::default, |log| image(&log.engine))
    }

    fn change_log(&mut self, database: Database, changes: LogChanges) {
        self.has_changes = true;
        if let Some(log) = self.log(database) {
            log.change(changes);
        }
    }

    fn set_positions(&mut self, positions: &Positions) {
        self.store.set_positions(positions);
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

    fn staging(&self) -> Option<Staging> {
        self.store.staging()
    }

    fn scrub_scope(&self) -> ScrubScope {
        self.store.scrub_scope()
    }

    fn scrub(&mut self, share: Share, bytes: u64) {
        self.store.scrub(share, bytes);
    }
}
