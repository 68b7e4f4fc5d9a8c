//! Hermes: broadcast invalidation per key. Reads are local, and any member coordinates writes.
//!
//! Source: Katsarakis et al., "Hermes: A Fast, Fault-Tolerant and Linearizable Replication
//! Protocol", ASPLOS 2020, sections 3.1 to 3.4.
//!
//! A write sends the new value to all members and invalidates the key there. Once *every* member
//! has acknowledged it, it is validated: one round trip. A read of a valid key is answered from
//! memory under the lease. A key stays invalid if its validation is lost. A member with requests
//! for it then replays the write under the same version.
//!
//! Their words: timestamp -> [`Version`], coordinator -> the node with a [`Pend`](lane::Pend),
//! request log -> [`Lane`], RMW -> read-modify-write, node id (cid) -> [`types::Serial`].
//!
//! | message | asks or tells |
//! |---|---|
//! | `Invalidate` -> `Ack` | hold this version or a newer one |
//! | `Invalidate` -> `Invalidate` | the read-modify-write lost against this |
//! | `ValidateAsked`, `Validate` | every member holds it: read it |
//! | `Nudge` -> `Validate`, `Invalidate` | has this read-modify-write ended? |
//! | `Invalidate`, `Nudge` -> `Stale` | the version is of an earlier life of the key |
//! | `Raise` -> `Raised` | begin an era; do you hold this tombstone? |
//! | `Bury` | remove this tombstone |
//!
//! | their state | here |
//! |---|---|
//! | Valid, Invalid | [`Register::is_valid`] |
//! | Write, Replay | a pend of the register's version, with or without a request |
//! | Trans | a plain pend below the register's version: it still ends well, ordered just before |
//!
//! Invariants:
//! 1. Valid copies of one key at members of one epoch are equal.
//! 2. A pend is at most its register's version; a read-modify-write's pend equals it.
//! 3. While a write pends, its key is not valid.
//! 4. A write is answered once every member durably holds it or a newer one.
//! 5. Of all changes from one value at most one read-modify-write succeeds, and none if a write
//!    does.
//! 6. A version of an earlier life is neither validated nor acknowledged beside one of a later.
//!
//! **Epochs.** A new epoch voids all acknowledgements: every pend is sent to all members again. A
//! read-modify-write is replayed by another member only if its coordinator is no member. A plain
//! write may be replayed by anybody.
//!
//! **Deletions.** A tombstone is removed once all members hold it. A later write begins another
//! *life* of the key, whose versions lie above those of earlier ones (`collection.rs`).
//!
//! Departures: versions count read-modify-writes in a number of their own. So a replayed plain
//! write below a read-modify-write never commits behind it. Writers are serials, not nodes: a
//! restarted node is another writer. A superseded read-modify-write returns to the front of its
//! lane. It is retried or given up once the key is valid above it: before that, a member might
//! still replay it.
//!
//! **Ranges.** A worker numbers its writes. One `Ack` answers those that came in one turn, and one
//! `ValidateAsked` ends those that all members acknowledged in one turn. Numbers die with their
//! epoch, and their ranges too.
//!
//! **Times to live** are counted by each member. The member whose count is over first deletes the
//! key, as a read-modify-write. So the key ends everywhere at once, and never comes back.
//!
//! Start reading at `Hermes::on`.

mod collection;
mod coordinator;
mod lane;
pub mod message;
pub mod register;
mod rounds;
mod upkeep;
pub mod version;

use std::collections::BTreeMap;

use base::{Millis, Nanos, checksum};
use types::explain::Record as Explained;
use types::{Epoch, Key, NodeId, Shard};

use lane::{Asked, Lane, Origin, Pend};
pub use message::Message;
pub use register::Register;
use rounds::Round;
use version::Era;
pub use version::Version;

use crate::configured::{Configured, Inside, Member, MemberEvent, given_up};
use crate::effects::{TimerId, Violation};
use crate::mutation::{self, Mutation};
use crate::protocol::{Consistency, Context, Env, Properties, Request, Stats};
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::toolkit::acks::{Collected, Collector, Numbered};
use crate::toolkit::asks::{Ask, Heard, Outstanding};
use crate::toolkit::burials::Burials;
use crate::toolkit::ends::Ends;
use crate::toolkit::lanes::Lanes;
use crate::toolkit::looks::Looks;
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::stalls::Stalls;
use crate::toolkit::sweep::Sweep;
use crate::uptime::Uptime;

