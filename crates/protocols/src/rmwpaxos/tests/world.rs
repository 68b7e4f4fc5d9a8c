//! Engines, their storage, and a bag of messages between them.

mod denials;
mod expiries;
mod holds;
mod listings;
mod payloads;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use base::{Millis, Nanos, Prng};
use checker::history::{ClientId, History, OpId};
use checker::model::kv::{KvInput, KvOutput};
use types::{
    AmnesiaCount, Epoch, Incarnation, Key, Lock, NodeId, Outcome, Reply, Round, SessionId, Shard,
    Tag, Ticket, Wire,
};

use super::strings::{Ask, Line, Strings};
use crate::effects::{Effects, Send, TimerId};
use crate::mutation::{self, Mutation};
use crate::peers::Peers;
use crate::protocol::{Context, Env, Event, Peer, Protocol, Request, Scanned, ScannedRegister};
use crate::register_cache::{Absence, CachedRegister, Metas, RegisterCache};
use crate::replica_sets::ReplicaSets;
use crate::replicas::Replicas;
use crate::rmwpaxos::{Message, Register, RmwPaxos, ShardMeta};

const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(20);
pub(super) const ONCE_TIMEOUT: Nanos = Nanos::from_secs(10);

/// A message in flight.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub from: Peer,
    pub to: NodeId,
    pub losses: Vec<(NodeId, AmnesiaCount)>,
    pub message: Message,
}

/// Variants of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// Nodes ask their own acceptors by messages, which may be late.
    pub by_message: bool,
    /// Every proposal on a base with a value is a delta.
    pub always_deltas: bool,
    /// Fast paths, deletion and services are switched off.
    pub core_alone: bool,
}

/// One operation of a client that sends it again and again.
struct Repeated {
    op: OpId,
    ask: Ask,
    sent: usize,
    /// Transmissions that surely had no effect.
    denied: usize,
    told: Option<Reply>,
}

/// Records of one flush.
struct Batch {
    ticket: Ticket,
    records: Vec<(Key, Option<Vec<u8>>)>,
    metas: Vec<(Shard, Vec<u8>)>,
}

pub(super) struct Node {
    pub protocol: RmwPaxos,
    pub cache: RegisterCache<Register>,
    pub metas: Metas<ShardMeta>,
    fx: Effects<Message>,
    rng: Prng,
    pub sets: ReplicaSets,
    pub peers: Peers,
    pub timers: BTreeSet<(Nanos, TimerId)>,
    /// How far this node's clocks run ahead of the others'.
    pub ahead: Millis,
    /// How far its uptime has fallen back, over all its crashes.
    pub behind: Millis,
    gated: Vec<Send<Message>>,
    disowned: Vec<(Shard, Option<Key>)>,
    scanned: Vec<Scanned<Register>>,
    /// Scans are answered late.
    pub scans_wait: bool,
    pub stored_records: BTreeMap<Key, Vec<u8>>,
    stored_metas: BTreeMap<Shard, Vec<u8>>,
    batches: Vec<Batch>,
    durable: Ticket,
    open: Ticket,
}

pub(super) struct World {
    pub now: Nanos,
    /// The time that requests wait in their node before the protocol sees them.
    pub parked: Nanos,
    pub nodes: Vec<Node>,
    pub bag: Vec<Envelope>,
    pub durable: bool,
    /// A medium may go back. Otherwise no node has a reason to disbelieve itself.
    pub takes_back: bool,
    pub key: Key,
    /// Another key of the same shard: its removal raises floors that `key` lives with.
    pub neighbour: Key,
    pub outcomes: BTreeMap<Tag, Outcome>,
    asked: BTreeMap<Tag, (Key, Ask, OpId)>,
    listings: BTreeMap<Tag, listings::Listing>,
    holds: BTreeMap<Tag, Option<Outcome>>,
    /// Locks that commands wait for, by their nodes.
    pub locked: Vec<(usize, Lock)>,
    /// Nodes that were told of a record.
    pub recorded: Vec<usize>,
    /// By node, the incarnation below which a fence shut it out.
    pub fenced: BTreeMap<usize, Incarnation>,
    /// The node, and the start of its process, that must answer.
    asked_at: BTreeMap<Tag, (usize, Incarnation)>,
    histories: BTreeMap<Key, History<KvInput, KvOutput>>,
    /// Operations that may be transmitted several times.
    repeated: BTreeMap<(Key, Line), Repeated>,
    rounds: BTreeMap<(Key, Round), Vec<u8>>,
    expiries: Vec<(Nanos, Key, Tag)>,
    next_tag: u64,
    clock: u64,
    /// Histories that the checker gave up on.
    pub undecided: u64,
    ways: Ways,
    /// The message in delivery describes its sender's present register.
    holds_what_it_says: bool,
    /// The first fault.
    pub fault: Option<String>,
}

