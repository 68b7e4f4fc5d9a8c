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
//! | `Store` -> `Stored` | hold this version or a newer one; one answer for those of a turn |
//! | `Query`, `Store` -> `Refused` | this operation is of a closed era |
//! | `Look` | to this node itself: is the time to live of this key over? |
//! | `Paging` | listings and recovery of shards ([`crate::toolkit::pager`]) |
//! | `Adopt` | to this node itself: the recovered content of a register |
//! | `Era` -> `EraTold` | a step of a round that removes tombstones (`collection.rs`) |
//! | `Bury` | remove this tombstone |
//! | `Dated` | to this node itself: the eras of a forgotten shard are known |
//!
//! Invariants:
//! 1. One value per version.
//! 2. A replica's version never decreases, unless its amnesia count grows or a tombstone goes.
//! 3. A reply leaves once the state that it reveals is durable.
//! 4. A forgotten register answers no request until it is recovered from a majority of *others*.
//! 5. A version is at most the newest that this process minted, or it is foreign.
//! 6. A tombstone goes only where no operation counts that began before all replicas held it.
//!
//! Departures: a command whose effect depends on the state is refused. A write may have a time to
//! live: its end is a version of its own ([`Version`]), which any node may store (`ending.rs`).
//! `DEL` is a plain write of a tombstone; its reply shows the state that its query saw. A read
//! waits [`operation::PATIENCE`] for the remaining replicas before it writes back.
//!
//! Start reading at `Abd::on`.

mod collection;
mod ending;
pub mod message;
pub mod operation;
mod operations;
mod paging;
mod recovery;
pub mod register;
pub mod reports;
mod requests;
mod rounds;

use std::collections::BTreeMap;

use types::{AmnesiaCount, Incarnation, Key, NodeId, Shard, Ticket};

pub use message::Message;
use operation::{Kind, Phase};
use operations::Operations;
use paging::held;
pub use register::{Register, Version};
use reports::Report;
use rounds::{Dating, Round};

use crate::effects::{TimerId, Violation};
use crate::mutation::{self, Mutation};
use crate::protocol::{
    Consistency, Context, Env, Event, Peer, Properties, Protocol, Request, Stats,
};
use crate::register_cache::{CachedRegister, RegisterCache, Weight};
use crate::replicas::Replicas;
use crate::toolkit::acks::{Collected, Collector};
use crate::toolkit::asks::{Ask, Stream};
use crate::toolkit::burials::Burials;
use crate::toolkit::due::Due;
use crate::toolkit::ends::Ends;
use crate::toolkit::eras::Eras;
use crate::toolkit::explainer::{EXPLAINER_TICK, Explainer};
use crate::toolkit::lanes::Behind;
use crate::toolkit::looks::Looks;
use crate::toolkit::pager::{PAGER_TICK, Paged as _, Pager};
use crate::toolkit::sweep::Sweep;

const TICK: TimerId = TimerId(0);
const ENDS: TimerId = TimerId(3);
const SWEEP: TimerId = TimerId(4);
const NOTED: TimerId = TimerId(5);
const ROUNDS: TimerId = TimerId(6);
const DATING: TimerId = TimerId(7);

/// One instance of ABD.
#[derive(Debug)]
pub struct Abd {
    env: Env,
    /// The largest number given to a version by this process.
    minted: u64,
    next_op: u64,
    /// Names this worker in stores.
    stream: Stream,
    /// The stores of this turn.
    stored: Collector,
    ops: Operations,
    behind: Behind<Request>,
    due: Due<u64>,
    /// Registers being recovered one by one. They are pinned.
    recovering: BTreeMap<Key, u64>,
    /// Forgotten shards whose eras are being recovered.
    dating: BTreeMap<Shard, Dating>,
    dating_due: Due<Shard>,
    pager: Pager<Report>,
    explainer: Explainer<Message>,
    /// When times to live are over.
    ends: Ends,
    looks: Looks,
    burials: Burials<Version, Round>,
    /// Tombstones whose removal this node has coordinated.
    buried: u64,
    sweep: Sweep,
    /// The own count at the last event of a view.
    amnesia: Option<AmnesiaCount>,
    /// The registers from before this start were not swept yet.
    is_new: bool,
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
    type Meta = Eras;

