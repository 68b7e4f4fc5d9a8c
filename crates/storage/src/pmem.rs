//! The `pmem` medium: registers in a mapped file, two versions each, one write-back per write.
//!
//! Start at `layout` for where every byte is, `store` for a turn, `slot` and `intent` for the
//! validity of a version. Opening is constant work whatever the number of registers: the
//! superblock, one page of intents per worker, and at most one turn of slots to put right.
//! Everything else is verified when it is first touched.
//!
//! Promise: a record whose turn was submitted is there after a crash, or known to be lost; never an
//! older one, never absent. On a file that is not DAX the same holds for a crash of the process
//! only, and the medium says that it is emulated. It does not see a line that the hardware replaced
//! by an older whole one.
//!
//! Contract with the node: each shard is used through one handle. A shard that is forgotten when
//! the node starts may have been found so just before a crash: the node raises its loss then, as
//! for a completion.

pub mod layout;
pub mod mapped;
pub mod memory;
pub mod modelled;
pub mod persist;
pub mod store;
pub mod verify;

mod batch;
mod directory;
mod intent;
mod recent;
mod shared;
mod slab;
mod slot;
mod superblock;
mod word;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use types::key::SHARDS;
use types::{Database, Shard};

use self::intent::Target;
use self::layout::{
    BUMP_AT, Class, GRANULE, Geometry, ROOT_DIRECTORY, ROOT_META, ROOT_STATE, STATE_FORGOTTEN,
    STATE_KNOWN, ShardId,
};
use self::mapped::Mapped;
use self::memory::Memory;
use self::shared::Shared;
use self::slot::{Buffers, Version};
use self::superblock::{Copy, FORMAT, Superblock};
use self::word::NONE;
use crate::data_dir::is_there;
use crate::volatile::Beginning;

pub use self::layout::FILE;
pub use self::store::PmemStore;
pub use self::verify::{Fault, Report, verify};

const FILE_NEW: &str = "pmem.new";

/// Why the medium is not opened. It is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum PmemError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0} was made for another data directory: put back the one that belongs here")]
    Foreign(PathBuf),
    #[error(
        "{path} has format {found}, this version knows {FORMAT}: run the version that wrote it"
    )]
    UnknownFormat { path: PathBuf, found: u32 },
    #[error(
        "{0} is damaged in both superblocks: run `palimpsest reset --yes`, then let the node rejoin"
    )]
    Damaged(PathBuf),
    #[error(
        "{0} does not have the length that it was made with: run `palimpsest reset --yes`, then let the node rejoin"
    )]
    CutShort(PathBuf),
}

/// The medium of one node; hands out a store per worker.
#[derive(Debug)]
pub struct Pmem<M: Memory = Mapped> {
    shared: Arc<Shared<M>>,
    was_created: bool,
    /// Copies of the superblock that were found damaged.
    mended: Vec<u64>,
}

impl Pmem<Mapped> {
    /// Opens the file in a locked data directory, or creates it; `beginning` gives the meaning of
    /// absence in a created file.
    ///
    /// # Errors
    /// Any [`PmemError`].
    pub fn open(dir: &Path, binding: u64, beginning: Beginning) -> Result<Pmem, PmemError> {
        let path = dir.join(FILE);
        let was_created = !is_there(&path).map_err(at(&path))?;
        if was_created {
            create(dir, binding, beginning).map_err(at(&path))?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(at(&path))?;
        mapped::fill_holes(&file).map_err(at(&path))?;
        let memory = Mapped::new(file).map_err(|error| not_mapped(&path, error))?;
        Ok(Pmem { was_created, ..Pmem::from_memory(memory, binding, &path)? })
    }

    /// True where the file is not DAX: promises hold against a crash of the process only.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.shared.memory.is_emulated()
    }
}

impl<M: Memory> Pmem<M> {
    /// Opens memory that holds a medium; `path` is for messages.
    ///
    /// # Errors
    /// Any [`PmemError`].
    pub fn from_memory(memory: M, binding: u64, path: &Path) -> Result<Pmem<M>, PmemError> {
        let superblock = read_superblock(&memory, path)?;
        if superblock.binding != binding {
            return Err(PmemError::Foreign(path.to_owned()));
        }
        // Stores of the process before may still be in a cache. Answers that rest on them must
        // outlive the next loss of power.
        memory.settle().map_err(at(path))?;
        let is_damaged = |&copy: &u64| Superblock::read(&memory, copy) == Copy::Damaged;
        let mended: Vec<u64> = (0..2).filter(is_damaged).collect();
        mended.iter().for_each(|&copy| superblock.write(&memory, copy));
        let shared = Shared::new(memory, superblock.geometry, binding);
        for worker in 0..superblock.geometry.workers {
            recover(&shared, worker);
        }
        Ok(Pmem { shared: Arc::new(shared), was_created: false, mended })
    }