impl World {
    /// A world in which a node's own acceptor is one like any other: messages to it may be late or
    /// lost.
    pub(super) fn new(members: u16, durable: bool, seed: u64) -> World {
        World::with(
            members,
            durable,
            seed,
            Ways { by_message: true, always_deltas: false, core_alone: false },
        )
    }

    pub(super) fn with(members: u16, durable: bool, seed: u64, ways: Ways) -> World {
        let key = Key::new(b"key");
        let neighbour = (0..)
            .map(|n: u32| Key::new(format!("neighbour-{n}").as_bytes()))
            .find(|other| other.shard() == key.shard())
            .expect("one key in 256 lies in the shard");
        let mut world = World {
            now: Nanos::from_secs(1),
            nodes: Vec::new(),
            bag: Vec::new(),
            durable,
            takes_back: false,
            key,
            neighbour,
            outcomes: BTreeMap::new(),
            asked: BTreeMap::new(),
            listings: BTreeMap::new(),
            holds: BTreeMap::new(),
            locked: Vec::new(),
            recorded: Vec::new(),
            fenced: BTreeMap::new(),
            asked_at: BTreeMap::new(),
            histories: BTreeMap::new(),
            repeated: BTreeMap::new(),
            rounds: BTreeMap::new(),
            expiries: Vec::new(),
            next_tag: 0,
            clock: 0,
            undecided: 0,
            ways,
            parked: Nanos::ZERO,
            holds_what_it_says: false,
            fault: None,
        };
        let ids: Vec<NodeId> = (1..=members).map(NodeId).collect();
        for &id in &ids {
            let node = world.fresh_node(id, Incarnation(1), AmnesiaCount(1), &ids, seed);
            world.nodes.push(node);
        }
        // Connections have exchanged the nodes' counters.
        for node in &mut world.nodes {
            ids.iter().for_each(|&id| _ = node.peers.learn(id, Incarnation(1), AmnesiaCount(1)));
        }
        world
    }

    fn fresh_node(
        &self,
        me: NodeId,
        incarnation: Incarnation,
        amnesia: AmnesiaCount,
        ids: &[NodeId],
        seed: u64,
    ) -> Node {
        let env = Env {
            me,
            incarnation,
            request_timeout: REQUEST_TIMEOUT,
            once_timeout: ONCE_TIMEOUT,
            compare_every: Nanos::ZERO,
            group_size: ids.len(),
            transient: false,
            durable: self.durable,
            worker: usize::from(self.key.shard().0),
            workers: 256,
            log: types::LogImage::default(),
            shared: std::sync::Arc::default(),
        };
        let sets = ReplicaSets::of_all(Epoch(1), me, ids);
        let mut peers = Peers::new(me, incarnation, amnesia, ids);
        ids.iter().for_each(|&id| peers.set_up(id, true));
        let mut metas = Metas::default();
        metas.fill(self.key.shard(), ShardMeta::default());
        let mut node = Node {
            protocol: RmwPaxos::open(env),
            cache: RegisterCache::new(Absence::Certain),
            metas,
            fx: Effects::default(),
            rng: Prng::new(seed ^ u64::from(me.0) << 32 ^ u64::from(incarnation.0)),
            sets,
            peers,
            timers: BTreeSet::new(),
            ahead: Millis(0),
            behind: Millis(0),
            gated: Vec::new(),
            disowned: Vec::new(),
            scanned: Vec::new(),
            scans_wait: false,
            stored_records: BTreeMap::new(),
            stored_metas: BTreeMap::new(),
            batches: Vec::new(),
            durable: Ticket::DURABLE,
            open: Ticket(u64::from(self.durable)),
        };
        node.protocol.core.by_message = self.ways.by_message;
        node.protocol.parts.deltas.always = self.ways.always_deltas;
        node.protocol.core_alone = self.ways.core_alone;
        node.cache.set_open_ticket(node.open);
        node.metas.set_open_ticket(node.open);
        node
    }

