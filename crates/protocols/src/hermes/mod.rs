//! Hermes: broadcast invalidation per key. Reads are local, and any node coordinates writes.
//!
//! Source: Katsarakis et al., "Hermes: A Fast, Fault-Tolerant and Linearizable Replication
//! Protocol", ASPLOS 2020, sections 3.1 to 3.3.
//!
//! A write sends the new value to all members and invalidates the key there. Once *every* member
//! has acknowledged it, it is validated: one round trip. A read of a valid key is answered from
//! memory. A key stays invalid if its validation is lost. A node with requests for it then replays
//! the write under the same version.
//!
//! Their words: timestamp -> [`Version`], coordinator -> the node with a [`Pend`](lane::Pend),
//! request log -> [`Lane`], RMW -> read-modify-write.
//!
//! | message | asks or tells |
//! |---|---|
//! | `Invalidate` -> `Ack` | hold this version or a newer one |
//! | `Invalidate` -> `Invalidate` | the read-modify-write lost against this |
//! | `Validate` | every member holds it: read it |
//! | `Nudge` -> `Validate` | has this read-modify-write ended? |
//!
//! | their state | here |
//! |---|---|
//! | Valid, Invalid | [`Register::is_valid`] |
//! | Write, Replay | a pend of the register's version, with or without a request |
//! | Trans | a plain pend below the register's version: it still ends well, ordered just before |
//!
//! Invariants:
//! 1. Valid copies of one key are equal.
//! 2. A pend is at most its register's version; a read-modify-write's pend equals it.
//! 3. A register that equals a pend is not valid.
//! 4. A write is answered once every member durably holds it or a newer one.
//! 5. Of all changes from one value at most one read-modify-write succeeds, and none if a write
//!    does.
//!
//! Departures: the membership is fixed and no member leaves. So there is no epoch change, and the
//! lease of a read is a constant. A node that forgot any data stops. The protocol is for
//! experiments: complete while no member fails, blocked by the first that does. Validations name
//! the key, not the link's sequence. A superseded read-modify-write returns to the front of its
//! lane. A time to live is refused.
//!
//! Start reading at `Hermes::on`.

mod coordinator;
mod lane;
pub mod message;
pub mod register;

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::{Key, Malformed, NodeId, Outcome, Reader, Wire};

use lane::Lane;
pub use message::Message;
pub use register::{Register, Version};

use crate::effects::{TimerId, Violation};
use crate::mutation::{self, Mutation};
use crate::protocol::{Consistency, Context, Env, Event, Peer, Properties, Protocol, Stats};
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::replicas::Replicas;

/// How long a key may stay invalid before a node with waiting requests replays its write.
const PATIENCE: Nanos = Nanos::from_millis(8);
const RESEND_FIRST: Nanos = Nanos::from_millis(10);
const RESEND_MAX: Nanos = Nanos::from_millis(160);
const TICK: TimerId = TimerId(0);

/// One instance of Hermes.
#[derive(Debug)]
pub struct Hermes {
    env: Env,
    /// Keys with a request or a write in progress here. Their registers are pinned.
    lanes: BTreeMap<Key, Lane>,
    waiting_count: usize,
    /// When each lane acts next.
    due: BTreeSet<(Nanos, Key)>,
    armed_at: Option<Nanos>,
}

/// Hermes has no shard fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoMeta;

impl Wire for NoMeta {
    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(_reader: &mut Reader<'_>) -> Result<NoMeta, Malformed> {
        Ok(NoMeta)
    }
}

type Cx<'a> = Context<'a, Hermes>;

impl Protocol for Hermes {
    const NAME: &'static str = "hermes";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: true,
        total_order: false,
        needs_config: true,
        needs_lease: true,
        locks: false,
        keeps_log: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = NoMeta;

    fn open(env: Env) -> Hermes {
        Hermes {
            env,
            lanes: BTreeMap::new(),
            waiting_count: 0,
            due: BTreeSet::new(),
            armed_at: None,
        }
    }

