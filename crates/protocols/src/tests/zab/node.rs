//! A node: its workers, each with an instance of the protocol and a part of the medium.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::Prng;
use bytes::Bytes;
use types::{AmnesiaCount, Epoch, Incarnation, Key, LogChanges, LogImage, NodeId, Shard, Ticket};

use super::super::node::{Lent, env};
use super::super::node_id;
use super::super::worker::{self, Records, is_stored, store, take_records};
use crate::peers::Peers;
use crate::protocol::Env;
use crate::replica_sets::ReplicaSets;
use crate::zab::{Message, Meta, Zab};

/// An input of a worker from its own node.
#[derive(Debug)]
pub(super) enum Own {
    Message(Box<Message>),
    /// The node's amnesia count was raised.
    Amnesia(AmnesiaCount),
}

/// An [`Own`] on its way between two workers.
#[derive(Debug)]
pub(super) struct OwnLetter {
    pub from: usize,
    pub to: usize,
    pub body: Own,
}

/// A log as the medium has it.
#[derive(Clone, Debug)]
pub(super) struct StoredLog {
    first: u64,
    records: VecDeque<Bytes>,
    /// Records in front that were cut off, which a crash may bring back.
    cut: VecDeque<Bytes>,
}

impl Default for StoredLog {
    fn default() -> StoredLog {
        StoredLog { first: 1, records: VecDeque::new(), cut: VecDeque::new() }
    }
}

impl StoredLog {
    fn change(&mut self, changes: LogChanges) {
        let cuts_first = changes.cuts_first();
        let LogChanges { from, records, below } = changes;
        if cuts_first {
            self.cut(below);
        }
        if let Some(from) = from {
            let next = self.first + self.records.len() as u64;
            assert!((self.first..=next).contains(&from), "a gap at {from} behind {next}");
            self.records.truncate((from - self.first) as usize);
            self.records.extend(records);
        }
        if !cuts_first {
            self.cut(below);
        }
    }

    fn cut(&mut self, below: u64) {
        while self.first < below
            && let Some(record) = self.records.pop_front()
        {
            self.cut.push_back(record);
            self.first += 1;
        }
        if self.first < below {
            self.first = below;
            self.cut.clear();
        }
    }

    /// A crash brings back so many of the records that were cut off.
    fn revive(&mut self, count: usize) {
        for _ in 0..count {
            let Some(record) = self.cut.pop_back() else { return };
            self.records.push_front(record);
            self.first -= 1;
        }
    }

    fn image(&self, len: u64) -> LogImage {
        LogImage {
            first: self.first,
            records: self.records.iter().cloned().collect(),
            capacity: len,
            record_len_max: (len / 16) as usize,
        }
    }
}

/// The part of a medium that belongs to a worker.
#[derive(Clone, Default, Debug)]
pub(super) struct Stored {
    pub records: BTreeMap<Key, Vec<u8>>,
    pub meta: Option<Meta>,
    pub log: StoredLog,
    pub forgotten: BTreeSet<Shard>,
}

/// Changes of one flush.
#[derive(Default)]
struct Batch {
    ticket: Ticket,
    records: Records,
    meta: Option<Meta>,
    log: LogChanges,
    forgotten: Vec<(Shard, bool)>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.meta.is_none()
            && self.log.is_empty()
            && self.forgotten.is_empty()
    }
}

/// A worker with its part of the medium.
pub(super) struct Worker {
    worker: worker::Worker<Zab>,
    pub stored: Stored,
    batches: VecDeque<Batch>,
    /// Shards known again, to be noted once everything up to a ticket is durable.
    clearing: Vec<(Shard, Ticket)>,
    forgotten: Vec<(Shard, bool)>,
}

impl Deref for Worker {
    type Target = worker::Worker<Zab>;

    fn deref(&self) -> &worker::Worker<Zab> {
        &self.worker
    }
}

impl DerefMut for Worker {
    fn deref_mut(&mut self) -> &mut worker::Worker<Zab> {
        &mut self.worker
    }
}

pub(super) struct Node {
    pub is_up: bool,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    pub sets: ReplicaSets,
    pub lent: Lent,
    pub workers: Vec<Worker>,
    pub own: Vec<OwnLetter>,
}

/// Nodes and their workers, all alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub nodes: usize,
    pub workers: usize,
    pub durable: bool,
    /// Bytes that the log should take at most.
    pub log_len: u64,
}