    /// Makes memory hold an empty medium.
    ///
    /// # Errors
    /// When it cannot grow so far.
    pub fn format(
        memory: M,
        geometry: Geometry,
        binding: u64,
        beginning: Beginning,
    ) -> io::Result<Pmem<M>> {
        assert!(geometry.is_sensible(), "{geometry:?} cannot be read again");
        memory.grow(geometry.segments_at())?;
        let shared = Shared::new(memory, geometry, binding);
        let state = match beginning {
            Beginning::New => STATE_KNOWN,
            Beginning::Forgotten => STATE_FORGOTTEN,
        };
        for worker in 0..geometry.workers {
            shared.set_word(geometry.intent_at(worker), 0);
        }
        for database in (0..geometry.databases as u8).map(Database) {
            for shard in (0..SHARDS).map(|shard| Shard(shard as u8)) {
                format_root(&shared, ShardId { database, shard }, state);
            }
        }
        shared.set_word(BUMP_AT, geometry.segments_at() / GRANULE);
        let superblock = Superblock { geometry, binding };
        (0..2).for_each(|copy| superblock.write(&shared.memory, copy));
        shared.memory.write_back(0, geometry.segments_at());
        shared.memory.fence();
        Ok(Pmem { shared: Arc::new(shared), was_created: true, mended: Vec::new() })
    }

    /// True where there was no file: everything a node knew before is gone.
    #[must_use]
    pub fn was_created(&self) -> bool {
        self.was_created
    }

    /// True while any shard of a database is marked as forgotten.
    ///
    /// # Panics
    /// If the medium was made for fewer databases.
    #[must_use]
    pub fn has_forgotten(&self, database: Database) -> bool {
        (0..=u8::MAX).any(|shard| {
            let root = self.shared.geometry.root_at(ShardId { database, shard: Shard(shard) });
            self.shared.word(root + ROOT_STATE) == Some(STATE_FORGOTTEN)
        })
    }

    /// The store of one worker, for shards that no other handle uses.
    ///
    /// # Panics
    /// If the worker has one already, or there are more workers than the file has intents for (64).
    #[must_use]
    pub fn store(&self, worker: u32) -> PmemStore<M> {
        let mut store = PmemStore::new(Arc::clone(&self.shared), worker);
        if worker == 0 {
            self.mended.iter().for_each(|&copy| store.warn_of_superblock(copy));
        }
        store
    }
}

fn create(dir: &Path, binding: u64, beginning: Beginning) -> io::Result<()> {
    let new = dir.join(FILE_NEW);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).to_owned();
    let file = options.open(&new)?;
    let geometry = Geometry::DEFAULT;
    mapped::allocate(&file, 0, geometry.segments_at())?;
    let memory = Mapped::new(file.try_clone()?)?;
    drop(Pmem::format(memory, geometry, binding, beginning)?);
    file.sync_all()?;
    fs::rename(&new, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}

fn format_root<M: Memory>(shared: &Shared<M>, shard: ShardId, state: u64) {
    let root = shared.geometry.root_at(shard);
    shared.set_word(root + ROOT_DIRECTORY, NONE);
    shared.set_word(root + ROOT_STATE, state);
    shared.set_word(root + ROOT_META, NONE);
    for class in Class::all() {
        shared.set_word(shared.geometry.chain_at(shard, class), NONE);
    }
}

fn read_superblock(memory: &impl Memory, path: &Path) -> Result<Superblock, PmemError> {
    let copies = [0, 1].map(|copy| Superblock::read(memory, copy));
    for copy in copies {
        if let Copy::OtherFormat(found) = copy {
            return Err(PmemError::UnknownFormat { path: path.to_owned(), found });
        }
    }
    for copy in copies {
        match copy {
            // Bytes before the segments are read without another look at the length.
            Copy::Whole(superblock) if memory.len() < superblock.geometry.segments_at() => {
                return Err(PmemError::CutShort(path.to_owned()));
            }
            Copy::Whole(superblock) => return Ok(superblock),
            Copy::OtherFormat(_) | Copy::Damaged => {}
        }
    }
    Err(PmemError::Damaged(path.to_owned()))
}

/// Puts right the interrupted turn of a worker.
fn recover<M: Memory>(shared: &Shared<M>, worker: u32) {
    if let Some(split) = shared.last_split(worker) {
        shared.redo(&split);
    }
    let last = shared.last_turn(worker);
    let mut buffers = Buffers::default();
    for target in &last.unfinished {
        undo(shared, *target, &mut buffers);
    }
    shared.memory.fence();
    shared.finish_turn(worker, last.turn);
    shared.memory.fence();
}

/// Makes an unfinished version void: the other one is the newest.
fn undo<M: Memory>(shared: &Shared<M>, target: Target, buffers: &mut Buffers) {
    let Some(home) = shared.home(target.slot) else { return };
    if shared.read_version(home, target.index, buffers) != Version::Bad {
        return;
    }
    base::sometimes!("pmem: an unfinished version is undone");
    let other = shared.read_version(home, 1 - target.index, buffers);
    if let Version::Holding { sequence, .. } | Version::Void { sequence } = other {
        shared.write_void(home, target.index, sequence.wrapping_sub(1), buffers);
    }
}

/// A length that none of our files has is told as one that was cut off.
fn not_mapped(path: &Path, error: io::Error) -> PmemError {
    match error.kind() {
        io::ErrorKind::InvalidData => PmemError::CutShort(path.to_owned()),
        _ => at(path)(error),
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PmemError {
    let path = path.to_owned();
    move |source| PmemError::Io { path, source }
}
