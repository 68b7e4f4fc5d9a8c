//! One small world: what may happen next, and what comes of it.

use std::collections::BTreeSet;
use std::fmt::{self, Debug, Write};
use std::hash::{DefaultHasher, Hasher};

use base::{Millis, Nanos, Prng};
use checker::model::kv::{Kv, KvInput, KvOutput};
use checker::{ClientId, History, Limit, Verdict, linearizable};
use protocols::cells::{Cell, Cells, Metas};
use protocols::effects::{Effects, TimerId};
use protocols::view::View;
use protocols::{Context, Env, Event, Peer, Protocol, Request, Scanned, ScannedCell};
use types::{Epoch, Incarnation, Key, Loss, NodeId, Outcome, SessionId, Shard, Tag, Ticket, Wire};

use super::{Budget, Plan};
use crate::workload::update::{SimUpdate, decode, encode};

/// Long enough for nothing to be given up before a timer says so.
const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(5);
/// Histories here have a handful of operations.
const EXPLORED_MAX: u64 = 1_000_000;
/// Messages that a node may send itself in a row.
const OWN_MAX: usize = 1_000;

/// Something that may happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A client asks its next command.
    Ask {
        client: usize,
    },
    /// A message arrives: its place among those on their way.
    Deliver {
        at: usize,
    },
    /// It arrives, and a copy stays on its way.
    Duplicate {
        at: usize,
    },
    Lose {
        at: usize,
    },
    /// A node's next timer fires.
    Fire {
        node: usize,
    },
    /// A node stops for good.
    Stop {
        node: usize,
    },
    /// A node starts again without its memory.
    Wipe {
        node: usize,
    },
}

/// A message on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Envelope {
    to: usize,
    from: (NodeId, Incarnation, Loss),
    losses: Vec<(NodeId, Loss)>,
    bytes: Vec<u8>,
}

struct Node<P: Protocol> {
    protocol: P,
    cells: Cells<P::Record>,
    metas: Metas<P::Meta>,
    view: View,
    timers: BTreeSet<(Nanos, TimerId)>,
    now: Nanos,
    is_up: bool,
}

impl<P: Protocol> Node<P> {
    /// The same draws in every step: which came before decides nothing.
    fn with_context(
        &mut self,
        fx: &mut Effects<P::Message>,
        run: impl FnOnce(&mut P, &mut Context<'_, P>),
    ) {
        let up = Millis(1_000_000 + self.now.as_millis());
        let mut cx = Context {
            now: self.now,
            unix: up,
            uptime: up,
            cells: &mut self.cells,
            metas: &mut self.metas,
            fx,
            rng: &mut Prng::new(1),
            view: &self.view,
            update: &SimUpdate,
        };
        run(&mut self.protocol, &mut cx);
    }
}

/// A command that was asked.
struct Asked {
    client: usize,
    input: KvInput,
    /// What had ended when it was asked.
    after: u64,
    ended: Option<Ended>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Ended {
    Returned(KvOutput),
    Failed,
    Unknown,
}

pub(super) struct World<P: Protocol> {
    nodes: Vec<Node<P>>,
    key: Key,
    /// Sorted: which was sent first decides nothing.
    bag: Vec<Envelope>,
    clients: Vec<(usize, Vec<KvInput>)>,
    asked: Vec<Asked>,
    /// Askings and ends, in order: what a history is made of.
    order: Vec<(usize, bool)>,
    left: Budget,
}

impl<P: Protocol + Debug> World<P> {
    pub(super) fn new(plan: &Plan) -> World<P> {
        let key = Key::new(b"key");
        let ids: Vec<NodeId> = (1..=plan.nodes).map(NodeId).collect();
        let nodes = ids.iter().map(|&id| open(id, Incarnation(1), Loss(1), &ids, &key)).collect();
        let clients =
            plan.clients.iter().map(|(node, inputs)| (usize::from(*node) - 1, inputs.clone()));
        World {
            nodes,
            key,
            bag: Vec::new(),
            clients: clients.collect(),
            asked: Vec::new(),
            order: Vec::new(),
            left: plan.budget,
        }
    }

    /// All that may happen now.
    pub(super) fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for client in 0..self.clients.len() {
            if self.may_ask(client) {
                choices.push(Choice::Ask { client });
            }
        }
        for at in 0..self.bag.len() {
            // One of several copies is as good as another.
            if at > 0 && self.bag[at] == self.bag[at - 1] {
                continue;
            }
            choices.push(Choice::Deliver { at });
            if self.left.losses > 0 {
                choices.push(Choice::Lose { at });
            }
            if self.left.duplicates > 0 {
                choices.push(Choice::Duplicate { at });
            }
        }
        for (node, it) in self.nodes.iter().enumerate().filter(|(_, it)| it.is_up) {
            if self.left.timers > 0 && !it.timers.is_empty() {
                choices.push(Choice::Fire { node });
            }
            if self.left.stops > 0 {
                choices.push(Choice::Stop { node });
            }
            if self.left.wipes > 0 {
                choices.push(Choice::Wipe { node });
            }
        }
        choices
    }

