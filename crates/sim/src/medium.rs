//! What a simulated node stores its registers on: the model store, or a real engine over a simulated device.
//!
//! The world sees the same of each: stores for the workers, work that takes time, what a crash leaves, and what is
//! forgotten. Which one a run uses is drawn, see [`MediumKind`].

pub mod device;
pub mod disk;
pub mod pmem;
pub mod volatile;

use base::Prng;
use storage::{Load, Place, Store};
use types::{Database, Ticket};

use self::disk::DiskMedium;
use self::pmem::PmemMedium;
use self::volatile::VolatileMedium;
use crate::store::{self, Durability, Survival};

/// Who keeps the records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MediumKind {
    /// The model: what the interface of `storage` allows, and nothing else. Where nothing outlives the process, the
    /// real store, which is as simple.
    Model,
    /// The disk engine over a simulated device.
    Disk,
    /// The pmem engine over modelled memory.
    Pmem,
}

impl MediumKind {
    pub const ALL: &[MediumKind] = &[MediumKind::Model, MediumKind::Disk, MediumKind::Pmem];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MediumKind::Model => "model",
            MediumKind::Disk => "disk",
            MediumKind::Pmem => "pmem",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<MediumKind> {
        MediumKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// What it promises; `None` where the model promises what it is told to.
    #[must_use]
    pub fn durability(self) -> Option<Durability> {
        match self {
            MediumKind::Model => None,
            MediumKind::Disk => Some(Durability::Disk),
            MediumKind::Pmem => Some(Durability::Pmem),
        }
    }
}

/// A drawn medium.
#[derive(Clone, Debug)]
pub struct MediumConfig {
    pub kind: MediumKind,
    pub durability: Durability,
    /// How often a read takes time.
    pub slow_read_ppm: u32,
    /// The disk engine's.
    pub shape: storage::disk::Config,
    /// Nanoseconds without a request before the disk engine writes everything back.
    pub rest_after: u64,
    /// Power may fail while a store opens.
    pub power_fails: bool,
}

impl MediumConfig {
    /// A model that answers at once.
    #[must_use]
    pub fn model(durability: Durability) -> MediumConfig {
        MediumConfig {
            kind: MediumKind::Model,
            durability,
            slow_read_ppm: 0,
            shape: storage::disk::Config::default(),
            rest_after: 0,
            power_fails: false,
        }
    }
}

/// Something that takes time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// The model flushes a worker's batches up to here.
    Flush { worker: usize, upto: Ticket },
    /// The model reads what a worker asked for.
    Reads { worker: usize },
    /// The device stores.
    Store(u64),
    /// The device reads.
    Read(u64),
    /// Nothing has to be done; if nothing is asked for so long, the engine rests.
    Rest { after: u64, asked: u64 },
}

/// Why there are no stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotOpened {
    /// It was damaged so that only a reset helps.
    Damaged,
    /// There is no room on the device.
    Full,
    Other(String),
}

/// One node's medium. Outlives the process; clones share it.
#[derive(Clone, Debug)]
pub enum Medium {
    Model(store::Medium),
    Disk(DiskMedium),
    Pmem(PmemMedium),
    Volatile(VolatileMedium),
}

impl Medium {
    #[must_use]
    pub fn new(config: &MediumConfig, database: Database, rng: Prng) -> Medium {
        let MediumConfig { durability, slow_read_ppm, shape, rest_after, power_fails, .. } = config;
        match config.kind {
            MediumKind::Model if *durability == Durability::Volatile => {
                Medium::Volatile(VolatileMedium::new(database))
            }
            MediumKind::Model => {
                Medium::Model(store::Medium::new(*durability, database, *slow_read_ppm, rng))
            }
            MediumKind::Disk => {
                Medium::Disk(DiskMedium::new(*shape, database, *rest_after, *power_fails, rng))
            }
            MediumKind::Pmem => Medium::Pmem(PmemMedium::new(database, *power_fails, rng)),
        }
    }

