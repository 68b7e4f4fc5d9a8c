//! A turn: the open batch becomes durable.
//!
//! It takes three fences however many registers it writes: the intent is persistent before a version is touched,
//! the versions before anything refers to them, the links of new and moved slots together with the mark that the
//! turn is finished before anyone is told. Removals follow after all of that, so metas are durable before them.

use std::io;

use types::Key;

use super::shards::{Link, Located, PmemStore, Scratch, Write};
use crate::pmem::batch::{Batch, Changed};
use crate::pmem::directory::{Damaged, Entry, InsertError, Match};
use crate::pmem::intent::Target;
use crate::pmem::layout::{
    Class, GRANULE, HEADER_LEN, INTENT_SLOTS_MAX, ROOT_META, ROOT_STATE, STATE_FORGOTTEN,
    STATE_KNOWN, ShardId,
};
use crate::pmem::memory::Memory;
use crate::pmem::recent::Spot;
use crate::pmem::slot::Kind;
use crate::pmem::word::NONE;

/// A state that would fit into a class this many times smaller moves there.
const SHRINK_FACTOR: u64 = 4;

/// Damage that is mended one after the other before a medium is given up that does not stay as it is written.
const MENDED_MAX: usize = 1_000;

impl<M: Memory> PmemStore<M> {
    /// Makes everything in `batch`, and the marks in the open one, durable.
    ///
    /// # Errors
    /// When the file cannot grow: the store is to be used no more.
    pub(super) fn apply(&mut self, batch: &Batch) -> io::Result<()> {
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
        self.remove_all(batch)?;
        self.slabs.give_back_runs(&self.shared, &mut self.scratch.buffers);
        // Only now, when recovered records are durable, and only if no damage was found meanwhile.
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
        self.plan_all(batch, changes, &mut plan)?;
        self.write_versions(batch, &plan);
        self.link_all(batch, &plan)?;
        self.shared.finish_turn(self.worker, self.turn);
        self.shared.memory.fence();
        for write in &plan {
            if let Link::Moved(old) = write.link {
                self.slabs.give_back(&self.shared, old);
            }
            if let Changed::Cell(_, key) = batch.place(write.change) {
                let (newest, sequence) = write.version;
                self.recent.remember(key, Spot { home: write.home, newest, sequence });
            }
        }
        self.scratch.plan = plan;
        Ok(())
    }

    /// Decides where changes are written. Damage that one of them meets may be mended at the cost
    /// of the link to another: then all are looked up once more.
    fn plan_all(
        &mut self,
        batch: &Batch,
        changes: &[usize],
        plan: &mut Vec<Write>,
    ) -> io::Result<()> {
        for _ in 0..MENDED_MAX {
            plan.clear();
            let damages = self.damages;
            for &change in changes {
                let write = self.plan(batch, change)?;
                plan.push(write);
            }
            if self.damages == damages {
                return Ok(());
            }
            for write in plan.iter().filter(|write| !matches!(write.link, Link::Kept)) {
                self.slabs.take_back(&self.shared, write.home);
            }
        }
        Err(damaged_again())
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

    /// Lets the directory and the roots lead to slots that are durable. Damage on the way to one of
    /// them may be mended at the cost of the link to another, so then each is looked for.
    fn link_all(&mut self, batch: &Batch, plan: &[Write]) -> io::Result<()> {
        let mut damages = self.damages;
        for write in plan {
            self.link(batch.place(write.change), write)?;
        }
        for _ in 0..MENDED_MAX {
            if self.damages == damages {
                return Ok(());
            }
            damages = self.damages;
            for write in plan {
                if let Changed::Cell(shard, key) = batch.place(write.change) {
                    let slot = write.home.at;
                    if self.entry_of(*shard, key, slot)?.is_none() {
                        self.insert(*shard, key, slot)?;
                    }
                }
            }
        }
        Err(damaged_again())
    }

    /// The link to a slot of a register; damage on the way is mended.
    fn entry_of(&mut self, shard: ShardId, key: &Key, slot: u64) -> io::Result<Option<Entry>> {
        let is_it = |other| if other == slot { Match::Yes } else { Match::No };
        for _ in 0..MENDED_MAX {
            match self.shared.search(shard, key.hash(), is_it) {
                Ok(found) => return Ok(found),
                Err(damage) => self.forget(shard, Some(&Changed::Cell(shard, key.clone())), damage),
            }
        }
        Err(damaged_again())
    }

    fn insert(&mut self, shard: ShardId, key: &Key, slot: u64) -> io::Result<()> {
        for _ in 0..MENDED_MAX {
            match self.shared.insert(self.worker, shard, key.hash(), slot) {
                Ok(()) => return Ok(()),
                Err(InsertError::Io(error)) => return Err(error),
                Err(InsertError::Damaged) => {
                    let place = Changed::Cell(shard, key.clone());
                    self.forget(shard, Some(&place), Damaged { entry: None });
                }
            }
        }
        Err(damaged_again())
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
        if let Link::Moved(old) = write.link
            && let Some(entry) = self.entry_of(shard, key, old.at)?
        {
            self.shared.redirect(&entry, slot);
            return Ok(());
        }
        self.insert(shard, key, slot)
    }

    fn remove_all(&mut self, batch: &Batch) -> io::Result<()> {
        let mut freed = Vec::new();
        for change in batch.removals() {
            let place = batch.place(change);
            if let Changed::Cell(_, key) = place {
                self.recent.forget(key);
            }
            let Some(located) = self.locate_mended(place)? else { continue };
            match located.entry {
                Some(entry) => self.shared.clear(entry.at),
                None => {
                    let root = self.shared.geometry.root_at(place.shard());
                    self.shared.put_word(root + ROOT_META, NONE);
                }
            }
            freed.push(located.home);
        }
        if !freed.is_empty() {
            self.shared.memory.fence();
        }
        freed.into_iter().for_each(|home| self.slabs.give_back(&self.shared, home));
        Ok(())
    }

    /// Where a place is; damage on the way is mended.
    fn locate_mended(&mut self, place: &Changed) -> io::Result<Option<Located>> {
        for _ in 0..MENDED_MAX {
            match self.locate(place) {
                Ok(located) => return Ok(located),
                Err(damage) => self.forget(place.shard(), Some(place), damage),
            }
        }
        Err(damaged_again())
    }
}

fn damaged_again() -> io::Error {
    io::Error::other("the directory was damaged again and again while it was mended")
}
