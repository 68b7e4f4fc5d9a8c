//! Resident registers and shard fields: the part of a worker's storage that a step may touch.
//!
//! A register is changed here and marked with [`Cells::persist`]; the worker encodes every marked register once
//! at the end of the turn, however often it changed. Where storage keeps no records (`volatile`) these cells are
//! the only copy.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use types::key::{ByHash, SHARDS};
use types::{Key, Shard, Ticket};

/// What is known of a register.
#[derive(Debug)]
pub enum Cell<'a, R> {
    Present(&'a R),
    /// There is none, and nothing was forgotten.
    Absent,
    /// Forgotten: it takes no part in anything until it was recovered.
    Lost,
}

#[derive(Debug)]
enum Content<R> {
    Present(R),
    Absent,
    Lost,
}

#[derive(Debug)]
struct Slot<R> {
    content: Content<R>,
    /// The ticket of the last change: what rests on this register waits for it.
    ticket: Ticket,
    dirty: bool,
    /// Memory holds something that storage does not, and need not yet.
    ahead: bool,
    pins: u16,
    /// Touched since the last look of the evicting hand.
    used: bool,
}

impl<R> Slot<R> {
    fn cell(&self) -> Cell<'_, R> {
        match &self.content {
            Content::Present(record) => Cell::Present(record),
            Content::Absent => Cell::Absent,
            Content::Lost => Cell::Lost,
        }
    }
}

/// The registers of one database and worker.
#[derive(Debug)]
pub struct Cells<R> {
    shards: Vec<HashMap<Key, Slot<R>, ByHash>>,
    forgotten: [bool; SHARDS],
    dirty: Vec<Key>,
    open_ticket: Ticket,
    /// True where a key without a slot is known to be absent (or lost, in a forgotten shard).
    complete: bool,
    len: usize,
}

impl<R> Cells<R> {
    /// `complete`: storage keeps no records, so whatever has no slot does not exist.
    #[must_use]
    pub fn new(complete: bool) -> Cells<R> {
        Cells {
            shards: (0..SHARDS).map(|_| HashMap::with_hasher(ByHash)).collect(),
            forgotten: [false; SHARDS],
            dirty: Vec::new(),
            open_ticket: Ticket::DURABLE,
            complete,
            len: 0,
        }
    }

    fn shard(&self, key: &Key) -> &HashMap<Key, Slot<R>, ByHash> {
        &self.shards[key.shard().0 as usize]
    }

    fn shard_mut(&mut self, key: &Key) -> &mut HashMap<Key, Slot<R>, ByHash> {
        &mut self.shards[key.shard().0 as usize]
    }