impl Node {
    pub fn open(
        plan: Plan,
        index: usize,
        (incarnation, amnesia): (Incarnation, AmnesiaCount),
        stored: Vec<Stored>,
        revived: usize,
    ) -> Node {
        let me = node_id(index);
        let ids: Vec<NodeId> = (0..plan.nodes).map(node_id).collect();
        let shared = Arc::default();
        let worker = |(worker, mut stored): (usize, Stored)| {
            stored.log.revive(revived);
            let env = Env {
                worker,
                workers: plan.workers,
                log: stored.log.image(plan.log_len),
                shared: Arc::clone(&shared),
                ..env(me, incarnation, plan.nodes, plan.durable)
            };
            let mut peers = Peers::new(me, incarnation, amnesia, &ids);
            ids.iter().for_each(|&id| peers.set_up(id, true));
            let rng = Prng::new(u64::from(me.0) << 40 | u64::from(incarnation.0));
            let mut worker = worker::Worker::open(env, peers, rng);
            worker.metas.fill(Shard(0), stored.meta.unwrap_or_default());
            worker.fill(&stored.records);
            let (batches, clearing, forgotten) = (VecDeque::new(), Vec::new(), Vec::new());
            Worker { worker, stored, batches, clearing, forgotten }
        };
        Node {
            is_up: true,
            incarnation,
            amnesia,
            sets: ReplicaSets::of_all(Epoch(1), me, &ids),
            lent: Lent::default(),
            workers: stored.into_iter().enumerate().map(worker).collect(),
            own: Vec::new(),
        }
    }

    /// Its votes would survive a crash now.
    pub fn keeps_promises(&self, durable: bool) -> bool {
        let first = &self.workers[0];
        let votes = |meta: &Meta| !meta.has_no_vote;
        let knows = |it: &Worker| (0..=u8::MAX).all(|at| !it.cache.is_forgotten(Shard(at)));
        let lives =
            self.is_up && votes(first.metas.get(Shard(0))) && self.workers.iter().all(knows);
        match durable {
            true => {
                (lives || !self.is_up)
                    && first.stored.meta.as_ref().is_none_or(votes)
                    && self.workers.iter().all(|it| it.stored.forgotten.is_empty())
            }
            false => lives,
        }
    }

    pub fn flushes(&self) -> usize {
        self.workers.iter().map(|it| it.batches.len()).sum()
    }

    /// The process ends. Of each worker, `kept` flushes in progress reached the medium, and a part
    /// of the next.
    pub fn kill(&mut self, kept: usize, part: u64) {
        self.is_up = false;
        self.own.clear();
        for worker in &mut self.workers {
            for _ in 0..kept {
                worker.end_batch();
            }
            if let Some(batch) = worker.batches.pop_front() {
                worker.store(batch, part);
            }
        }
    }
}

impl Worker {
    /// Submits the changes of a turn as one flush.
    pub fn submit(&mut self, durable: bool) {
        let mut batch = Batch { ticket: self.open, ..Batch::default() };
        if !self.metas.take_dirty().is_empty() {
            batch.meta = Some(*self.metas.get(Shard(0)));
        }
        batch.records = take_records(&mut self.cache);
        batch.log = std::mem::take(&mut self.fx.log);
        batch.forgotten = std::mem::take(&mut self.forgotten);
        if !durable || batch.is_empty() {
            return;
        }
        self.batches.push_back(batch);
        self.open_next_ticket();
    }

    /// The oldest flush reaches the medium.
    pub fn end_batch(&mut self) -> bool {
        let Some(batch) = self.batches.pop_front() else { return false };
        self.durable = batch.ticket;
        self.store(batch, u64::MAX);
        let durable = self.durable;
        let known = self.clearing.extract_if(.., |(_, after)| *after <= durable);
        self.forgotten.extend(known.map(|(shard, _)| (shard, false)));
        true
    }

    /// Stores the parts whose bit is set.
    fn store(&mut self, batch: Batch, part: u64) {
        let stored = &mut self.stored;
        if is_stored(part, 63) {
            stored.log.change(batch.log);
        }
        if is_stored(part, 62) {
            stored.meta = batch.meta.or(stored.meta);
        }
        for (shard, is_forgotten) in batch.forgotten {
            match is_forgotten {
                true => stored.forgotten.insert(shard),
                false => is_stored(part, 61) && stored.forgotten.remove(&shard),
            };
        }
        store(&mut stored.records, batch.records, part);
    }

    /// The amnesia count was raised: messages that wait were made under the old one.
    pub fn forget_messages(&mut self, amnesia: AmnesiaCount) -> bool {
        let me = self.peers.own();
        let (node, incarnation) = (me.node, me.incarnation);
        self.gated.clear();
        self.peers.learn(node, incarnation, amnesia)
    }

    /// The protocol is about to hear that a shard is forgotten.
    pub fn forget(&mut self, shard: Shard) {
        self.clearing.retain(|(other, _)| *other != shard);
        self.forgotten.push((shard, true));
        self.cache.set_forgotten(shard, true);
        self.cache.persist_shard(shard);
        if shard == Shard(0) {
            self.metas.persist(shard);
        }
    }

    pub fn recover(&mut self, shard: Shard) {
        if self.cache.is_forgotten(shard) {
            self.cache.set_forgotten(shard, false);
            self.clearing.push((shard, self.open));
        }
    }
}
