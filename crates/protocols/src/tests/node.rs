//! A node: a protocol, its registers, a medium, and the effects that wait for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::{Nanos, Prng};
use types::{
    AmnesiaCount, Database, Epoch, ImageId, Incarnation, Key, NodeId, Outcome, Shard, Tag, Ticket,
    Wire,
};

use super::{REQUEST_TIMEOUT, no_lease, node_id};
use crate::effects::{Effects, Scan, Send, TimerId};
use crate::group::Leases;
use crate::peers::Peers;
use crate::protocol::{Env, Peer, Protocol};
use crate::register_cache::{Absence, Metas, RegisterCache};
use crate::replica_sets::ReplicaSets;
use crate::request::PutAside;

#[derive(Clone, Debug)]
pub(super) struct Lent(pub Arc<AtomicU32>);

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
    records: Vec<(Key, Option<Vec<u8>>)>,
    metas: Vec<(Shard, Vec<u8>)>,
}

/// The content of a medium.
#[derive(Clone, Default)]
pub(super) struct Stored {
    records: BTreeMap<Key, Vec<u8>>,
    metas: BTreeMap<Shard, Vec<u8>>,
}

pub(super) struct Node<P: Protocol> {
    pub protocol: P,
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
    pub cache: RegisterCache<P::Record>,
    pub metas: Metas<P::Meta>,
    pub fx: Effects<P::Message>,
    pub rng: Prng,
    pub sets: ReplicaSets,
    pub peers: Peers,
    pub timers: BTreeSet<(Nanos, TimerId)>,
    pub gated: Vec<Send<P::Message>>,
    pub gated_outcomes: Vec<(Tag, Outcome, Ticket)>,
    pub again: VecDeque<PutAside<P::Message>>,
    pub scans: VecDeque<Scan>,
    pub own: VecDeque<P::Message>,
    pub stored: Stored,
    batches: VecDeque<Batch>,
    pub durable: Ticket,
    pub open: Ticket,
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
        let env = Env {
            me,
            incarnation,
            request_timeout: REQUEST_TIMEOUT,
            once_timeout: REQUEST_TIMEOUT,
            compare_every: Nanos::ZERO,
            group_size,
            transient: false,
            durable,
            worker: usize::from(shard.0),
            workers: 256,
            log: types::LogImage::default(),
            shared: Arc::default(),
        };
        let mut peers = Peers::new(me, incarnation, AmnesiaCount(1), &ids);
        for &id in &ids {
            peers.set_up(id, true);
            peers.learn(id, Incarnation(1), AmnesiaCount(1));
        }
        let mut metas = Metas::default();
        metas.fill(shard, P::Meta::default());
        let mut node = Node {
            protocol: P::open(env.clone()),
            env,
            is_up: true,
            incarnation,
            image,
            is_blank: false,
            promised: Epoch(0),
            installed: Epoch(0),
            lent: no_lease(),
            cache: RegisterCache::new(Absence::Certain),
            metas,
            fx: Effects::default(),
            rng: Prng::new(seed ^ u64::from(me.0) << 40),
            sets: ReplicaSets::of_all(Epoch(1), me, &ids),
            peers,
            timers: BTreeSet::new(),
            gated: Vec::new(),
            gated_outcomes: Vec::new(),
            again: VecDeque::new(),
            scans: VecDeque::new(),
            own: VecDeque::new(),
            stored: Stored::default(),
            batches: VecDeque::new(),
            durable: Ticket::DURABLE,
            open: Ticket(u64::from(durable)),
        };
        node.open_ticket();
        node
    }

    fn open_ticket(&mut self) {
        self.cache.set_open_ticket(self.open);
        self.metas.set_open_ticket(self.open);
        self.fx.open_ticket = self.open;
    }

    pub fn as_peer(&self) -> Peer {
        let me = self.peers.own();
        Peer { node: me.node, incarnation: self.incarnation, amnesia: me.amnesia }
    }

    pub fn amnesia(&self) -> AmnesiaCount {
        self.peers.own().amnesia
    }

    pub fn set_amnesia(&mut self, amnesia: AmnesiaCount) {
        let me = self.peers.me();
        self.peers.learn(me, self.incarnation, amnesia);
    }

    pub fn losses(&self) -> Vec<(NodeId, AmnesiaCount)> {
        self.peers.nodes().iter().map(|member| (member.node, member.amnesia)).collect()
    }

    /// Submits the changes of a turn as one flush.
    pub fn submit(&mut self, is_durable: bool) {
        let mut batch = Batch { ticket: self.open, records: Vec::new(), metas: Vec::new() };
        for shard in self.metas.take_dirty() {
            batch.metas.push((shard, self.metas.get(shard).to_bytes()));
        }
        self.cache.take_dirty(|key, register, _| {
            batch.records.push((key.clone(), register.map(Wire::to_bytes)));
            0
        });
        if !is_durable || (batch.records.is_empty() && batch.metas.is_empty()) {
            return;
        }
        self.batches.push_back(batch);
        self.open = Ticket(self.open.0 + 1);
        self.open_ticket();
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
        let is_stored = |place: usize| part >> (place % 64) & 1 == 1;
        self.stored.metas.extend(batch.metas.into_iter().filter(|_| is_stored(63)));
        for (place, (key, bytes)) in batch.records.into_iter().enumerate() {
            match bytes {
                _ if !is_stored(place) => None,
                Some(bytes) => self.stored.records.insert(key, bytes),
                None => self.stored.records.remove(&key),
            };
        }
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
        for (key, bytes) in &stored.records {
            let register = P::Record::from_bytes(bytes).expect("it was written so");
            self.cache.fill(key, Some(register), false);
        }
        for (shard, bytes) in &stored.metas {
            *self.metas.get_mut(*shard) = P::Meta::from_bytes(bytes).expect("it was written so");
        }
        self.stored = stored;
    }
}
