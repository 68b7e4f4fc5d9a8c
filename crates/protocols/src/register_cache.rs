//! Resident registers and shard fields: the part of a worker's storage that a step may touch.
//!
//! A protocol changes a register here and marks it with [`RegisterCache::persist`]. The worker
//! encodes each marked register once at the end of the turn. A `volatile` register is encoded only
//! when it is evicted; until then memory has the only copy.
//!
//! An absent register is worth less memory than a present one. Its entry stays while it is in use,
//! and a bounded number of unused ones stay for repeated requests.

mod metas;
mod slots;
mod weight;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use hashbrown::HashTable;
use smallvec::SmallVec;
use types::key::{ByHash, SHARDS};
use types::{Key, Shard, Ticket};

pub use metas::Metas;
pub use weight::Weight;

use slots::{Index, Slot, Slots};

/// The state of a register in memory.
#[derive(Debug)]
pub enum CachedRegister<'a, R> {
    Present(&'a R),
    /// The register does not exist and was not forgotten.
    Absent,
    /// Forgotten: it takes no part until it is recovered.
    Lost,
}

impl<R> Slot<R> {
    fn register(&self) -> CachedRegister<'_, R> {
        match &self.record {
            Some(record) => CachedRegister::Present(record),
            None if self.lost => CachedRegister::Lost,
            None => CachedRegister::Absent,
        }
    }

    /// True for an unpinned absent register whose memory and storage agree.
    fn is_idle_absence(&self) -> bool {
        self.record.is_none() && !self.lost && !self.dirty && !self.ahead && self.pins == 0
    }
}

/// The address of a register, and enough of its hash to reject nearly all others without a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotRef {
    index: Index,
    tag: u32,
}

impl SlotRef {
    fn new(key: &Key, index: Index) -> SlotRef {
        SlotRef { index, tag: tag_of(key.hash()) }
    }

    fn may_be(self, key: &Key) -> bool {
        self.tag == tag_of(key.hash())
    }
}

/// The bits below the shard's: entries of a shard compare like the positions of their keys.
fn tag_of(hash: u64) -> u32 {
    (hash >> 24) as u32
}

/// The evidence that a register is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// An entry, kept for a while, because asking storage takes time.
    Kept,
    /// The worker has just asked storage, which answers at once: see
    /// [`RegisterCache::announce_absent`].
    Announced,
    /// There is no storage: a register without an entry does not exist.
    Certain,
}

/// The fate of a register that is not in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    Stays,
    /// It counts as changed, and leaves memory once it is written.
    IsWritten,
    Goes,
}

/// Registers that the table of a shard keeps room for.
const KEPT_CAPACITY: usize = 64;

/// Registers brought into the caches together.
pub const WARMED: usize = 32;

/// The registers of one database and worker.
#[derive(Debug)]
pub struct RegisterCache<R> {
    slots: Slots<R>,
    shards: Vec<HashTable<SlotRef>>,
    /// The slot of the last search, since one event asks for one register many times.
    last: std::cell::Cell<Index>,
    forgotten: [bool; SHARDS],
    dirty: Vec<Index>,
    /// Candidates for [`RegisterCache::drop_absent`], oldest first. Empty unless absence is `Kept`.
    absent: VecDeque<Index>,
    open_ticket: Ticket,
    absence: Absence,
    /// The key that was announced last, unless it has a slot since.
    announced: Option<Key>,
}

fn hash_of(key: &Key) -> u64 {
    ByHash.hash_one(key)
}

impl<R> RegisterCache<R> {
    #[must_use]
    pub fn new(absence: Absence) -> RegisterCache<R> {
        RegisterCache {
            slots: Slots::new(),
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            last: std::cell::Cell::new(Index::NONE),
            forgotten: [false; SHARDS],
            dirty: Vec::new(),
            absent: VecDeque::new(),
            open_ticket: Ticket::DURABLE,
            absence,
            announced: None,
        }
    }

    fn find(&self, key: &Key) -> Option<Index> {
        let last = self.last.get();
        if self.slots.get(last).is_some_and(|slot| slot.key == *key) {
            return Some(last);
        }
        let is_it = |entry: &SlotRef| entry.may_be(key) && self.slots.at(entry.index).key == *key;
        let found = self.shard(key).find(hash_of(key), is_it)?.index;
        self.last.set(found);
        Some(found)
    }

