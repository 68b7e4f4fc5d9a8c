//! The disk engine in virtual time: the real one, over a simulated device.
//!
//! Workers' handles and the engine are those of the server. The world plays the engine's threads.
//! It finishes requests to the device, and tells an idle engine to rest.
//! Opening takes no virtual time, but power may fail while it lasts.

use std::sync::{Arc, Mutex, MutexGuard};

use base::Prng;
use storage::disk::{self, Config, File, LocalGuard, LocalStore, OpenError};
use storage::{Completion, Load, Place, Store};
use types::key::SHARDS;
use types::{Database, Shard};

use super::device::Device;
use super::{NotOpened, Work};
use crate::store::Survival;

/// Stands for node and cluster in every checksum.
const BINDING: u64 = 0x5eed_0001;
/// How often power fails while a store opens.
const CUT_PPM: u32 = 50_000;
/// Polls until a store that has just been made is marked as forgotten.
const MARKING_POLLS_MAX: usize = 1_000;

#[derive(Debug)]
struct DiskState {
    shape: Config,
    /// The databases whose shards a wiped medium has forgotten.
    databases: &'static [Database],
    rest_after: u64,
    device: Device,
    guard: Option<LocalGuard<Device>>,
    workers: usize,
    is_made: bool,
    is_wiped: bool,
    /// Shards were forgotten when it went down, and will be when it opens.
    had_forgotten: bool,
    /// Counts requests to the store; a rest is planned for one value.
    asked: u64,
    rest_planned: bool,
    begun: Vec<(u64, bool)>,
    power_fails: bool,
    /// The durable state at some moment.
    snapshot: Vec<Vec<u8>>,
    rng: Prng,
}

/// One node's disk; outlives the process. Clones share it.
#[derive(Clone, Debug)]
pub struct DiskMedium(Arc<Mutex<DiskState>>);

impl DiskMedium {
    /// `rest_after`: nanoseconds without a request before all data is written back. `power_fails`:
    /// a start may be interrupted.
    #[must_use]
    pub fn new(
        shape: Config,
        databases: &'static [Database],
        rest_after: u64,
        power_fails: bool,
        mut rng: Prng,
    ) -> DiskMedium {
        let device = Device::new(rng.fork());
        DiskMedium(Arc::new(Mutex::new(DiskState {
            shape,
            databases,
            rest_after,
            device,
            guard: None,
            workers: 0,
            is_made: false,
            is_wiped: false,
            had_forgotten: false,
            asked: 0,
            rest_planned: false,
            begun: Vec::new(),
            power_fails,
            snapshot: Vec::new(),
            rng,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().expect("no holder panics")
    }

    /// The stores of a process that starts.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub fn open(&self, workers: usize) -> Result<Vec<Box<dyn Store>>, NotOpened> {
        let mut state = self.lock();
        state.workers = workers;
        if state.power_fails && state.is_made && state.rng.chance_ppm(CUT_PPM) {
            state.try_to_open(workers);
        }
        let stores = state.open(workers)?;
        Ok(stores.into_iter().map(|store| Box::new(store) as _).collect())
    }

    /// Plans the engine's requests to the device, and its rest.
    pub fn take_work(&self, into: &mut Vec<Work>) {
        self.lock().take_work(into);
    }

    /// Finishes a request to the device. Appends the workers with completions to hear.
    pub fn finish(&self, io: u64, awake: &mut Vec<usize>) {
        let state = self.lock();
        let Some(guard) = &state.guard else { return };
        state.device.finish(io);
        guard.drive();
        awake.extend((0..state.workers).filter(|&worker| guard.has_completions(worker)));
    }

    /// Rests if no request came since the rest was planned.
    pub fn rest(&self, asked: u64) {
        let mut state = self.lock();
        state.rest_planned = false;
        if state.asked == asked
            && let Some(guard) = &state.guard
        {
            guard.rest();
        }
    }

    /// The process ends, with or without the power.
    pub fn crash(&self, survival: Survival) {
        let mut state = self.lock();
        let Some(guard) = state.guard.take() else { return };
        state.had_forgotten = state.databases.iter().any(|&it| guard.has_forgotten(it));
        drop(guard);
        state.rest_planned = false;
        match survival {
            Survival::Nothing => state.device.lose_power(false),
            Survival::Torn if state.rng.chance(0.6) => state.device.lose_power(true),
            Survival::Torn | Survival::Prefix => state.device.kill(),
        }
    }

    /// Empties the medium, and the next start knows it.
    pub fn wipe(&self) {
        let mut state = self.lock();
        state.device.wipe();
        (state.is_made, state.is_wiped, state.had_forgotten) = (false, true, true);
        // A new store has its own binding, so old content is invalid in it.
        state.snapshot.clear();
    }

    /// Damages a sector; false where none was found.
    #[must_use]
    pub fn damage(&self) -> bool {
        self.lock().device.rot()
    }

    /// Makes a sector older than the rest of its page; false where none was found.
    #[must_use]
    pub fn roll_back(&self) -> bool {
        self.lock().device.roll_back()
    }

    /// True if an offline check finds no damage, and no shard is forgotten.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is_recovering() && is_good(&self.lock().device)
    }

    /// Takes a snapshot of the durable state.
    pub fn remember(&self) {
        let mut state = self.lock();
        state.snapshot = state.device.durable();
    }

    /// Reverts some sectors to the snapshot; false without an effect. No process may be using it.
    #[must_use]
    pub fn revert(&self) -> bool {
        let state = self.lock();
        !state.snapshot.is_empty() && state.device.revert(&state.snapshot)
    }

    /// Damages data that a scrub verifies; false where none was found.
    #[must_use]
    pub fn damage_homes(&self) -> bool {
        self.lock().device.rot_in(&[File::Slots, File::Slots, File::Extents])
    }

    /// The records that a starting process would find; none in a store that does not open.
    #[must_use]
    pub fn look(&self, places: &[Place]) -> Vec<Load> {
        let state = self.lock();
        let copy = state.device.durable_copy();
        let opened = LocalGuard::open(copy, BINDING, 1, &state.shape);
        let Ok((_guard, mut stores)) = opened else { return vec![Load::Lost; places.len()] };
        places.iter().map(|place| load(&mut stores[0], place)).collect()
    }

    /// Whether there is no room on the device.
    pub fn set_full(&self, is_full: bool) {
        self.lock().device.set_full(is_full);
    }

    /// Whether the next flush fails.
    pub fn set_failing(&self, fails: bool) {
        self.lock().device.set_failing(fails);
    }

    /// True once the device has failed, until the store is opened again.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.lock().device.has_failed()
    }

    /// The engine's forbidden request.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.lock().device.complaint()
    }

