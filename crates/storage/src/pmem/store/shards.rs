//! The shards of one worker: where records are found, and how damage makes a shard forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use types::Key;

use crate::mutation::{self, Mutation};
use crate::pmem::batch::{Batch, Changed};
use crate::pmem::directory::{Damaged, Entry, Match};
use crate::pmem::intent::Target;
use crate::pmem::layout::{Class, ROOT_META, ROOT_STATE, STATE_FORGOTTEN, STATE_KNOWN, ShardId};
use crate::pmem::mapped::Mapped;
use crate::pmem::memory::Memory;
use crate::pmem::recent::{Recent, Spot};
use crate::pmem::shared::{Shared, offset_of};
use crate::pmem::slab::{Lap, Slabs};
use crate::pmem::slot::{Buffers, Content, Home, Kind, Reading, Version};
use crate::pmem::word::NONE;
use crate::store::{Completion, Load, Place};

/// Persistent memory for the shards of one worker.
#[derive(Debug)]
pub struct PmemStore<M: Memory = Mapped> {
    pub(super) shared: Arc<Shared<M>>,
    pub(super) worker: u32,
    pub(super) turn: u64,
    pub(super) batch: Batch,
    pub(super) slabs: Slabs,
    pub(super) recent: Recent,
    // Of the open batch; the one before is durable.
    pub(super) ticket: u64,
    pub(super) has_stored: bool,
    // Times that something was forgotten for damage.
    pub(super) damages: u64,
    // Shards found damaged since the last poll.
    pub(super) damaged: BTreeSet<ShardId>,
    // Places asked for that are lost with them.
    pub(super) lost: Vec<Place>,
    // Answers to scans since the last poll.
    pub(super) scanned: Vec<Completion>,
    pub(super) scrub: Scrub,
    pub(super) failure: Option<String>,
    pub(super) has_told_failure: bool,
    pub(super) scratch: Scratch,
}

/// Room that turns reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) buffers: Buffers,
    pub(super) intent: Vec<u8>,
    pub(super) targets: Vec<Target>,
    pub(super) writes: Vec<usize>,
    pub(super) plan: Vec<Write>,
}

/// A register found in its slot; its bytes are in the buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    // None for a meta, which the root leads to.
    pub(super) entry: Option<Entry>,
    pub(super) home: Home,
    pub(super) reading: Reading,
    pub(super) content: Content,
}

/// One version to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) change: usize,
    pub(super) home: Home,
    // Which version, and its sequence.
    pub(super) version: (usize, u32),
    pub(super) link: Link,
}

/// How the directory leads to a slot that was written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    /// It does already.
    Kept,
    New,
    /// It led here before.
    Moved(Home),
}

/// How far the scrub has come.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    // Counts the shards of all databases.
    pub(super) shard: usize,
    // Where to go on in it; its beginning if `None`.
    pub(super) from_hash: Option<u64>,
    // Its registers are done: where to go on in its slabs.
    pub(super) slab: Option<(Class, Option<u64>)>,
    // In that slab.
    pub(super) lap: Lap,
    // Since the last answer.
    pub(super) damaged: u64,
}

impl Scrub {
    fn note_damage(&mut self) {
        self.damaged += 1;
    }
}

impl Located {
    pub(super) fn spot(&self) -> Spot {
        let Reading { newest, sequence, .. } = self.reading;
        Spot { home: self.home, newest, sequence }
    }
}

impl<M: Memory> PmemStore<M> {
    pub(crate) fn new(shared: Arc<Shared<M>>, worker: u32) -> PmemStore<M> {
        shared.take_worker(worker);
        let turn = shared.last_turn(worker).turn;
        let recent = Recent::new(shared.geometry.segment_len);
        PmemStore {
            shared,
            worker,
            turn,
            batch: Batch::default(),
            slabs: Slabs::default(),
            recent,
            ticket: 1,
            has_stored: false,
            damages: 0,
            damaged: BTreeSet::new(),
            lost: Vec::new(),
            scanned: Vec::new(),
            scrub: Scrub::default(),
            failure: None,
            has_told_failure: false,
            scratch: Scratch::default(),
        }
    }

    pub(super) fn locate(&mut self, place: &Changed) -> Result<Option<Located>, Damaged> {
        match place {
            Changed::Cell(shard, key) => self.locate_cell(*shard, key),
            Changed::Meta(shard) => self.locate_meta(*shard),
        }
    }

    pub(super) fn locate_cell(
        &mut self,
        shard: ShardId,
        key: &Key,
    ) -> Result<Option<Located>, Damaged> {
        let (shared, buffers) = (&*self.shared, &mut self.scratch.buffers);
        let mut located = None;
        let entry = shared.search(shard, key.hash(), |slot| {
            let Some((home, reading, content)) = shared.read_live(slot, shard, Kind::Cell, buffers)
            else {
                return Match::Damaged;
            };
            let found = reading.key(&content, buffers);
            if found == key.bytes() {
                located = Some((home, reading, content));
                return Match::Yes;
            }
            // An entry vouches for its hash: another hash means that it leads to a wrong slot.
            let position = shared.positions().of_database(shard.database, found);
            if position == key.hash() { Match::No } else { Match::Damaged }
        })?;
        let found = entry.zip(located).map(|(entry, (home, reading, content))| Located {
            entry: Some(entry),
            home,
            reading,
            content,
        });
        Ok(found)
    }

