//! The offline check: everything that the directory leads to, slot by slot, without changing a byte.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use types::key::SHARDS;
use types::positions::PUBLIC;
use types::{Database, Positions, Shard};

use super::directory::Entry;
use super::intent::Target;
use super::layout::{ROOT_META, ROOT_STATE, ShardId};
use super::mapped::Mapped;
use super::memory::Memory;
use super::shared::{Shared, UnknownRecord, offset_of};
use super::slot::{Buffers, Kind};
use super::superblock::{Copy, Superblock};
use super::word::NONE;
use super::{FILE, PmemError, STATE_FORGOTTEN, STATE_KNOWN, not_mapped, read_superblock};
use crate::{Note, Progress};

/// Faults that a report lists; further ones are only counted.
pub const FAULTS_MAX: usize = 10_000;

/// The outcome of an offline check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Registers that are whole.
    pub registers: u64,
    /// Records of whole shards that are whole.
    pub metas: u64,
    /// Writes that a crash interrupted; opening undoes them.
    pub unfinished: u64,
    pub forgotten: Vec<(Database, Shard)>,
    /// At most [`FAULTS_MAX`] of them.
    pub faults: Vec<Fault>,
    pub faults_count: u64,
    // Found and not told yet.
    fresh: Vec<Fault>,
}

/// Receives reports during a check; progress is in shards.
pub type Say<'s> = &'s mut dyn FnMut(Note<'_, Fault>);

/// Something damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// One of the two copies of the superblock.
    Superblock { copy: u64 },
    /// A word, an entry or a page of a shard's directory at this offset of the file, met behind this hash.
    Directory { database: Database, shard: Shard, hash: u64, at: u64 },
    /// The slot of a register, at this offset of the file.
    Register { database: Database, shard: Shard, hash: u64, slot: u64 },
    /// The record of a whole shard, or the link to it.
    Meta { database: Database, shard: Shard },
    /// A record that a later version wrote.
    Unknown(UnknownRecord),
    /// The word that says whether a shard is forgotten.
    State { database: Database, shard: Shard },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Superblock { copy } => write!(f, "superblock {copy} is damaged"),
            Fault::Directory { database, shard, hash, at } => write!(
                f,
                "database {database} shard {}: directory at byte {at}, behind hash {hash:016x}",
                shard.0
            ),
            Fault::Register { database, shard, hash, slot } => write!(
                f,
                "database {database} shard {}: slot at byte {slot} of the register with hash {hash:016x}",
                shard.0
            ),
            Fault::Meta { database, shard } => {
                write!(f, "database {database} shard {}: its meta record", shard.0)
            }
            Fault::Unknown(record) => record.fmt(f),
            Fault::State { database, shard } => {
                write!(f, "database {database} shard {}: its state", shard.0)
            }
        }
    }
}

impl Report {
    fn add(&mut self, fault: Fault) {
        self.faults_count += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault.clone());
        }
        self.fresh.push(fault);
    }

    /// Names the faults that were found since the last call.
    fn tell(&mut self, say: &mut dyn FnMut(Note<'_, Fault>)) {
        self.fresh.drain(..).for_each(|fault| say(Note::Bad(&fault)));
    }
}

/// Checks the file in a data directory that no node is using.
///
/// # Errors
/// Any [`PmemError`]: then there is no file to check.
pub fn verify(
    dir: &Path,
    binding: u64,
    positions: &Positions,
    say: Say<'_>,
) -> Result<Report, PmemError> {
    let path = dir.join(FILE);
    let memory = File::open(&path).and_then(Mapped::read_only);
    let memory = memory.map_err(|error| not_mapped(&path, error))?;
    if read_superblock(&memory, &path)?.binding != binding {
        return Err(PmemError::Foreign(path));
    }
    check(memory, &path, positions, say)
}

/// Checks memory that holds a medium; `path` is for messages.
///
/// # Errors
/// Any [`PmemError`] but `Io`.
pub fn verify_memory<M: Memory>(memory: M, path: &Path) -> Result<Report, PmemError> {
    check(memory, path, &PUBLIC, &mut |_| ())
}

