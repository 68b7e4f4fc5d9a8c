//! Recovery of lost memory [spec 8]: a forgotten register takes no part until a majority of others
//! has reported its possible promises and accepts.
//!
//! One register is recovered when it is touched. A whole shard is recovered by listing the others'
//! registers. The question itself carries the new amnesia count, which voids earlier
//! acknowledgements of this node.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{Ballot, Key, NodeId, Round, Shard};

use super::shard::{STANDS_STILL_AFTER, ShardRecovery, majority_is_up};
use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::register_cache::CachedRegister;
use crate::rmwpaxos::context::{Cx, held, is_lost};
use crate::rmwpaxos::core::acceptor;
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::core::replies::report_of;
use crate::rmwpaxos::message::{Message, Report};
use crate::rmwpaxos::once::starts::Starts;
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::progress::reports::Reports;
use crate::rmwpaxos::record::register::{Register, Started};
use crate::rmwpaxos::record::state::State;
use crate::rmwpaxos::services::anti_entropy::ranges::Ranges;

pub(crate) const RETRY: TimerId = TimerId(4);

const RETRY_EVERY: Nanos = Nanos::from_millis(20);
/// Members that have not answered are asked again, each time after twice as long, up to this. Links
/// are reliable while they stand, and an answer may be long.
const PATIENCE_MAX: Nanos = Nanos::from_secs(10);
/// Registers under recovery. Further ones wait until they are touched again.
const KEYS_MAX: usize = 16_384;
/// Of 256 shards, those lost by a majority that do not keep a node from being ready.
const SHARDS_IN_VAIN_MAX: usize = 32;

#[derive(Default, Debug)]
pub(crate) struct Recovery {
    pub(super) keys: BTreeMap<Key, KeyRecovery>,
    pub(super) shards: BTreeMap<Shard, ShardRecovery>,
    pub(super) waiting_shards: BTreeSet<Shard>,
    takes: Takes,
    armed: bool,
    /// For the mutation `TwoMinters`.
    own_number: u64,
    recovered: Figure,
}

#[derive(Debug)]
pub(super) struct KeyRecovery {
    id: u64,
    reports: Reports,
    promised: [Ballot; MEMBERS_MAX],
    slow: Option<Slow>,
    begun_at: Nanos,
    /// No progress although a majority of others is up.
    is_in_vain: bool,
    retry_at: Nanos,
    retries: u32,
    /// Proposals of this node that decided no round.
    proposals: u32,
}

/// The others disagree: a proposal of this node decides, counting only them. [spec 8.4, step 4]
#[derive(Debug)]
struct Slow {
    ballot: Ballot,
    promises: Reports,
    proposed: Option<State>,
    accepted: Tally,
}

/// The highest reported floors.
struct Floors {
    ballot: Ballot,
    version: u64,
}

/// Smoothed time of one recovery, including the queue before it.
#[derive(Clone, Copy, Debug)]
struct Takes(Nanos);

impl Default for Takes {
    /// A round trip to the other side of the world.
    fn default() -> Takes {
        Takes(Nanos::from_millis(250))
    }
}

impl Takes {
    fn observe(&mut self, sample: Nanos) {
        self.0 = Nanos((self.0.0 * 7 + sample.min(PATIENCE_MAX).0) / 8);
    }
}

impl KeyRecovery {
    /// Discards all answers so far.
    fn begin_anew(&mut self, id: u64) {
        self.id = id;
        self.slow = None;
        self.reports = Reports::default();
        self.promised = [Ballot::ZERO; MEMBERS_MAX];
    }
}

impl Recovery {
    pub(crate) fn is_idle(&self) -> bool {
        self.keys.is_empty() && self.shards_len() == 0
    }

    #[cfg(test)]
    pub(crate) fn keys_len(&self) -> usize {
        self.keys.len()
    }

    /// Registers recovered so far.
    pub(crate) fn recovered(&self) -> u64 {
        self.recovered.get()
    }

