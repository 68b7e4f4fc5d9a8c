//! A copy of the leader's registers, in the place of this node's.
//!
//! All registers are removed, then pages of the leader's adopted. Entries behind the base of the
//! copy are applied meanwhile, and the newer of both stays. So the pages need not be of one moment.
//! After each page the worker waits as long as it took: a copy takes at most half of a link.

use std::collections::VecDeque;

use base::Nanos;
use types::{Key, NodeId, Shard, Ticket};

use super::super::context::{Cx, tell_own, tell_register};
use super::super::epoch::Epoch;
use super::super::message::{Message, ToRegister, ToSequencer, ToWorker};
use super::super::register::Register;
use super::Applier;
use super::state::{Copying, Phase, Scanning};
use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::protocol::Scanned;
use crate::register_cache::CachedRegister;

/// Registers removed at a time.
const STEP: usize = 256;
/// When a step without an answer is taken again.
const PATIENCE: Nanos = Nanos::from_millis(200);
const PATIENCE_MAX: Nanos = Nanos::from_secs(60);

impl Copying {
    /// An older register of this key may come yet.
    pub(super) fn may_bring(&self, key: &Key) -> bool {
        match self.phase {
            Phase::Erasing => true,
            Phase::Adopting => self.to_do.iter().any(|from| from >> 56 == key.hash() >> 56),
            Phase::Copied => false,
        }
    }
}

impl Applier {
    fn own_shards(&self) -> VecDeque<u64> {
        let own = (0..=u8::MAX).map(Shard).filter(|&shard| self.env.owns(shard));
        own.map(Shard::first_hash).collect()
    }

    pub(super) fn begin_copy(
        &mut self,
        cx: &mut Cx<'_>,
        copy: u64,
        epoch: Epoch,
        donor: NodeId,
        base: u64,
    ) {
        self.begin_again(cx, copy);
        self.is_lost = false;
        let copying = Copying {
            epoch,
            donor,
            base,
            to_do: self.own_shards(),
            phase: Phase::Erasing,
            id: 0,
            from_hash: 0,
            left: None,
            next_hash: None,
            asked_at: cx.now,
            took: Nanos::ZERO,
            due: cx.now,
            patience: PATIENCE,
        };
        self.copying = Some(copying);
        self.next_step(cx);
    }

    /// Begins the step at the front, once it is due.
    fn next_step(&mut self, cx: &mut Cx<'_>) {
        let Some(copying) = &mut self.copying else { return };
        if copying.due > cx.now {
            return;
        }
        let Some(&from_hash) = copying.to_do.front() else { return self.end_phase(cx) };
        (copying.from_hash, copying.left, copying.next_hash) = (from_hash, None, None);
        copying.asked_at = cx.now;
        copying.due = cx.now + copying.patience;
        let (phase, epoch, base, donor) =
            (copying.phase, copying.epoch, copying.base, copying.donor);
        if phase == Phase::Erasing {
            let id = self.scan(Scanning::Erase);
            self.set_step(id);
            cx.fx.scan(Scan { id, from_hash, limit: STEP });
        } else {
            self.next_scan += 1;
            let id = self.next_scan;
            self.set_step(id);
            let shard = Shard((from_hash >> 56) as u8);
            let ask = ToWorker::AskPage { id, epoch, base, from_hash };
            cx.fx.send_now(donor, Message::Worker(shard, ask));
        }
    }

    fn set_step(&mut self, id: u64) {
        if let Some(copying) = &mut self.copying {
            copying.id = id;
        }
    }

    fn end_phase(&mut self, cx: &mut Cx<'_>) {
        let to_do = self.own_shards();
        let (copy, worker, changed) = (self.copy, self.env.worker as u64, self.changed);
        let Some(copying) = &mut self.copying else { return };
        if copying.phase == Phase::Erasing {
            copying.phase = Phase::Adopting;
            copying.to_do = to_do;
            copying.due = cx.now;
            tell_own(cx, ToSequencer::Erased { copy, worker }, Ticket::DURABLE);
            return self.next_step(cx);
        }
        copying.phase = Phase::Copied;
        copying.due = cx.now + PATIENCE_MAX.min(Nanos::from_secs(1));
        tell_own(cx, ToSequencer::Copied { copy, worker }, changed);
    }

