//! Multi-writer ABD: linearizable reads and plain writes without consensus.
//!
//! Source: Attiya, Bar-Noy, Dolev, "Sharing memory robustly in message-passing systems", JACM 1995.
//! Multi-writer extension: Lynch and Shvartsman, FTCS 1997. Recovery of lost memory (crash
//! vectors): Michael, Ports, Sharma, Szekeres, "Recovering shared objects without stable storage",
//! DISC 2017.
//!
//! A write asks a majority for the newest version and stores above it: two round trips. A read asks
//! a majority for the newest version. Unless a majority holds that version already, the read stores
//! it back before it answers: one round trip or two. No request is ever refused, so there are no
//! retries and no back-off.
//!
//! Their words: tag -> [`Version`], read phase / query -> query, write phase / propagate -> store,
//! write-back -> write-back.
//!
//! | message | asks or tells |
//! |---|---|
//! | `Query` -> `State` | version, and the value on demand |
//! | `Store` -> `Stored` | hold this version or a newer one |
//! | `List` -> `Page` | a part of a shard, for listings and recovery |
//! | `Adopt`, `Adopted` | to this node itself: the recovered content |
//!
//! Invariants:
//! 1. One value per version.
//! 2. A replica's version never decreases, unless its amnesia count grows.
//! 3. A reply leaves once the state that it reveals is durable.
//! 4. A forgotten register answers no request until it is recovered from a majority of *others*.
//! 5. A version is at most the newest that this process minted, or it is foreign.
//!
//! Departures: a command whose effect depends on the state is refused. So is a time to live, since
//! expiry is a conditional delete. `DEL` is a plain write of a tombstone; its reply shows the state
//! that its query saw. The tombstone is kept for ever: collection needs floors per shard. A store
//! below a floor could neither be accepted nor be repeated under a newer version. A read waits
//! [`PATIENCE`] for the remaining replicas before it writes back.
//!
//! Start reading at `Abd::on`.

mod explain;
pub mod message;
pub mod operation;
pub mod paging;
mod recovery;
pub mod register;
mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Nanos;
use bytes::Bytes;
use types::{Key, Malformed, NodeId, Reader, SessionId, Shard, Ticket, Wire};

use message::Reported;
pub use message::{Message, Version};
use operation::{Kind, Operation, Phase};
use paging::Walk;
pub use register::Register;

use crate::effects::{TimerId, Violation};
use crate::explaining::Explaining;
use crate::mutation::{self, Mutation};
use crate::protocol::{
    Consistency, Context, Env, Event, Peer, Properties, Protocol, Request, Stats,
};
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::replicas::Replicas;

/// How long a read waits for the remaining replicas before it writes back.
pub const PATIENCE: Nanos = Nanos::from_millis(2);
const RESEND_FIRST: Nanos = Nanos::from_millis(20);
const RESEND_MAX: Nanos = Nanos::from_millis(320);
const TICK: TimerId = TimerId(0);

/// One instance of ABD.
#[derive(Debug)]
pub struct Abd {
    env: Env,
    /// The largest number given to a version by this process.
    minted: u64,
    next_op: u64,
    ops: BTreeMap<u64, Operation>,
    walks: BTreeMap<u64, Walk>,
    /// Requests that wait for an earlier operation of their session on the same key. An entry
    /// exists while such an operation runs.
    lanes: BTreeMap<(SessionId, Key), VecDeque<(Nanos, Request)>>,
    waiting_count: usize,
    due: BTreeSet<(Nanos, u64)>,
    armed_at: Option<Nanos>,
    /// Registers being recovered one by one.
    recovering: BTreeMap<Key, u64>,
    /// Forgotten shards without a scan so far.
    forgotten: BTreeSet<Shard>,
    scans: BTreeMap<u64, Served>,
    explaining: BTreeMap<u64, Explaining>,
}

