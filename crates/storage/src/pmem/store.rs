//! One worker's handle: loads straight from the memory, changes by turns.
//!
//! A submit takes three fences however many registers it writes: the intent is persistent before a version is
//! touched, the versions before anything refers to them, the links of new and moved slots together with the
//! mark that the turn is finished before anyone is told. Removals follow after all of that, so metas are durable
//! before them. Whatever is found damaged makes its shard durably forgotten first and is then cleared away.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use types::{Database, Key, Shard, Ticket};

use super::batch::{Batch, Changed};
use super::directory::{Damaged, Entry, InsertError, Match};
use super::intent::Target;
use super::layout::{Class, GRANULE, HEADER_LEN, INTENT_SLOTS_MAX, ROOT_META, ROOT_STATE, ShardId};
use super::mapped::Mapped;
use super::memory::Memory;
use super::recent::{Recent, Spot};
use super::shared::{Shared, offset_of};
use super::slab::Slabs;
use super::slot::{Buffers, Content, Home, Kind, Reading, Version};
use super::word::NONE;
use super::{STATE_FORGOTTEN, STATE_KNOWN};
use crate::store::{Completion, Load, Place, Store};

/// A state that would fit into a class this many times smaller moves there.
const SHRINK_FACTOR: u64 = 4;

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
    // Shards found damaged since the last poll.
    damaged: BTreeSet<ShardId>,
    // Answers to scans since the last poll.
    scanned: Vec<Completion>,
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

/// One version to be written.
#[derive(Clone, Copy, Debug)]
struct Write {
    change: usize,
    home: Home,
    // Which version, and its sequence.
    version: (usize, u32),
    link: Link,
}

/// What must lead to a slot that was written.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// It does already.
    Kept,
    New,
    /// It led here before.
    Moved(Home),
}

