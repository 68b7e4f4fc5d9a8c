//! The keeper's logic: one state machine for all workers of a node and the device that they share.
//!
//! It has no clock, thread or file. Requests of workers and completions of the device go in; requests to the device
//! and completions for workers come out, when [`Engine::step`] is called. Where to start reading: `engine/commit.rs`
//! (a batch becomes durable), `engine/lookup.rs` (a record is found), `engine/write_back.rs` (entries go home),
//! `engine/sweep.rs` (which of them, and when), `engine/loss.rs` (damage becomes forgetting), `engine/open.rs`.

mod commit;
mod config;
mod homes;
mod joins;
mod listing;
mod lookup;
mod loss;
mod mending;
mod merging;
mod open;
mod rebuild;
mod scrub;
mod superblocks;
mod surplus;
mod survey;
mod sweep;
mod write_back;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use types::key::SHARDS;
use types::limits::SPACES;
use types::{Database, Shard};

use super::cache::{ByNumber, Cache};
use super::directory::Directory;
use super::extents::Extents;
use super::index::Index;
use super::io::{Done, File, Io};
use super::page::CheckedPage;
use super::pool::Pool;
use super::request::Request;
use super::ring::{Marked, Ring};
use super::superblock::Flags;
use crate::disk::place::{PAGE, PagePlace};
use crate::{Completion, Staging};

pub use config::{Config, OpenError};
pub(super) use lookup::is_page_of;
pub use open::create;
pub(super) use open::find_ring;
pub(super) use superblocks::Superblocks;

/// Bytes of large records that may wait for the medium before the store calls itself full.
const UNWRITTEN_LEN_MAX: usize = 64 << 20;

/// Bytes of a batch that are in memory for each byte of it that is needed, at most, as a rule.
const BATCH_PARTS: usize = 16;

/// Bytes that may wait for the ring, whatever other nodes bring. Whatever its length: they wait in memory.
const WAITING_LEN_MAX: usize = 64 << 20;

/// Everything a store knows while it is open.
#[derive(Debug)]
pub struct Engine {
    binding: u64,
    fill_percent: u64,
    spare: u64, // most images of a write-back

    completions: Vec<Vec<Completion>>, // by worker
    ios: Vec<Io>,
    next_io: u64,
    failure: Option<String>,

    ring: Ring,
    index: Index,
    pool: Arc<Pool>, // of what the index refers to
    commit: Option<commit::Commit>,

    directory: Directory,
    buckets_min: u64, // no fewer
    slots: joins::Slots,
    cache: Cache,
    extents: Extents,
    unwritten: BTreeMap<u64, Bytes>, // by unit: large records that are not on the medium yet
    unwritten_len: usize,            // their bytes
    loading: HashMap<u64, lookup::Loading, ByNumber>, // by bucket
    reads: HashMap<u64, lookup::Reading, ByNumber>, // by io
    maps: BTreeSet<u64>,             // groups whose maps are being read
    listings: BTreeMap<u64, listing::Listing>,
    next_listing: u64,

    write_back: write_back::WriteBack, // the next one
    writing: Option<homes::Writing>,
    fruitless: Option<u64>, // newest durable stripe when the last write-back could bring nothing home
    met_repair: bool,       // since the write-back under way was gathered
    batch: u64,             // the newest write-back
    batch_in_place: u64,
    floor: u64, // pages of older write-backs are void
    /// A superblock of this process is in place.
    is_numbered: bool,
    used: u64, // bytes that records take in pages
    sweep: sweep::Sweep,
    marked: Marked,  // whose marks stand in the superblock
    held_until: u64, // nothing is written back before the ring's head is here
    is_resting: bool,

    flags: Flags,         // forgotten shards as workers see them
    flags_durable: Flags, // as the durable stripes have them
    losses: Vec<u32>,     // completions sent, by database and shard
    scrub: scrub::Scrub,
    surplus: surplus::Surplus,
    repairs: BTreeMap<u64, u64>, // damaged buckets, and the stripe whose marks must be durable before their pages are rewritten
}