    fn shard(&self, key: &Key) -> &HashTable<SlotRef> {
        &self.shards[usize::from(key.shard().0)]
    }

    fn slot(&self, key: &Key) -> Option<&Slot<R>> {
        self.find(key).map(|index| self.slots.at(index))
    }

    fn slot_mut(&mut self, key: &Key) -> Option<&mut Slot<R>> {
        self.find(key).map(|index| self.slots.at_mut(index))
    }

    fn add(&mut self, slot: Slot<R>) -> &mut Slot<R> {
        let key = slot.key.clone();
        self.announced = None;
        let index = self.slots.add(slot);
        let slots = &self.slots;
        let hash_again = |entry: &SlotRef| hash_of(&slots.at(entry.index).key);
        self.shards[usize::from(key.shard().0)].insert_unique(
            hash_of(&key),
            SlotRef::new(&key, index),
            hash_again,
        );
        self.last.set(index);
        self.slots.at_mut(index)
    }

    fn remove_slot(&mut self, index: Index) {
        self.last.set(Index::NONE);
        let key = &self.slots.at(index).key;
        let shard = usize::from(key.shard().0);
        let found = self.shards[shard].find_entry(hash_of(key), |entry| entry.index == index);
        if let Ok(entry) = found {
            entry.remove();
            self.slots.remove(index);
            self.shrink(shard);
        }
    }

    /// Frees memory of a shard that has become nearly empty.
    fn shrink(&mut self, shard: usize) {
        let (shard, slots) = (&mut self.shards[shard], &self.slots);
        if shard.capacity() > KEPT_CAPACITY && shard.capacity() / 8 > shard.len() {
            shard.shrink_to(2 * shard.len(), |entry| hash_of(&slots.at(entry.index).key));
        }
    }

    /// Queues an idle absent entry for [`RegisterCache::drop_absent`], or drops it unless absence
    /// is `Kept`.
    fn note_absent(&mut self, index: Index) {
        let slot = self.slots.at_mut(index);
        if slot.noted || !slot.is_idle_absence() {
            return;
        }
        if self.absence == Absence::Kept {
            slot.noted = true;
            self.absent.push_back(index);
        } else {
            self.remove_slot(index);
        }
    }

    /// True if the register is in memory, though the event may not name it.
    #[must_use]
    pub fn is_resident(&self, key: &Key) -> bool {
        self.find(key).is_some() || self.absence == Absence::Certain
    }

