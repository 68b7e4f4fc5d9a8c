//! A node: a protocol, its registers, a medium, and the effects that wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::{Nanos, Prng};
use types::{
    AmnesiaCount, Database, Epoch, ImageId, Incarnation, Key, NodeId, Shard, Ticket, Wire,
};

use super::node_id;
use super::worker::{Records, Worker, is_stored, store, take_records};
use crate::effects::Violation;
use crate::group::Leases;
use crate::peers::Peers;
use crate::protocol::{Context, Env, Event, Protocol};
use crate::replica_sets::ReplicaSets;
use crate::request::PutAside;

pub(super) const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(2);

/// The environment of the only worker of a node.
pub(super) fn env(me: NodeId, incarnation: Incarnation, group_size: usize, durable: bool) -> Env {
    Env {
        me,
        incarnation,
        request_timeout: REQUEST_TIMEOUT,
        once_timeout: REQUEST_TIMEOUT,
        compare_every: Nanos::ZERO,
        group_size,
        transient: false,
        durable,
        worker: 0,
        workers: 1,
        log: types::LogImage::default(),
        shared: Arc::default(),
    }
}

/// The lease word of a node: the epoch of the lease that it holds, or zero.
#[derive(Clone, Default, Debug)]
pub(super) struct Lent(Arc<AtomicU32>);

impl Lent {
    pub fn set(&self, epoch: Epoch) {
        self.0.store(epoch.0, Ordering::Relaxed);
    }
}

impl Leases for Lent {
    fn holds(&self, _database: Database, epoch: Epoch) -> bool {
        self.0.load(Ordering::Relaxed) == epoch.0
    }
}

/// Records of one flush.
struct Batch {
    ticket: Ticket,
    records: Records,
    metas: Vec<(Shard, Vec<u8>)>,
}

/// The content of a medium.
#[derive(Clone, Default)]
pub(super) struct Stored {
    records: BTreeMap<Key, Vec<u8>>,
    metas: BTreeMap<Shard, Vec<u8>>,
}

pub(super) struct Node<P: Protocol> {
    pub worker: Worker<P>,
    pub env: Env,
    pub is_up: bool,
    pub incarnation: Incarnation,
    /// The content of the stores, as the membership service names it.
    pub image: ImageId,
    /// The stores are empty, and may begin a copy.
    pub is_blank: bool,
    /// No message of an epoch below leaves.
    pub promised: Epoch,
    pub installed: Epoch,
    pub lent: Lent,
    pub sets: ReplicaSets,
    pub again: VecDeque<PutAside<P::Message>>,
    pub own: VecDeque<P::Message>,
    pub stored: Stored,
    batches: VecDeque<Batch>,
}

/// It has one worker.
impl<P: Protocol> Deref for Node<P> {
    type Target = Worker<P>;

    fn deref(&self) -> &Worker<P> {
        &self.worker
    }
}

impl<P: Protocol> DerefMut for Node<P> {
    fn deref_mut(&mut self) -> &mut Worker<P> {
        &mut self.worker
    }
}

impl<P: Protocol> Node<P> {
    pub fn fresh(
        (index, nodes): (usize, usize),
        group_size: usize,
        (shard, durable): (Shard, bool),
        incarnation: Incarnation,
        image: ImageId,
        seed: u64,
    ) -> Node<P> {
        let me = node_id(index);
        let ids: Vec<NodeId> = (0..nodes).map(node_id).collect();
        let (worker, workers) = (usize::from(shard.0), 256);
        let env = Env { worker, workers, ..env(me, incarnation, group_size, durable) };
        let mut peers = Peers::new(me, incarnation, AmnesiaCount(1), &ids);
        for &id in &ids {
            peers.set_up(id, true);
            peers.learn(id, Incarnation(1), AmnesiaCount(1));
        }
        let rng = Prng::new(seed ^ u64::from(me.0) << 40);
        let mut worker = Worker::open(env.clone(), peers, rng);
        worker.metas.fill(shard, P::Meta::default());
        Node {
            worker,
            env,
            is_up: true,
            incarnation,
            image,
            is_blank: false,
            promised: Epoch(0),
            installed: Epoch(0),
            lent: Lent::default(),
            sets: ReplicaSets::of_all(Epoch(1), me, &ids),
            again: VecDeque::new(),
            own: VecDeque::new(),
            stored: Stored::default(),
            batches: VecDeque::new(),
        }
    }

    pub fn amnesia(&self) -> AmnesiaCount {
        self.peers.own().amnesia
    }

    pub fn set_amnesia(&mut self, amnesia: AmnesiaCount) {
        let (me, incarnation) = (self.peers.me(), self.incarnation);
        self.peers.learn(me, incarnation, amnesia);
    }

    pub fn with_context(&mut self, now: Nanos, run: impl FnOnce(&mut P, &mut Context<'_, P>)) {
        self.worker.with_context(now, (&self.sets, &self.lent), run);
    }

    /// Runs one event. An error names the invariant that it broke.
    pub fn run(&mut self, now: Nanos, shard: Shard, event: Event<P>) -> Result<(), Violation> {
        self.worker.run(now, (&self.sets, &self.lent), shard, event)
    }

    /// Submits the changes of a turn as one flush.
    pub fn submit(&mut self, is_durable: bool) {
        let mut batch = Batch { ticket: self.open, records: Vec::new(), metas: Vec::new() };
        for shard in self.metas.take_dirty() {
            batch.metas.push((shard, self.metas.get(shard).to_bytes()));
        }
        batch.records = take_records(&mut self.cache);
        if !is_durable || (batch.records.is_empty() && batch.metas.is_empty()) {
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
        true
    }

    pub fn flushes(&self) -> usize {
        self.batches.len()
    }

    /// Stores the records whose bit is set in `part`.
    fn store(&mut self, batch: Batch, part: u64) {
        self.stored.metas.extend(batch.metas.into_iter().filter(|_| is_stored(part, 63)));
        store(&mut self.stored.records, batch.records, part);
    }

    pub fn kill(&mut self, kept: usize, part: u64) {
        for _ in 0..kept {
            self.end_batch();
        }
        if let Some(batch) = self.batches.pop_front() {
            self.store(batch, part);
        }
        self.batches.clear();
        self.gated.clear();
        self.gated_outcomes.clear();
        self.again.clear();
        self.scans.clear();
        self.own.clear();
        self.timers.clear();
        self.is_up = false;
        self.lent.set(Epoch(0));
    }

    /// Fills the cache as a start finds the medium.
    pub fn load(&mut self, stored: Stored) {
        self.fill(&stored.records);
        for (shard, bytes) in &stored.metas {
            *self.metas.get_mut(*shard) = P::Meta::from_bytes(bytes).expect("it was written so");
        }
        self.stored = stored;
    }
}