    pub(crate) fn keys_going_on(&self) -> usize {
        self.keys.values().filter(|it| !it.is_in_vain).count()
    }

    /// Counts stuck shards, too, if too many are stuck to serve clients without them.
    pub(crate) fn shards_going_on(&self) -> usize {
        let in_vain = self.shards.values().filter(|it| it.is_in_vain).count();
        if in_vain > SHARDS_IN_VAIN_MAX { self.shards_len() } else { self.shards_len() - in_vain }
    }

    /// Registers and shards that a majority seems to have lost.
    pub(crate) fn in_vain(&self) -> usize {
        let keys = self.keys.values().filter(|it| it.is_in_vain).count();
        keys + self.shards.values().filter(|it| it.is_in_vain).count()
    }

    pub(crate) fn shards_len(&self) -> usize {
        self.shards.len() + self.waiting_shards.len()
    }
}

impl Recovery {
    /// Starts the recovery of a forgotten register. False if it is not forgotten.
    pub(crate) fn begin_if_lost(&mut self, core: &mut Core, cx: &mut Cx<'_>, key: &Key) -> bool {
        if !is_lost(cx, key) {
            return false;
        }
        // A whole register in a void shard waits for the shard.
        let can_start = matches!(cx.cache.get(key), CachedRegister::Lost);
        if can_start && !self.keys.contains_key(key) && self.keys.len() < KEYS_MAX {
            cx.cache.pin(key);
            let id = core.next_id();
            let recovery = KeyRecovery {
                id,
                reports: Reports::default(),
                promised: [Ballot::ZERO; MEMBERS_MAX],
                slow: None,
                begun_at: cx.now,
                is_in_vain: false,
                retry_at: cx.now + self.asked_again_after(core, 0),
                retries: 0,
                proposals: 0,
            };
            self.keys.insert(key.clone(), recovery);
            ask_others(cx, key, id);
            self.arm(cx);
        }
        true
    }

    pub(super) fn arm(&mut self, cx: &mut Cx<'_>) {
        if !self.armed && !self.is_idle() {
            self.armed = true;
            cx.fx.timer(RETRY, cx.now + RETRY_EVERY);
        }
    }