    /// # Panics
    /// If the register is not resident: the event did not name it and it was not pinned.
    #[must_use]
    pub fn get(&self, key: &Key) -> CachedRegister<'_, R> {
        match self.slot(key) {
            Some(slot) => slot.register(),
            None if !self.is_known_absent(key) => panic!("{key:?} is not resident"),
            None if self.forgotten[usize::from(key.shard().0)] => CachedRegister::Lost,
            None => CachedRegister::Absent,
        }
    }

    /// The record, if there is one.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut R> {
        let slot = self.slot_mut(key)?;
        slot.used = true;
        slot.record.as_mut()
    }

    /// Works on the record in place; `None` if there is none. Mark a change by
    /// [`persist`](RegisterCache::persist). The register must be resident and not lost.
    pub fn with<T>(&mut self, key: &Key, step: impl FnOnce(&mut Option<R>) -> T) -> T {
        if let Some(slot) = self.slot_mut(key) {
            slot.used = true;
            let result = step(&mut slot.record);
            slot.lost &= slot.record.is_none();
            return result;
        }
        assert!(self.is_known_absent(key), "{key:?} is not resident");
        let mut record = None;
        let result = step(&mut record);
        if let Some(record) = record {
            self.put(key, record);
        }
        result
    }

    /// Sets the record. It must be marked by [`persist`](RegisterCache::persist) to become durable.
    pub fn put(&mut self, key: &Key, record: R) {
        self.set(key, Some(record), false);
    }

    /// Removes the register. Durable after the returned ticket.
    pub fn remove(&mut self, key: &Key) -> Ticket {
        self.set(key, None, false);
        self.persist(key)
    }

    /// Marks a register as lost: neither memory nor storage may be trusted. The caller also marks
    /// its shard as forgotten.
    pub fn lose(&mut self, key: &Key) {
        self.set(key, None, true);
        self.persist(key);
    }

    fn set(&mut self, key: &Key, record: Option<R>, lost: bool) {
        match self.slot_mut(key) {
            Some(slot) => (slot.record, slot.lost) = (record, lost),
            None => drop(self.add(Slot::new(key.clone(), record, lost))),
        }
    }

    /// Marks the register as changed. Its dependent effects wait for the returned ticket.
    ///
    /// # Panics
    /// If the register is not resident.
    pub fn persist(&mut self, key: &Key) -> Ticket {
        let ticket = self.open_ticket;
        let index = self.find(key).expect("a changed register is resident");
        let slot = self.slots.at_mut(index);
        slot.ticket = ticket;
        slot.ahead = false;
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(index);
        }
        ticket
    }

    /// Marks all registers of a shard as changed, because their stored copies may be damaged.
    pub fn persist_shard(&mut self, shard: Shard) {
        for entry in &self.shards[usize::from(shard.0)] {
            let slot = self.slots.at_mut(entry.index);
            if slot.record.is_none() {
                continue;
            }
            slot.ticket = self.open_ticket;
            slot.ahead = false;
            if !slot.dirty {
                slot.dirty = true;
                self.dirty.push(entry.index);
            }
        }
    }

    /// Notes a change that is crash-safe by other means. It is written only before eviction.
    pub fn persist_before_eviction(&mut self, key: &Key) {
        if let Some(slot) = self.slot_mut(key) {
            slot.ahead = !slot.dirty;
        }
    }

    /// The ticket of the register's last change.
    #[must_use]
    pub fn ticket(&self, key: &Key) -> Ticket {
        self.slot(key).map_or(Ticket::DURABLE, |slot| slot.ticket)
    }

    /// Keeps the register resident until it is unpinned as often.
    pub fn pin(&mut self, key: &Key) {
        let slot = match self.find(key) {
            Some(index) => self.slots.at_mut(index),
            None => {
                let lost = matches!(self.get(key), CachedRegister::Lost);
                self.add(Slot::new(key.clone(), None, lost))
            }
        };
        slot.pins = slot.pins.checked_add(1).expect("far fewer than 65536 users of one register");
    }

    /// # Panics
    /// If the register is not pinned.
    pub fn unpin(&mut self, key: &Key) {
        let index = self.find(key).expect("a pinned register is resident");
        let slot = self.slots.at_mut(index);
        slot.pins = slot.pins.checked_sub(1).expect("unpinned no oftener than pinned");
        self.note_absent(index);
    }

    #[must_use]
    pub fn is_forgotten(&self, shard: Shard) -> bool {
        self.forgotten[usize::from(shard.0)]
    }

    /// Registers in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of their records as stored, and of long keys.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Registers that are pinned. Visits all.
    #[must_use]
    pub fn pinned(&self) -> usize {
        let slots = self.shards.iter().flatten().map(|entry| self.slots.at(entry.index));
        slots.filter(|slot| slot.pins > 0).count()
    }

    /// All resident records, in no order that may matter.
    pub fn records(&self) -> impl Iterator<Item = (&Key, &R)> {
        let slots = self.shards.iter().flatten().map(|entry| self.slots.at(entry.index));
        slots.filter_map(|slot| Some((&slot.key, slot.record.as_ref()?)))
    }
}

/// The worker's side. A protocol must not call these.
impl<R> RegisterCache<R> {
    /// True if the register has no entry and is known to have no stored record.
    fn is_known_absent(&self, key: &Key) -> bool {
        match self.absence {
            Absence::Kept => false,
            Absence::Announced => self.announced.as_ref() == Some(key),
            Absence::Certain => true,
        }
    }

    /// Notes that storage has no record of this register, which is not resident. The note holds
    /// until the next call.
    pub fn announce_absent(&mut self, key: &Key) {
        match self.absence {
            Absence::Announced => self.announced = Some(key.clone()),
            Absence::Kept | Absence::Certain => self.fill(key, None, false),
        }
    }

    /// Marks the register as used; false if it is not resident.
    pub fn touch(&mut self, key: &Key) -> bool {
        if let Some(slot) = self.slot_mut(key) {
            slot.used = true;
            return true;
        }
        self.absence == Absence::Certain
    }

