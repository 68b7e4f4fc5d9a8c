//! The medium of a simulated node: the model store, or a real engine over a simulated device.
//!
//! The world uses all of them alike: stores for the workers, work that takes time, the state after
//! a crash, and forgotten shards. A run draws its medium, see [`MediumKind`].

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

/// The implementation of a medium.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MediumKind {
    /// The model: exactly the freedom that the interface of `storage` allows. A volatile node uses
    /// the real store instead, which is as simple.
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

    /// The durability that it promises; `None` for the model, which supports each.
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

/// Work that takes time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// The model flushes a worker's batches up to here.
    Flush { worker: usize, upto: Ticket },
    /// The model completes a worker's reads.
    Reads { worker: usize },
    /// The device stores.
    Store(u64),
    /// The device reads.
    Read(u64),
    /// The engine goes idle if no request comes for so long.
    Rest { after: u64, asked: u64 },
}

/// Why a medium did not open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotOpened {
    /// Damaged beyond repair: only a reset helps.
    Damaged,
    /// The device is full.
    Full,
    Other(String),
}

/// One node's medium. Outlives the process; clones share it.
#[derive(Clone, Debug)]
pub enum Medium {
    Model(store::ModelMedium),
    Disk(DiskMedium),
    Pmem(PmemMedium),
    Volatile(VolatileMedium),
}

impl Medium {
    /// `databases`: those that nodes keep; a wiped medium has forgotten their shards.
    #[must_use]
    pub fn new(config: &MediumConfig, databases: &'static [Database], rng: Prng) -> Medium {
        let MediumConfig { durability, slow_read_ppm, shape, rest_after, power_fails, .. } = config;
        match config.kind {
            MediumKind::Model if *durability == Durability::Volatile => {
                Medium::Volatile(VolatileMedium::new(databases))
            }
            MediumKind::Model => {
                Medium::Model(store::ModelMedium::new(*durability, databases, *slow_read_ppm, rng))
            }
            MediumKind::Disk => {
                Medium::Disk(DiskMedium::new(*shape, databases, *rest_after, *power_fails, rng))
            }
            MediumKind::Pmem => Medium::Pmem(PmemMedium::new(databases, *power_fails, rng)),
        }
    }

    /// The stores of a process that starts with `workers` workers.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub fn open(&self, workers: usize) -> Result<Vec<Box<dyn Store>>, NotOpened> {
        match self {
            Medium::Model(model) if model.has_damaged_log() => Err(NotOpened::Damaged),
            Medium::Model(model) => {
                Ok(model.open(workers).into_iter().map(|store| Box::new(store) as _).collect())
            }
            Medium::Disk(disk) => disk.open(workers),
            Medium::Pmem(pmem) => pmem.open(workers),
            Medium::Volatile(volatile) => Ok(volatile.open(workers)),
        }
    }

    /// Work that a worker's last turn, or finished work, left to do.
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

    /// Finishes work. Appends the workers with completions to hear.
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

    /// Wipes the medium: the new one knows that it has forgotten everything.
    pub fn wipe(&self) {
        match self {
            Medium::Model(model) => model.wipe(),
            Medium::Disk(disk) => disk.wipe(),
            Medium::Pmem(pmem) => pmem.wipe(),
            Medium::Volatile(volatile) => volatile.forget(),
        }
    }

    /// Damages something durable. `may` decides whether a place may be forgotten; damage under a
    /// real engine may hit any. False when there was none to damage.
    pub fn damage(&self, mut may: impl FnMut(&Place) -> bool) -> bool {
        match self {
            Medium::Model(model) => model.damage(may),
            Medium::Disk(disk) => may(&ANY_PLACE) && disk.damage(),
            Medium::Pmem(pmem) => may(&ANY_PLACE) && pmem.damage(),
            Medium::Volatile(_) => false,
        }
    }

    /// Reverts a sector to an older state than the rest of its page, on media with sectors, or a
    /// record of a log; see [`Medium::damage`].
    pub fn roll_back(&self, mut may: impl FnMut(&Place) -> bool) -> bool {
        match self {
            Medium::Disk(disk) => may(&ANY_PLACE) && disk.roll_back(),
            Medium::Model(model) => model.roll_back_log(may),
            Medium::Pmem(_) | Medium::Volatile(_) => false,
        }
    }

    /// Damages data that a scrub verifies; see [`Medium::damage`]. The model has no scrub.
    #[must_use]
    pub fn damage_homes(&self) -> bool {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => false,
            Medium::Disk(disk) => disk.damage_homes(),
            Medium::Pmem(pmem) => pmem.damage(),
        }
    }

    /// True if an offline check finds no damage, and no shard is forgotten.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match self {
            Medium::Model(model) => !model.has_forgotten_anything(),
            Medium::Disk(disk) => disk.is_whole(),
            Medium::Pmem(pmem) => pmem.is_whole(),
            Medium::Volatile(volatile) => !volatile.is_recovering(),
        }
    }

    /// Takes a snapshot of the stored data.
    pub fn remember(&self) {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => {}
            Medium::Disk(disk) => disk.remember(),
            Medium::Pmem(pmem) => pmem.remember(),
        }
    }

    /// Reverts some sectors or lines to the snapshot, while no process uses the medium. False
    /// without an effect.
    #[must_use]
    pub fn revert(&self) -> bool {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => false,
            Medium::Disk(disk) => disk.revert(),
            Medium::Pmem(pmem) => pmem.revert(),
        }
    }

    /// The records that a starting process would find; reads only.
    #[must_use]
    pub fn look(&self, places: &[Place]) -> Vec<Load> {
        match self {
            Medium::Model(_) | Medium::Volatile(_) => vec![Load::Absent; places.len()],
            Medium::Disk(disk) => disk.look(places),
            Medium::Pmem(pmem) => pmem.look(places),
        }
    }

    /// Sets whether the device is full, on media with that limit.
    pub fn set_full(&self, is_full: bool) {
        if let Medium::Disk(disk) = self {
            disk.set_full(is_full);
        }
    }

    /// Sets whether the next flush fails, on media with flushes.
    pub fn set_failing(&self, fails: bool) {
        match self {
            Medium::Disk(disk) => disk.set_failing(fails),
            Medium::Pmem(pmem) if !fails => pmem.end_no_more(),
            Medium::Model(_) | Medium::Pmem(_) | Medium::Volatile(_) => {}
        }
    }

    /// Lets the process end within a coming turn, on media whose turns write. False on others.
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

    /// An engine's forbidden request.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        match self {
            Medium::Model(_) | Medium::Pmem(_) | Medium::Volatile(_) => None,
            Medium::Disk(disk) => disk.complaint(),
        }
    }

    /// True when anything of the place's shard is forgotten, noticed or not. Real engines consider
    /// all places.
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

    /// True when any shard is forgotten, noticed or not.
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

/// Stands for all places in a query for one.
const ANY_PLACE: Place = Place::Meta(Database(0), types::Shard(0));