    fn may_ask(&self, client: usize) -> bool {
        let (node, inputs) = &self.clients[client];
        let mine = || self.asked.iter().filter(|asked| asked.client == client);
        self.nodes[*node].is_up
            && mine().count() < inputs.len()
            && mine().all(|asked| asked.ended.is_some())
    }

    /// Lets it happen. An error is something that must not.
    pub(super) fn take(&mut self, choice: &Choice) -> Result<(), String> {
        match *choice {
            Choice::Ask { client } => self.ask(client),
            Choice::Deliver { at } => {
                let envelope = self.bag.remove(at);
                self.deliver(envelope)
            }
            Choice::Duplicate { at } => {
                self.left.duplicates -= 1;
                self.deliver(self.bag[at].clone())
            }
            Choice::Lose { at } => {
                self.left.losses -= 1;
                self.bag.remove(at);
                Ok(())
            }
            Choice::Fire { node } => {
                self.left.timers -= 1;
                let Some((at, timer)) = self.nodes[node].timers.pop_first() else { return Ok(()) };
                self.nodes[node].now = self.nodes[node].now.max(at);
                self.step(node, Event::Timer(timer))
            }
            Choice::Stop { node } => {
                self.left.stops -= 1;
                self.nodes[node].is_up = false;
                self.bag.retain(|envelope| envelope.to != node);
                self.give_up(node);
                self.tell_others(node, false)
            }
            Choice::Wipe { node } => {
                self.left.wipes -= 1;
                self.wipe(node)
            }
        }
    }

    /// The choice in words, before it is taken.
    pub(super) fn words(&self, choice: &Choice) -> String {
        let message = |at: usize| {
            let Envelope { to, from, bytes, .. } = &self.bag[at];
            let message = P::Message::from_bytes(bytes).expect("it was encoded here");
            format!("n{} -> n{}  {message:?}", from.0.0, to + 1)
        };
        match *choice {
            Choice::Ask { client } => {
                let (node, inputs) = &self.clients[client];
                let next = self.asked.iter().filter(|asked| asked.client == client).count();
                format!("client {client} asks n{}: {:?}", node + 1, inputs[next])
            }
            Choice::Deliver { at } => message(at),
            Choice::Duplicate { at } => format!("{}  (a copy stays)", message(at)),
            Choice::Lose { at } => format!("{}  LOST", message(at)),
            Choice::Fire { node } => {
                format!("n{} timer {:?}", node + 1, self.nodes[node].timers.first())
            }
            Choice::Stop { node } => format!("n{} stops", node + 1),
            Choice::Wipe { node } => format!("n{} starts without its memory", node + 1),
        }
    }

    fn ask(&mut self, client: usize) -> Result<(), String> {
        let (node, inputs) = &self.clients[client];
        let (node, next) = (*node, self.asked.iter().filter(|it| it.client == client).count());
        let input = inputs[next].clone();
        let after = self.ended();
        self.order.push((self.asked.len(), false));
        let tag = Tag(self.asked.len() as u64);
        let command = encode(&input, 0);
        self.asked.push(Asked { client, input, after, ended: None });
        let (session, key) = (SessionId(client as u64 + 1), self.key.clone());
        self.step(node, Event::Request(Request { tag, session, key, command }))
    }

    /// A set of the commands that have ended.
    fn ended(&self) -> u64 {
        let ended = self.asked.iter().enumerate().filter(|(_, asked)| asked.ended.is_some());
        ended.fold(0, |set, (index, _)| set | 1 << index)
    }

    /// As a worker takes in a frame: crash vectors first, then what is not void.
    fn deliver(&mut self, envelope: Envelope) -> Result<(), String> {
        let Envelope { to, from: (node, incarnation, loss), losses, bytes } = envelope;
        let view = &mut self.nodes[to].view;
        let me = view.me;
        let mut grew = view.learn(node, incarnation, loss);
        for (other, loss) in losses.into_iter().filter(|(other, _)| *other != me) {
            grew |= view.learn(other, Incarnation(0), loss);
        }
        let is_void = view.member(node).is_some_and(|known| loss < known.loss);
        if grew {
            self.step(to, Event::ViewChanged)?;
        }
        if is_void {
            return Ok(());
        }
        let message = P::Message::from_bytes(&bytes).map_err(|_| "a message without meaning")?;
        self.step(to, Event::Peer { from: Peer { node, incarnation, loss }, message })
    }

