//! The pmem engine in virtual time: the real one, over modelled memory.
//!
//! A turn writes through at once, so no work here takes virtual time.
//! A loss of power keeps of each cache line any state since it was certain.
//! The death of the process keeps all stores, certain or not.
//! Either may come in the middle of a turn, or of a start. Rot changes single bytes.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use base::Prng;
use storage::pmem::layout::Geometry;
use storage::pmem::memory::Memory;
use storage::pmem::modelled::{Modelled, Moment, Persistent};
use storage::pmem::verify::verify_memory;
use storage::pmem::{Pmem, PmemError, Report};
use storage::volatile::Beginning;
use storage::{Load, Place, Store};
use types::Database;

use super::NotOpened;
use crate::store::Survival;

/// Stands for node and cluster in every check.
const BINDING: u64 = 0x5eed_0002;
/// Bytes that the memory may grow to.
const LEN_MAX: u64 = 256 << 20;
const GEOMETRY: Geometry = Geometry { workers: 4, databases: 1, segment_len: 256 << 10 };
/// How often power fails while the medium opens.
const CUT_PPM: u32 = 50_000;
/// Stores, write-backs and fences after which a process ends, at most.
const EVENTS_UNTIL_END_MAX: u64 = 400;
/// Stores, write-backs and fences between two searches for damage, which are slow.
const LOOK_AGAIN_AFTER: u64 = 20_000;
/// Tries to find a byte that is in use.
const ROT_TRIES: usize = 256;

#[derive(Debug)]
struct PmemState {
    /// The databases of the shards in question.
    databases: &'static [Database],
    memory: Option<Modelled>,
    pmem: Option<Pmem<Modelled>>,
    is_wiped: bool,
    /// The process ends at a chosen moment.
    is_ending: bool,
    power_fails: bool,
    /// Damaged bytes: their positions, and their values.
    rotten: Vec<(u64, u8)>,
    /// Number of events at which damage is checked again; until then it counts as present.
    look_at: u64,
    /// The memory at some moment.
    snapshot: Option<Modelled>,
    rng: Prng,
}

/// One node's persistent memory; outlives the process. Clones share it.
#[derive(Clone, Debug)]
pub struct PmemMedium(Arc<Mutex<PmemState>>);

impl PmemMedium {
    /// `power_fails`: a start may be interrupted.
    #[must_use]
    pub fn new(databases: &'static [Database], power_fails: bool, rng: Prng) -> PmemMedium {
        PmemMedium(Arc::new(Mutex::new(PmemState {
            databases,
            memory: None,
            pmem: None,
            is_wiped: false,
            is_ending: false,
            power_fails,
            rotten: Vec::new(),
            look_at: 0,
            snapshot: None,
            rng,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, PmemState> {
        self.0.lock().expect("no holder panics")
    }

    /// The stores of a process that starts.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub fn open(&self, workers: usize) -> Result<Vec<Box<dyn Store>>, NotOpened> {
        let mut state = self.lock();
        let pmem = state.open()?;
        let stores = (0..workers).map(|worker| Box::new(pmem.store(worker as u32)) as _).collect();
        state.pmem = Some(pmem);
        Ok(stores)
    }

    /// Lets the process end within a coming turn.
    pub fn end_within_a_turn(&self) {
        let mut state = self.lock();
        let after = state.rng.below(EVENTS_UNTIL_END_MAX);
        state.capture_after(after);
        state.is_ending = true;
    }

    /// Cancels that, unless the process has ended.
    pub fn end_no_more(&self) {
        let mut state = self.lock();
        state.is_ending &= state.captured().is_some();
    }

    /// True once the process has ended in the middle of a turn.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let state = self.lock();
        state.is_ending && state.captured().is_some()
    }

    /// The process ends, with or without the power; at its chosen moment if that has come.
    pub fn crash(&self, survival: Survival) {
        let mut state = self.lock();
        state.pmem = None;
        let Some(memory) = &state.memory else { return };
        let ended = state.is_ending.then(|| state.captured()).flatten();
        let left = ended.unwrap_or_else(|| memory.persistent());
        let loses_power = match survival {
            Survival::Nothing => true,
            Survival::Torn => state.rng.chance(0.6),
            Survival::Prefix => false,
        };
        state.is_ending = false;
        // The remaining memory counts events from zero.
        state.look_at = LOOK_AGAIN_AFTER;
        state.memory = Some(match loses_power {
            true => left.crash(&mut state.rng),
            false => left.killed(),
        });
    }

    /// Empties the medium, and the next start knows it.
    pub fn wipe(&self) {
        let mut state = self.lock();
        state.pmem = None;
        state.memory = None;
        state.is_wiped = true;
        state.rotten.clear();
        // A new store has its own binding, so old content is invalid in it.
        state.snapshot = None;
    }

    /// Damages a byte near others that are in use; false where none was found.
    #[must_use]
    pub fn damage(&self) -> bool {
        let mut state = self.lock();
        let Some(memory) = state.memory.clone() else { return false };
        for _ in 0..ROT_TRIES {
            let at = state.rng.below(memory.len());
            if memory.load(at / 8 * 8) != 0 {
                let mask = 1 << state.rng.below(8);
                memory.flip(at, mask);
                state.rotten.push((at, memory.byte(at)));
                state.look_at = memory.events() + LOOK_AGAIN_AFTER;
                return true;
            }
        }
        false
    }

    /// True if an offline check finds no damage, and no shard is forgotten.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let state = self.lock();
        let report = state
            .memory
            .as_ref()
            .map(|memory| verify_memory(memory.clone(), Path::new("modelled")));
        let is_good = |report: Report| report.faults_count == 0 && report.forgotten.is_empty();
        report.is_some_and(|report| report.is_ok_and(is_good))
    }

    /// Takes a snapshot of the memory.
    pub fn remember(&self) {
        let mut state = self.lock();
        state.snapshot = state.memory.as_ref().map(Modelled::stopped);
    }

    /// Reverts some lines, pages or more to the snapshot; false without an effect.
    #[must_use]
    pub fn revert(&self) -> bool {
        let mut state = self.lock();
        let (Some(memory), Some(before)) = (state.memory.clone(), state.snapshot.clone()) else {
            return false;
        };
        let len = *state.rng.pick(&[64, 128, 256, 4096, 64 << 10]);
        // Choose among the changed lines, which are few.
        let changed: Vec<u64> = (0..before.len().min(memory.len()))
            .step_by(8)
            .filter(|&at| memory.load(at) != before.load(at))
            .collect();
        if changed.is_empty() {
            return false;
        }
        let from = *state.rng.pick(&changed) / len * len;
        for at in from..(from + len).min(before.len()) {
            memory.damage(at, |_| before.byte(at));
        }
        true
    }

    /// The records that a starting process would find; none in a medium that does not open.
    #[must_use]
    pub fn look(&self, places: &[Place]) -> Vec<Load> {
        let state = self.lock();
        let opened = state.memory.as_ref().and_then(|memory| {
            Pmem::from_memory(memory.stopped(), BINDING, Path::new("modelled")).ok()
        });
        let Some(pmem) = opened else { return vec![Load::Lost; places.len()] };
        let mut store = pmem.store(0);
        places
            .iter()
            .map(|place| match store.load(place) {
                Load::Pending => Load::Lost,
                load => load,
            })
            .collect()
    }

    /// True while a shard is known to be forgotten.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        let state = self.lock();
        match (&state.pmem, &state.memory) {
            (Some(pmem), _) => state.databases.iter().any(|&it| pmem.has_forgotten(it)),
            (None, Some(memory)) => {
                verify_memory(memory.clone(), Path::new("modelled")).is_ok_and(|report| {
                    report.forgotten.iter().any(|(it, _)| state.databases.contains(it))
                })
            }
            (None, None) => state.is_wiped,
        }
    }

    /// True when any shard is forgotten, noticed or not.
    #[must_use]
    pub fn has_forgotten_anything(&self) -> bool {
        if self.is_recovering() {
            return true;
        }
        let mut state = self.lock();
        let Some(memory) = state.memory.clone() else { return false };
        if state.rotten.iter().all(|&(at, byte)| memory.byte(at) != byte) {
            return false;
        }
        if memory.events() >= state.look_at {
            let report = verify_memory(memory.clone(), Path::new("modelled"));
            if report.is_ok_and(|report| report.faults_count == 0) {
                return false;
            }
            state.look_at = memory.events() + LOOK_AGAIN_AFTER;
        }
        true
    }
}

impl PmemState {
    fn capture_after(&self, events: u64) {
        if let Some(memory) = &self.memory {
            memory.capture_at(Moment::Event(memory.events() + events));
        }
    }