fn check<M: Memory>(
    memory: M,
    path: &Path,
    positions: &Positions,
    say: Say<'_>,
) -> Result<Report, PmemError> {
    let superblock = read_superblock(&memory, path)?;
    let mut report = Report::default();
    for copy in (0..2).filter(|&copy| Superblock::read(&memory, copy) == Copy::Damaged) {
        report.add(Fault::Superblock { copy });
    }
    let shared = Shared::new(memory, superblock.geometry, superblock.binding);
    shared.set_positions(positions);
    let mut check = Check { excused: BTreeSet::new(), shared, report, buffers: Buffers::default() };
    for worker in 0..superblock.geometry.workers {
        let unfinished = check.shared.last_turn(worker).unfinished;
        check.excused.extend(unfinished.iter().map(|Target { slot, .. }| *slot));
    }
    let total = u64::from(superblock.geometry.databases) * SHARDS as u64;
    let mut done = 0;
    for database in (0..superblock.geometry.databases as u8).map(Database) {
        for shard in (0..SHARDS).map(|shard| Shard(shard as u8)) {
            say(Note::Progress(Progress { done, total }));
            check.shard(ShardId { database, shard }, say);
            check.report.tell(say);
            done += 1;
        }
    }
    say(Note::Progress(Progress { done, total }));
    Ok(check.report)
}

struct Check<M> {
    shared: Shared<M>,
    // Slots that an unfinished turn names.
    excused: BTreeSet<u64>,
    report: Report,
    buffers: Buffers,
}

impl<M: Memory> Check<M> {
    fn shard(&mut self, id: ShardId, say: Say<'_>) {
        let ShardId { database, shard } = id;
        let root = self.shared.geometry.root_at(id);
        match self.shared.word(root + ROOT_STATE) {
            Some(STATE_KNOWN) => {}
            Some(STATE_FORGOTTEN) => self.report.forgotten.push((database, shard)),
            _ => self.report.add(Fault::State { database, shard }),
        }
        match self.shared.word(root + ROOT_META) {
            Some(NONE) => {}
            payload => {
                let slot = payload.and_then(offset_of);
                match slot.map(|slot| self.is_whole(slot, id, Kind::Meta, None)) {
                    Some(true) => self.report.metas += 1,
                    _ => self.report.add(Fault::Meta { database, shard }),
                }
            }
        }
        self.directory(id, say);
    }

    fn directory(&mut self, id: ShardId, say: Say<'_>) {
        let ShardId { database, shard } = id;
        let mut next = Some(shard.first_hash());
        while let Some(hash) = next {
            let found = self.shared.survey(id, hash);
            for at in found.bad {
                self.report.add(Fault::Directory { database, shard, hash, at });
            }
            found.entries.iter().for_each(|entry| self.register(id, entry));
            self.report.tell(say);
            next = found.next;
        }
    }

    fn register(&mut self, id: ShardId, entry: &Entry) {
        if self.is_whole(entry.slot, id, Kind::Cell, Some(entry.hash)) {
            self.report.registers += 1;
            return;
        }
        let ShardId { database, shard } = id;
        let (hash, slot) = (entry.hash, entry.slot);
        self.report.add(Fault::Register { database, shard, hash, slot });
    }

    fn is_whole(&mut self, slot: u64, id: ShardId, kind: Kind, hash: Option<u64>) -> bool {
        let Some((_, reading, content)) = self.shared.read_live(slot, id, kind, &mut self.buffers)
        else {
            if let Some(unknown) = self.shared.take_unknown() {
                self.report.add(Fault::Unknown(unknown));
                return true;
            }
            let is_excused = self.excused.contains(&slot);
            self.report.unfinished += u64::from(is_excused);
            return is_excused;
        };
        let key = reading.key(&content, &self.buffers);
        let position = self.shared.positions().of_database(id.database, key);
        hash.is_none_or(|hash| position == hash)
    }
}