/// How long a key may stay invalid before a member with waiting requests replays its write.
const PATIENCE: Nanos = Nanos::from_millis(8);
const RESEND_FIRST: Nanos = Nanos::from_millis(10);
const RESEND_MAX: Nanos = Nanos::from_millis(160);
/// The time that a byte of a value may take on its way, and to storage.
const PER_BYTE: Nanos = Nanos(25);
/// One of so many messages is sent again to a member that is slow.
const SLOW_SHARE: u32 = 5;
const TICK: TimerId = TimerId(0);
const ENDS: TimerId = TimerId(1);
const SWEEP: TimerId = TimerId(2);
const NOTED: TimerId = TimerId(3);
const ROUNDS: TimerId = TimerId(4);

/// One instance of Hermes.
#[derive(Debug)]
pub struct Hermes {
    env: Env,
    /// Keys with a request or a write in progress here.
    lanes: Lanes<Lane>,
    waiting_count: usize,
    /// The writes of this worker.
    asks: Outstanding<Asked>,
    /// Those of other members.
    heard: Heard<(Key, Version)>,
    /// The acknowledgements and the validations of this turn.
    acks: Collector,
    validated: Collector,
    /// Keys whose next write begins once the validations of this turn have left.
    resumed: Vec<Key>,
    stalls: Stalls,
    /// When times to live are over.
    ends: Ends,
    /// Tombstones, and the rounds that remove them.
    burials: Burials<Version, Round>,
    looks: Looks,
    /// Eras of shards above the first one.
    eras: BTreeMap<Shard, Era>,
    /// The epoch in which this process became a full member.
    full_since: Option<Epoch>,
    /// Tombstones that rounds of this member have removed.
    buried: u64,
    sweep: Sweep,
}

type Cx<'c, 'a> = Inside<'c, 'a, Hermes>;

impl Member for Hermes {
    const NAME: &'static str = "hermes";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: true,
        total_order: false,
        needs_config: true,
        needs_lease: true,
        locks: false,
        keeps_log: false,
        uncommitted_reads: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = NoMeta;

    fn open(env: Env) -> Hermes {
        Hermes {
            asks: Outstanding::new(&env),
            heard: Heard::default(),
            acks: Collector::new(env.workers),
            validated: Collector::new(env.workers),
            resumed: Vec::new(),
            stalls: Stalls::default(),
            env,
            lanes: Lanes::new(TICK),
            waiting_count: 0,
            ends: Ends::new(ENDS),
            burials: Burials::new(NOTED, ROUNDS),
            looks: Looks::default(),
            eras: BTreeMap::new(),
            full_since: None,
            buried: 0,
            sweep: Sweep::new(SWEEP),
        }
    }

    fn on(&mut self, cx: &mut Cx<'_, '_>, event: MemberEvent<Hermes>) {
        match event {
            MemberEvent::Request(request) => self.on_request(cx, request),
            MemberEvent::Message { from, message } => self.on_message(cx, from, message),
            MemberEvent::Timer(ENDS) => self.on_ends(cx),
            MemberEvent::Timer(NOTED) => self.on_noted(cx),
            MemberEvent::Timer(ROUNDS) => self.on_rounds(cx),
            MemberEvent::Timer(SWEEP) => self.sweep.on_timer(&mut **cx, &self.env),
            MemberEvent::Timer(_) => self.on_tick(cx),
            MemberEvent::Copied { key } => self.watch(cx, &key),
            MemberEvent::Scanned(scanned) => self.on_scanned(cx, scanned),
            MemberEvent::Turn => self.on_turn(cx),
            // Timers resend unanswered messages.
            MemberEvent::PeerReset { .. } | MemberEvent::PeerUp { .. } => {}
        }
        self.lanes.arm(cx.fx);
        self.ends.arm(cx.fx);
        self.burials.arm(cx.fx);
        self.sweep.plan_if_short(&mut **cx, &mut self.ends);
        if self.sweep.is_idle() && self.burials.take_short() {
            let now = cx.now;
            self.sweep.plan(&mut **cx, now);
        }
    }

    /// Acknowledgements do not outlive their epoch.
    fn install(&mut self, cx: &mut Cx<'_, '_>) {
        self.stalls.begin(cx.now);
        self.forget_ranges();
        self.end_rounds(Some((cx.configuration.epoch, cx.me().role)));
        for key in self.lanes.keys() {
            self.on_epoch(cx, &key);
        }
        // Those of the time between epochs are lost.
        self.lanes.lose_timers();
        self.ends.lose_timers();
        self.sweep.begin(&mut **cx, &self.env);
        self.lanes.arm(cx.fx);
        self.ends.arm(cx.fx);
    }

    fn expire(&mut self, cx: &mut Context<'_, Configured<Hermes>>) {
        for key in self.lanes.keys() {
            self.expire_lane(cx, &key);
        }
    }