    /// # Panics
    /// If the register is not resident: the event that led here did not name it and it was not pinned.
    #[must_use]
    pub fn get(&self, key: &Key) -> Cell<'_, R> {
        match self.shard(key).get(key).map(|slot| &slot.content) {
            Some(Content::Present(record)) => Cell::Present(record),
            Some(Content::Absent) => Cell::Absent,
            Some(Content::Lost) => Cell::Lost,
            None if !self.complete => panic!("{key:?} is not resident"),
            None if self.forgotten[key.shard().0 as usize] => Cell::Lost,
            None => Cell::Absent,
        }
    }

    /// The record, where there is one.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut R> {
        let slot = self.shard_mut(key).get_mut(key)?;
        slot.used = true;
        match &mut slot.content {
            Content::Present(record) => Some(record),
            Content::Absent | Content::Lost => None,
        }
    }

    /// Works on the record in place; `None` where there is none. A change must be marked by
    /// [`persist`](Cells::persist). The register must be resident and not lost.
    pub fn with<T>(&mut self, key: &Key, step: impl FnOnce(&mut Option<R>) -> T) -> T {
        if let Some(slot) = self.shard_mut(key).get_mut(key) {
            slot.used = true;
            let mut record = match std::mem::replace(&mut slot.content, Content::Absent) {
                Content::Present(record) => Some(record),
                Content::Absent | Content::Lost => None,
            };
            let result = step(&mut record);
            if let Some(record) = record {
                slot.content = Content::Present(record);
            }
            return result;
        }
        assert!(self.complete, "{key:?} is not resident");
        let mut record = None;
        let result = step(&mut record);
        if let Some(record) = record {
            self.put(key, record);
        }
        result
    }

    /// Sets the record. It must be marked by [`persist`](Cells::persist) to become durable.
    pub fn put(&mut self, key: &Key, record: R) {
        self.set(key, Content::Present(record));
    }

    /// The register does not exist any more, durably after the returned ticket.
    pub fn remove(&mut self, key: &Key) -> Ticket {
        self.set(key, Content::Absent);
        self.persist(key)
    }

    fn set(&mut self, key: &Key, content: Content<R>) {
        let mut added = 0;
        match self.shard_mut(key).entry(key.clone()) {
            Entry::Occupied(mut entry) => entry.get_mut().content = content,
            Entry::Vacant(entry) => {
                entry.insert(Slot {
                    content,
                    ticket: Ticket::DURABLE,
                    dirty: false,
                    ahead: false,
                    pins: 0,
                    used: true,
                });
                added = 1;
            }
        }
        self.len += added;
    }

    /// Marks the register as changed; what rests on the change waits for the returned ticket.
    ///
    /// # Panics
    /// If the register is not resident.
    pub fn persist(&mut self, key: &Key) -> Ticket {
        let ticket = self.open_ticket;
        let slot = self.shard_mut(key).get_mut(key).expect("a changed register is resident");
        slot.ticket = ticket;
        slot.ahead = false;
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(key.clone());
        }
        ticket
    }

    /// Notes a change that something else makes safe against a crash: it is written only before the register
    /// leaves memory.
    pub fn persist_before_eviction(&mut self, key: &Key) {
        if let Some(slot) = self.shard_mut(key).get_mut(key) {
            slot.ahead = !slot.dirty;
        }
    }

    /// The ticket of the register's last change.
    #[must_use]
    pub fn ticket(&self, key: &Key) -> Ticket {
        self.shard(key).get(key).map_or(Ticket::DURABLE, |slot| slot.ticket)
    }

    /// Keeps the register resident until it is unpinned as often.
    pub fn pin(&mut self, key: &Key) {
        if !self.shard(key).contains_key(key) {
            let content = match self.get(key) {
                Cell::Lost => Content::Lost,
                _ => Content::Absent,
            };
            self.set(key, content);
        }
        if let Some(slot) = self.shard_mut(key).get_mut(key) {
            slot.pins =
                slot.pins.checked_add(1).expect("far fewer than 65536 users of one register");
        }
    }

    /// # Panics
    /// If the register is not pinned.
    pub fn unpin(&mut self, key: &Key) {
        let complete = self.complete;
        let slot = self.shard_mut(key).get_mut(key).expect("a pinned register is resident");
        slot.pins = slot.pins.checked_sub(1).expect("unpinned no oftener than pinned");
        if complete && slot.pins == 0 && !slot.dirty && !matches!(slot.content, Content::Present(_))
        {
            self.drop_slot(key);
        }
    }

    fn drop_slot(&mut self, key: &Key) {
        if self.shard_mut(key).remove(key).is_some() {
            self.len -= 1;
        }
    }

    #[must_use]
    pub fn is_forgotten(&self, shard: Shard) -> bool {
        self.forgotten[shard.0 as usize]
    }

    /// Registers in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All resident records, in no order that may matter.
    pub fn records(&self) -> impl Iterator<Item = (&Key, &R)> {
        self.shards.iter().flatten().filter_map(|(key, slot)| match &slot.content {
            Content::Present(record) => Some((key, record)),
            _ => None,
        })
    }
}

/// The worker's side: what a protocol must not call.
impl<R> Cells<R> {
    #[must_use]
    pub fn is_resident(&self, key: &Key) -> bool {
        self.complete || self.shard(key).contains_key(key)
    }

    /// Notes a use of the register for the evicting hand; false when it is not resident.
    pub fn touch(&mut self, key: &Key) -> bool {
        let complete = self.complete;
        match self.shard_mut(key).get_mut(key) {
            Some(slot) => {
                slot.used = true;
                true
            }
            None => complete,
        }
    }

    /// Makes a register resident with what storage knows of it. Keeps what is there already.
    pub fn fill(&mut self, key: &Key, content: Option<R>, lost: bool) {
        if self.shard(key).contains_key(key) {
            return;
        }
        let content = match content {
            Some(record) => Content::Present(record),
            None if lost => Content::Lost,
            None => Content::Absent,
        };
        self.set(key, content);
    }

    pub fn set_forgotten(&mut self, shard: Shard, forgotten: bool) {
        self.forgotten[shard.0 as usize] = forgotten;
        for slot in self.shards[shard.0 as usize].values_mut() {
            match slot.content {
                Content::Absent if forgotten && !slot.dirty => slot.content = Content::Lost,
                Content::Lost if !forgotten => slot.content = Content::Absent,
                _ => {}
            }
        }
    }

    pub fn set_open_ticket(&mut self, ticket: Ticket) {
        self.open_ticket = ticket;
    }

    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes the changed registers, each once; `None` means removed.
    pub fn take_dirty(&mut self, mut write: impl FnMut(&Key, Option<&R>)) {
        let keys = std::mem::take(&mut self.dirty);
        for key in &keys {
            let complete = self.complete;
            let Some(slot) = self.shard_mut(key).get_mut(key) else { continue };
            slot.dirty = false;
            match &slot.content {
                Content::Present(record) => write(key, Some(record)),
                Content::Absent | Content::Lost => write(key, None),
            }
            if complete && slot.pins == 0 && !matches!(slot.content, Content::Present(_)) {
                self.drop_slot(key);
            }
        }
        self.dirty = keys;
        self.dirty.clear();
    }