    fn open(env: Env) -> Abd {
        // Operation numbers name the start of this process. Otherwise answers to its predecessor
        // would count.
        let start = if mutation::is(Mutation::StaleAnswers) { 0 } else { env.incarnation.0 };
        Abd {
            next_op: (u64::from(start) << 40) + 1,
            stream: Stream { incarnation: Incarnation(start), worker: env.worker as u64 },
            stored: Collector::new(env.workers),
            pager: Pager::new(&env),
            explainer: Explainer::new(&env, |op, key| Message::Query {
                op,
                key,
                era: None,
                want_value: true,
            }),
            env,
            minted: 0,
            ops: Operations::default(),
            behind: Behind::default(),
            due: Due::new(TICK),
            recovering: BTreeMap::new(),
            dating: BTreeMap::new(),
            dating_due: Due::new(DATING),
            ends: Ends::new(ENDS),
            looks: Looks::default(),
            burials: Burials::new(NOTED, ROUNDS),
            buried: 0,
            sweep: Sweep::new(SWEEP),
            amnesia: None,
            is_new: true,
        }
    }

    fn on(&mut self, cx: &mut Cx<'_>, event: Event<Abd>) {
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, from_hash, limit } => self.pager.on_list(cx, tag, from_hash, limit),
            Event::Explain { tag, key } => self.explainer.on_explain(cx, tag, key),
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::Timer(PAGER_TICK) => self.pager.on_tick(cx),
            Event::Timer(EXPLAINER_TICK) => self.explainer.on_tick(cx),
            Event::Timer(ENDS) => self.on_ends(cx),
            Event::Timer(NOTED) => self.on_noted_due(cx),
            Event::Timer(ROUNDS) => self.on_rounds_due(cx),
            Event::Timer(DATING) => self.on_dating_due(cx),
            Event::Timer(SWEEP) => self.sweep.on_timer(cx, &self.env),
            Event::Timer(_) => self.on_tick(cx),
            Event::Scanned(scanned) if self.sweep.on_scanned(cx, &scanned) => {
                self.on_swept(cx, scanned);
            }
            Event::Scanned(scanned) => self.pager.on_scanned(cx, scanned),
            Event::Forgotten { shard } => self.on_forgotten(cx, shard),
            // Timers resend unanswered messages. A tally is checked against the view when it
            // decides.
            Event::PeerReset { .. }
            | Event::PeerUp { .. }
            | Event::PeerSteady { .. }
            | Event::Group(_) => {}
            Event::ViewChanged => self.on_view_changed(cx),
            Event::Turn => {
                for Collected { to, numbered, after } in self.stored.take() {
                    cx.fx.send(to, Message::Stored { acks: numbered }, after);
                }
            }
        }
        if std::mem::take(&mut self.is_new) {
            self.amnesia = Some(cx.replicas.peers.own().amnesia);
            self.sweep.begin(cx, &self.env);
        }
        self.sweep.plan_if_short(cx, &mut self.ends);
        if self.sweep.is_idle() && self.burials.take_short() {
            self.sweep.plan(cx, cx.now);
        }
        self.due.arm(cx.fx);
        self.ends.arm(cx.fx);
        self.burials.arm(cx.fx);
        self.dating_due.arm(cx.fx);
        self.pager.arm(cx);
        self.explainer.arm(cx);
    }

    fn on_meta_loaded(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        if mutation::is(Mutation::ForgetClosed) {
            cx.metas.get_mut(shard).closed = 0;
        }
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        register.content.weight(key)
    }

    fn check(
        &self,
        _cache: &RegisterCache<Register>,
        _replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        for (id, op) in self.ops.iter() {
            if let (Phase::Store { register, .. }, Kind::Write { .. }) = (&op.phase, &op.kind)
                && register.version.stamp.number > self.minted
            {
                let (version, minted) = (register.version, self.minted);
                return Err(Violation(format!("abd: op {id} stores {version:?} above {minted}")));
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.ops.is_empty()
            && self.behind.is_empty()
            && self.burials.is_empty()
            && self.dating.is_empty()
            && self.pager.is_idle()
            && self.explainer.is_idle()
            && self.sweep.is_idle()
    }

    fn stats(&self, stats: &mut Stats) {
        stats.add("operations_in_progress", self.ops.len() as u64);
        stats.add("recovering_keys", self.recovering.len() as u64);
        let in_rounds: usize = self.burials.rounds().map(|round| round.batch.len()).sum();
        stats.add("tombstones", (self.burials.len() + in_rounds) as u64);
        stats.add("tombstones_collected", self.buried);
        stats.add("recovering_shards", self.dating.len() as u64);
        self.pager.stats(stats);
    }
}

/// Messages.
impl Abd {
    fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        match message {
            Message::Query { op, key, era, want_value } => {
                let counts = era.is_none_or(|era| self.counts(cx, from.node, op, (&key, era)));
                if counts {
                    self.on_query(cx, from.node, op, &key, want_value);
                }
            }
            Message::Store { ask, key, era, register } => {
                if self.counts(cx, from.node, ask.number, (&key, era)) {
                    self.on_store(cx, from.node, ask, key, register);
                }
            }
            Message::Refused { op, key, era } => self.on_refused(cx, op, (&key, era)),
            Message::Bury { key, version } => self.on_bury(cx, &key, version),
            Message::Era { id, shard, step } => self.on_era(cx, from.node, id, (shard, step)),
            Message::EraTold { id, shard, eras } => self.on_era_told(cx, from, id, (shard, eras)),
            Message::Dated { id, shard } if from.node == cx.replicas.me() => {
                self.on_dated(cx, id, shard);
            }
            Message::State { op: id, report, .. } => {
                if self.explainer.on_explained(cx, from, id, || held(&report)) {
                    return;
                }
                if let Some(op) = self.ops.get_mut(id)
                    && matches!(op.phase, Phase::Query)
                {
                    op.answers.add(cx.replicas, (from.node, from.amnesia), report);
                    self.settle(cx, id);
                }
            }
            Message::Stored { acks } if acks.stream == self.stream => {
                for id in acks.numbers.iter() {
                    self.on_stored(cx, from, id);
                }
            }
            Message::Paging(message) => self.pager.on_message(cx, from, message),
            // Only this node may send itself recovered registers.
            Message::Adopt { walk, key, register } if from.node == cx.replicas.me() => {
                self.on_adopt(cx, walk, &key, register);
            }
            Message::Look { key, .. } if from.node == cx.replicas.me() => self.on_look(cx, key),
            Message::Adopt { .. }
            | Message::Look { .. }
            | Message::Dated { .. }
            | Message::Stored { .. } => {}
        }
    }

    fn on_stored(&mut self, cx: &mut Cx<'_>, from: Peer, id: u64) {
        if let Some(op) = self.ops.get_mut(id)
            && let Phase::Store { acks, .. } = &mut op.phase
        {
            cx.about(op.key.shard());
            acks.add(cx.replicas, from.node, from.amnesia);
            self.settle(cx, id);
        }
    }

    fn on_query(&mut self, cx: &mut Cx<'_>, from: NodeId, op: u64, key: &Key, want_value: bool) {
        let report = match cx.cache.get(key) {
            CachedRegister::Lost if !mutation::is(Mutation::NoRecovery) => {
                return self.recover(cx, key);
            }
            CachedRegister::Absent | CachedRegister::Lost => Report::ABSENT,
            CachedRegister::Present(register) if want_value => Report::of(register, cx),
            CachedRegister::Present(register) => Report::of(register, cx).without_values(),
        };
        let mut after = cx.cache.ticket(key);
        if mutation::is(Mutation::ExposeUnflushed) {
            after = Ticket::DURABLE;
        }
        cx.fx.send(from, Message::State { op, key: key.clone(), report }, after);
    }

    fn on_store(&mut self, cx: &mut Cx<'_>, from: NodeId, ask: Ask, key: Key, register: Register) {
        if matches!(cx.cache.get(&key), CachedRegister::Lost) && !mutation::is(Mutation::NoRecovery)
        {
            return self.recover(cx, &key);
        }
        if mutation::is(Mutation::StoreOlder)
            && let Some(held) = cx.cache.get_mut(&key)
        {
            held.version = Version::NONE;
        }
        self.store(cx, &key, register);
        if mutation::is(Mutation::DropTombstone)
            && let CachedRegister::Present(register) = cx.cache.get(&key)
            && register.content.is_empty()
        {
            cx.cache.remove(&key);
        }
        let mut after = cx.cache.ticket(&key);
        if mutation::is(Mutation::ReplyBeforeStored) {
            after = Ticket::DURABLE;
        }
        self.stored.add(from, ask, key.shard(), after);
    }
}

/// Time and counts of losses.
impl Abd {
    /// An amnesia count has grown.
    fn on_view_changed(&mut self, cx: &Cx<'_>) {
        // Messages carry the amnesia count of their making.
        self.stored.clear();
        let own = cx.replicas.peers.own().amnesia;
        if self.amnesia.replace(own).is_some_and(|before| before != own) {
            // Those to this node itself are lost, too: a sweep finds their keys.
            self.looks.clear();
            self.burials.set_short();
        }
    }

    fn on_tick(&mut self, cx: &mut Cx<'_>) {
        for id in self.due.take(cx.now) {
            self.on_op_due(cx, id);
        }
    }
}