    pub(super) fn locate_meta(&mut self, shard: ShardId) -> Result<Option<Located>, Damaged> {
        let damaged = Damaged { entry: None };
        let word = self.shared.geometry.root_at(shard) + ROOT_META;
        let slot = match self.shared.word(word).ok_or(damaged)? {
            NONE => return Ok(None),
            payload => offset_of(payload).ok_or(damaged)?,
        };
        let (home, reading, content) = self
            .shared
            .read_live(slot, shard, Kind::Meta, &mut self.scratch.buffers)
            .ok_or(damaged)?;
        Ok(Some(Located { entry: None, home, reading, content }))
    }

    /// Makes a shard durably forgotten and clears the damage on the way to a place. A record of a
    /// later version is no damage: then the store fails.
    pub(super) fn forget(&mut self, shard: ShardId, place: Option<&Changed>, damage: Damaged) {
        self.damages += 1;
        if let Some(unknown) = self.shared.unknown() {
            self.failure.get_or_insert(unknown.to_string());
            return;
        }
        base::sometimes!("pmem: damage makes a shard forgotten");
        self.recent.forget_all();
        let root = self.shared.geometry.root_at(shard);
        self.shared.put_word(root + ROOT_STATE, STATE_FORGOTTEN);
        if !mutation::is(Mutation::ForgottenUnfenced) {
            self.shared.memory.fence();
        }
        match place {
            Some(Changed::Cell(_, key)) => self.shared.repair(shard, key.hash(), damage.entry),
            Some(Changed::Meta(_)) => self.shared.put_word(root + ROOT_META, NONE),
            None => {}
        }
        self.shared.memory.fence();
        // A batch that declares the shard known did not know of this.
        if let Some(forgotten) = self.batch.forgets.get_mut(&shard) {
            *forgotten = true;
        }
        self.damaged.insert(shard);
        self.scrub.note_damage();
    }

    /// The meaning of a record's absence.
    pub(super) fn absent(&mut self, shard: ShardId) -> Load {
        if let Some(&forgotten) = self.batch.forgets.get(&shard) {
            return if forgotten { Load::Lost } else { Load::Absent };
        }
        match self.shared.word(self.shared.geometry.root_at(shard) + ROOT_STATE) {
            Some(STATE_KNOWN) => Load::Absent,
            Some(STATE_FORGOTTEN) => Load::Lost,
            _ => {
                self.forget(shard, None, Damaged { entry: None });
                Load::Lost
            }
        }
    }
}

impl<M: Memory> Drop for PmemStore<M> {
    fn drop(&mut self) {
        self.shared.return_worker(self.worker);
    }
}

impl<M: Memory> PmemStore<M> {
    pub(super) fn find(&mut self, place: &Place, changed: Changed) -> Load {
        match self.batch.find(place) {
            Some(Some(record)) => return Load::Found(Bytes::copy_from_slice(record)),
            Some(None) => return self.absent(changed.shard()),
            None => {}
        }
        if let Changed::Cell(shard, key) = &changed {
            let known = self.recent.find(shard.database, key);
            let buffers = &mut self.scratch.buffers;
            if let Some(record) = known.and_then(|spot| self.shared.read_spot(spot, key, buffers)) {
                return Load::Found(Bytes::copy_from_slice(record));
            }
        }
        match self.locate(&changed) {
            Ok(Some(located)) => {
                if let Changed::Cell(_, key) = &changed {
                    self.recent.remember(key, located.spot());
                }
                let Located { reading, content, .. } = located;
                let record = reading.record(&content, &self.scratch.buffers);
                Load::Found(Bytes::copy_from_slice(record))
            }
            Ok(None) => self.absent(changed.shard()),
            Err(damage) => {
                self.forget(changed.shard(), Some(&changed), damage);
                Load::Lost
            }
        }
    }
}

impl<M: Memory> Shared<M> {
    /// The record at a spot, where its newest version is whole and still the one that was seen.
    fn read_spot<'a>(&self, spot: Spot, key: &Key, buffers: &'a mut Buffers) -> Option<&'a [u8]> {
        let Version::Holding { sequence, content } =
            self.read_version(spot.home, spot.newest, buffers)
        else {
            return None;
        };
        let Spot { home, newest, .. } = spot;
        let reading = Reading { newest, sequence, content: Some(content) };
        let is_it = sequence == spot.sequence
            && content.kind == Kind::Cell
            && content.database == home.shard.database
            && reading.key(&content, buffers) == key.bytes();
        is_it.then(|| reading.record(&content, buffers))
    }

    /// The slot at `at` if it holds a record of this kind for this shard.
    pub(crate) fn read_live(
        &self,
        at: u64,
        shard: ShardId,
        kind: Kind,
        buffers: &mut Buffers,
    ) -> Option<(Home, Reading, Content)> {
        let home = self.home(at).filter(|home| home.shard == shard)?;
        let reading = self.read_slot(home, buffers)?;
        let is_right =
            |content: &Content| content.kind == kind && content.database == shard.database;
        let content = reading.content.filter(is_right)?;
        Some((home, reading, content))
    }
}
