//! Zab: one leader, one order over all keys, reads local to every node.
//!
//! Source: Junqueira, Reed, Serafini, "Zab: High-performance broadcast for primary-backup systems",
//! DSN 2011, the broadcast phase. Client guarantees: Hunt et al., "ZooKeeper", USENIX ATC 2010,
//! section 2.3.
//!
//! A write goes to the leader, which gives it the next index and proposes it. It is committed once
//! a majority has everything up to it. Each node applies committed writes in order. The requested
//! node answers once it has applied the write itself. A read is answered from this node's applied
//! state. It waits for the earlier writes of its own session. So a session never goes back, but it
//! may lag behind other sessions.
//!
//! Their words: zxid -> index (the epoch is fixed), transaction -> [`Txn`], history -> `History`,
//! deliver -> apply.
//!
//! | message | asks or tells |
//! |---|---|
//! | `Write` | the sender's next write, to the leader |
//! | `Propose` -> `Ack` | these transactions are next; cumulative |
//! | `Commit` | a majority has everything up to here; cumulative |
//! | `Ask` -> `Commit` | the sender has entries that it does not know to be committed |
//!
//! Invariants:
//! 1. Histories are prefixes of each other.
//! 2. Only committed transactions are applied, and in order.
//! 3. A write of one origin and number is proposed once, in the order of numbers.
//! 4. A session reads its own writes.
//!
//! Departures: the member of the lowest id leads epoch 1 for ever, since discovery and
//! synchronisation are missing. A leader that stops stops all writes. Histories are in memory and
//! not in the log medium: **volatile only**. A durable database is refused, and a node that forgot
//! any data stops. The order is over all keys, so a node has one worker; more are refused. Links
//! may lose, repeat and reorder: entries ahead of a gap wait in the history, and timers resend the
//! rest. A time to live is refused.
//!
//! Start reading at `Zab::on`, then `leader`.

mod forwards;
mod history;
mod leader;
mod leading;
pub mod message;

use base::Nanos;
use bytes::Bytes;
use types::{
    Access, Change, Clock, Command, ExpiryChange, Malformed, NodeId, Outcome, Reader, TimeToLive,
    Wire,
};

use forwards::Forwards;
use history::History;
use leader::Leader;
pub use message::{Message, Txn};

use crate::effects::{Emit, TimerId, Violation};
use crate::mutation::{self, Mutation};
use crate::protocol::{
    Consistency, Context, Env, Event, Peer, Properties, Protocol, Request, Stats,
};
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::replicas::Replicas;

/// The interval between resends of unanswered messages.
const RESEND: Nanos = Nanos::from_millis(10);
const TICK: TimerId = TimerId(0);

/// One instance of Zab.
#[derive(Debug)]
pub struct Zab {
    env: Env,
    is_leader: bool,
    history: History,
    forwards: Forwards,
    leader: Leader,
    /// A tick is due; one runs while work is in progress.
    is_ticking: bool,
}

/// The value of one key, as the applied part of the history left it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value(pub Bytes);

impl Wire for Value {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Value, Malformed> {
        Ok(Value(Bytes::decode(reader)?))
    }
}

/// Zab has no shard fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoMeta;

impl Wire for NoMeta {
    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(_reader: &mut Reader<'_>) -> Result<NoMeta, Malformed> {
        Ok(NoMeta)
    }
}

type Cx<'a> = Context<'a, Zab>;