    pub(super) fn index(&self, node: NodeId) -> usize {
        usize::from(node.0) - 1
    }

    /// Starts a client's operation at a node.
    pub(super) fn ask(&mut self, node: usize, key: &Key, ask: Ask) -> Tag {
        self.ask_behind(node, key, ask, None)
    }

    /// As [`ask`](World::ask), in the session that asked `former`.
    pub(super) fn ask_behind(
        &mut self,
        node: usize,
        key: &Key,
        ask: Ask,
        former: Option<Tag>,
    ) -> Tag {
        self.next_tag += 1;
        let tag = Tag(self.next_tag);
        let session = SessionId(former.map_or(tag.0, |former| former.0));
        let start = self.nodes[node].peers.own();
        self.asked_at.insert(tag, (node, start.incarnation));
        let op = self.invoke(key, &ask, tag);
        if let Ask::Expiring { millis, .. } = ask {
            self.watch_expiry(key.clone(), tag, millis);
        }
        self.asked.insert(tag, (key.clone(), ask.clone(), op));
        let command = ask.command();
        let asked_at = self.now - self.parked;
        let request = Request { tag, session, key: key.clone(), command, asked_at };
        self.step(node, Event::Request(request));
        tag
    }

    /// A repeated line is the same operation.
    fn invoke(&mut self, key: &Key, ask: &Ask, tag: Tag) -> OpId {
        let named = ask.line().map(|line| (key.clone(), line));
        if let Some(known) = named.as_ref().and_then(|named| self.repeated.get_mut(named)) {
            assert_eq!(known.ask, *ask, "a line is used for one command only");
            known.sent += 1;
            return known.op;
        }
        self.clock += 1;
        let history = self.histories.entry(key.clone()).or_default();
        let op = history.invoke(ClientId(tag.0), ask.input(tag.0), self.clock);
        if let Some(named) = named {
            let repeated = Repeated { op, ask: ask.clone(), sent: 1, denied: 0, told: None };
            self.repeated.insert(named, repeated);
        }
        op
    }

    /// Lines that have been sent so far.
    pub(super) fn lines(&self, key: &Key) -> Vec<Ask> {
        let of_key = |((of, _), it): (&(Key, Line), &Repeated)| (of == key).then(|| it.ask.clone());
        self.repeated.iter().filter_map(of_key).collect()
    }

    /// Runs one event, then the end of the turn.
    pub(super) fn step(&mut self, index: usize, event: Event<RmwPaxos>) {
        self.run(index, event);
        self.run(index, Event::Turn);
        while !self.nodes[index].scans_wait
            && let Some(scanned) = self.nodes[index].scanned.pop()
        {
            self.run(index, Event::Scanned(scanned));
            self.run(index, Event::Turn);
        }
        self.submit(index);
        for (shard, key) in std::mem::take(&mut self.nodes[index].disowned) {
            self.disown(index, shard, key);
        }
    }

    /// Drops the shard's stored registers and its unsent messages, and raises the amnesia count.
    fn disown(&mut self, index: usize, shard: Shard, key: Option<Key>) {
        let node = &mut self.nodes[index];
        node.gated.clear();
        if let Some(key) = key {
            node.cache.lose(&key);
        }
        self.forget(index, shard);
    }

    fn run(&mut self, index: usize, event: Event<RmwPaxos>) {
        self.with_context(index, |protocol, cx| protocol.on(cx, event));
        let node = &self.nodes[index];
        if let Err(violation) =
            node.protocol.check(&node.cache, Replicas { set: node.sets.any(), peers: &node.peers })
        {
            self.fault.get_or_insert(violation.0);
        }
        self.note_accepted(index);
        self.carry_out(index);
    }