    fn on(&mut self, cx: &mut Cx<'_>, event: Event<Hermes>) {
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, .. } | Event::Explain { tag, .. } => {
                cx.fx.reply(tag, Outcome::Unsupported(Hermes::NAME));
            }
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::Timer(_) => self.on_tick(cx),
            // Departure: the others would have to return the forgotten data under a new epoch.
            Event::Forgotten { shard } => {
                cx.fx.fail(Violation(format!("hermes forgot shard {} in a fixed epoch", shard.0)));
            }
            // Timers resend unanswered messages.
            Event::PeerReset { .. }
            | Event::PeerUp { .. }
            | Event::PeerSteady { .. }
            | Event::ViewChanged
            | Event::Group(_)
            | Event::Scanned(_)
            | Event::Turn => {}
        }
        self.arm(cx);
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        let len = |value: &bytes::Bytes| Weight::of_key(key.bytes().len() + value.len(), false);
        register.value.as_ref().map_or(Weight::NONE, len)
    }

    fn check(
        &self,
        cache: &RegisterCache<Register>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        for (key, lane) in &self.lanes {
            let Some(pend) = &lane.pend else { continue };
            let CachedRegister::Present(register) = cache.get(key) else {
                return Err(Violation(format!(
                    "hermes: {key:?} is being written and is not there"
                )));
            };
            let (pending, held) = (pend.register.version, register.version);
            let is_below = pending < held && !pend.register.is_rmw;
            let is_held = pending == held && !register.is_valid;
            if !is_below && !is_held {
                return Err(Violation(format!("hermes: {key:?} pends {pend:?} on {register:?}")));
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.lanes.is_empty()
    }

    fn stats(&self, stats: &mut Stats) {
        let pends = self.lanes.values().filter(|lane| lane.pend.is_some()).count();
        stats.add("operations_in_progress", pends as u64);
        stats.add("operations_waiting", self.waiting_count as u64);
    }
}

/// Messages.
impl Hermes {
    fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        match message {
            Message::Invalidate { key, register } => {
                self.on_invalidate(cx, from.node, &key, register);
            }
            Message::Ack { key, version } => self.on_ack(cx, from, &key, version),
            Message::Validate { key, version } => self.on_validate(cx, &key, version),
            Message::Nudge { key, version } => on_nudge(cx, from.node, key, version),
        }
    }

    /// [HERMES 3.2, followers on INV]
    fn on_invalidate(&mut self, cx: &mut Cx<'_>, from: NodeId, key: &Key, invalid: Register) {
        let held = match cx.cache.get(key) {
            CachedRegister::Present(register) => register.version,
            CachedRegister::Absent | CachedRegister::Lost => Version::NONE,
        };
        let version = invalid.version;
        if version > held {
            cx.cache.put(key, Register { is_valid: false, ..invalid });
            cx.cache.persist(key);
            self.on_superseded(cx, key);
        } else if version < held && invalid.is_rmw && !mutation::is(Mutation::AckLosingRmw) {
            // It started from an old value. Its writer learns of the newer one instead.
            let CachedRegister::Present(register) = cx.cache.get(key) else { return };
            let register = Register { is_valid: false, ..register.clone() };
            cx.fx.send_now(from, Message::Invalidate { key: key.clone(), register });
            return;
        }
        cx.fx.send(from, Message::Ack { key: key.clone(), version }, cx.cache.ticket(key));
    }

    /// [HERMES 3.2, followers on VAL]
    fn on_validate(&mut self, cx: &mut Cx<'_>, key: &Key, version: Version) {
        let Some(register) = cx.cache.get_mut(key) else { return };
        let is_another = register.version != version;
        if register.is_valid || is_another && !mutation::is(Mutation::ValidateAnyVersion) {
            return;
        }
        register.is_valid = true;
        // The others can tell again that it is valid.
        cx.cache.persist_before_eviction(key);
        // This node acknowledged the validated version. So a plain write below it has ended too: it
        // took effect just before.
        self.end_pend(cx, key);
    }
}

/// Another node waits for the end of a read-modify-write of this node.
fn on_nudge(cx: &mut Cx<'_>, from: NodeId, key: Key, version: Version) {
    // A pending one is resent by its own timer. A lost one is followed by the write that beat it.
    if let CachedRegister::Present(register) = cx.cache.get(&key)
        && register.version == version
        && register.is_valid
    {
        cx.fx.send_now(from, Message::Validate { key, version });
    }
}

/// Time.
impl Hermes {
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
        while let Some((at, _)) = self.due.first()
            && *at <= cx.now
            && let Some((_, key)) = self.due.pop_first()
        {
            self.on_due(cx, &key);
        }
    }
}
