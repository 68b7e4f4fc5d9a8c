//! A worker of a node: a protocol, its registers, and the effects that wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Millis, Nanos, Prng};
use types::{AmnesiaCount, Database, Incarnation, Key, NodeId, Outcome, Shard, Tag, Ticket};

use super::asks::Asks;
use super::letter::Letter;
use super::node::Lent;
use crate::effects::{Effects, Scan, Send, TimerId, Violation};
use crate::peers::Peers;
use crate::protocol::{Context, Env, Event, Peer, Protocol, Scanned, ScannedRegister};
use crate::register_cache::{Absence, CachedRegister, Metas, RegisterCache};
use crate::replica_sets::ReplicaSets;
use crate::replicas::Replicas;

pub(super) struct Worker<P: Protocol> {
    pub protocol: P,
    pub cache: RegisterCache<P::Record>,
    pub metas: Metas<P::Meta>,
    pub fx: Effects<P::Message>,
    pub rng: Prng,
    pub peers: Peers,
    pub timers: BTreeSet<(Nanos, TimerId)>,
    pub gated: Vec<Send<P::Message>>,
    pub gated_outcomes: Vec<(Tag, Outcome, Ticket)>,
    pub scans: VecDeque<Scan>,
    pub durable: Ticket,
    pub open: Ticket,
}

impl<P: Protocol> Worker<P> {
    pub fn open(env: Env, peers: Peers, rng: Prng) -> Worker<P> {
        let open = Ticket(u64::from(env.durable));
        let mut worker = Worker {
            protocol: P::open(env),
            cache: RegisterCache::new(Absence::Certain),
            metas: Metas::default(),
            fx: Effects::default(),
            rng,
            peers,
            timers: BTreeSet::new(),
            gated: Vec::new(),
            gated_outcomes: Vec::new(),
            scans: VecDeque::new(),
            durable: Ticket::DURABLE,
            open,
        };
        worker.open_ticket(open);
        worker
    }

    /// Changes are part of this flush from now on.
    fn open_ticket(&mut self, ticket: Ticket) {
        self.open = ticket;
        self.cache.set_open_ticket(ticket);
        self.metas.set_open_ticket(ticket);
        self.fx.open_ticket = ticket;
    }

    pub fn open_next_ticket(&mut self) {
        self.open_ticket(Ticket(self.open.0 + 1));
    }

    /// Fills the cache as a start finds the medium.
    pub fn fill(&mut self, records: &BTreeMap<Key, Vec<u8>>) {
        for (key, bytes) in records {
            let register = types::Wire::from_bytes(bytes).expect("it was written so");
            self.cache.fill(key, Some(register), false);
        }
    }

    pub fn as_peer(&self) -> Peer {
        let me = self.peers.own();
        Peer { node: me.node, incarnation: me.incarnation, amnesia: me.amnesia }
    }

    pub fn losses(&self) -> Vec<(NodeId, AmnesiaCount)> {
        self.peers.nodes().iter().map(|member| (member.node, member.amnesia)).collect()
    }

    /// Learns the counts that a message carries. True if one grew.
    pub fn learn<M>(&mut self, letter: &Letter<M>) -> bool {
        let (me, from) = (self.peers.me(), letter.from);
        let mut grew = false;
        for &(of, amnesia) in letter.losses.iter().filter(|(of, _)| *of != me) {
            grew |= self.peers.learn(of, Incarnation(0), amnesia);
        }
        grew | self.peers.learn(from.node, from.incarnation, from.amnesia)
    }