    fn wipe(&mut self, index: usize) -> Result<(), String> {
        self.give_up(index);
        let ids: Vec<NodeId> = self.nodes[index].view.all().collect();
        let me = *self.nodes[index].view.member(ids[index]).expect("it is a member of its view");
        let (incarnation, loss) = (Incarnation(me.incarnation.0 + 1), Loss(me.loss.0 + 1));
        self.nodes[index] = open(me.node, incarnation, loss, &ids, &self.key);
        let shard = self.key.shard();
        self.nodes[index].cells.set_forgotten(shard, true);
        self.step(index, Event::Forgotten { shard })?;
        for other in (0..self.nodes.len()).filter(|&other| other != index) {
            self.nodes[other].view.learn(me.node, incarnation, Loss(0));
        }
        self.tell_others(index, false)?;
        self.tell_others(index, true)
    }

    /// Whoever asked this node hears nothing any more.
    fn give_up(&mut self, node: usize) {
        for index in 0..self.asked.len() {
            let is_here = self.clients[self.asked[index].client].0 == node;
            if is_here && self.asked[index].ended.is_none() {
                self.asked[index].ended = Some(Ended::Unknown);
                self.order.push((index, true));
            }
        }
    }

    fn tell_others(&mut self, node: usize, is_up: bool) -> Result<(), String> {
        let id = self.nodes[node].view.me;
        for other in 0..self.nodes.len() {
            if other != node && self.nodes[other].is_up {
                self.nodes[other].view.set_up(id, is_up);
                let event =
                    if is_up { Event::PeerUp { node: id } } else { Event::PeerReset { node: id } };
                self.step(other, event)?;
            }
        }
        Ok(())
    }

    /// One event, what it says to its own node included, and the end of the turn.
    fn step(&mut self, index: usize, event: Event<P>) -> Result<(), String> {
        let mut own = self.run(index, event)?;
        own.extend(self.run(index, Event::Turn)?);
        let mut handled = 0;
        while !own.is_empty() {
            for event in std::mem::take(&mut own) {
                own.extend(self.run(index, event)?);
            }
            own.extend(self.run(index, Event::Turn)?);
            handled += 1;
            if handled > OWN_MAX {
                return Err(format!("n{} never stops talking to itself", index + 1));
            }
        }
        self.bag.sort();
        Ok(())
    }

    /// Answers what the node has for itself.
    fn run(&mut self, index: usize, event: Event<P>) -> Result<Vec<Event<P>>, String> {
        let mut fx = Effects::default();
        let node = &mut self.nodes[index];
        node.with_context(&mut fx, |protocol, cx| protocol.on(cx, event));
        loop {
            let emits = std::mem::take(&mut fx.emits);
            if emits.is_empty() {
                break;
            }
            for emit in emits {
                node.with_context(&mut fx, |protocol, cx| protocol.on_emit(cx, emit));
            }
        }
        node.metas.take_dirty();
        node.cells.take_dirty(|_, _| ());
        let checked = node.protocol.check(&node.cells, &node.view);
        checked.map_err(|violation| format!("n{}: {}", index + 1, violation.0))?;
        self.carry_out(index, fx)
    }

    fn carry_out(
        &mut self,
        index: usize,
        fx: Effects<P::Message>,
    ) -> Result<Vec<Event<P>>, String> {
        if let Some(violation) = fx.violation {
            return Err(format!("n{}: {}", index + 1, violation.0));
        }
        let mut own = Vec::new();
        let node = &mut self.nodes[index];
        node.timers.extend(fx.timers.into_iter().map(|(timer, at)| (at, timer)));
        fx.recovered.into_iter().for_each(|shard| node.cells.set_forgotten(shard, false));
        own.extend(fx.scans.iter().map(|scan| Event::Scanned(scanned(node, scan))));
        let me = *node.view.member(node.view.me).expect("it is a member of its view");
        let losses: Vec<_> = node.view.members().iter().map(|it| (it.node, it.loss)).collect();
        for send in fx.sends {
            let from = Peer { node: me.node, incarnation: me.incarnation, loss: me.loss };
            if send.to == me.node {
                own.push(Event::Peer { from, message: send.message });
                continue;
            }
            let to = usize::from(send.to.0) - 1;
            if self.nodes[to].is_up {
                let from = (me.node, me.incarnation, me.loss);
                let (losses, bytes) = (losses.clone(), send.message.to_bytes());
                self.bag.push(Envelope { to, from, losses, bytes });
            }
        }
        let leased = fx.lease_reads.into_iter().map(|(tag, outcome, _)| (tag, outcome));
        for (tag, outcome) in fx.outcomes.into_iter().map(|(tag, it, _)| (tag, it)).chain(leased) {
            self.end(tag, &outcome)?;
        }
        Ok(own)
    }