    /// The stores of a process that starts with `workers` workers.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub fn open(&self, workers: usize) -> Result<Vec<Box<dyn Store>>, NotOpened> {
        match self {
            Medium::Model(model) => {
                Ok(model.open(workers).into_iter().map(|store| Box::new(store) as _).collect())
            }
            Medium::Disk(disk) => disk.open(workers),
            Medium::Pmem(pmem) => pmem.open(workers),
            Medium::Volatile(volatile) => Ok(volatile.open(workers)),
        }
    }

    /// What a worker's last turn, or work that was finished, left to do.
    pub fn take_work(&self, worker: usize, into: &mut Vec<Work>) {
        match self {
            Medium::Model(model) => {
                let work = model.take_work(worker);
                into.extend(work.flush.map(|upto| Work::Flush { worker, upto }));
                into.extend(work.has_reads.then_some(Work::Reads { worker }));
            }
            Medium::Disk(disk) => disk.take_work(into),
            Medium::Pmem(_) | Medium::Volatile(_) => {}
        }
    }

    /// Some work is finished. Appends the workers that have something to hear.
    pub fn finish(&self, work: Work, awake: &mut Vec<usize>) {
        match (self, work) {
            (Medium::Model(model), Work::Flush { worker, upto }) => {
                model.finish_flush(worker, upto);
                awake.push(worker);
            }
            (Medium::Model(model), Work::Reads { worker }) => {
                model.finish_reads(worker);
                awake.push(worker);
            }
            (Medium::Disk(disk), Work::Store(io) | Work::Read(io)) => disk.finish(io, awake),
            (Medium::Disk(disk), Work::Rest { asked, .. }) => disk.rest(asked),
            _ => unreachable!("{work:?} is not the work of this medium"),
        }
    }

    /// The process ends.
    pub fn crash(&self, survival: Survival) {
        match self {
            Medium::Model(model) => model.crash(survival),
            Medium::Disk(disk) => disk.crash(survival),
            Medium::Pmem(pmem) => pmem.crash(survival),
            Medium::Volatile(volatile) => volatile.forget(),
        }
    }

    /// The medium is wiped: a new one that knows that it has forgotten everything.
    pub fn wipe(&self) {
        match self {
            Medium::Model(model) => model.wipe(),
            Medium::Disk(disk) => disk.wipe(),
            Medium::Pmem(pmem) => pmem.wipe(),
            Medium::Volatile(volatile) => volatile.forget(),
        }
    }

    /// Damages something durable. `may` says of a place whether it may be forgotten; damage under a real engine may
    /// cost any. False when there was nothing to damage.
    pub fn damage(&self, mut may: impl FnMut(&Place) -> bool) -> bool {
        match self {
            Medium::Model(model) => model.damage(may),
            Medium::Disk(disk) => may(&ANY_PLACE) && disk.damage(),
            Medium::Pmem(pmem) => may(&ANY_PLACE) && pmem.damage(),
            Medium::Volatile(_) => false,
        }
    }

    /// Makes a sector older than the rest of its page, where there are sectors; see [`Medium::damage`].
    pub fn roll_back(&self, mut may: impl FnMut(&Place) -> bool) -> bool {
        match self {
            Medium::Disk(disk) => may(&ANY_PLACE) && disk.roll_back(),
            Medium::Model(_) | Medium::Pmem(_) | Medium::Volatile(_) => false,
        }
    }

    /// Damages something that a scrub verifies; see [`Medium::damage`]. The model has no scrub.
    #[must_use]
    pub fn damage_homes(&self) -> bool {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => false,
            Medium::Disk(disk) => disk.damage_homes(),
            Medium::Pmem(pmem) => pmem.damage(),
        }
    }

    /// True if an offline check finds nothing, and nothing is forgotten.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match self {
            Medium::Model(model) => !model.has_forgotten_anything(),
            Medium::Disk(disk) => disk.is_whole(),
            Medium::Pmem(pmem) => pmem.is_whole(),
            Medium::Volatile(volatile) => !volatile.is_recovering(),
        }
    }

    /// Remembers what is stored now.
    pub fn remember(&self) {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => {}
            Medium::Disk(disk) => disk.remember(),
            Medium::Pmem(pmem) => pmem.remember(),
        }
    }

    /// Makes some of the medium what it was when it was remembered, whole sectors or lines of it, while no process uses
    /// it. False where that changes nothing.
    #[must_use]
    pub fn bring_back(&self) -> bool {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => false,
            Medium::Disk(disk) => disk.bring_back(),
            Medium::Pmem(pmem) => pmem.bring_back(),
        }
    }

    /// What a process that starts now would find there; it changes nothing.
    #[must_use]
    pub fn look(&self, places: &[Place]) -> Vec<Load> {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => vec![Load::Absent; places.len()],
            Medium::Disk(disk) => disk.look(places),
            Medium::Pmem(pmem) => pmem.look(places),
        }
    }

    /// Whether there is no room left, where there can be none.
    pub fn set_full(&self, is_full: bool) {
        if let Medium::Disk(disk) = self {
            disk.set_full(is_full);
        }
    }

    /// Whether the next flush fails, where flushes can.
    pub fn set_failing(&self, fails: bool) {
        match self {
            Medium::Disk(disk) => disk.set_failing(fails),
            Medium::Pmem(pmem) if !fails => pmem.end_no_more(),
            Medium::Model(_) | Medium::Pmem(_) | Medium::Volatile(_) => {}
        }
    }

    /// Lets the process end in the middle of a turn to come, where turns write. False where they do not.
    #[must_use]
    pub fn end_within_a_turn(&self) -> bool {
        match self {
            Medium::Pmem(pmem) => {
                pmem.end_within_a_turn();
                true
            }
            Medium::Model(_) | Medium::Disk(_) | Medium::Volatile(_) => false,
        }
    }

    /// True once it has failed, or ended its process, as it was told to, until it is opened again.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => false,
            Medium::Disk(disk) => disk.has_failed(),
            Medium::Pmem(pmem) => pmem.has_ended(),
        }
    }

    /// What an engine did that it must not.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        match self {
            Medium::Model(_) | Medium::Pmem(_) | Medium::Volatile(_) => None,
            Medium::Disk(disk) => disk.complaint(),
        }
    }

    /// True when anything of the place's shard is forgotten, noticed or not. A real engine is asked for all places.
    #[must_use]
    pub fn has_forgotten(&self, place: &Place) -> bool {
        match self {
            Medium::Model(model) => model.has_forgotten(place),
            Medium::Disk(disk) => disk.has_forgotten_anything(),
            Medium::Pmem(pmem) => pmem.has_forgotten_anything(),
            Medium::Volatile(volatile) => volatile.is_recovering(),
        }
    }

    /// True while a shard is known to be forgotten.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        match self {
            Medium::Model(model) => model.is_recovering(),
            Medium::Disk(disk) => disk.is_recovering(),
            Medium::Pmem(pmem) => pmem.is_recovering(),
            Medium::Volatile(volatile) => volatile.is_recovering(),
        }
    }

    /// True when anything is forgotten, noticed or not.
    #[must_use]
    pub fn has_forgotten_anything(&self) -> bool {
        match self {
            Medium::Model(model) => model.has_forgotten_anything(),
            Medium::Disk(disk) => disk.has_forgotten_anything(),
            Medium::Pmem(pmem) => pmem.has_forgotten_anything(),
            Medium::Volatile(volatile) => volatile.is_recovering(),
        }
    }
}

/// Stands for all places where one is asked for.
const ANY_PLACE: Place = Place::Meta(Database(0), types::Shard(0));