    /// Reports a register to a node that lost its memory. Does not answer for a register that is
    /// forgotten here, too.
    pub(crate) fn on_recover(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, id): (Key, u64),
    ) {
        if from.node == core.me() || self.begin_if_lost(core, cx, &key) {
            return;
        }
        let report = Box::new(report_of(cx, &key, Round::NONE));
        let meta = cx.metas.get(key.shard());
        let promised = acceptor::effective_promise(held(cx, &key), meta, cx.replicas.epoch());
        let fences = meta.fences.clone();
        let after = cx.cache.ticket(&key).max(cx.metas.ticket(key.shard()));
        cx.fx.send(from.node, Message::Recovered { key, id, promised, report, fences }, after);
    }

    pub(crate) fn on_recovered(
        &mut self,
        (core, ranges): (&mut Core, &mut Ranges),
        cx: &mut Cx<'_>,
        from: Peer,
        (key, id): (&Key, u64),
        (promised, report): (Ballot, Report),
    ) {
        let Some(recovery) = self.keys.get_mut(key) else { return };
        if recovery.id != id || recovery.slow.is_some() || from.node == core.me() {
            return;
        }
        recovery.reports.add(cx.replicas, from.node, from.amnesia, report);
        if let Some(index) = cx.replicas.index(from.node) {
            recovery.promised[index] = recovery.promised[index].max(promised);
        }
        // A majority of the others, this node not counted.
        if cx.replicas.is_quorum(&recovery.reports.tally) {
            self.settle(core, ranges, cx, key);
        }
    }

    fn settle(&mut self, core: &mut Core, ranges: &mut Ranges, cx: &mut Cx<'_>, key: &Key) {
        let Some(recovery) = self.keys.get(key) else { return };
        let counted = || recovery.reports.counted(cx.replicas).map(|(_, report)| report);
        let highest = counted().map(|report| report.accepted).max().unwrap_or(Round::NONE);
        let reports = &recovery.reports;
        let equal = reports.places(cx.replicas, |report| report.accepted == highest);
        let is_chosen = cx.replicas.set.is_quorum_of(equal);
        let promised = recovery.promised.iter().copied().max().unwrap_or(Ballot::ZERO);
        let floors = Floors {
            ballot: counted().map(|report| report.floor_ballot).max().unwrap_or(Ballot::ZERO),
            version: counted().map(|report| report.floor_version).max().unwrap_or(0),
        };
        let adoptable = is_chosen || mutation::is(Mutation::AdoptMinority);
        if highest.is_none() {
            return self.recover_absent((core, ranges), cx, key, (promised, floors));
        }
        match recovery.reports.state_of(highest) {
            Some(state) if adoptable => {
                let register = Register {
                    accepted: highest,
                    chosen: is_chosen,
                    countdown: Started::anew(state.ttl(), cx.uptime),
                    once_starts: Starts::anew(&state, cx.uptime),
                    state: Some(state),
                    ..Register::promise_only(promised.max(highest.ballot()))
                };
                self.end((core, ranges), cx, key, register);
            }
            _ => self.start_slow(core, cx, key, promised),
        }
    }

    /// No member of a majority has accepted a round. So each promise that this node gave is at or
    /// below one that the others reported. Their floors become this node's: a register that was
    /// removed there was removed here, too, and reports must show it. [spec 11, S22b]
    fn recover_absent(
        &mut self,
        (core, ranges): (&mut Core, &mut Ranges),
        cx: &mut Cx<'_>,
        key: &Key,
        (promised, floors): (Ballot, Floors),
    ) {
        if core.raise_floors(cx, key.shard(), (floors.ballot, floors.version)) {
            ranges.on_raised(cx, key.shard());
        }
        // Strictly above the reported promise, which may be a floor. A floor refuses its own
        // ballot, too, such as late proposals before a removed tombstone. No node mints a ceiling's
        // ballot.
        let promised = promised.max(cx.metas.get(key.shard()).floor_ballot);
        let promised = Ballot::ceiling(promised.epoch(), promised.number());
        self.end((core, ranges), cx, key, Register::promise_only(promised));
    }

    fn end(
        &mut self,
        (core, ranges): (&mut Core, &mut Ranges),
        cx: &mut Cx<'_>,
        key: &Key,
        register: Register,
    ) {
        if self.drop_overtaken(cx, key) {
            return;
        }
        base::sometimes!("a forgotten register is recovered");
        if let Some(ended) = self.keys.remove(key) {
            self.takes.observe(cx.now.since(ended.begun_at));
        }
        self.recovered.add(1);
        // It may be this node's proposal, which not all others have accepted.
        ranges.doubt_holders(key.shard());
        core.install(cx, key, register);
        cx.cache.unpin(key);
        self.on_key_recovered(core, ranges, cx, key);
    }

    /// Drops a register's recovery if its shard was recovered first. The register has taken part
    /// since, so its promises and accepts must not be overwritten.
    fn drop_overtaken(&mut self, cx: &mut Cx<'_>, key: &Key) -> bool {
        if matches!(cx.cache.get(key), CachedRegister::Lost) {
            return false;
        }
        base::sometimes!("a shard is recovered before a register of it");
        if self.keys.remove(key).is_some() {
            cx.cache.unpin(key);
        }
        true
    }

    fn start_slow(&mut self, core: &mut Core, cx: &mut Cx<'_>, key: &Key, promised: Ballot) {
        base::sometimes!("a recovering replica decides by a proposal of its own");
        core.saw(cx, key.shard(), promised);
        let ballot = if mutation::is(Mutation::TwoMinters) {
            self.own_number = self.own_number.max(promised.number()) + 1;
            let (me, incarnation) = (core.me(), core.env().incarnation);
            Ballot::new(cx.replicas.epoch(), self.own_number, me, incarnation)
        } else {
            let Some(ballot) = core.mint(cx, key) else { return };
            ballot
        };
        let Some(recovery) = self.keys.get(key) else { return };
        let patience = self.asked_again_after(core, recovery.proposals + 1);
        let Some(recovery) = self.keys.get_mut(key) else { return };
        recovery.slow = Some(Slow {
            ballot,
            promises: Reports::default(),
            proposed: None,
            accepted: Tally::default(),
        });
        // A proposal takes two round trips, and a restart voids it. So later ones get more time.
        recovery.retry_at = cx.now + patience;
        recovery.proposals += 1;
        let others: Vec<_> = cx.replicas.others().collect();
        for node in others {
            let (key, have) = (key.clone(), Round::NONE);
            let message = Message::Prepare { key, ballot, have, fence: None };
            cx.fx.send_now(node, message);
        }
    }

    fn slow_of(&mut self, key: &Key, ballot: Ballot) -> Option<&mut Slow> {
        let recovery = self.keys.get_mut(key)?;
        recovery.slow.as_mut().filter(|slow| slow.ballot == ballot)
    }

    /// True if the promise was for a recovery.
    pub(crate) fn on_slow_promise(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, ballot): (&Key, Ballot),
        report: &Report,
    ) -> bool {
        if self.keys.is_empty() || from.node == core.me() {
            return false;
        }
        let Some(slow) = self.slow_of(key, ballot) else { return false };
        slow.promises.add(cx.replicas, from.node, from.amnesia, report.clone());
        if slow.proposed.is_some() || !cx.replicas.is_quorum(&slow.promises.tally) {
            return true;
        }
        let counted = slow.promises.counted(cx.replicas);
        let highest = counted.map(|(_, report)| report.accepted).max().unwrap_or(Round::NONE);
        match slow.promises.state_of(highest) {
            Some(state) => {
                slow.proposed = Some(state.clone());
                let round = ballot.round(1);
                let others: Vec<_> = cx.replicas.others().collect();
                for node in others {
                    let (key, state) = (key.clone(), state.clone());
                    cx.fx.send_now(node, Message::Accept { key, round, chosen_k: 0, state });
                }
            }
            None => self.restart(core, cx, key),
        }
        true
    }

    /// True if the acknowledgement was for a recovery.
    pub(crate) fn on_slow_accepted(
        &mut self,
        (core, ranges): (&mut Core, &mut Ranges),
        cx: &mut Cx<'_>,
        from: Peer,
        (key, round): (&Key, Round),
    ) -> bool {
        if self.keys.is_empty() || from.node == core.me() {
            return false;
        }
        let Some(slow) = self.slow_of(key, round.ballot()) else { return false };
        slow.accepted.add(cx.replicas, from.node, from.amnesia);
        if !cx.replicas.is_quorum(&slow.accepted) {
            return true;
        }
        let Some(state) = slow.proposed.clone() else { return true };
        let register = Register {
            accepted: round,
            chosen: true,
            countdown: Started::anew(state.ttl(), cx.uptime),
            once_starts: Starts::anew(&state, cx.uptime),
            state: Some(state),
            ..Register::promise_only(round.ballot())
        };
        self.end((core, ranges), cx, key, register);
        true
    }

    /// True if the refusal was for a recovery.
    pub(crate) fn on_slow_nack(
        &mut self,
        core: &Core,
        cx: &Cx<'_>,
        key: &Key,
        tried: Round,
    ) -> bool {
        if self.keys.is_empty() || self.slow_of(key, tried.ballot()).is_none() {
            return false;
        }
        // The retry starts anew. By then the competing proposer has most likely decided.
        let soon = cx.now + core.round_trip().resend_after(1);
        if let Some(recovery) = self.keys.get_mut(key) {
            recovery.retry_at = recovery.retry_at.min(soon);
        }
        true
    }

    /// Asks again after a while without a decision. Answers may be in flight, so members without an
    /// answer get the same question.
    fn retry(&mut self, core: &mut Core, cx: &mut Cx<'_>, key: &Key) {
        cx.about(key.shard());
        if self.drop_overtaken(cx, key) {
            return;
        }
        let Some(recovery) = self.keys.get(key) else { return };
        if recovery.slow.is_some() || cx.replicas.is_quorum(&recovery.reports.tally) {
            return self.restart(core, cx, key);
        }
        let patience = self.asked_again_after(core, recovery.retries + 1);
        let Some(recovery) = self.keys.get_mut(key) else { return };
        recovery.retries += 1;
        recovery.retry_at = cx.now + patience;
        recovery.is_in_vain =
            cx.now.since(recovery.begun_at) >= STANDS_STILL_AFTER && majority_is_up(cx.replicas);
        for node in
            cx.replicas.others().filter(|&node| !recovery.reports.tally.has(cx.replicas, node))
        {
            cx.fx.send_now(node, Message::Recover { key: key.clone(), id: recovery.id });
        }
    }

    fn restart(&mut self, core: &mut Core, cx: &mut Cx<'_>, key: &Key) {
        let (id, patience) = (core.next_id(), self.asked_again_after(core, 0));
        let Some(recovery) = self.keys.get_mut(key) else { return };
        recovery.begin_anew(id);
        recovery.retries += 1;
        recovery.retry_at = cx.now + patience;
        ask_others(cx, key, id);
    }

    /// Registers of the shard take part from now on, or may have since they were asked for. Earlier
    /// answers do not cover their later promises and accepts.
    pub(super) fn void_answers(&mut self, core: &mut Core, now: Nanos, shard: Shard) {
        let patience = self.asked_again_after(core, 0);
        let of_shard = self.keys.iter_mut().filter(|(key, _)| key.shard() == shard);
        for (_, recovery) in of_shard {
            recovery.begin_anew(core.next_id());
            recovery.retry_at = now + patience;
        }
    }

    /// The time of the next question to members without an answer. It leaves time for an answer in
    /// flight.
    fn asked_again_after(&self, core: &Core, retries: u32) -> Nanos {
        let first = core.round_trip().resend_after(0).max(Nanos(self.takes.0.0 * 2));
        Nanos(first.0 << retries.min(8)).min(PATIENCE_MAX)
    }

    /// Repeats questions that were lost with a node's connection.
    pub(crate) fn on_peer_up(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let replicas_of = cx.by_shard();
        let is_missing = |key: &Key, it: &KeyRecovery| {
            let replicas = replicas_of(key.shard());
            let is_replica = replicas.index(node).is_some();
            it.slow.is_none() && is_replica && !it.reports.tally.has(replicas, node)
        };
        for (key, recovery) in self.keys.iter().filter(|(key, it)| is_missing(key, it)) {
            cx.fx.send_now(node, Message::Recover { key: key.clone(), id: recovery.id });
        }
        self.ask_returned_for_shards(cx, node);
    }

    pub(crate) fn on_timer(&mut self, core: &mut Core, ranges: &mut Ranges, cx: &mut Cx<'_>) {
        self.armed = false;
        let now = cx.now;
        let due = |retry_at: Nanos| retry_at <= now;
        let keys: Vec<Key> = self
            .keys
            .iter()
            .filter(|(_, recovery)| due(recovery.retry_at))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.retry(core, cx, &key);
        }
        self.retry_shards(core, ranges, cx);
        self.arm(cx);
    }
}

fn ask_others(cx: &mut Cx<'_>, key: &Key, id: u64) {
    let others: Vec<_> = cx.replicas.others().collect();
    for node in others {
        cx.fx.send_now(node, Message::Recover { key: key.clone(), id });
    }
}