    fn end(&mut self, tag: Tag, outcome: &Outcome) -> Result<(), String> {
        let index = tag.0 as usize;
        let asked = &mut self.asked[index];
        if asked.ended.is_some() {
            return Err(format!("{:?} was answered twice", asked.input));
        }
        asked.ended = Some(match outcome {
            Outcome::Reply(reply) => {
                Ended::Returned(decode(reply).ok_or("a reply without meaning")?)
            }
            Outcome::Unknown => Ended::Unknown,
            _ => Ended::Failed,
        });
        self.order.push((index, true));
        self.judge()
    }

    /// Some order explains what clients were told so far.
    fn judge(&self) -> Result<(), String> {
        let mut history: History<KvInput, KvOutput> = History::new();
        let mut ids = Vec::new();
        for (at, &(index, is_end)) in self.order.iter().enumerate() {
            let (at, asked) = (at as u64 + 1, &self.asked[index]);
            if !is_end {
                let client = ClientId(index as u64);
                ids.push(history.invoke(client, asked.input.clone(), at));
                continue;
            }
            let outcome = match asked.ended.clone() {
                Some(Ended::Returned(output)) => checker::Outcome::Returned(output),
                Some(Ended::Failed) => checker::Outcome::Failed,
                Some(Ended::Unknown) | None => checker::Outcome::Unknown,
            };
            history.complete(ids[index], outcome, at);
        }
        match linearizable::check(&Kv, &history, Limit { explored_max: EXPLORED_MAX }) {
            Verdict::Violation(violation) => Err(violation.to_string()),
            Verdict::Undecided { .. } => Err("a history of a few operations is too hard".into()),
            Verdict::Holds { .. } => Ok(()),
        }
    }

    /// All that decides what can come next, in few bits.
    pub(super) fn digest(&self) -> u64 {
        let mut digest = Digest(DefaultHasher::new());
        self.describe(&mut digest).expect("hashing does not fail");
        digest.0.finish()
    }

    fn describe(&self, out: &mut Digest) -> fmt::Result {
        for node in &self.nodes {
            let cell = match node.cells.get(&self.key) {
                Cell::Present(record) => Some(Some(record)),
                Cell::Lost => Some(None),
                Cell::Absent => None,
            };
            let meta = node.metas.get(self.key.shard());
            write!(out, "{:?}{cell:?}{meta:?}", node.protocol)?;
            write!(out, "{:?}{:?}{:?}{}", node.view, node.timers, node.now, node.is_up)?;
        }
        for asked in &self.asked {
            write!(out, "{}{:?}{}{:?}", asked.client, asked.input, asked.after, asked.ended)?;
        }
        write!(out, "{:?}{:?}", self.bag, self.left)
    }
}

/// Hashes what is written to it.
struct Digest(DefaultHasher);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn open<P: Protocol>(
    me: NodeId,
    incarnation: Incarnation,
    loss: Loss,
    ids: &[NodeId],
    key: &Key,
) -> Node<P> {
    let shard = key.shard();
    let env = Env {
        me,
        incarnation,
        request_timeout: REQUEST_TIMEOUT,
        durable: false,
        worker: usize::from(shard.0),
        workers: 256,
    };
    let mut view = View::new(Epoch(1), me, incarnation, loss, ids);
    ids.iter().for_each(|&id| view.set_up(id, true));
    let mut metas = Metas::default();
    metas.fill(shard, P::Meta::default());
    let mut cells = Cells::new(true);
    cells.set_open_ticket(Ticket::DURABLE);
    metas.set_open_ticket(Ticket::DURABLE);
    let now = Nanos::from_secs(1);
    Node { protocol: P::open(env), cells, metas, view, timers: BTreeSet::new(), now, is_up: true }
}

fn scanned<P: Protocol>(node: &Node<P>, scan: &protocols::effects::Scan) -> Scanned<P::Record> {
    let shard = Shard((scan.from_hash >> 56) as u8);
    let (found, next_hash) = node.cells.range_step(shard, scan.from_hash, None, scan.limit.max(1));
    let records = found.into_iter().filter_map(|(key, cell)| match cell {
        Cell::Present(record) => {
            let copy = P::Record::from_bytes(&record.to_bytes()).expect("it was encoded here");
            Some((key.clone(), ScannedCell::Present(copy)))
        }
        Cell::Lost => Some((key.clone(), ScannedCell::Lost)),
        Cell::Absent => None,
    });
    Scanned { id: scan.id, records: records.collect(), next_hash }
}