    fn captured(&self) -> Option<Persistent> {
        self.memory.as_ref().and_then(Modelled::captured)
    }

    fn open(&mut self) -> Result<Pmem<Modelled>, NotOpened> {
        let Some(memory) = &self.memory else {
            let beginning = match std::mem::take(&mut self.is_wiped) {
                true => Beginning::Forgotten,
                false => Beginning::New,
            };
            let memory = formatted(beginning, self.databases)?;
            self.memory = Some(memory.clone());
            return self.open_memory(memory);
        };
        let memory = memory.clone();
        if self.power_fails && self.rng.chance_ppm(CUT_PPM) {
            let events = self.rng.below(40);
            self.capture_after(events);
            drop(self.open_memory(memory)?);
            let left = self.captured();
            self.memory = left
                .or_else(|| Some(self.memory.as_ref()?.persistent()))
                .map(|left| left.crash(&mut self.rng));
            return self.open();
        }
        self.open_memory(memory)
    }

    fn open_memory(&self, memory: Modelled) -> Result<Pmem<Modelled>, NotOpened> {
        Pmem::from_memory(memory, BINDING, Path::new("modelled")).map_err(|error| match error {
            PmemError::Damaged(_) if !self.rotten.is_empty() => NotOpened::Damaged,
            error => NotOpened::Other(error.to_string()),
        })
    }
}

/// Memory that holds an empty medium. Making it takes long, so it is made once.
fn formatted(beginning: Beginning, databases: &[Database]) -> Result<Modelled, NotOpened> {
    type Template = OnceLock<Result<Modelled, String>>;
    static TEMPLATES: [Template; 4] = [const { Template::new() }; 4];
    let is_new = usize::from(beginning == Beginning::New);
    let template = &TEMPLATES[is_new + 2 * usize::from(databases.len() > 1)];
    let made = template.get_or_init(|| {
        let memory = Modelled::new(LEN_MAX);
        let last = databases.iter().map(|it| u32::from(it.0)).max().unwrap_or_default();
        let geometry = Geometry { databases: last + 1, ..GEOMETRY };
        let pmem = Pmem::format(memory.clone(), geometry, BINDING, beginning);
        pmem.map(|_| memory).map_err(|error| error.to_string())
    });
    made.as_ref().map(Modelled::stopped).map_err(|error| NotOpened::Other(error.clone()))
}

#[cfg(test)]
mod tests;