impl Engine {
    /// Takes a request of a worker.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn request(&mut self, worker: usize, request: Request) {
        assert!(worker < self.completions.len(), "worker {worker} was not announced");
        if self.failure.is_some() {
            return;
        }
        match request {
            Request::Change(batch) => {
                if std::mem::take(&mut self.is_resting) {
                    self.wait_for_burst();
                }
                self.accept(worker, batch);
            }
            Request::Load(place) => self.load(worker, place),
            Request::Scan(scan) => self.list(worker, scan),
            Request::Scrub { bytes } => self.ask_scrub(worker, bytes),
        }
    }

    /// Takes a completion of the device. A failure poisons the store for good.
    pub fn done(&mut self, done: Done) {
        self.done_checked(done, None);
    }

    /// The same, with what [`check`] has made of what was read.
    pub(super) fn done_checked(&mut self, done: Done, pages: Option<Vec<CheckedPage>>) {
        if self.failure.is_some() {
            return;
        }
        let bytes = match done.result {
            Ok(bytes) => bytes,
            Err(reason) => match self.reads.get(&done.id).and_then(lookup::Reading::stand_in) {
                Some(bytes) => bytes,
                None => return self.fail(&reason),
            },
        };
        if self.commit.as_ref().is_some_and(|commit| commit.io == Some(done.id)) {
            self.commit_done();
        } else if self.is_write_back(done.id) {
            self.write_back_done(done.id);
        } else if let Some(reading) = self.reads.remove(&done.id) {
            match (reading, pages) {
                (lookup::Reading::Run { first }, Some(pages)) => self.run_read(first, pages),
                (reading, _) => self.read_done(reading, bytes),
            }
        } else if !self.is_cut(done.id) {
            self.given(done.id);
        }
    }

    /// Tells the store that nothing has been asked of it for a while: it writes back all that it holds and is then
    /// still.
    pub fn rest(&mut self) {
        self.is_resting = true;
        self.held_until = 0;
    }

    /// Does what has become possible. Call it after any number of inputs.
    pub fn step(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.step_listings();
        self.step_maps();
        self.step_write_back();
        self.step_cut();
        self.step_commit();
        self.step_scrub();
        self.step_surplus();
        if self.is_held() && (self.is_full() || self.waits_for_write_back()) {
            self.held_until = 0;
            self.step_write_back();
        }
        self.cache.shrink();
    }

    pub(super) fn has_ios(&self) -> bool {
        !self.ios.is_empty()
    }

    /// Takes the requests to the device, in order.
    pub fn take_ios(&mut self) -> std::vec::Drain<'_, Io> {
        self.ios.drain(..)
    }

    /// Moves the completions of a worker.
    pub fn take_completions(&mut self, worker: usize, into: &mut Vec<Completion>) {
        into.append(&mut self.completions[worker]);
    }

    #[must_use]
    pub fn has_completions(&self, worker: usize) -> bool {
        !self.completions[worker].is_empty()
    }

    #[must_use]
    pub fn workers(&self) -> usize {
        self.completions.len()
    }

    /// True while workers should bring no new changes: the ring is nearly full or fills faster than it is emptied, or
    /// too much waits for it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let waiting = (self.waiting_len() / super::stripe::PAYLOAD) as u64;
        self.ring.used() + waiting > self.sweep.full(self.ring.sectors)
            || self.unwritten_len > UNWRITTEN_LEN_MAX
            || self.is_far_behind()
    }

    /// True while so much waits that nothing may be added, whoever asks for it: where other nodes are faster than this
    /// one's disk, they would fill its memory.
    #[must_use]
    pub fn is_overrun(&self) -> bool {
        self.waiting_len() > WAITING_LEN_MAX || self.unwritten_len > 4 * UNWRITTEN_LEN_MAX
    }

    /// Bytes that were submitted and are in no stripe yet that is being written.
    fn waiting_len(&self) -> usize {
        self.ring.waiting_len()
    }

    /// Of the ring.
    #[must_use]
    pub fn staging(&self) -> Staging {
        let bytes = |sectors: u64| sectors * super::stripe::SECTOR as u64;
        Staging { used: bytes(self.ring.used()), len: bytes(self.ring.sectors) }
    }

    /// Bytes of memory that is taken by what has not come to its place.
    #[must_use]
    pub fn memory(&self) -> usize {
        // A batch stays in memory as long as one of its entries is needed.
        let batches = (self.staging().used as usize).min(BATCH_PARTS * self.index.sizes().staged);
        // What waits is in its batch and in the stripe that is collected.
        batches + 2 * self.waiting_len() + self.unwritten_len + self.index.overhead()
    }

    /// True while there is something that [`Engine::rest`] would write back.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.failure.is_none()
            && (self.ring.used() > 0
                || self.ring.waiting_len() > 0
                || self.write_back.is_redone()
                || self.wants_fewer_buckets()
                || self.scrub.is_torn
                || !self.repairs.is_empty())
    }

    /// True while something that was submitted is not durable.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.failure.is_none() && (self.commit.is_some() || self.ring.waiting_len() > 0)
    }

    /// The request that the next stripe waits for.
    pub(in crate::disk) fn committing(&self) -> Option<u64> {
        self.commit.as_ref().and_then(|commit| commit.io)
    }

    #[must_use]
    pub fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.flags.has(database, shard)
    }

    /// True while any shard of a database is forgotten, as workers see it or as a start would find it now.
    #[must_use]
    pub fn has_forgotten(&self, database: Database) -> bool {
        self.flags.has_any(database) || self.flags_durable.has_any(database)
    }

    /// Longest batch in bytes, with one mark for each shard that it speaks of and one more.
    pub(super) fn batch_len_max(&self) -> usize {
        Ring::entries_len_max(self.ring.sectors)
    }

    /// Longest stripe in bytes.
    pub(super) fn stripe_len_max(&self) -> usize {
        Ring::stripe_max(self.ring.sectors) as usize * super::stripe::SECTOR
    }

    pub(super) fn binding(&self) -> u64 {
        self.binding
    }

    /// Where batches get their memory.
    pub(super) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool)
    }

    /// Why the store is poisoned, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn fail(&mut self, reason: &str) {
        self.failure = Some(reason.to_owned());
        self.ios.clear();
        for completions in &mut self.completions {
            completions.push(Completion::Failed(reason.to_owned()));
        }
    }

    fn take_io_id(&mut self) -> u64 {
        self.next_io += 1;
        self.next_io
    }

    fn owner_of(&self, shard: Shard) -> usize {
        usize::from(shard.0) % self.completions.len()
    }
}

/// Checks what a write-back has read, for [`Engine::done_checked`], so that the engine need not; `None` for other requests.
pub(super) fn check(io: &Io, done: &Done, binding: u64) -> Option<Vec<CheckedPage>> {
    let (Io::Read { file, offset, len, .. }, Ok(bytes)) = (io, &done.result) else { return None };
    let place = PagePlace { file: *file, offset: *offset };
    let is_run = *file == File::Slots && *len > PAGE;
    is_run.then(|| CheckedPage::run(bytes, place, binding))
}

/// Where the accounts of a shard stand in a table of all of them.
fn shard_index(database: Database, shard: Shard) -> usize {
    usize::from(database.0) % SPACES * SHARDS + usize::from(shard.0)
}
