//! A world for any protocol in tests: nodes with media in memory, a network that misbehaves, and
//! clients. Its membership service obeys the contract of `docs/protocols/membership.md`.
//!
//! `explore` draws schedules at random. `schedules` plays those that single mutants need, by the
//! `steps` that all hand-made schedules share.

mod asks;
mod bounds;
mod chains;
mod damage;
mod explore;
mod forgotten;
mod full_turns;
mod groups;
mod hot_keys;
mod letter;
mod lives;
mod mutants;
mod node;
mod proposers;
mod readiness;
mod repeats;
mod reviewed;
mod schedules;
mod steps;
mod template;
mod tombstones;
mod traps;
mod upkeep;
mod verdict;
mod worker;
mod zab;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base::{Nanos, Prng};
use checker::history::{ClientId, History, OpId};
use checker::model::kv::{KvInput, KvOutput};
use types::{AmnesiaCount, Incarnation, Key, NodeId, Outcome, SessionId, Shard, Tag};

use crate::protocol::{Context, Event, Peer, Protocol, Request};
use crate::request::PutAside;

use asks::Ask;
use groups::Service;
use letter::Letter;
use node::Node;

struct Asked {
    node: usize,
    incarnation: Incarnation,
    key: Key,
    ask: Ask,
    op: OpId,
}

struct World<P: Protocol> {
    now: Nanos,
    nodes: Vec<Node<P>>,
    bag: Vec<Letter<P::Message>>,
    durable: bool,
    /// Members that the group wants.
    group_size: usize,
    /// Messages of a node to itself wait to be delivered, as behind a slow load.
    are_own_late: bool,
    /// Draws whether a turn goes on with a further event. `None`: it never does.
    long_turns: Option<Prng>,
    keys: Vec<Key>,
    service: Service,
    outcomes: BTreeMap<Tag, Outcome>,
    /// Nodes that others reported, each with its reporter.
    suspects: Vec<(usize, NodeId)>,
    asked: BTreeMap<Tag, Asked>,
    histories: BTreeMap<Key, History<KvInput, KvOutput>>,
    clock: u64,
    fault: Option<String>,
    trace: Option<String>,
}

impl<P: Protocol> World<P> {
    /// Nodes without a configuration.
    fn new(nodes: usize, durable: bool, seed: u64) -> World<P> {
        World::with_group((nodes, nodes), durable, seed)
    }

    /// Nodes whose group wants so many members.
    fn with_group((nodes, group_size): (usize, usize), durable: bool, seed: u64) -> World<P> {
        let first = Key::new(b"key");
        let same_shard = |key: &Key| key.shard() == first.shard();
        let others = (0..).map(|n: u32| Key::new(format!("other-{n}").as_bytes()));
        let other = others.into_iter().find(same_shard).expect("one key in 256 lies in the shard");
        let mut world = World {
            now: Nanos::from_secs(1),
            nodes: Vec::new(),
            bag: Vec::new(),
            durable,
            group_size,
            are_own_late: false,
            long_turns: None,
            keys: vec![first, other],
            service: Service::new(nodes),
            outcomes: BTreeMap::new(),
            suspects: Vec::new(),
            asked: BTreeMap::new(),
            histories: BTreeMap::new(),
            clock: 0,
            fault: None,
            trace: None,
        };
        let shard = world.shard();
        for index in 0..nodes {
            let image = world.service.new_image();
            let (place, kind) = ((index, nodes), (shard, durable));
            let node = Node::fresh(place, group_size, kind, Incarnation(1), image, seed);
            world.nodes.push(node);
        }
        world
    }