    /// Prefetches registers that the next events will read, a few dozen at a time. `look` reads the
    /// same fields as an event does and returns a value that depends on them.
    ///
    /// The searches are independent of each other, so their cache misses overlap.
    pub fn warm<'k>(&self, keys: impl Iterator<Item = &'k Key>, look: impl Fn(&R) -> bool) {
        let entries: SmallVec<[SlotRef; WARMED]> = keys
            .take(WARMED)
            .filter_map(|key| {
                self.shard(key).find(hash_of(key), |entry| entry.may_be(key)).copied()
            })
            .collect();
        let slots = || entries.iter().map(|entry| self.slots.at(entry.index));
        std::hint::black_box(slots().filter(|slot| slot.used & slot.record.is_some()).count());
        let records = slots().filter_map(|slot| slot.record.as_ref());
        std::hint::black_box(records.filter(|record| look(record)).count());
    }

    /// Makes a register resident with its stored content. Keeps a register that is resident
    /// already.
    pub fn fill(&mut self, key: &Key, content: Option<R>, lost: bool) {
        if self.find(key).is_none() {
            let lost = lost && content.is_none();
            self.add(Slot::new(key.clone(), content, lost));
            self.note_absent(self.last.get());
        }
    }

    /// Records the stored size of a resident register and its weight in the figures.
    pub fn weigh(&mut self, key: &Key, bytes: usize, weight: Weight) {
        if let Some(index) = self.find(key) {
            self.slots.weigh(index, bytes);
            self.slots.at_mut(index).weight = weight;
        }
    }

    /// The total weight of the registers of one shard from `from_hash` to below `until`.
    pub fn weights(
        &self,
        shard: Shard,
        from_hash: u64,
        until: Option<u64>,
    ) -> impl Iterator<Item = Weight> {
        let tags = tag_of(from_hash)..=until.map_or(u32::MAX, tag_of);
        self.slots_in(shard, from_hash, until, tags).map(|slot| slot.weight)
    }

    /// True for a register that has an entry.
    #[must_use]
    pub fn has(&self, key: &Key) -> bool {
        self.find(key).is_some()
    }

    pub fn set_forgotten(&mut self, shard: Shard, forgotten: bool) {
        self.forgotten[usize::from(shard.0)] = forgotten;
        for entry in &self.shards[usize::from(shard.0)] {
            let slot = self.slots.at_mut(entry.index);
            let is_known_absent = slot.record.is_none() && !slot.lost;
            slot.lost = forgotten && (slot.lost || (is_known_absent && !slot.dirty));
        }
    }

    pub fn set_open_ticket(&mut self, ticket: Ticket) {
        self.open_ticket = ticket;
    }

    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes the changed registers, each once; `None` means removed. `write` gets the counted
    /// weight, may replace it, and returns the record's stored size in bytes.
    pub fn take_dirty(&mut self, mut write: impl FnMut(&Key, Option<&R>, &mut Weight) -> usize) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let slot = self.slots.at_mut(index);
            slot.dirty = false;
            let bytes = write(&slot.key, slot.record.as_ref(), &mut slot.weight);
            self.slots.weigh(index, bytes);
            self.note_absent(index);
        }
        self.dirty = dirty;
    }

    /// Registers of one shard from `from_hash` on, in key order.
    #[must_use]
    pub fn range(&self, shard: Shard, from_hash: u64) -> Vec<(&Key, CachedRegister<'_, R>)> {
        self.range_step(shard, from_hash, None, usize::MAX).0
    }

    /// About `limit` registers of one shard in key order, from `from_hash` to below `until`. Also
    /// returns the position up to which the result is complete; `None` is the end of the shard.
    /// Never splits a hash.
    #[must_use]
    pub fn range_step(
        &self,
        shard: Shard,
        from_hash: u64,
        until: Option<u64>,
        limit: usize,
    ) -> (Vec<(&Key, CachedRegister<'_, R>)>, Option<u64>) {
        let tags = tag_of(from_hash)..=self.tag_behind(shard, from_hash, limit);
        let mut found: Vec<_> = self.slots_in(shard, from_hash, until, tags).collect();
        let mut complete = until;
        if limit < found.len() {
            // Selection takes linear time; sorting a large shard at every step would not.
            let end = found.select_nth_unstable_by_key(limit, |slot| &slot.key).1.key.hash();
            let first = found[..=limit].iter().map(|slot| slot.key.hash()).min();
            if first.is_some_and(|first| first < end) {
                found.truncate(limit);
                found.retain(|slot| slot.key.hash() < end);
                complete = Some(end);
            }
        }
        found.sort_unstable_by_key(|slot| &slot.key);
        (found.into_iter().map(|slot| (&slot.key, slot.register())).collect(), complete)
    }

    /// The slots of part of a shard. `tags` must cover all of them; other entries are skipped.
    fn slots_in(
        &self,
        shard: Shard,
        from_hash: u64,
        until: Option<u64>,
        tags: RangeInclusive<u32>,
    ) -> impl Iterator<Item = &Slot<R>> {
        let entries = self.shards[usize::from(shard.0)].iter();
        let slots = entries.filter(move |entry| tags.contains(&entry.tag));
        let is_in = move |hash| hash >= from_hash && until.is_none_or(|until| hash < until);
        slots.map(|entry| self.slots.at(entry.index)).filter(move |slot| is_in(slot.key.hash()))
    }

    /// A tag that has more than `limit` registers between it and `from_hash`. It is the last tag if
    /// the shard has fewer.
    ///
    /// Reads the shard's table and no register, since registers are spread over memory.
    fn tag_behind(&self, shard: Shard, from_hash: u64, limit: usize) -> u32 {
        let (shard, first) = (&self.shards[usize::from(shard.0)], tag_of(from_hash));
        if shard.len() <= limit {
            return u32::MAX;
        }
        // Registers of the first tag may lie before `from_hash`.
        let mut tags: Vec<u32> =
            shard.iter().map(|entry| entry.tag).filter(|&tag| tag > first).collect();
        if tags.len() <= limit {
            return u32::MAX;
        }
        *tags.select_nth_unstable(limit).1
    }

    /// Evicts the unused registers of `shard` whose changes are durable. A register that was
    /// touched since the last call gets another chance. `part` decides, given the record and
    /// whether it is ahead of storage.
    pub fn evict(
        &mut self,
        shard: Shard,
        durable: Ticket,
        mut part: impl FnMut(&Key, Option<&R>, bool) -> Parting,
    ) -> usize {
        assert!(self.absence != Absence::Certain, "there is nowhere to go");
        self.last.set(Index::NONE);
        let mut dropped = 0;
        let mut ahead = Vec::new();
        let slots = &mut self.slots;
        self.shards[usize::from(shard.0)].retain(|entry| {
            let slot = slots.at_mut(entry.index);
            let held = slot.dirty || slot.pins > 0 || slot.ticket > durable;
            let spared = std::mem::take(&mut slot.used);
            if held || spared {
                return true;
            }
            match part(&slot.key, slot.record.as_ref(), slot.ahead) {
                Parting::Stays => return true,
                Parting::IsWritten => {
                    ahead.push(slot.key.clone());
                    return true;
                }
                Parting::Goes => slots.remove(entry.index),
            }
            dropped += 1;
            false
        });
        for key in &ahead {
            self.persist(key);
        }
        self.shrink(usize::from(shard.0));
        dropped
    }

    /// Entries queued for [`RegisterCache::drop_absent`].
    #[must_use]
    pub fn absent_len(&self) -> usize {
        self.absent.len()
    }

    /// Drops the oldest idle absent entries until about `kept` remain, and returns how many it
    /// dropped. An entry that was used since the last call gets another chance. Examines at most
    /// `looks` entries. Stops at an entry whose removal is not durable or whose shard `keep` names.
    pub fn drop_absent(
        &mut self,
        kept: usize,
        looks: usize,
        durable: Ticket,
        keep: impl Fn(Shard) -> bool,
    ) -> usize {
        let excess = self.absent.len().saturating_sub(kept);
        let mut dropped = 0;
        for _ in 0..looks.min(excess) {
            let Some(index) = self.absent.pop_front() else { break };
            // The slot may hold another register by now.
            let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.noted) else { continue };
            if !slot.is_idle_absence() {
                // It is queued again when it becomes idle.
                slot.noted = false;
            } else if std::mem::take(&mut slot.used) {
                self.absent.push_back(index);
            } else if slot.ticket > durable || keep(slot.key.shard()) {
                self.absent.push_back(index);
                break;
            } else {
                self.remove_slot(index);
                dropped += 1;
            }
        }
        dropped
    }
}

#[cfg(test)]
mod tests;