impl<M: Memory> PmemStore<M> {
    pub(super) fn new(shared: Arc<Shared<M>>, worker: u32) -> PmemStore<M> {
        shared.take_worker(worker);
        let turn = shared.last_turn(worker).turn;
        PmemStore {
            shared,
            worker,
            turn,
            batch: Batch::default(),
            slabs: Slabs::default(),
            recent: Recent::default(),
            ticket: 1,
            has_stored: false,
            damaged: BTreeSet::new(),
            scanned: Vec::new(),
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
            if base::checksum::hash(found) == key.hash() { Match::No } else { Match::Damaged }
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
        self.recent.forget_all();
        let root = self.shared.geometry.root_at(shard);
        self.shared.put_word(root + ROOT_STATE, STATE_FORGOTTEN);
        self.shared.memory.fence();
        match place {
            Some(Changed::Cell(_, key)) => self.shared.repair(shard, key.hash(), damage.entry),
            Some(Changed::Meta(_)) => self.shared.put_word(root + ROOT_META, NONE),
            None => {}
        }
        self.shared.memory.fence();
        // A batch that declares the shard known did not know of this.
        self.batch.forgets.remove(&shard);
        self.damaged.insert(shard);
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

    fn apply(&mut self, batch: &Batch) -> io::Result<()> {
        let forget: Vec<ShardId> =
            self.batch.forgets.iter().filter(|(_, on)| **on).map(|(shard, _)| *shard).collect();
        for shard in forget {
            let state = self.shared.geometry.root_at(shard) + ROOT_STATE;
            self.shared.put_word(state, STATE_FORGOTTEN);
        }
        let mut writes = std::mem::take(&mut self.scratch.writes);
        writes.clear();
        batch.writes(&mut writes);
        let written = writes.chunks(INTENT_SLOTS_MAX).try_for_each(|some| self.write(batch, some));
        self.scratch.writes = writes;
        written?;
        self.slabs.settle();
        self.remove_all(batch);
        // Only now, when what was recovered is durable, and only where no damage was found meanwhile.
        for (&shard, _) in self.batch.forgets.iter().filter(|(_, forgotten)| !**forgotten) {
            let state = self.shared.geometry.root_at(shard) + ROOT_STATE;
            self.shared.put_word(state, STATE_KNOWN);
        }
        if !self.batch.forgets.is_empty() {
            self.shared.memory.fence();
        }
        Ok(())
    }

    /// Makes some of the batch's writes durable.
    fn write(&mut self, batch: &Batch, changes: &[usize]) -> io::Result<()> {
        let mut plan = std::mem::take(&mut self.scratch.plan);
        plan.clear();
        for &change in changes {
            let write = self.plan(batch, change)?;
            plan.push(write);
        }
        self.write_versions(batch, &plan);
        for write in &plan {
            self.link(batch.place(write.change), write)?;
        }
        self.shared.finish_turn(self.worker, self.turn);
        self.shared.memory.fence();
        for write in &plan {
            if let Link::Moved(old) = write.link {
                self.slabs.give_back(old);
            }
            if let Changed::Cell(_, key) = batch.place(write.change) {
                let (newest, sequence) = write.version;
                self.recent.remember(key, Spot { home: write.home, newest, sequence });
            }
        }
        self.scratch.plan = plan;
        Ok(())
    }

    /// Decides where a change is written.
    fn plan(&mut self, batch: &Batch, change: usize) -> io::Result<Write> {
        let place = batch.place(change);
        let record_len = batch.record(change).map_or(0, <[u8]>::len);
        let len = HEADER_LEN + place.key_bytes().len() + record_len;
        let class = Class::holding(len).ok_or_else(|| io::Error::other("a record is too large"))?;
        let spot = self.spot(place);
        if let Some(spot) = spot {
            let (needed, has) = (class.capacity(), spot.home.class.capacity());
            if needed <= has && needed * SHRINK_FACTOR > has {
                let (home, version) = (spot.home, spot.next_version());
                return Ok(Write { change, home, version, link: Link::Kept });
            }
        }
        let buffers = &mut self.scratch.buffers;
        let (home, version) = self.slabs.take(&self.shared, place.shard(), class, buffers)?;
        let link = spot.map_or(Link::New, |spot| Link::Moved(spot.home));
        Ok(Write { change, home, version, link })
    }

    /// Where a place is written now; nowhere where it is found damaged, once that has been dealt with.
    fn spot(&mut self, place: &Changed) -> Option<Spot> {
        let known = match place {
            Changed::Cell(shard, key) => self.recent.find(shard.database, key),
            Changed::Meta(_) => None,
        };
        if known.is_some() {
            return known;
        }
        match self.locate(place) {
            Ok(located) => located.map(|located| located.spot()),
            Err(damage) => {
                self.forget(place.shard(), Some(place), damage);
                None
            }
        }
    }

    fn write_versions(&mut self, batch: &Batch, plan: &[Write]) {
        let Scratch { buffers, intent, targets, .. } = &mut self.scratch;
        self.turn += 1;
        targets.clear();
        targets.extend(
            plan.iter().map(|write| Target { slot: write.home.at, index: write.version.0 }),
        );
        self.shared.write_turn(self.worker, self.turn, targets, intent);
        self.shared.memory.fence();
        for write in plan {
            let place = batch.place(write.change);
            let kind = match place {
                Changed::Cell(..) => Kind::Cell,
                Changed::Meta(_) => Kind::Meta,
            };
            let record =
                batch.record(write.change).expect("only changes with a record are written");
            let content = (place.key_bytes(), record);
            self.shared.write_version(write.home, write.version, kind, content, buffers);
        }
        self.shared.memory.fence();
    }

    /// Lets the directory or the root lead to a slot that is durable.
    fn link(&mut self, place: &Changed, write: &Write) -> io::Result<()> {
        let slot = write.home.at;
        let (shard, key) = match (place, write.link) {
            (_, Link::Kept) => return Ok(()),
            (Changed::Meta(shard), _) => {
                let word = self.shared.geometry.root_at(*shard) + ROOT_META;
                self.shared.put_word(word, slot / GRANULE);
                return Ok(());
            }
            (Changed::Cell(shard, key), _) => (*shard, key),
        };
        if let Link::Moved(old) = write.link {
            let is_it = |slot| if slot == old.at { Match::Yes } else { Match::No };
            match self.shared.search(shard, key.hash(), is_it) {
                Ok(Some(entry)) => {
                    self.shared.redirect(&entry, slot);
                    return Ok(());
                }
                Ok(None) => {}
                Err(damage) => self.forget(shard, Some(place), damage),
            }
        }
        for _ in 0..2 {
            match self.shared.insert(self.worker, shard, key.hash(), slot) {
                Ok(()) => return Ok(()),
                Err(InsertError::Io(error)) => return Err(error),
                Err(InsertError::Damaged) => {
                    self.forget(shard, Some(place), Damaged { entry: None });
                }
            }
        }
        Err(io::Error::other("the directory was damaged again while it was mended"))
    }

    fn remove_all(&mut self, batch: &Batch) {
        let mut freed = Vec::new();
        for change in batch.removals() {
            let place = batch.place(change);
            if let Changed::Cell(_, key) = place {
                self.recent.forget(key);
            }
            match self.locate(place) {
                Ok(None) => continue,
                Ok(Some(located)) => {
                    match located.entry {
                        Some(entry) => self.shared.clear(entry.at),
                        None => {
                            let root = self.shared.geometry.root_at(place.shard());
                            self.shared.put_word(root + ROOT_META, NONE);
                        }
                    }
                    freed.push(located.home);
                }
                Err(damage) => self.forget(place.shard(), Some(place), damage),
            }
        }
        if !freed.is_empty() {
            self.shared.memory.fence();
        }
        freed.into_iter().for_each(|home| self.slabs.give_back(home));
    }

    /// The records from `from_hash` on, in key order, and where to go on.
    fn list(
        &mut self,
        shard: ShardId,
        from_hash: u64,
        limit: usize,
    ) -> (Vec<(Key, Bytes)>, Option<u64>) {
        let mut entries = Vec::new();
        let mut next = Some(from_hash);
        while let Some(hash) = next.filter(|_| entries.len() < limit.max(1)) {
            let listed = entries.len();
            next = self.shared.list(shard, hash, &mut entries).unwrap_or_else(|damage| {
                entries.truncate(listed);
                self.forget_way(shard, hash, damage);
                // What is still unreadable after that is forgotten, and the shard says so.
                self.shared.list(shard, hash, &mut entries).unwrap_or(None)
            });
        }
        entries.sort_unstable_by_key(|entry| entry.hash);
        if let Some(cut) = entries.get(limit.max(1)).map(|entry| entry.hash) {
            // All of one hash stay together; the first hash is listed whatever the limit.
            let is_first = entries[0].hash == cut;
            let cut = if is_first { cut.checked_add(1) } else { Some(cut) };
            entries.retain(|entry| cut.is_none_or(|cut| entry.hash < cut));
            next = cut.filter(|cut| cut >> 56 == u64::from(shard.shard.0));
        }
        (self.read_all(shard, entries), next)
    }

    fn forget_way(&mut self, shard: ShardId, hash: u64, damage: Damaged) {
        self.forget(shard, None, damage);
        self.shared.repair(shard, hash, damage.entry);
    }

    fn read_all(&mut self, shard: ShardId, entries: Vec<Entry>) -> Vec<(Key, Bytes)> {
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            let buffers = &mut self.scratch.buffers;
            let found = self.shared.read_live(entry.slot, shard, Kind::Cell, buffers);
            let whole = found.and_then(|(_, reading, content)| {
                let key = Key::new(reading.key(&content, buffers));
                let record = Bytes::copy_from_slice(reading.record(&content, buffers));
                (key.hash() == entry.hash).then_some((key, record))
            });
            match whole {
                Some(record) => records.push(record),
                None => self.forget_way(shard, entry.hash, Damaged { entry: Some(entry.at) }),
            }
        }
        records
    }

    fn overlay(
        &self,
        shard: ShardId,
        hashes: impl Fn(u64) -> bool,
        records: &mut Vec<(Key, Bytes)>,
    ) {
        for (_, key, record) in
            self.batch.cells().filter(|(of, key, _)| *of == shard && hashes(key.hash()))
        {
            records.retain(|(other, _)| other != key);
            records.extend(record.map(|record| (key.clone(), Bytes::copy_from_slice(record))));
        }
    }
}

impl<M: Memory> Drop for PmemStore<M> {
    fn drop(&mut self) {
        self.shared.return_worker(self.worker);
    }
}

impl<M: Memory> Store for PmemStore<M> {
    fn load(&mut self, place: &Place) -> Load {
        let changed = match place {
            Place::Cell(database, key) => Changed::Cell(ShardId::of(*database, key), key.clone()),
            Place::Meta(database, shard) => {
                Changed::Meta(ShardId { database: *database, shard: *shard })
            }
        };
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

    fn put(&mut self, place: &Place, record: &[u8]) {
        self.batch.set(place, Some(record));
    }

    fn remove(&mut self, place: &Place) {
        self.batch.set(place, None);
    }

    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool) {
        self.batch.forgets.insert(ShardId { database, shard }, forgotten);
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
        completions.append(&mut self.scanned);
        if let Some(failure) = self.failure.as_ref().filter(|_| !self.has_told_failure) {
            completions.push(Completion::Failed(failure.clone()));
            self.has_told_failure = true;
        }
    }

    fn keeps_records(&self) -> bool {
        true
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