    fn shard(&self) -> Shard {
        self.keys[0].shard()
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            _ = writeln!(trace, "{} {}", self.now.as_millis(), text());
        }
    }

    fn fail(&mut self, text: String) {
        self.note(|| format!("FAULT {text}"));
        self.fault.get_or_insert(text);
    }

    /// A client asks a node that is up.
    fn ask(&mut self, index: usize, key: usize, ask: Ask) -> Tag {
        let request = self.request(index, key, ask);
        let tag = request.tag;
        self.step(index, Event::Request(request));
        tag
    }

    fn request(&mut self, index: usize, key: usize, ask: Ask) -> Request {
        self.clock += 1;
        let tag = Tag(self.clock);
        let key = self.keys[key].clone();
        let history = self.histories.entry(key.clone()).or_default();
        let op = history.invoke(ClientId(tag.0), ask.input(), self.clock);
        self.note(|| format!("node {index}: {tag:?} asks {ask:?} of {key:?}"));
        let incarnation = self.nodes[index].incarnation;
        let command = ask.command();
        self.asked.insert(tag, Asked { node: index, incarnation, key: key.clone(), ask, op });
        let session = SessionId(tag.0);
        Request { tag, session, key, command, asked_at: self.now }
    }

    /// Runs one event and the turn that it begins, unless the turn goes on.
    fn step(&mut self, index: usize, event: Event<P>) {
        self.run(index, event);
        if self.long_turns.as_mut().is_none_or(|rng| rng.below(2) != 0) {
            self.go_on(index);
        }
    }

    fn go_on(&mut self, index: usize) {
        self.run(index, Event::Turn);
        for _ in 0..10_000 {
            let is_late = self.are_own_late;
            let node = &mut self.nodes[index];
            let event = if let Some(input) = node.again.pop_front() {
                match input {
                    PutAside::Message { from, message } => Event::Peer { from, message },
                    PutAside::Request(request) => Event::Request(request),
                }
            } else if let Some(scan) = node.scans.pop_front() {
                Event::Scanned(node.scan(scan))
            } else if let Some(message) = node.own.pop_front_if(|_| !is_late) {
                Event::Peer { from: node.as_peer(), message }
            } else {
                break;
            };
            self.run(index, event);
            self.run(index, Event::Turn);
        }
        self.submit(index);
    }

    /// Delivers the oldest message of a node to itself.
    fn deliver_own(&mut self, index: usize) -> bool {
        let node = &mut self.nodes[index];
        let Some(message) = node.own.pop_front() else { return false };
        let from = node.as_peer();
        self.step(index, Event::Peer { from, message });
        true
    }

    fn run(&mut self, index: usize, event: Event<P>) {
        let (now, shard) = (self.now, self.shard());
        if let Err(violation) = self.nodes[index].run(now, shard, event) {
            self.fail(violation.0);
        }
        self.carry_out(index);
    }

    fn with_context(&mut self, index: usize, run: impl FnOnce(&mut P, &mut Context<'_, P>)) {
        let now = self.now;
        self.nodes[index].with_context(now, run);
    }

    fn carry_out(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let fx = node.take_effects();
        node.again.extend(fx.again);
        for shard in fx.recovered {
            node.cache.set_forgotten(shard, false);
        }
        if let Some(violation) = fx.violation {
            self.fail(violation.0);
        }
        for send in fx.sends {
            self.post(index, send.to, send.message);
        }
        for (tag, outcome, _) in fx.outcomes {
            self.complete(tag, outcome);
        }
        self.suspects.extend(fx.suspects.into_iter().map(|node| (index, node)));
        for report in fx.group {
            self.on_report(index, report);
        }
    }

    fn post(&mut self, index: usize, to: NodeId, message: P::Message) {
        let to = usize::from(to.0) - 1;
        if to == index {
            return self.nodes[index].own.push_back(message);
        }
        let (from, losses) = (self.nodes[index].as_peer(), self.nodes[index].losses());
        self.bag.push(Letter { from, to, losses, message });
    }

    fn complete(&mut self, tag: Tag, outcome: Outcome) {
        if self.outcomes.contains_key(&tag) {
            return self.fail(format!("{tag:?} was answered twice"));
        }
        // It is no command, such as a listing.
        let Some(asked) = self.asked.get(&tag) else {
            self.outcomes.insert(tag, outcome);
            return;
        };
        self.clock += 1;
        let told = match &outcome {
            Outcome::Reply(reply) => checker::Outcome::Returned(asked.ask.output(reply)),
            Outcome::NoQuorum | Outcome::Loading => checker::Outcome::Failed,
            _ => checker::Outcome::Unknown,
        };
        let (node, op) = (asked.node, asked.op);
        let history = self.histories.get_mut(&asked.key).expect("it was asked");
        history.complete(op, told, self.clock);
        self.note(|| format!("node {node}: {tag:?} is answered {outcome:?}"));
        self.outcomes.insert(tag, outcome);
    }

    /// Delivers a message as a worker would: first the counts of losses, then the message unless
    /// it is void.
    fn deliver(&mut self, letter: Letter<P::Message>) {
        let (from, to) = (letter.from, letter.to);
        if !self.nodes[to].is_up {
            return;
        }
        self.note(|| {
            let Peer { node, incarnation, .. } = from;
            format!("node {to}: from {}.{}: {:?}", node.0 - 1, incarnation.0, letter.message)
        });
        let node = &mut self.nodes[to];
        let grew = node.learn(&letter);
        let is_void = node.peers.get(from.node).is_some_and(|known| from.amnesia < known.amnesia);
        if grew {
            self.step(to, Event::ViewChanged);
        }
        if !is_void {
            self.step(to, Event::Peer { from, message: letter.message });
        }
    }

    /// Repeats a message: it stays in flight.
    fn deliver_copy(&mut self, at: usize) {
        let copy = self.bag[at].copy();
        self.deliver(copy);
    }

    fn submit(&mut self, index: usize) {
        let is_durable = self.durable;
        self.nodes[index].submit(is_durable);
    }

    /// Ends the oldest flush in progress.
    fn flush(&mut self, index: usize) -> bool {
        if !self.nodes[index].is_up || !self.nodes[index].end_batch() {
            return false;
        }
        self.note(|| format!("node {index}: flushed"));
        let fx = self.nodes[index].release();
        for send in fx.sends {
            self.post(index, send.to, send.message);
        }
        for (tag, outcome, _) in fx.outcomes {
            self.complete(tag, outcome);
        }
        if !self.are_own_late {
            self.go_on(index);
        }
        true
    }

    /// Lets time pass at all nodes and fires the timers that are due at some.
    fn pass(&mut self, span: Nanos, nodes: impl Iterator<Item = usize>) {
        self.now += span;
        for index in nodes {
            self.fire(index);
        }
    }

    fn fire(&mut self, index: usize) {
        while self.nodes[index].is_up
            && let Some(timer) = self.nodes[index].worker.take_timer(self.now)
        {
            self.step(index, Event::Timer(timer));
        }
    }

    /// Kills the process. `kept` flushes in progress reached the medium, and a part of the next.
    fn kill(&mut self, index: usize, kept: usize, part: u64) {
        self.note(|| format!("node {index}: killed, {kept} flushes reach the medium"));
        self.nodes[index].kill(kept, part);
        for other in self.others(index) {
            self.nodes[other].peers.set_up(node_id(index), false);
            self.step(other, Event::PeerReset { node: node_id(index) });
        }
    }

    /// Starts the process anew. Without a durable medium its image is another one.
    fn start(&mut self, index: usize) {
        let shard = self.shard();
        let nodes = self.nodes.len();
        let old = &self.nodes[index];
        let (incarnation, stored) = (Incarnation(old.incarnation.0 + 1), old.stored.clone());
        let (mut image, amnesia) = (old.image, old.amnesia().0);
        if !self.durable {
            image = self.service.new_image();
        }
        let seed = self.clock ^ u64::from(incarnation.0) << 32;
        let (place, kind) = ((index, nodes), (shard, self.durable));
        let mut node = Node::fresh(place, self.group_size, kind, incarnation, image, seed);
        if self.durable {
            node.load(stored);
        }
        node.set_amnesia(AmnesiaCount(amnesia + u32::from(!self.durable)));
        self.nodes[index] = node;
        self.note(|| format!("node {index}: starts as {}", incarnation.0));
        self.forget_service_state(index);
        self.with_context(index, |protocol, cx| protocol.on_meta_loaded(cx, shard));
        if !self.durable && !P::PROPERTIES.needs_config {
            self.nodes[index].cache.set_forgotten(shard, true);
            self.step(index, Event::Forgotten { shard });
        }
        for other in self.others(index) {
            self.connect(index, other);
        }
    }

    /// The medium has lost a register, and the worker has found out.
    fn damage(&mut self, index: usize, key: usize) {
        let key = self.keys[key].clone();
        let shard = key.shard();
        self.note(|| format!("node {index}: {key:?} is damaged"));
        self.nodes[index].cache.lose(&key);
        self.nodes[index].cache.set_forgotten(shard, true);
        self.step(index, Event::Forgotten { shard });
    }

    fn connect(&mut self, one: usize, other: usize) {
        for (at, peer) in [(one, other), (other, one)] {
            let known = self.nodes[peer].as_peer();
            let peers = &mut self.nodes[at].peers;
            peers.learn(known.node, known.incarnation, known.amnesia);
            peers.set_up(known.node, true);
        }
        for (at, peer) in [(one, other), (other, one)] {
            self.step(at, Event::PeerUp { node: node_id(peer) });
        }
    }

    /// The link between two nodes dies and comes back.
    fn reset(&mut self, one: usize, other: usize) {
        for (at, peer) in [(one, other), (other, one)] {
            self.step(at, Event::PeerReset { node: node_id(peer) });
            self.step(at, Event::PeerUp { node: node_id(peer) });
        }
    }

    /// The other nodes that are up.
    fn others(&self, index: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&it| it != index && self.nodes[it].is_up).collect()
    }

    fn up(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&it| self.nodes[it].is_up).collect()
    }

    fn is_open(&self, tag: Tag) -> bool {
        !self.outcomes.contains_key(&tag)
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(u16::try_from(index).expect("few nodes") + 1)
}