    /// True while a shard is known to be forgotten.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        let state = self.lock();
        match &state.guard {
            Some(guard) => state.databases.iter().any(|&it| guard.has_forgotten(it)),
            None => state.had_forgotten,
        }
    }

    /// True when any shard is forgotten, noticed or not.
    #[must_use]
    pub fn has_forgotten_anything(&self) -> bool {
        if self.is_recovering() {
            return true;
        }
        let state = self.lock();
        state.device.is_rotten() && !is_good(&state.device)
    }
}

/// True if every slot of the durable state can be read. Images of pages do not count for the pages:
/// the engine reads them only when it opens.
fn is_good(device: &Device) -> bool {
    if device.has_rot_in(File::Spare) {
        return false;
    }
    let report = disk::verify(&mut device.durable_copy_without(File::Spare), &mut |_| ());
    report.is_ok_and(|report| report.is_good())
}

impl DiskState {
    /// A start during which power fails after some requests.
    fn try_to_open(&mut self, workers: usize) {
        let requests = self.rng.between(1, 24);
        self.device.reopen();
        self.device.set_instant(true);
        self.device.cut_after(Some(requests));
        let opened = LocalGuard::open(self.device.clone(), BINDING, workers, &self.shape);
        drop(opened);
        self.device.set_instant(false);
        self.device.lose_power(true);
    }

    fn open(&mut self, workers: usize) -> Result<Vec<LocalStore<Device>>, NotOpened> {
        self.device.reopen();
        self.device.set_instant(true);
        let opened = self.open_instantly(workers);
        self.device.set_instant(false);
        opened
    }

    fn open_instantly(&mut self, workers: usize) -> Result<Vec<LocalStore<Device>>, NotOpened> {
        let other = |error: OpenError| NotOpened::Other(error.to_string());
        if !self.is_made {
            let created = disk::create(&mut self.device.clone(), BINDING, &self.shape);
            if created.is_err() && self.device.is_full() {
                // A failed creation of a store begins anew.
                self.device.wipe();
                return Err(NotOpened::Full);
            }
            created.map_err(other)?;
        }
        let opened = LocalGuard::open(self.device.clone(), BINDING, workers, &self.shape);
        let (guard, mut stores) = match opened {
            Err(_) if self.device.is_full() => return Err(NotOpened::Full),
            // Damage that leaves only zeros looks like a missing store.
            Err(OpenError::Damaged | OpenError::Missing) if self.device.is_rotten() => {
                return Err(NotOpened::Damaged);
            }
            opened => opened.map_err(other)?,
        };
        if self.is_wiped {
            mark_forgotten(&mut stores, self.databases)?;
        }
        (self.is_made, self.is_wiped) = (true, false);
        self.guard = Some(guard);
        Ok(stores)
    }

    fn take_work(&mut self, into: &mut Vec<Work>) {
        let Some(guard) = &self.guard else { return };
        self.device.take_begun(&mut self.begun);
        self.asked += self.begun.len() as u64;
        into.extend(self.begun.drain(..).map(|(id, stores)| match stores {
            true => Work::Store(id),
            false => Work::Read(id),
        }));
        if !self.rest_planned && guard.under_way() == 0 && guard.is_dirty() {
            self.rest_planned = true;
            into.push(Work::Rest { after: self.rest_after, asked: self.asked });
        }
    }
}

fn load(store: &mut LocalStore<Device>, place: &Place) -> Load {
    let load = store.load(place);
    let mut heard = Vec::new();
    for _ in 0..MARKING_POLLS_MAX {
        if load != Load::Pending {
            break;
        }
        store.poll(&mut heard);
        let answer = heard.drain(..).find_map(|completion| match completion {
            Completion::Loaded { place: of, load } if of == *place => Some(load),
            _ => None,
        });
        if let Some(load) = answer {
            return load;
        }
    }
    load
}

/// Durably marks every shard as forgotten, as a node does that starts without its memory.
fn mark_forgotten(
    stores: &mut [LocalStore<Device>],
    databases: &[Database],
) -> Result<(), NotOpened> {
    let workers = stores.len();
    for (worker, store) in stores.iter_mut().enumerate() {
        for shard in (worker..SHARDS).step_by(workers) {
            for &database in databases {
                store.set_forgotten(database, Shard(shard as u8), true);
            }
        }
        let ticket = store.ticket();
        store.submit();
        let is_stored = (0..MARKING_POLLS_MAX).any(|_| {
            let mut completions = Vec::new();
            store.poll(&mut completions);
            completions.iter().any(|it| matches!(it, Completion::Stored(upto) if *upto >= ticket))
        });
        if !is_stored {
            return Err(NotOpened::Other("marking it as forgotten does not end".into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