/// A page that a storage scan reads for another node.
#[derive(Debug)]
struct Served {
    to: NodeId,
    op: u64,
    from_hash: u64,
    want_values: bool,
}

/// ABD has no shard fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoMeta;

impl Wire for NoMeta {
    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(_reader: &mut Reader<'_>) -> Result<NoMeta, Malformed> {
        Ok(NoMeta)
    }
}

type Cx<'a> = Context<'a, Abd>;

impl Protocol for Abd {
    const NAME: &'static str = "abd";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: false,
        total_order: false,
        needs_config: false,
        needs_lease: false,
        locks: false,
        keeps_log: false,
        uncommitted_reads: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = NoMeta;

    fn open(env: Env) -> Abd {
        // Operation numbers name the start of this process. Otherwise answers to its predecessor
        // would count.
        let start = if mutation::is(Mutation::StaleAnswers) { 0 } else { env.incarnation.0 };
        Abd {
            next_op: (u64::from(start) << 40) + 1,
            env,
            minted: 0,
            ops: BTreeMap::new(),
            walks: BTreeMap::new(),
            lanes: BTreeMap::new(),
            waiting_count: 0,
            due: BTreeSet::new(),
            armed_at: None,
            recovering: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            scans: BTreeMap::new(),
            explaining: BTreeMap::new(),
        }
    }