    /// Registers of one shard from `from_hash` on, in key order.
    #[must_use]
    pub fn range(&self, shard: Shard, from_hash: u64) -> Vec<(&Key, Cell<'_, R>)> {
        self.range_step(shard, from_hash, None, usize::MAX).0
    }

    /// About `limit` registers of one shard in key order, those from `from_hash` on and below `until`, and the
    /// position up to which that is all of them (`None`: the end of the shard). Never splits a hash.
    #[must_use]
    pub fn range_step(
        &self,
        shard: Shard,
        from_hash: u64,
        until: Option<u64>,
        limit: usize,
    ) -> (Vec<(&Key, Cell<'_, R>)>, Option<u64>) {
        let is_in = |hash| hash >= from_hash && until.is_none_or(|until| hash < until);
        let slots = self.shards[shard.0 as usize].iter();
        let mut found: Vec<_> = slots.filter(|(key, _)| is_in(key.hash())).collect();
        let mut complete = until;
        if limit < found.len() {
            // Selecting is linear: a shard of a large database is not sorted for every step of a listing.
            let end = found.select_nth_unstable_by_key(limit, |(key, _)| *key).1.0.hash();
            let first = found[..=limit].iter().map(|(key, _)| key.hash()).min();
            if first.is_some_and(|first| first < end) {
                found.truncate(limit);
                found.retain(|(key, _)| key.hash() < end);
                complete = Some(end);
            }
        }
        found.sort_unstable_by_key(|(key, _)| *key);
        (found.into_iter().map(|(key, slot)| (key, slot.cell())).collect(), complete)
    }

    /// Drops up to `count` registers of `shard` that nobody uses and whose changes are durable; those touched
    /// since the last call get another chance. `keep` may refuse a record that holds more than storage does.
    pub fn evict(
        &mut self,
        shard: Shard,
        count: usize,
        durable: Ticket,
        mut keep: impl FnMut(&R) -> bool,
    ) -> usize {
        if self.complete {
            return 0;
        }
        let mut dropped = 0;
        let mut ahead = Vec::new();
        self.shards[shard.0 as usize].retain(|key, slot| {
            let held = slot.dirty || slot.pins > 0 || slot.ticket > durable || dropped == count;
            let spared = std::mem::take(&mut slot.used);
            if held || spared || matches!(&slot.content, Content::Present(record) if keep(record)) {
                return true;
            }
            if slot.ahead {
                ahead.push(key.clone());
                return true;
            }
            dropped += 1;
            false
        });
        self.len -= dropped;
        for key in &ahead {
            self.persist(key);
        }
        dropped
    }
}

/// The shard fields of one database and worker.
#[derive(Debug)]
pub struct Metas<M> {
    shards: Vec<Option<M>>,
    tickets: Vec<Ticket>,
    dirty: Vec<Shard>,
    open_ticket: Ticket,
}

impl<M: Default> Default for Metas<M> {
    fn default() -> Metas<M> {
        Metas {
            shards: (0..SHARDS).map(|_| None).collect(),
            tickets: vec![Ticket::DURABLE; SHARDS],
            dirty: Vec::new(),
            open_ticket: Ticket::DURABLE,
        }
    }
}

impl<M: Default> Metas<M> {
    /// # Panics
    /// If the shard is not resident.
    #[must_use]
    pub fn get(&self, shard: Shard) -> &M {
        self.shards[shard.0 as usize].as_ref().expect("the shard of an event is resident")
    }

    /// # Panics
    /// If the shard is not resident.
    pub fn get_mut(&mut self, shard: Shard) -> &mut M {
        self.shards[shard.0 as usize].as_mut().expect("the shard of an event is resident")
    }

    /// Marks the fields as changed.
    pub fn persist(&mut self, shard: Shard) -> Ticket {
        self.tickets[shard.0 as usize] = self.open_ticket;
        if !self.dirty.contains(&shard) {
            self.dirty.push(shard);
        }
        self.open_ticket
    }

    /// The ticket of the last change.
    #[must_use]
    pub fn ticket(&self, shard: Shard) -> Ticket {
        self.tickets[shard.0 as usize]
    }

    #[must_use]
    pub fn is_resident(&self, shard: Shard) -> bool {
        self.shards[shard.0 as usize].is_some()
    }

    pub fn fill(&mut self, shard: Shard, meta: M) {
        self.shards[shard.0 as usize].get_or_insert(meta);
    }

    pub fn set_open_ticket(&mut self, ticket: Ticket) {
        self.open_ticket = ticket;
    }

    pub fn take_dirty(&mut self) -> Vec<Shard> {
        std::mem::take(&mut self.dirty)
    }
}
