//! The instance: its operations in progress, and the dispatch of time.

use std::collections::BTreeSet;

use base::Nanos;
use hashbrown::HashMap;
use types::Key;
use types::key::ByHash;

use super::active::{Active, Phase};
use super::message::{Body, Message};
use super::register::{Register, Report};
use crate::effects::{TimerId, Violation};
use crate::mutation::{self, Mutation};
use crate::protocol::{Env, Scope, Stats};
use crate::register_cache::CachedRegister;
use crate::toolkit::due::Due;
use crate::toolkit::explainer::Explainer;
use crate::toolkit::no_meta::NoMeta;
use crate::toolkit::pager::Pager;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, slot_of};

const TICK: TimerId = TimerId(0);

pub(super) type Cx<'a> = Scope<'a, Register, NoMeta, Message>;

/// The subject of a deadline.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Alarm {
    Key(Key),
    /// The time of this key should be over.
    Expire(Key),
}

#[derive(Debug)]
pub(super) struct Machine {
    pub env: Env,
    pub waits: bool,
    pub name: &'static str,
    /// The largest number given to a ballot by this process.
    minted: u64,
    /// The last operation of this process.
    pub seq: u64,
    next_id: u64,
    /// Counts operations and phases, in their order.
    step: u64,
    pub actives: HashMap<Key, Active, ByHash>,
    /// Operations in progress.
    pub ops: usize,
    /// Keys that go on at the end of the turn.
    pub ready: BTreeSet<Key>,
    pub due: Due<Alarm>,
    pub pager: Pager<Report>,
    /// Registers being recovered one by one.
    pub recovering: BTreeSet<Key>,
    pub explainer: Explainer<Message>,
    pub counters: Counters,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub proposals: u64,
    pub helped: u64,
    pub duels: u64,
    pub expired: u64,
}

impl Machine {
    pub(super) fn new(env: Env, waits: bool, name: &'static str) -> Machine {
        // Numbers of phases name the start of this process. Otherwise answers to its predecessor
        // would count.
        let start = if mutation::is(Mutation::StaleAnswers) { 0 } else { env.incarnation.0 };
        Machine {
            next_id: (u64::from(start) << 40) + 1,
            pager: Pager::new(&env),
            explainer: Explainer::new(&env, |id, key| Message::About { id, key, body: Body::Read }),
            env,
            waits,
            name,
            minted: 0,
            seq: 0,
            step: 1,
            actives: HashMap::default(),
            ops: 0,
            ready: BTreeSet::new(),
            due: Due::new(TICK),
            recovering: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(super) fn next_step(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    /// A ballot above this one and above all of this process.
    pub(super) fn mint(&mut self, above: Stamp) -> Stamp {
        self.minted = self.minted.max(above.number) + 1;
        let mut incarnation = self.env.incarnation;
        if mutation::is(Mutation::NoIncarnation) {
            incarnation.0 = 0;
        }
        Stamp { number: self.minted, writer: self.env.me, incarnation }
    }

    /// Works on the proposer of a key, which is made if there is none. Its register is resident.
    pub(super) fn with(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        work: impl FnOnce(&mut Machine, &mut Cx<'_>, &mut Active),
    ) {
        let mut active = match self.actives.remove(key) {
            Some(active) => active,
            None => {
                cx.cache.pin(key);
                Active::new(key.clone())
            }
        };
        let before = active.operations();
        work(self, cx, &mut active);
        self.ops = self.ops + active.operations() - before;
        if active.is_done() {
            self.due.clear(&Alarm::Key(key.clone()));
            cx.cache.unpin(key);
            return;
        }
        if active.is_idle() {
            // The end of the turn goes on with it. A timer that is due would fire again before.
            active.wake_at = Nanos::MAX;
            self.ready.insert(key.clone());
        }
        self.due.set(Alarm::Key(key.clone()), active.due_at());
        self.actives.insert(key.clone(), active);
    }

    /// Works on the proposer of a key if this is its phase.
    pub(super) fn with_phase(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        id: u64,
        work: impl FnOnce(&mut Machine, &mut Cx<'_>, &mut Active),
    ) {
        let is_it = |active: &Active| active.id == id;
        if self.actives.get(key).is_some_and(is_it) {
            self.with(cx, key, work);
        }
    }

    pub(super) fn arm(&mut self, cx: &mut Cx<'_>) {
        self.due.arm(cx.fx);
        self.pager.arm(cx);
        self.explainer.arm(cx);
    }

    pub(super) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        for alarm in self.due.take(cx.now) {
            match alarm {
                Alarm::Key(key) if self.actives.contains_key(&key) => {
                    cx.about(key.shard());
                    self.with(cx, &key, Machine::on_active_due);
                }
                Alarm::Key(_) => {}
                Alarm::Expire(key) => {
                    let expire = Message::About { id: 0, key, body: Body::Expire };
                    cx.fx.send_now(cx.replicas.me(), expire);
                }
            }
        }
    }

    /// Begins the next phases of keys that changed. Commands of one turn are one proposal.
    pub(super) fn on_turn(&mut self, cx: &mut Cx<'_>) {
        while let Some(key) = self.ready.pop_first() {
            let is_idle = |active: &Active| matches!(active.phase, Phase::Idle | Phase::Pausing);
            if self.actives.get(&key).is_some_and(is_idle) {
                cx.about(key.shard());
                self.with(cx, &key, Machine::advance);
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        for (key, active) in &self.actives {
            if let Phase::Accepting(it) = &active.phase
                && it.state.slot != slot_of(&it.base) + 1
            {
                return Err(Violation(format!("classic-paxos: {key:?} skips a slot")));
            }
        }
        Ok(())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.actives.is_empty() && self.pager.is_idle() && self.explainer.is_idle()
    }

    pub(super) fn stats(&self, stats: &mut Stats) {
        stats.add("operations_in_progress", self.ops as u64);
        stats.add("recovering_keys", self.recovering.len() as u64);
        self.pager.stats(stats);
        stats.add("classic_proposals", self.counters.proposals);
        stats.add("classic_helped", self.counters.helped);
        stats.add("classic_duels", self.counters.duels);
        stats.add("expired_keys", self.counters.expired);
    }
}

/// True for a forgotten register. A node that is no replica has forgotten no register.
pub(super) fn is_lost(cx: &Cx<'_>, key: &Key) -> bool {
    cx.replicas.set.has_me()
        && matches!(cx.cache.get(key), CachedRegister::Lost)
        && !mutation::is(Mutation::NoRecovery)
}

/// The newest state that this node knows to be decided; `None`: it must ask.
pub(super) fn known_base(cx: &Cx<'_>, active: &Active) -> Option<Base> {
    let own = match cx.cache.get(&active.key) {
        _ if !cx.replicas.set.has_me() => None,
        CachedRegister::Present(register) => Some(register.committed.clone()),
        CachedRegister::Absent => Some(None),
        CachedRegister::Lost if mutation::is(Mutation::NoRecovery) => Some(None),
        CachedRegister::Lost => None,
    };
    match (own, &active.base) {
        (Some(own), Some(seen)) if slot_of(seen) > slot_of(&own) => Some(seen.clone()),
        (Some(own), _) => Some(own),
        (None, seen) => seen.clone(),
    }
}