    pub fn with_context(
        &mut self,
        now: Nanos,
        (sets, lent): (&ReplicaSets, &Lent),
        run: impl FnOnce(&mut P, &mut Context<'_, P>),
    ) {
        let mut cx = crate::Scope {
            now,
            unix: Millis(now.as_millis()),
            uptime: &Millis(now.as_millis()),
            cache: &mut self.cache,
            metas: &mut self.metas,
            fx: &mut self.fx,
            rng: &mut self.rng,
            replicas: Replicas { set: sets.any(), peers: &self.peers },
            sets,
            lease: crate::Lease { leases: lent, database: Database(0) },
            update: &Asks,
        };
        run(&mut self.protocol, &mut cx);
    }

    /// Runs one event. An error names the invariant that it broke.
    pub fn run(
        &mut self,
        now: Nanos,
        (sets, lent): (&ReplicaSets, &Lent),
        shard: Shard,
        event: Event<P>,
    ) -> Result<(), Violation> {
        self.with_context(now, (sets, lent), |protocol, cx| {
            cx.about(shard);
            protocol.on(cx, event);
        });
        self.protocol.check(&self.cache, Replicas { set: sets.any(), peers: &self.peers })
    }

    /// Takes the effects that need not wait. Changes of the log stay.
    pub fn take_effects(&mut self) -> Effects<P::Message> {
        let mut fx = std::mem::take(&mut self.fx);
        self.fx.open_ticket = self.open;
        self.fx.log = std::mem::take(&mut fx.log);
        self.timers.extend(fx.timers.drain(..).map(|(timer, at)| (at, timer)));
        self.scans.extend(fx.scans.drain(..));
        let durable = self.durable;
        self.gated.extend(fx.sends.extract_if(.., |send| send.after > durable));
        self.gated_outcomes.extend(fx.outcomes.extract_if(.., |it| it.2 > durable));
        fx
    }

    /// Takes the effects that waited for a flush.
    pub fn release(&mut self) -> Effects<P::Message> {
        let durable = self.durable;
        let sends = self.gated.extract_if(.., |send| send.after <= durable).collect();
        let outcomes = self.gated_outcomes.extract_if(.., |it| it.2 <= durable).collect();
        Effects { sends, outcomes, ..Effects::default() }
    }

    /// Takes the next timer that is due.
    pub fn take_timer(&mut self, now: Nanos) -> Option<TimerId> {
        let &(at, timer) = self.timers.first()?;
        (at <= now).then(|| self.timers.pop_first())?;
        Some(timer)
    }

    pub fn scan(&self, scan: Scan) -> Scanned<P::Record> {
        let shard = Shard((scan.from_hash >> 56) as u8);
        let (found, next_hash) =
            self.cache.range_step(shard, scan.from_hash, None, scan.limit.max(1));
        let copy = |(key, found): (&Key, CachedRegister<'_, P::Record>)| match found {
            CachedRegister::Present(register) => {
                let (copy, _) = P::copy(register);
                Some((key.clone(), ScannedRegister::Present(copy)))
            }
            CachedRegister::Lost => Some((key.clone(), ScannedRegister::Lost)),
            CachedRegister::Absent => None,
        };
        Scanned { id: scan.id, records: found.into_iter().filter_map(copy).collect(), next_hash }
    }
}

/// The changed registers of a flush. `None`: it was removed.
pub(super) type Records = Vec<(Key, Option<Vec<u8>>)>;

/// Takes the changed registers.
pub(super) fn take_records<R: types::Wire>(cache: &mut RegisterCache<R>) -> Records {
    let mut records = Records::new();
    cache.take_dirty(|key, register, _| {
        records.push((key.clone(), register.map(types::Wire::to_bytes)));
        0
    });
    records
}

/// A medium takes the registers whose bit is set in `part`.
pub(super) fn store(stored: &mut BTreeMap<Key, Vec<u8>>, records: Records, part: u64) {
    for (place, (key, bytes)) in records.into_iter().enumerate() {
        match bytes {
            _ if !is_stored(part, place) => None,
            Some(bytes) => stored.insert(key, bytes),
            None => stored.remove(&key),
        };
    }
}

pub(super) fn is_stored(part: u64, place: usize) -> bool {
    part >> (place % 64) & 1 == 1
}