    pub(super) fn on_erasable(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        let Some(copying) = &mut self.copying else { return };
        if copying.phase != Phase::Erasing || copying.id != scanned.id {
            return;
        }
        copying.left = Some(scanned.records.len());
        copying.next_hash = scanned.next_hash;
        for (key, _) in scanned.records {
            tell_register(cx, key, ToRegister::Drop { id: scanned.id });
        }
        self.end_step(cx);
    }

    pub(super) fn on_drop(&mut self, cx: &mut Cx<'_>, key: &Key, id: u64) {
        let Some(copying) = &mut self.copying else {
            return self.drop_tombstone(cx, key, id);
        };
        if copying.phase != Phase::Erasing || copying.id != id {
            return;
        }
        copying.left = copying.left.map(|left| left.saturating_sub(1));
        self.changed = cx.cache.remove(key);
        self.end_step(cx);
    }

    pub(super) fn on_page(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        id: u64,
        entries: Vec<(Key, Register)>,
        next_hash: Option<u64>,
    ) {
        let Some(copying) = &mut self.copying else { return };
        let is_it = copying.phase == Phase::Adopting && copying.id == id && copying.donor == from;
        if !is_it || copying.left.is_some() {
            return;
        }
        let shard = copying.from_hash >> 56;
        copying.took = cx.now.since(copying.asked_at);
        copying.next_hash = next_hash.filter(|next| next >> 56 == shard);
        let entries: Vec<(Key, Register)> =
            entries.into_iter().filter(|(key, _)| key.hash() >> 56 == shard).collect();
        copying.left = Some(entries.len());
        for (key, register) in entries {
            tell_register(cx, key, ToRegister::Adopt { id, register });
        }
        self.end_step(cx);
    }

    pub(super) fn on_adopt(&mut self, cx: &mut Cx<'_>, key: Key, id: u64, register: Register) {
        let Some(copying) = &mut self.copying else { return };
        if copying.phase != Phase::Adopting || copying.id != id {
            return;
        }
        copying.left = copying.left.map(|left| left.saturating_sub(1));
        let held = match cx.cache.get(&key) {
            CachedRegister::Present(held) => held.index,
            CachedRegister::Absent | CachedRegister::Lost => 0,
        };
        if held < register.index || mutation::is(Mutation::ZabAdoptsOlder) {
            let content = register.content.arrive(None, cx.uptime);
            self.store(cx, &key, Register { content, ..register });
        }
        self.end_step(cx);
    }

    /// Goes on if every register of the step is done.
    fn end_step(&mut self, cx: &mut Cx<'_>) {
        let Some(copying) = &mut self.copying else { return };
        if copying.left != Some(0) {
            return;
        }
        let from_hash = copying.to_do.pop_front().unwrap_or_default();
        let next = copying.next_hash.filter(|next| next >> 56 == from_hash >> 56);
        if let Some(next) = next {
            copying.to_do.push_front(next);
        }
        (copying.left, copying.id) = (None, 0);
        copying.due = match copying.phase {
            Phase::Adopting => cx.now + copying.took,
            Phase::Erasing | Phase::Copied => cx.now,
        };
        self.next_step(cx);
    }

    pub(super) fn copy_on_tick(&mut self, cx: &mut Cx<'_>) {
        let Some(copying) = &mut self.copying else { return };
        if copying.due > cx.now {
            return;
        }
        if copying.id != 0 && copying.phase != Phase::Copied {
            // The link or the disk may need longer for large registers.
            copying.patience = Nanos(2 * copying.patience.0).min(PATIENCE_MAX);
        }
        self.next_step(cx);
    }

    /// The node has the leader's state.
    pub(super) fn end_copy(&mut self, cx: &mut Cx<'_>, copy: u64) {
        if copy != self.copy || self.copying.take().is_none() {
            return;
        }
        let own = (0..=u8::MAX).map(Shard).filter(|&shard| self.env.owns(shard));
        for shard in own.filter(|&shard| cx.cache.is_forgotten(shard)).collect::<Vec<_>>() {
            cx.fx.recovered(shard);
        }
        for key in std::mem::take(&mut self.tombstones) {
            tell_register(cx, key, ToRegister::Drop { id: 0 });
        }
    }

    fn drop_tombstone(&mut self, cx: &mut Cx<'_>, key: &Key, id: u64) {
        let is_tombstone = match cx.cache.get(key) {
            CachedRegister::Present(held) => held.content.is_empty(),
            CachedRegister::Absent | CachedRegister::Lost => false,
        };
        if id == 0 && is_tombstone {
            self.changed = cx.cache.remove(key);
        }
    }
}