    fn leave(&mut self, cx: &mut Context<'_, Configured<Hermes>>) -> Vec<Request> {
        let mut untried = Vec::new();
        for lane in self.lanes.take_all(cx.cache).into_values() {
            if let Some(Pend { origin: Some(Origin { waiting, .. }), .. }) = lane.pend {
                cx.fx.reply(waiting.request.tag, given_up(&waiting.request));
            }
            for waiting in lane.waiting {
                match waiting.is_tried {
                    true => cx.fx.reply(waiting.request.tag, given_up(&waiting.request)),
                    false => untried.push(waiting.request),
                }
            }
        }
        self.asks.clear();
        self.forget_ranges();
        self.resumed.clear();
        self.waiting_count = 0;
        self.ends = Ends::new(ENDS);
        self.end_rounds(None);
        self.sweep.stop();
        untried
    }

    fn lend(register: Register, uptime: &dyn Uptime, unix: Millis) -> Register {
        Register { content: register.content.with_rest(uptime, unix), ..register }
    }

    fn merge(held: Option<&Register>, copied: Register, uptime: &dyn Uptime) -> Option<Register> {
        let copied = copied.arrive(held, uptime);
        match held {
            Some(held) if held.version > copied.version => None,
            // Every member holds it, whichever of the two copies says so.
            Some(held) if held.version == copied.version && held.is_valid => None,
            _ => Some(copied),
        }
    }

    fn is_live(register: &Register, uptime: &dyn Uptime, unix: Millis) -> Option<bool> {
        let is_decided = register.is_valid && !register.content.is_over(uptime, unix);
        is_decided.then(|| !register.content.is_empty())
    }

    fn explain(register: &Register, uptime: &dyn Uptime, unix: Millis) -> Explained {
        let Version { era, number, writer, step, stepper } = register.version;
        let bytes: &[u8] = register.content.value.as_deref().unwrap_or_default();
        Explained {
            round: format!("{}.{}.{number}.{writer:?}.{step}.{stepper:?}", era.epoch.0, era.round),
            version: number,
            is_tombstone: register.content.is_empty(),
            value_len: bytes.len(),
            checksum: checksum::hash(bytes),
            rest: register.content.countdown(uptime, unix).rest(),
        }
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        register.content.weight(key)
    }