    fn carry_out(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let fx = std::mem::take(&mut node.fx);
        if let Some(violation) = fx.violation {
            self.fault.get_or_insert(violation.0);
        }
        self.locked.extend(fx.locked.into_iter().map(|(_, lock)| (index, lock)));
        self.recorded.extend(fx.records.iter().map(|_| index));
        self.fenced.extend(fx.fenced.map(|below| (index, below)));
        node.timers.extend(fx.timers.into_iter().map(|(timer, at)| (at, timer)));
        self.find_false_denial(index, &fx.sends);
        let node = &mut self.nodes[index];
        let registers = fx.disowned.into_iter().map(|key| (key.shard(), Some(key)));
        let shards = fx.forgotten.into_iter().map(|shard| (shard, None));
        let disowned: Vec<_> = registers.chain(shards).collect();
        if !disowned.is_empty() && !self.takes_back {
            self.fault.get_or_insert(format!("{index} disbelieves itself: {:?}", fx.warnings));
        }
        node.disowned.extend(disowned);
        for shard in fx.recovered {
            node.cache.set_forgotten(shard, false);
        }
        for scan in fx.scans {
            let shard = Shard((scan.from_hash >> 56) as u8);
            let (found, next_hash) =
                node.cache.range_step(shard, scan.from_hash, None, scan.limit.max(1));
            let records = found
                .into_iter()
                .filter_map(|(key, found)| match found {
                    CachedRegister::Present(register) => {
                        Some((key.clone(), ScannedRegister::Present(register.clone())))
                    }
                    CachedRegister::Lost => Some((key.clone(), ScannedRegister::Lost)),
                    CachedRegister::Absent => None,
                })
                .collect();
            node.scanned.push(Scanned { id: scan.id, records, next_hash });
        }
        let durable = node.durable;
        let (free, gated): (Vec<_>, Vec<_>) =
            fx.sends.into_iter().partition(|send| send.after <= durable);
        node.gated.extend(gated);
        for send in free {
            self.post(index, send);
        }
        for (tag, outcome, _) in fx.outcomes {
            self.complete(tag, outcome);
        }
    }

    fn post(&mut self, index: usize, send: Send<Message>) {
        self.note_payload(&send.message);
        let peers = &self.nodes[index].peers;
        let me = peers.own();
        let from = Peer { node: me.node, incarnation: me.incarnation, amnesia: me.amnesia };
        let losses = peers.nodes().iter().map(|member| (member.node, member.amnesia)).collect();
        self.bag.push(Envelope { from, to: send.to, losses, message: send.message });
    }

    pub(super) fn complete(&mut self, tag: Tag, outcome: Outcome) {
        if self.complete_hold(tag, &outcome) {
            return;
        }
        let Some((key, ask, op)) = self.asked.get(&tag) else {
            return self.complete_listing(tag, outcome);
        };
        if self.outcomes.contains_key(&tag) {
            self.fault.get_or_insert(format!("{tag:?} was answered twice"));
            return;
        }
        if let Some(line) = ask.line() {
            let named = (key.clone(), line);
            self.outcomes.insert(tag, outcome.clone());
            return self.complete_repeated(&named, &outcome);
        }
        self.clock += 1;
        let history = self.histories.get_mut(key).expect("it was asked");
        let told = match &outcome {
            Outcome::Reply(reply) => checker::Outcome::Returned(ask.output(reply)),
            Outcome::NoQuorum | Outcome::Loading => checker::Outcome::Failed,
            Outcome::Unknown => checker::Outcome::Unknown,
            other => panic!("{other:?} is no outcome of these tests"),
        };
        history.complete(*op, told, self.clock);
        self.outcomes.insert(tag, outcome);
    }

    /// The first definite answer to any transmission is the answer, and all others must be the
    /// same. [corrections F9]
    fn complete_repeated(&mut self, named: &(Key, Line), outcome: &Outcome) {
        let repeated = self.repeated.get_mut(named).expect("it was sent");
        match outcome {
            Outcome::Refused(_) => repeated.denied += 1,
            Outcome::NoQuorum | Outcome::Loading => repeated.denied += 1,
            Outcome::Reply(reply) => match &repeated.told {
                Some(told) if told != reply => {
                    let fault = format!("{named:?}: first {told:?}, then {reply:?}");
                    self.fault.get_or_insert(fault);
                }
                Some(_) => {}
                None => {
                    repeated.told = Some(reply.clone());
                    self.clock += 1;
                    let history = self.histories.get_mut(&named.0).expect("it was sent");
                    let told = checker::Outcome::Returned(repeated.ask.output(reply));
                    history.complete(repeated.op, told, self.clock);
                }
            },
            _ => {}
        }
    }