impl Protocol for Zab {
    const NAME: &'static str = "zab";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::SequentialReads,
        read_modify_write: true,
        total_order: true,
        needs_config: false,
        needs_lease: false,
        locks: false,
        keeps_log: true,
        uncommitted_reads: false,
    };

    type Message = Message;
    type Record = Value;
    type Meta = NoMeta;

    fn open(env: Env) -> Zab {
        Zab {
            env,
            is_leader: false,
            history: History::default(),
            forwards: Forwards::default(),
            leader: Leader::default(),
            is_ticking: false,
        }
    }

    fn on(&mut self, cx: &mut Cx<'_>, event: Event<Zab>) {
        self.is_leader = leader_of(cx.replicas) == self.env.me;
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, .. } | Event::Explain { tag, .. } => {
                cx.fx.reply(tag, Outcome::Unsupported(Zab::NAME));
            }
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::Timer(_) => self.on_tick(cx),
            Event::Turn => self.on_turn(cx),
            // Departure: without synchronisation no member returns the forgotten data.
            Event::Forgotten { shard } => {
                cx.fx.fail(Violation(format!("zab forgot shard {} in a fixed epoch", shard.0)));
            }
            // Timers resend unanswered messages.
            Event::PeerReset { .. }
            | Event::PeerUp { .. }
            | Event::PeerSteady { .. }
            | Event::ViewChanged
            | Event::Group(_)
            | Event::Scanned(_) => {}
        }
        self.arm(cx);
    }

    fn on_emit(&mut self, cx: &mut Cx<'_>, emit: Emit) {
        self.on_apply(cx, emit);
        self.arm(cx);
    }

    fn weight(key: &types::Key, value: &Value) -> Weight {
        Weight::of_key(key.bytes().len() + value.0.len(), false)
    }

    fn check(
        &self,
        _cache: &RegisterCache<Value>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        let (applied, committed) = (self.history.applied(), self.history.committed());
        if applied > committed {
            return Err(Violation(format!("zab: applied {applied}, committed {committed}")));
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.history.applied() == self.history.last()
            && self.history.applied() == self.history.committed()
            && self.forwards.is_empty()
            && (!self.is_leader || self.is_leader_idle())
    }

    fn stats(&self, stats: &mut Stats) {
        stats.add("operations_in_progress", self.forwards.pending.len() as u64);
        stats.add("transactions_applied", self.history.applied());
        stats.add("transactions_unapplied", self.history.last() - self.history.applied());
    }
}

fn leader_of(replicas: Replicas<'_>) -> NodeId {
    replicas.at(0).node
}

/// Requests.
impl Zab {
    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        if self.env.durable || self.env.workers != 1 || request.command.once.is_some() {
            return cx.fx.reply(request.tag, Outcome::Unsupported(Zab::NAME));
        }
        if self.forwards.is_full() {
            return cx.fx.reply(request.tag, Outcome::NoQuorum);
        }
        let deadline = cx.now + self.env.request_timeout;
        if request.command.access != Access::Read {
            let number = self.forwards.add(&request, cx.now, deadline);
            let Request { key, command, .. } = request;
            let write = Message::Write { number, key, command };
            return cx.fx.send_now(leader_of(cx.replicas), write);
        }
        match self.forwards.last_write(request.session) {
            Some(write) if !mutation::is(Mutation::ReadPastOwnWrites) => {
                cx.cache.pin(&request.key);
                self.forwards.park(write, request, deadline);
            }
            _ => answer_read(cx, &request),
        }
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        let is_from_leader = from.node == leader_of(cx.replicas);
        match message {
            Message::Write { number, key, command } if self.is_leader => {
                self.on_write(cx, from.node, number, key, command);
            }
            Message::Ack { upto } if self.is_leader => self.on_ack(cx, from.node, upto),
            Message::Ask if self.is_leader => {
                cx.fx.send_now(from.node, Message::Commit { upto: self.history.committed() });
            }
            Message::Propose { first, txns } if is_from_leader && !self.is_leader => {
                self.on_propose(cx, first, txns);
            }
            Message::Commit { upto } if is_from_leader => {
                self.history.commit(upto);
            }
            // Not for a node in this role.
            Message::Write { .. }
            | Message::Ack { .. }
            | Message::Ask
            | Message::Propose { .. }
            | Message::Commit { .. } => {}
        }
    }

    /// [ZAB, B2] Departure: entries ahead of a gap are kept, not refused. The acknowledgement stops
    /// at the gap.
    fn on_propose(&mut self, cx: &mut Cx<'_>, first: u64, txns: Vec<Txn>) {
        for (index, txn) in (first..).zip(txns) {
            self.forwards.on_taken(cx.replicas.me(), &txn);
            self.history.insert(index, txn);
        }
        let upto = match mutation::is(Mutation::AckPastGap) {
            true => self.history.newest(),
            false => self.history.last(),
        };
        cx.fx.send_now(leader_of(cx.replicas), Message::Ack { upto });
    }
}