    fn check(&self, cache: &RegisterCache<Register>) -> Result<(), Violation> {
        for (key, lane) in self.lanes.iter() {
            let Some(pend) = &lane.pend else { continue };
            if self.asks.get(pend.number).is_none_or(|asked| asked.key != *key) {
                return Err(Violation(format!("hermes: {key:?} pends {pend:?}, not asked")));
            }
            let CachedRegister::Present(register) = cache.get(key) else {
                return Err(Violation(format!(
                    "hermes: {key:?} is being written and is not there"
                )));
            };
            let (pending, held) = (pend.register.version, register.version);
            let is_below = pending < held && !pending.is_rmw();
            if !is_below && pending != held || register.is_valid {
                return Err(Violation(format!("hermes: {key:?} pends {pend:?} on {register:?}")));
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.lanes.is_empty() && self.burials.is_empty() && self.sweep.is_idle()
    }

    fn stats(&self, stats: &mut Stats) {
        let pends = self.lanes.iter().filter(|(_, lane)| lane.pend.is_some()).count();
        stats.add("operations_in_progress", pends as u64);
        stats.add("operations_waiting", self.waiting_count as u64);
        let in_rounds: usize = self.burials.rounds().map(|round| round.batch.len()).sum();
        stats.add("tombstones", (self.burials.len() + in_rounds) as u64);
        stats.add("tombstones_collected", self.buried);
    }
}

/// Messages.
impl Hermes {
    fn on_message(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, message: Message) {
        if message.is_answer() {
            self.stalls.hear(from, cx.now);
        }
        match message {
            Message::Invalidate { ask, key, register } => {
                self.on_invalidate(cx, (from, ask), &key, register);
            }
            Message::Ack { acks } => self.on_ack(cx, from, &acks),
            Message::ValidateAsked { asked } => self.on_validate_asked(cx, from, &asked),
            Message::Validate { key, version } => self.on_validate(cx, &key, version),
            Message::Nudge { key, version } => self.on_nudge(cx, from, key, version),
            Message::Look { key } if from == cx.replicas.me() => self.on_look(cx, &key),
            Message::Look { .. } => {}
            Message::Stale { key, version, era } => self.on_stale(cx, &key, (version, era)),
            Message::Raise { key, version, era } => {
                self.on_raise(cx, from, &key, (version, era));
            }
            Message::Raised { key, version } => self.on_raised(cx, from, &key, version),
            Message::Bury { key, version } => self.on_bury(cx, &key, version),
        }
    }

    /// [HERMES 3.2, followers on INV]
    fn on_invalidate(
        &mut self,
        cx: &mut Cx<'_, '_>,
        (from, ask): (NodeId, Option<Ask>),
        key: &Key,
        invalid: Register,
    ) {
        let held = held_version(cx, key);
        let version = invalid.version;
        if self.refuses(cx, from, key, version) {
            return;
        }
        let is_earlier = held.era > version.era && !mutation::is(Mutation::AckEarlierLife);
        if version > held {
            let invalid = arrive(cx, key, invalid);
            self.store(cx, key, Register { is_valid: false, ..invalid });
            self.on_superseded(cx, key);
        } else if is_earlier
            || version < held && version.is_rmw() && !mutation::is(Mutation::AckLosingRmw)
        {
            self.note_rival(key, held);
            return send_held(cx, from, key);
        }
        let Some(ask) = ask else { return };
        let ticket = match mutation::is(Mutation::AckBeforeDurable) {
            true => types::Ticket::DURABLE,
            false => cx.cache.ticket(key),
        };
        self.heard.note(from, ask, (key.clone(), version));
        self.acks.add(from, ask, key.shard(), ticket);
    }

    /// Sends the acknowledgements and the validations of this turn.
    fn send_ranges(&mut self, cx: &mut Cx<'_, '_>) {
        for Collected { to, numbered, after } in self.acks.take() {
            cx.send(to, Message::Ack { acks: numbered }, after);
        }
        self.send_validated(cx);
    }

    /// Other members have their turn on a key before its next write here: its validation leaves
    /// ahead of that.
    fn on_turn(&mut self, cx: &mut Cx<'_, '_>) {
        self.send_ranges(cx);
        let resumed = std::mem::take(&mut self.resumed);
        for key in &resumed {
            self.advance(cx, key);
        }
        if !resumed.is_empty() {
            self.send_ranges(cx);
        }
    }

    fn send_validated(&mut self, cx: &mut Cx<'_, '_>) {
        for Collected { to, numbered, after } in self.validated.take() {
            cx.send(to, Message::ValidateAsked { asked: numbered }, after);
        }
    }

    /// Acknowledgements and validations of the last epoch are void.
    fn forget_ranges(&mut self) {
        self.heard.clear();
        self.acks.clear();
        self.validated.clear();
    }

    fn on_validate_asked(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, asked: &Numbered) {
        for ask in asked.asks() {
            let Some((key, version)) = self.heard.take(from, ask) else { continue };
            if cx.cache.is_resident(&key) {
                self.on_validate(cx, &key, version);
            } else {
                cx.send_now(cx.replicas.me(), Message::Validate { key, version });
            }
        }
    }

    /// [HERMES 3.2, followers on VAL]
    fn on_validate(&mut self, cx: &mut Cx<'_, '_>, key: &Key, version: Version) {
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

    /// Another member waits for the end of a read-modify-write of this node.
    fn on_nudge(&mut self, cx: &mut Cx<'_, '_>, from: NodeId, key: Key, version: Version) {
        if self.refuses(cx, from, &key, version) {
            return;
        }
        let CachedRegister::Present(register) = cx.cache.get(&key) else { return };
        let (held, is_valid) = (register.version, register.is_valid);
        if held > version {
            send_held(cx, from, &key);
        } else if held == version && is_valid {
            cx.send_now(from, Message::Validate { key, version });
        } else if held == version {
            // One that pends is sent again by its own timer.
            self.replay_if_idle(cx, &key);
        }
    }
}

/// A register that another member sent, with the countdown of this one.
fn arrive(cx: &Cx<'_, '_>, key: &Key, register: Register) -> Register {
    let held = match cx.cache.get(key) {
        CachedRegister::Present(held) => Some(held),
        CachedRegister::Absent | CachedRegister::Lost => None,
    };
    register.arrive(held, cx.uptime)
}

/// Tells a member of the newer version here, against which its own lost.
fn send_held(cx: &mut Cx<'_, '_>, to: NodeId, key: &Key) {
    let CachedRegister::Present(register) = cx.cache.get(key) else { return };
    let register = Register { is_valid: false, ..register.clone() };
    // It acknowledges the version, which says that it holds it.
    let ticket = cx.cache.ticket(key);
    cx.send(to, Message::Invalidate { ask: None, key: key.clone(), register }, ticket);
}

fn held_version(cx: &Cx<'_, '_>, key: &Key) -> Version {
    match cx.cache.get(key) {
        CachedRegister::Present(register) => register.version,
        CachedRegister::Absent | CachedRegister::Lost => Version::NONE,
    }
}

/// Time.
impl Hermes {
    fn on_tick(&mut self, cx: &mut Cx<'_, '_>) {
        for key in self.lanes.take_due(cx.now) {
            self.on_due(cx, &key);
        }
    }
}