    fn on(&mut self, cx: &mut Cx<'_>, event: Event<Abd>) {
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, from_hash, limit } => self.on_list(cx, tag, from_hash, limit),
            Event::Explain { tag, key } => self.on_explain(cx, tag, key),
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::Timer(_) => self.on_tick(cx),
            Event::Scanned(scanned) => self.on_scanned(cx, scanned),
            Event::Forgotten { shard } => self.on_forgotten(cx, shard),
            // Timers resend unanswered messages. A tally is checked against the view when it
            // decides.
            Event::PeerReset { .. }
            | Event::PeerUp { .. }
            | Event::PeerSteady { .. }
            | Event::ViewChanged
            | Event::Group(_)
            | Event::Turn => {}
        }
        self.arm(cx);
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        let len = |value: &Bytes| Weight::of_key(key.bytes().len() + value.len(), false);
        register.value.as_ref().map_or(Weight::NONE, len)
    }

    fn check(
        &self,
        _cache: &RegisterCache<Register>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        for (id, op) in &self.ops {
            if let (Phase::Store { version, .. }, Kind::Write { .. }) = (&op.phase, &op.kind)
                && version.number > self.minted
            {
                let minted = self.minted;
                return Err(Violation(format!("abd: op {id} stores {version:?} above {minted}")));
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.ops.is_empty()
            && self.walks.is_empty()
            && self.lanes.is_empty()
            && self.scans.is_empty()
            && self.explaining.is_empty()
            && self.forgotten.is_empty()
    }

    fn stats(&self, stats: &mut Stats) {
        stats.add("operations_in_progress", self.ops.len() as u64);
        stats.add("shards_recovering", (self.forgotten.len() + self.walks.len()) as u64);
    }
}

/// Messages.
impl Abd {
    fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        match message {
            Message::Query { op, key, want_value } => {
                self.on_query(cx, from.node, op, &key, want_value);
            }
            Message::Store { op, key, version, value } => {
                self.on_store(cx, from.node, op, key, version, value);
            }
            Message::State { op: id, version, value, .. } => {
                if self.on_explained(cx, from, id, version, &value) {
                    return;
                }
                if let Some(op) = self.ops.get_mut(&id)
                    && matches!(op.phase, Phase::Query)
                {
                    op.answers.add(cx.replicas, (from.node, from.amnesia), version, value);
                    self.settle(cx, id);
                }
            }
            Message::Stored { op: id, .. } => {
                if let Some(op) = self.ops.get_mut(&id)
                    && let Phase::Store { acks, .. } = &mut op.phase
                {
                    acks.add(cx.replicas, from.node, from.amnesia);
                    self.settle(cx, id);
                }
            }
            Message::List { op, from_hash, limit, want_values } => {
                self.on_page_asked(cx, from.node, op, from_hash, limit, want_values);
            }
            Message::Page { op: id, from_hash, entries, next_hash } => {
                if let Some(walk) = self.walks.get_mut(&id)
                    && walk.from_hash == from_hash
                    && walk.adopting.is_none()
                {
                    walk.add(cx.replicas, (from.node, from.amnesia), entries, next_hash);
                    self.settle_walk(cx, id);
                }
            }
            // Only this node may send itself recovered registers.
            Message::Adopt { op, key, version, value } if from.node == cx.replicas.me() => {
                self.on_adopt(cx, op, &key, version, value);
            }
            Message::Adopted { op, .. } if from.node == cx.replicas.me() => self.on_adopted(cx, op),
            Message::Adopt { .. } | Message::Adopted { .. } => {}
        }
    }

    fn on_query(&mut self, cx: &mut Cx<'_>, from: NodeId, op: u64, key: &Key, want_value: bool) {
        let (version, value) = match cx.cache.get(key) {
            CachedRegister::Lost if !mutation::is(Mutation::NoRecovery) => {
                return self.recover(cx, key);
            }
            CachedRegister::Absent | CachedRegister::Lost => (Version::NONE, Reported::Nothing),
            CachedRegister::Present(register) => (register.version, register.report(want_value)),
        };
        let mut after = cx.cache.ticket(key);
        if mutation::is(Mutation::ExposeUnflushed) {
            after = Ticket::DURABLE;
        }
        cx.fx.send(from, Message::State { op, key: key.clone(), version, value }, after);
    }

    fn on_store(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        op: u64,
        key: Key,
        version: Version,
        value: Option<Bytes>,
    ) {
        match cx.cache.get(&key) {
            CachedRegister::Lost if !mutation::is(Mutation::NoRecovery) => {
                return self.recover(cx, &key);
            }
            CachedRegister::Absent | CachedRegister::Lost => {
                cx.cache.put(&key, Register { version, value });
                cx.cache.persist(&key);
            }
            CachedRegister::Present(_) => {
                if mutation::is(Mutation::StoreOlder)
                    && let Some(register) = cx.cache.get_mut(&key)
                {
                    register.version = Version::NONE;
                }
                store(cx, &key, version, value);
            }
        }
        if mutation::is(Mutation::DropTombstone)
            && matches!(cx.cache.get(&key), CachedRegister::Present(Register { value: None, .. }))
        {
            cx.cache.remove(&key);
        }
        let mut after = cx.cache.ticket(&key);
        if mutation::is(Mutation::ReplyBeforeStored) {
            after = Ticket::DURABLE;
        }
        cx.fx.send(from, Message::Stored { op, key }, after);
    }
}

/// Time.
impl Abd {
    fn arm(&mut self, cx: &mut Cx<'_>) {
        let Some(&(at, _)) = self.due.first() else { return };
        if self.armed_at.is_none_or(|armed_at| at < armed_at) {
            self.armed_at = Some(at);
            cx.fx.timer(TICK, at);
        }
    }

    fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.armed_at.is_some_and(|at| at <= cx.now) {
            self.armed_at = None;
        }
        let due: Vec<(Nanos, u64)> = self.due.range(..=(cx.now, u64::MAX)).copied().collect();
        for (at, id) in due {
            self.due.remove(&(at, id));
            if self.walks.contains_key(&id) {
                self.on_walk_due(cx, id);
            } else if self.explaining.contains_key(&id) {
                self.on_explanation_due(cx, id);
            } else {
                self.on_op_due(cx, id);
            }
        }
    }
}

/// Stores into a register that is there.
fn store(cx: &mut Cx<'_>, key: &Key, version: Version, value: Option<Bytes>) {
    if cx.cache.get_mut(key).is_some_and(|register| register.store(version, value)) {
        cx.cache.persist(key);
    }
}