/// Applying.
impl Zab {
    /// [ZAB, B4] Emits committed transactions in order.
    fn on_turn(&mut self, cx: &mut Cx<'_>) {
        if self.is_leader {
            self.lead(cx);
        }
        let limit = match mutation::is(Mutation::ApplyUncommitted) {
            true => self.history.last(),
            false => self.history.committed(),
        };
        while let Some(index) = self.history.emit(limit) {
            let txn = self.history.get(index).expect("unapplied transactions are kept");
            let is_ours = txn.origin == self.env.me;
            let pending = self.forwards.pending.get(&txn.number).filter(|_| is_ours);
            cx.fx.emit(Emit {
                index,
                key: txn.key.clone(),
                command: txn.command.clone(),
                tag: pending.map(|pending| pending.tag),
            });
        }
    }

    fn on_apply(&mut self, cx: &mut Cx<'_>, emit: Emit) {
        if !self.history.apply(emit.index) {
            let applied = self.history.applied();
            let text = format!("zab: {} is to be applied after {applied}", emit.index);
            return cx.fx.fail(Violation(text));
        }
        let txn = self.history.get(emit.index).expect("unapplied transactions are kept");
        let (origin, number, clock) = (txn.origin, txn.number, txn.clock);
        let outcome = apply(cx, &emit, clock);
        if origin == self.env.me {
            let (tag, reads) = self.forwards.on_applied(number);
            if let Some(tag) = tag {
                cx.fx.reply(tag, outcome);
            }
            for (read, _) in reads {
                answer_read(cx, &read);
                cx.cache.unpin(&read.key);
            }
        }
        if !self.is_leader {
            self.history.forget(emit.index);
        }
    }
}

/// Runs a command on its register: the same on every node.
fn apply(cx: &mut Cx<'_>, emit: &Emit, clock: Clock) -> Outcome {
    let held = held(cx, &emit.key);
    let found = types::View { value: held.as_deref(), ttl: TimeToLive::Never, ends: None };
    let applied = cx.update.apply(found, &emit.command.body, clock);
    match applied.change {
        Change::None => {}
        Change::Put {
            value,
            expiry: ExpiryChange::Keep | ExpiryChange::Set(TimeToLive::Never),
        } => {
            cx.cache.put(&emit.key, Value(value));
            cx.cache.persist(&emit.key);
        }
        Change::Delete => {
            cx.cache.remove(&emit.key);
        }
        Change::Put { .. } | Change::Expire(_) => return Outcome::Unsupported(Zab::NAME),
    }
    Outcome::Reply(applied.reply)
}

fn held(cx: &Cx<'_>, key: &types::Key) -> Option<Bytes> {
    match cx.cache.get(key) {
        CachedRegister::Present(value) => Some(value.0.clone()),
        CachedRegister::Absent | CachedRegister::Lost => None,
    }
}

/// Answers from this node's applied state.
fn answer_read(cx: &mut Cx<'_>, read: &Request) {
    let Request { tag, key, command: Command { body, .. }, .. } = read;
    let held = held(cx, key);
    let found = types::View { value: held.as_deref(), ttl: TimeToLive::Never, ends: None };
    let clock = Clock { unix: cx.unix, seed: cx.rng.next_u64() };
    let reply = cx.update.apply(found, body, clock).reply;
    cx.fx.reply(*tag, Outcome::Reply(reply));
}

/// Time.
impl Zab {
    fn arm(&mut self, cx: &mut Cx<'_>) {
        if !self.is_ticking && !self.is_idle() {
            self.is_ticking = true;
            cx.fx.timer(TICK, cx.now + RESEND);
        }
    }

    fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.is_ticking = false;
        self.expire(cx);
        let leader = leader_of(cx.replicas);
        let due = self.forwards.untaken.iter_mut().filter(|(_, it)| it.sent_at + RESEND <= cx.now);
        for (&number, untaken) in due.take(message::TXNS_MAX) {
            untaken.sent_at = cx.now;
            let (key, command) = (untaken.key.clone(), untaken.command.clone());
            cx.fx.send_now(leader, Message::Write { number, key, command });
        }
        if self.is_leader {
            self.propose_again(cx);
        } else if self.history.last() > self.history.committed() {
            cx.fx.send_now(leader, Message::Ask);
        }
    }

    fn expire(&mut self, cx: &mut Cx<'_>) {
        let (writes, reads) = self.forwards.expire(cx.now);
        if !writes.is_empty() && !self.is_leader {
            cx.fx.suspect(leader_of(cx.replicas));
        }
        for tag in writes {
            cx.fx.reply(tag, Outcome::Unknown);
        }
        for read in reads {
            cx.cache.unpin(&read.key);
            cx.fx.reply(read.tag, Outcome::NoQuorum);
        }
    }
}