    fn submit(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let mut batch = Batch { ticket: node.open, records: Vec::new(), metas: Vec::new() };
        for shard in node.metas.take_dirty() {
            batch.metas.push((shard, node.metas.get(shard).to_bytes()));
        }
        node.cache.take_dirty(|key, register, _| {
            batch.records.push((key.clone(), register.map(|register| register.to_bytes())));
            0
        });
        if !self.durable || (batch.records.is_empty() && batch.metas.is_empty()) {
            return;
        }
        node.batches.push(batch);
        node.open = Ticket(node.open.0 + 1);
        node.cache.set_open_ticket(node.open);
        node.metas.set_open_ticket(node.open);
    }

    /// Ends the oldest flush in progress.
    pub(super) fn flush(&mut self, index: usize) -> bool {
        let node = &mut self.nodes[index];
        if node.batches.is_empty() {
            return false;
        }
        let batch = node.batches.remove(0);
        node.durable = batch.ticket;
        node.store(batch);
        let durable = node.durable;
        let (free, gated) = node.gated.drain(..).partition(|send| send.after <= durable);
        node.gated = gated;
        let free: Vec<Send<Message>> = free;
        free.into_iter().for_each(|send| self.post(index, send));
        true
    }

    /// Kills the process and restarts it at once. `kept` of its flushes in progress had reached the
    /// medium.
    pub(super) fn crash(&mut self, index: usize, kept: usize) {
        let old = &mut self.nodes[index];
        let kept: Vec<Batch> = old.batches.drain(..kept.min(old.batches.len())).collect();
        for batch in kept {
            old.store(batch);
        }
        let ids: Vec<NodeId> = old.sets.any().nodes().to_vec();
        let me = *old.peers.own();
        let (records, metas) = (old.stored_records.clone(), old.stored_metas.clone());
        let incarnation = Incarnation(me.incarnation.0 + 1);
        let amnesia = AmnesiaCount(me.amnesia.0 + u32::from(!self.durable));
        let mut node = self.fresh_node(me.node, incarnation, amnesia, &ids, self.clock);
        if self.durable {
            for (key, bytes) in &records {
                let register = Register::from_bytes(bytes).expect("it was written so");
                node.cache.put(key, register);
            }
            for (shard, bytes) in &metas {
                *node.metas.get_mut(*shard) = ShardMeta::from_bytes(bytes).expect("written so");
            }
            node.stored_records = records;
            node.stored_metas = metas;
        }
        self.nodes[index] = node;
        let shard = self.key.shard();
        if self.durable {
            self.with_context(index, |protocol, cx| protocol.on_meta_loaded(cx, shard));
        } else if !mutation::is(Mutation::NoRecovery) {
            self.nodes[index].cache.set_forgotten(shard, true);
            self.step(index, Event::Forgotten { shard });
        }
        for other in (0..self.nodes.len()).filter(|&other| other != index) {
            self.nodes[other].peers.learn(me.node, incarnation, AmnesiaCount(0));
            self.step(other, Event::PeerReset { node: me.node });
            self.step(other, Event::PeerUp { node: me.node });
        }
    }

    /// Damages a register in memory. Its shard is forgotten once the amnesia count is raised.
    pub(super) fn forget_anew(&mut self, index: usize, key: &Key) {
        let shard = key.shard();
        self.nodes[index].cache.remove(key);
        self.forget(index, shard);
    }

    /// The process restarts and finds the shard's fields damaged. The shard is forgotten once the
    /// amnesia count is raised.
    pub(super) fn crash_without_fields(&mut self, index: usize) {
        let shard = self.key.shard();
        self.nodes[index].stored_metas.remove(&shard);
        let kept = self.nodes[index].batches.len();
        assert_eq!(kept, 0, "all was flushed");
        self.crash(index, 0);
        self.with_context(index, |protocol, cx| protocol.on_meta_lost(cx, shard));
        self.forget(index, shard);
    }

    fn forget(&mut self, index: usize, shard: Shard) {
        self.submit(index);
        let node = &mut self.nodes[index];
        let me = *node.peers.own();
        node.peers.learn(me.node, me.incarnation, AmnesiaCount(me.amnesia.0 + 1));
        node.cache.set_forgotten(shard, true);
        self.step(index, Event::Forgotten { shard });
    }

