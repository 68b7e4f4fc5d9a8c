//! The instance: its proposers, and the dispatch of time.

use std::collections::BTreeSet;

use base::Nanos;
use hashbrown::HashMap;
use types::Key;
use types::key::ByHash;

use super::active::{Active, Kinds, Phase};
use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::protocol::{Env, Peer, Scope, Stats};
use crate::replicas::Replicas;
use crate::toolkit::due::Due;
use crate::toolkit::ends::Ends;
use crate::toolkit::explainer::Explainer;
use crate::toolkit::message::{About, Message};
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::pager::Pager;
use crate::toolkit::report::{Report, Reports};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::sweep::Sweep;

const TICK: TimerId = TimerId(0);
pub(super) const ENDS: TimerId = TimerId(3);
pub(super) const SWEEP: TimerId = TimerId(4);

/// The rules of a protocol, with its knowledge beyond single keys in use.
pub trait Rules: Kinds {
    /// The name of the protocol.
    fn name(&self) -> &'static str;

    /// Begins the next phase of an idle proposer, or answers it.
    fn advance(machine: &mut Machine<Self>, cx: &mut Cx<'_, Self>, active: &mut Active<Self>);

    /// A message of the protocol about a phase and a key, whose register is resident.
    fn on_body(
        machine: &mut Machine<Self>,
        cx: &mut Cx<'_, Self>,
        from: Peer,
        about: (u64, &Key),
        body: <Self::Report as Report>::Body,
    );

    /// A report that answers no read.
    fn on_report(
        _machine: &mut Machine<Self>,
        _cx: &mut Cx<'_, Self>,
        _active: &mut Active<Self>,
        _from: Peer,
        _report: Self::Report,
    ) {
    }

    /// The content that a read may answer with.
    fn read(
        reports: &Reports<Self::Report>,
        replicas: Replicas<'_>,
    ) -> Option<<Self::Report as Report>::Found> {
        Report::found(replicas.set, reports.counted(replicas), &reports.by_place)
    }

    /// A read ends. Replicas that lag may be told.
    fn on_read(
        cx: &mut Cx<'_, Self>,
        active: &mut Active<Self>,
        reports: &Reports<Self::Report>,
        found: &<Self::Report as Report>::Found,
    );

    /// A read found no answer: only a proposal decides.
    fn on_undecided(
        _active: &mut Active<Self>,
        _reports: &Reports<Self::Report>,
        _replicas: Replicas<'_>,
    ) {
    }

    fn stats(&self, counters: &Counters, stats: &mut Stats);
}

pub type Cx<'a, K> =
    Scope<'a, <<K as Kinds>::Report as Report>::Record, NoMeta, Message<<K as Kinds>::Report>>;

#[derive(Debug)]
pub struct Machine<R: Rules> {
    pub env: Env,
    pub rules: R,
    /// The largest number given to a ballot by this process.
    minted: u64,
    /// The last attempt of this process.
    pub(super) seq: u64,
    next_id: u64,
    /// Counts operations and phases, in their order.
    step: u64,
    actives: HashMap<Key, Active<R>, ByHash>,
    /// Operations in progress.
    pub(super) ops: usize,
    /// Keys that go on at the end of the turn.
    ready: BTreeSet<Key>,
    due: Due<Key>,
    /// When times to live should be over.
    pub(super) ends: Ends,
    pub(super) sweep: Sweep,
    /// The registers from before this start were not swept yet.
    is_new: bool,
    pub(super) pager: Pager<R::Report>,
    pub(super) explainer: Explainer<Message<R::Report>>,
    /// Registers being recovered one by one.
    pub(super) recovering: BTreeSet<Key>,
    pub counters: Counters,
}

#[derive(Debug, Default)]
pub struct Counters {
    pub proposals: u64,
    pub helped: u64,
    pub duels: u64,
    pub expired: u64,
}

impl<R: Rules> Machine<R> {
    #[must_use]
    pub fn new(env: Env, rules: R) -> Machine<R> {
        // Numbers of phases name the start of this process. Otherwise answers to its predecessor
        // would count.
        let start = if mutation::is(Mutation::StaleAnswers) { 0 } else { env.incarnation.0 };
        let read = |id, key| Message::About { id, key, body: About::Read };
        Machine {
            next_id: (u64::from(start) << 40) + 1,
            pager: Pager::new(&env),
            explainer: Explainer::new(&env, read),
            env,
            rules,
            minted: 0,
            seq: 0,
            step: 1,
            actives: HashMap::default(),
            ops: 0,
            ready: BTreeSet::new(),
            due: Due::new(TICK),
            ends: Ends::new(ENDS),
            sweep: Sweep::new(SWEEP),
            is_new: true,
            recovering: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    pub fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub fn next_step(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    /// A ballot above this one and above all of this process.
    pub fn mint(&mut self, above: Stamp) -> Stamp {
        self.minted = self.minted.max(above.number) + 1;
        let mut incarnation = self.env.incarnation;
        if mutation::is(Mutation::NoIncarnation) {
            incarnation.0 = 0;
        }
        Stamp { number: self.minted, writer: self.env.me, incarnation }
    }

    /// The proposers of keys in use.
    pub fn actives(&self) -> impl Iterator<Item = &Active<R>> {
        self.actives.values()
    }

    /// Works on the proposer of a key, which is made if there is none. Its register is resident.
    pub fn with(
        &mut self,
        cx: &mut Cx<'_, R>,
        key: &Key,
        work: impl FnOnce(&mut Machine<R>, &mut Cx<'_, R>, &mut Active<R>),
    ) {
        let mut active = self.actives.remove(key).unwrap_or_else(|| {
            cx.cache.pin(key);
            Active::new(key.clone())
        });
        let before = active.operations();
        work(self, cx, &mut active);
        self.ops = self.ops + active.operations() - before;
        if active.is_idle() && !active.is_wanted() {
            self.due.clear(key);
            cx.cache.unpin(key);
            return;
        }
        if active.is_idle() {
            // The end of the turn goes on with it. A timer that is due would fire again before.
            active.wake_at = Nanos::MAX;
            self.ready.insert(key.clone());
        }
        self.due.set(key.clone(), active.due_at());
        self.actives.insert(key.clone(), active);
    }

    /// Works on the proposer of a key if this is its phase.
    pub fn with_phase(
        &mut self,
        cx: &mut Cx<'_, R>,
        key: &Key,
        id: u64,
        work: impl FnOnce(&mut Machine<R>, &mut Cx<'_, R>, &mut Active<R>),
    ) {
        if self.actives.get(key).is_some_and(|active| active.id == id) {
            self.with(cx, key, work);
        }
    }

    /// A proposer that pauses goes on at the end of the turn.
    pub fn end_pause(&mut self, key: &Key) {
        if self.actives.get(key).is_some_and(|it| matches!(it.phase, Phase::Pausing)) {
            self.ready.insert(key.clone());
        }
    }

    pub(super) fn arm(&mut self, cx: &mut Cx<'_, R>) {
        if std::mem::take(&mut self.is_new) {
            self.sweep.begin(cx, &self.env);
        }
        self.sweep.plan_if_short(cx, &mut self.ends);
        self.due.arm(cx.fx);
        self.ends.arm(cx.fx);
        self.pager.arm(cx);
        self.explainer.arm(cx);
    }

    pub(super) fn on_tick(&mut self, cx: &mut Cx<'_, R>) {
        for key in self.due.take(cx.now) {
            if self.actives.contains_key(&key) {
                cx.about(key.shard());
                self.with(cx, &key, Machine::on_active_due);
            }
        }
    }

    /// Begins the next phases of keys that changed. Commands of one turn are one proposal.
    pub(super) fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        while let Some(key) = self.ready.pop_first() {
            let may_go_on = |it: &Active<R>| matches!(it.phase, Phase::Idle | Phase::Pausing);
            if self.actives.get(&key).is_some_and(may_go_on) {
                cx.about(key.shard());
                self.with(cx, &key, Machine::advance);
            }
        }
    }

    /// Begins the next phase.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>) {
        active.phase = Phase::Idle;
        active.wake_at = Nanos::MAX;
        R::advance(self, cx, active);
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.actives.is_empty()
            && self.pager.is_idle()
            && self.explainer.is_idle()
            && self.sweep.is_idle()
    }

    pub fn stats(&self, stats: &mut Stats) {
        stats.add("operations_in_progress", self.ops as u64);
        stats.add("recovering_keys", self.recovering.len() as u64);
        stats.add("expired_keys", self.counters.expired);
        self.pager.stats(stats);
        self.rules.stats(&self.counters, stats);
    }
}
