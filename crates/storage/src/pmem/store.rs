//! One worker's handle: loads straight from the memory, changes by turns.
//!
//! How a batch becomes durable is in `turn`. Whatever is found damaged makes its shard durably forgotten first
//! and is then cleared away; the worker learns of it with the next poll, and only then of what is lost.

mod scan;
mod scrub;
mod turn;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use types::{Database, Key, Positions, Shard, Ticket};

use self::scrub::Scrub;
use self::turn::Write;
use super::batch::{Batch, Changed};
use super::directory::{Damaged, Entry, Match};
use super::intent::Target;
use super::layout::{ROOT_META, ROOT_STATE, ShardId};
use super::mapped::Mapped;
use super::memory::Memory;
use super::recent::{Recent, Spot};
use super::shared::{Shared, offset_of};
use super::slab::Slabs;
use super::slot::{Buffers, Content, Home, Kind, Reading, Version};
use super::word::NONE;
use super::{STATE_FORGOTTEN, STATE_KNOWN};
use crate::mutation::{self, Mutation};
use crate::store::{Completion, Load, Place, ScrubScope, Share, Store};

/// Persistent memory for the shards of one worker.
#[derive(Debug)]
pub struct PmemStore<M: Memory = Mapped> {
    shared: Arc<Shared<M>>,
    worker: u32,
    turn: u64,
    batch: Batch,
    slabs: Slabs,
    recent: Recent,
    // Of the open batch; the one before is durable.
    ticket: u64,
    has_stored: bool,
    // Times that something was forgotten for damage.
    damages: u64,
    // Shards found damaged since the last poll.
    damaged: BTreeSet<ShardId>,
    // Places asked for that are lost with them.
    lost: Vec<Place>,
    // Answers to scans since the last poll.
    scanned: Vec<Completion>,
    scrub: Scrub,
    failure: Option<String>,
    has_told_failure: bool,
    scratch: Scratch,
}

/// Room that turns reuse.
#[derive(Debug, Default)]
struct Scratch {
    buffers: Buffers,
    intent: Vec<u8>,
    targets: Vec<Target>,
    writes: Vec<usize>,
    plan: Vec<Write>,
}

/// A register found in its slot; its bytes are in the buffers.
#[derive(Clone, Copy, Debug)]
struct Located {
    // None for a meta, which the root leads to.
    entry: Option<Entry>,
    home: Home,
    reading: Reading,
    content: Content,
}

impl Located {
    fn spot(&self) -> Spot {
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

    fn locate(&mut self, place: &Changed) -> Result<Option<Located>, Damaged> {
        match place {
            Changed::Cell(shard, key) => self.locate_cell(*shard, key),
            Changed::Meta(shard) => self.locate_meta(*shard),
        }
    }

    fn locate_cell(&mut self, shard: ShardId, key: &Key) -> Result<Option<Located>, Damaged> {
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
            if shared.positions().of(found) == key.hash() { Match::No } else { Match::Damaged }
        })?;
        let found = entry.zip(located).map(|(entry, (home, reading, content))| Located {
            entry: Some(entry),
            home,
            reading,
            content,
        });
        Ok(found)
    }

    fn locate_meta(&mut self, shard: ShardId) -> Result<Option<Located>, Damaged> {
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

    /// Makes a shard durably forgotten and clears the damage on the way to a place.
    fn forget(&mut self, shard: ShardId, place: Option<&Changed>, damage: Damaged) {
        base::sometimes!("pmem: damage makes a shard forgotten");
        self.damages += 1;
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

    /// What the absence of a record means.
    fn absent(&mut self, shard: ShardId) -> Load {
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
    fn find(&mut self, place: &Place, changed: Changed) -> Load {
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

impl<M: Memory> Store for PmemStore<M> {
    fn set_positions(&mut self, positions: &Positions) {
        self.shared.set_positions(positions);
    }

    fn load(&mut self, place: &Place) -> Load {
        let changed = match place {
            Place::Cell(database, key) => Changed::Cell(ShardId::of(*database, key), key.clone()),
            Place::Meta(database, shard) => {
                Changed::Meta(ShardId { database: *database, shard: *shard })
            }
        };
        let shard = changed.shard();
        let load = self.find(place, changed);
        if load == Load::Lost && self.damaged.contains(&shard) {
            self.lost.push(place.clone());
            return Load::Pending;
        }
        load
    }

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.batch.set(place, Some(record));
    }

    fn remove(&mut self, place: &Place) {
        self.batch.set(place, None);
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        let shard = ShardId { database, shard };
        // Who has not heard of the damage cannot have recovered from it.
        let forgotten = forgotten || self.damaged.contains(&shard);
        self.batch.forgets.insert(shard, forgotten);
    }

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool {
        let shard = ShardId { database, shard };
        let state = self.shared.geometry.root_at(shard) + ROOT_STATE;
        let open = self.batch.forgets.get(&shard).copied();
        open.unwrap_or_else(|| self.shared.word(state) != Some(STATE_KNOWN))
    }

    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize) {
        let shard = ShardId { database, shard: Shard((from_hash >> 56) as u8) };
        let (mut records, next_hash) = self.list(shard, from_hash, limit);
        let is_listed = |hash| hash >= from_hash && next_hash.is_none_or(|next| hash < next);
        self.overlay(shard, is_listed, &mut records);
        records.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        self.scanned.push(Completion::Scanned { id, records, next_hash });
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.ticket)
    }

    fn submit(&mut self) {
        if self.batch.is_empty() || self.failure.is_some() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        // Damage that is found on the way takes back what the batch says of a shard.
        self.batch.forgets = std::mem::take(&mut batch.forgets);
        match self.apply(&batch) {
            Ok(()) => {
                self.ticket += 1;
                self.has_stored = true;
            }
            Err(error) => self.failure = Some(format!("pmem: {error}")),
        }
        batch.clear();
        self.batch = batch;
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let damaged = std::mem::take(&mut self.damaged).into_iter();
        completions.extend(
            damaged.map(|shard| Completion::Forgotten {
                database: shard.database,
                shard: shard.shard,
            }),
        );
        if std::mem::take(&mut self.has_stored) {
            completions.push(Completion::Stored(Ticket(self.ticket - 1)));
        }
        let loaded = |place| Completion::Loaded { place, load: Load::Lost };
        completions.extend(self.lost.drain(..).map(loaded));
        completions.append(&mut self.scanned);
        if let Some(failure) = self.failure.as_ref().filter(|_| !self.has_told_failure) {
            completions.push(Completion::Failed(failure.clone()));
            self.has_told_failure = true;
        }
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn scrub_scope(&self) -> ScrubScope {
        ScrubScope::Shards
    }

    fn scrub(&mut self, share: Share, bytes: u64) {
        if self.failure.is_none() {
            let scrubbed = self.scrub_step(share, bytes);
            self.scanned.push(Completion::Scrubbed(scrubbed));
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

    /// The slot at `at` where it holds a record of this kind for this shard; `None` where it does not.
    pub(super) fn read_live(
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
