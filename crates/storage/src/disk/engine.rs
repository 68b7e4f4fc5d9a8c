//! One state machine for all workers of a node and the device that they share.
//!
//! It has no clock, thread or file. Requests of workers and completions of the device go in;
//! requests to the device and completions for workers come out, when [`Engine::step`] is called. It
//! only wires its parts together: [`commit`] (a batch becomes durable), [`lookup`] (a record is
//! found), [`listing`], [`write_back`] (entries go home), [`scrub`] and [`open`]. They work on
//! [`records`] and use neither each other's state nor the engine.

mod buckets;
mod clock;
mod commit;
mod config;
mod contents;
mod listing;
mod lookup;
mod losses;
mod mending;
mod open;
mod records;
mod redone;
mod scrub;
mod staged;
mod superblocks;
mod write_back;

use std::sync::Arc;

use types::{Database, Shard};

use self::commit::Commits;
use self::listing::Listings;
use self::lookup::{Answer, Lookups};
use self::open::Opened;
use self::records::Records;
use self::scrub::{Around, Scrub};
use self::write_back::WriteBack;
use super::device::Device;
use super::io::{Done, Io, Medium};
use super::page::CheckedPage;
use super::pool::Pool;
use super::replies::Out;
use super::request::Request;
use super::ring::Ring;
use super::stripe::{PAYLOAD, SECTOR};
use crate::{Completion, Load, Place, Staging};

pub use self::config::{Config, OpenError};
pub use self::open::create;
pub(super) use self::open::find_ring;
pub(super) use self::superblocks::Superblocks;

/// Bytes of large records that may wait for the medium before the store calls itself full.
const UNWRITTEN_LEN_MAX: usize = 64 << 20;

/// Bytes of a batch that are in memory for each byte of it that is needed, at most, as a rule.
const BATCH_PARTS: usize = 16;

/// Bytes that may wait for the ring, whatever other nodes bring: they wait in memory.
const WAITING_LEN_MAX: usize = 64 << 20;

/// The parts of an open store.
#[derive(Debug)]
pub struct Engine {
    records: Records,
    commits: Commits,
    lookups: Lookups,
    listings: Listings,
    write_back: WriteBack,
    scrub: Scrub,
    out: Out,
}

impl Engine {
    /// Opens a store for so many workers; shard `s` belongs to worker `s % workers`.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// If `workers` is zero.
    pub fn open(
        medium: &mut dyn Medium,
        binding: u64,
        workers: usize,
        config: &Config,
    ) -> Result<Engine, OpenError> {
        assert!(workers > 0, "a store has a worker at least");
        let Opened { records, write_back, replies } = open::open(medium, binding, workers, config)?;
        Ok(Engine {
            records,
            commits: Commits::default(),
            lookups: Lookups::default(),
            listings: Listings::default(),
            write_back,
            scrub: Scrub::default(),
            out: Out { device: Device::new(), replies },
        })
    }