    fn with_context(
        &mut self,
        index: usize,
        run: impl FnOnce(&mut RmwPaxos, &mut Context<'_, RmwPaxos>),
    ) {
        let now = self.now;
        let node = &mut self.nodes[index];
        let mut cx = crate::Scope {
            now,
            unix: Millis(now.as_millis() + node.ahead.0),
            uptime: &Millis(now.as_millis() + node.ahead.0 - node.behind.0),
            cache: &mut node.cache,
            metas: &mut node.metas,
            fx: &mut node.fx,
            rng: &mut node.rng,
            replicas: Replicas { set: node.sets.any(), peers: &node.peers },
            sets: &node.sets,
            lease: crate::Lease::NONE,
            update: &Strings,
        };
        run(&mut node.protocol, &mut cx);
    }

    /// Delivers a message as a worker would: crash vectors first, then the message unless it is
    /// void.
    pub(super) fn deliver(&mut self, envelope: Envelope) {
        self.holds_what_it_says = self.is_held_as_said(&envelope);
        let Envelope { from, to, losses, message } = envelope;
        let index = self.index(to);
        let peers = &mut self.nodes[index].peers;
        let me = peers.me();
        let mut grew = false;
        for (node, amnesia) in losses {
            if node != me {
                grew |= peers.learn(node, Incarnation(0), amnesia);
            }
        }
        if from.node != me {
            grew |= peers.learn(from.node, from.incarnation, from.amnesia);
        }
        let known = *peers.get(from.node).expect("all are members");
        if grew {
            self.step(index, Event::ViewChanged);
        }
        let is_void = from.amnesia < known.amnesia && !mutation::is(Mutation::NoCrashVector);
        let is_dead = from.incarnation < known.incarnation && from.node == me;
        if !is_void && !is_dead {
            self.step(index, Event::Peer { from, message });
        }
        self.holds_what_it_says = false;
    }

    /// Lets time pass and fires due timers.
    pub(super) fn pass(&mut self, span: Nanos) {
        self.now += span;
        self.place_expiries();
        (0..self.nodes.len()).for_each(|index| self.fire(index));
    }

    /// Fires the timers of one node that are due.
    pub(super) fn fire(&mut self, index: usize) {
        while let Some(&(at, timer)) = self.nodes[index].timers.first() {
            if at > self.now {
                break;
            }
            self.nodes[index].timers.pop_first();
            self.step(index, Event::Timer(timer));
        }
    }

    pub(super) fn is_open(&self, tag: Tag) -> bool {
        !self.outcomes.contains_key(&tag)
    }

    /// Delivers messages, flushes and passes time until all nodes are at rest. False if they never
    /// are.
    pub(super) fn settle(&mut self) -> bool {
        for _ in 0..20_000 {
            if self.fault.is_some() {
                return true;
            }
            if !self.bag.is_empty() {
                let envelope = self.bag.remove(0);
                self.deliver(envelope);
                continue;
            }
            let flushed = (0..self.nodes.len()).fold(false, |any, node| self.flush(node) | any);
            if !flushed {
                if self.nodes.iter().all(Node::is_at_rest) {
                    self.find_unanswered();
                    return true;
                }
                self.pass(Nanos::from_millis(5));
            }
        }
        false
    }

    pub(super) fn value_of(&self, tag: Tag) -> Option<&Outcome> {
        self.outcomes.get(&tag)
    }
}

impl Node {
    fn store(&mut self, batch: Batch) {
        for (shard, bytes) in batch.metas {
            self.stored_metas.insert(shard, bytes);
        }
        for (key, bytes) in batch.records {
            match bytes {
                Some(bytes) => self.stored_records.insert(key, bytes),
                None => self.stored_records.remove(&key),
            };
        }
    }

    pub(super) fn register(&self, key: &Key) -> Option<&Register> {
        match self.cache.get(key) {
            CachedRegister::Present(register) => Some(register),
            CachedRegister::Absent | CachedRegister::Lost => None,
        }
    }

    fn is_at_rest(&self) -> bool {
        self.protocol.core.actives().is_empty() && self.protocol.parts.lists.is_empty()
    }

    pub(super) fn is_recovering(&self) -> bool {
        !self.protocol.parts.recovery.is_idle()
    }
}