    /// Takes a request of a worker.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn request(&mut self, worker: usize, request: Request) {
        assert!(worker < self.workers(), "worker {worker} was not announced");
        if self.failure().is_some() {
            return;
        }
        let Engine { records, lookups, listings, scrub, out, .. } = self;
        match request {
            Request::Change(batch) => {
                records.clock.wake(records.staged.ring());
                Commits::accept(worker, batch, records);
            }
            Request::Load(place) => lookups.load((worker, place), records, out),
            Request::Scan(scan) => listings.add(worker, scan),
            Request::Scrub { bytes } => scrub.ask(worker, bytes),
        }
    }

    /// Takes a completion of the device. A failure poisons the store for good.
    pub fn done(&mut self, done: Done) {
        self.done_checked(done, None);
    }

    /// The same, with the outcome of [`CheckedPage::of_read`].
    pub(super) fn done_checked(&mut self, done: Done, pages: Option<Vec<CheckedPage>>) {
        if self.failure().is_some() {
            return;
        }
        let Done { id, result } = done;
        let stand_in = || self.lookups.stand_in(id).or_else(|| self.scrub.stand_in(id));
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(reason) => match stand_in() {
                Some(bytes) => bytes,
                None => return self.out.fail(&reason),
            },
        };
        if self.commits.io() == Some(id) {
            return self.commits.done(&mut self.records, &mut self.out.replies);
        }
        let (mut around, scrub) = self.around_scrub();
        let is_known = {
            let Around { records, lookups, write_back, out } = &mut around;
            write_back.done(id, records, &mut out.device)
                || lookups.done(id, (&bytes, pages), records, out)
        };
        if !is_known && !scrub.done(id, &bytes, &mut around) {
            self.records.extents.given(id);
        }
        self.pass_on();
    }

    /// Tells the store that it has been idle for a while: it writes back all its entries and is
    /// then still.
    pub fn rest(&mut self) {
        self.records.clock.rest();
    }

    /// Does all that has become possible. Call it after any number of inputs.
    pub fn step(&mut self) {
        if self.failure().is_some() {
            return;
        }
        self.step_listings();
        self.step_maps();
        self.step_write_back();
        self.write_back.step_cut(&self.records, &mut self.out.device);
        self.commits.step(&mut self.records, &mut self.out.device);
        let (mut around, scrub) = self.around_scrub();
        scrub.step(&mut around);
        self.pass_on();
        if self.records.redone.is_none() {
            let is_resting = self.records.clock.is_resting();
            self.records.extents.step_surplus(is_resting, &mut self.out.device);
        }
        if self.records.clock.is_held(self.ring()) {
            let ring = self.records.staged.ring_mut();
            if self.commits.waits_for_write_back(ring) || self.is_full() {
                self.records.clock.let_go();
                self.step_write_back();
            }
        }
        self.records.buckets.cache_mut().shrink();
    }

    fn step_listings(&mut self) {
        loop {
            let Engine { records, lookups, listings, out, .. } = self;
            if !listings.step(records, lookups, out) {
                return;
            }
            self.pass_on();
        }
    }

    /// Looks for room in groups whose maps a start has left alone, if others have none or the store
    /// rests.
    fn step_maps(&mut self) {
        let records = &mut self.records;
        let is_time = records.extents.seeks_room() || records.clock.is_resting();
        if is_time && records.redone.is_none() {
            self.lookups.read_unknown_maps(records, &mut self.out.device);
        }
    }

    fn step_write_back(&mut self) {
        let is_committing = self.is_committing();
        let Engine { records, lookups, write_back, out, .. } = self;
        let device = &mut out.device;
        if let Err(reason) = write_back.step(is_committing, records, lookups, device) {
            self.out.fail(&reason);
        }
    }

    fn around_scrub(&mut self) -> (Around<'_>, &mut Scrub) {
        let Engine { records, lookups, write_back, scrub, out, .. } = self;
        (Around { records, lookups, write_back, out }, scrub)
    }

    /// Hands answers on to the parts that asked.
    fn pass_on(&mut self) {
        let Engine { records, lookups, listings, write_back, scrub, out, .. } = self;
        while let Some(answer) = lookups.next_answer() {
            match answer {
                Answer::Item { listing, item, found } => listings.take_item(listing, item, found),
                Answer::Target(bucket) => {
                    write_back.target_known(bucket, records, lookups, &mut out.device);
                }
                Answer::Map(group) => write_back.map_known(group),
                Answer::Checked => scrub.checked(),
                Answer::SecondLook { bucket, is_lost, was_still } => {
                    scrub.looked_again(bucket, (is_lost, was_still), records, &mut out.replies);
                }
            }
        }
    }

    /// Why the store is poisoned, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.out.replies.failure()
    }

    /// Answers a load at once if memory has all that it takes. The engine must have taken all
    /// requests of the worker.
    pub(super) fn try_load(&mut self, worker: usize, place: &Place) -> Option<Load> {
        if self.failure().is_some() || self.has_completions(worker) {
            return None;
        }
        Lookups::try_load(place, &mut self.records)
    }

    pub(super) fn has_ios(&self) -> bool {
        self.out.device.has_some()
    }

    /// Takes the requests to the device, in order.
    pub fn take_ios(&mut self) -> std::vec::Drain<'_, Io> {
        self.out.device.take()
    }

    /// Moves the completions of a worker.
    pub fn take_completions(&mut self, worker: usize, into: &mut Vec<Completion>) {
        self.out.replies.take(worker, into);
    }

    #[must_use]
    pub fn has_completions(&self, worker: usize) -> bool {
        self.out.replies.has_some(worker)
    }

    #[must_use]
    pub fn workers(&self) -> usize {
        self.out.replies.workers()
    }

    fn ring(&self) -> &Ring {
        self.records.staged.ring()
    }

    /// True while workers should bring no new changes: the ring is nearly full or fills faster than
    /// it is emptied, or too much waits for it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let ring = self.ring();
        let waiting = (ring.waiting_len() / PAYLOAD) as u64;
        ring.used() + waiting > self.records.clock.full(ring.sectors)
            || self.records.contents.len() > UNWRITTEN_LEN_MAX
            || self.records.is_far_behind()
    }

    /// True while so much waits that no change may be added: other nodes that are faster than this
    /// disk would fill the memory.
    #[must_use]
    pub fn is_overrun(&self) -> bool {
        self.ring().waiting_len() > WAITING_LEN_MAX
            || self.records.contents.len() > 4 * UNWRITTEN_LEN_MAX
    }

    /// The use of the ring.
    #[must_use]
    pub fn staging(&self) -> Staging {
        let bytes = |sectors: u64| sectors * SECTOR as u64;
        Staging { used: bytes(self.ring().used()), len: bytes(self.ring().sectors) }
    }

    /// Bytes of memory that is taken by records that have not come to their places.
    #[must_use]
    pub fn memory(&self) -> usize {
        let index = self.records.staged.index();
        // A batch stays in memory as long as one of its entries is needed.
        let batches = (self.staging().used as usize).min(BATCH_PARTS * index.sizes().staged);
        // A waiting entry is in its batch and in the open batch of the ring.
        batches + 2 * self.ring().waiting_len() + self.records.contents.len() + index.overhead()
    }

    /// True while there is something that [`Engine::rest`] would write back.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.failure().is_none()
            && (self.ring().used() > 0
                || self.ring().waiting_len() > 0
                || self.records.redone.is_some()
                || self.write_back.has_work_at_rest(&self.records)
                || self.records.losses.has_repairs())
    }

    /// True while a write-back can go on without anything from outside.
    #[must_use]
    pub fn is_building(&self) -> bool {
        self.failure().is_none() && self.write_back.is_building()
    }

    /// True while a submitted change is not durable.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.failure().is_none() && (self.commits.is_busy() || self.ring().waiting_len() > 0)
    }

    /// The request that the next durable batch waits for.
    pub(super) fn committing(&self) -> Option<u64> {
        self.commits.io()
    }

    /// Takes back the writes of a batch that has completed, for their memory.
    pub(super) fn recycle(&mut self, writes: Vec<super::io::Write>) {
        self.records.staged.ring_mut().recycle(writes);
    }

    #[must_use]
    pub fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        self.records.losses.has(database, shard)
    }

    /// True while any shard of a database is forgotten, as workers see it or as a start would find
    /// it now.
    #[must_use]
    pub fn has_forgotten(&self, database: Database) -> bool {
        self.records.losses.has_any(database)
    }

    /// Longest batch in bytes, with one mark for each shard that it speaks of and one more.
    pub(super) fn batch_len_max(&self) -> usize {
        Ring::entries_len_max(self.ring().sectors)
    }

    pub(super) fn binding(&self) -> u64 {
        self.records.binding
    }

    /// Where batches get their memory.
    pub(super) fn pool(&self) -> Arc<Pool> {
        Arc::clone(self.records.staged.pool())
    }
}
