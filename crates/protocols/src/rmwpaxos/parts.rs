//! The parts around the core: fast paths, deletion and services.
//!
//! Events are offered to them before the core handles them, the fast paths first.

use types::{Key, NodeId, Round, Shard};

use std::sync::Arc;

use super::context::{Cx, held};
use super::core::hooks::{Hooks, Notice};
use super::core::instance::Core;
use super::core::lost;
use super::deletion::{self, Deletion};
use super::fast::combined::{self, Combined};
use super::fast::delta::Deltas;
use super::fast::resumed;
use super::message::delta::Delta;
use super::message::{Due, Message, Report};
use super::progress::active::Active;
use super::progress::retry_timer;
use super::record::register::Register;
use super::record::state::State;
use super::services::anti_entropy::comparison::{self, AntiEntropy};
use super::services::anti_entropy::{patrol, pending_repairs, ranges};
use super::services::expirer::{self, Expirer};
use super::services::explaining::Explanations;
use super::services::forwarding::Forwarding;
use super::services::lingering::{self, Lingering};
use super::services::listing::Lists;
use super::services::recovery::keys::{self as recovery, Recovery};
use super::services::rollback_detector::{Past, RollbackDetector};
use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::peers::Pace;
use crate::protocol::{Env, Peer, Scanned, Stats};

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) combined: Combined,
    pub(crate) deltas: Deltas,
    pub(crate) deletion: Deletion,
    pub(crate) expirer: Expirer,
    pub(crate) recovery: Recovery,
    pub(crate) anti_entropy: AntiEntropy,
    pub(crate) detector: RollbackDetector,
    pub(crate) forwarding: Forwarding,
    pub(crate) lingering: Lingering,
    pub(crate) lists: Lists,
    pub(crate) explanations: Explanations,
}

impl Hooks for Parts {
    fn complete_report(
        &mut self,
        cx: &mut Cx<'_>,
        to: NodeId,
        key: &Key,
        have: Round,
        report: &mut Report,
    ) {
        let ranges = &mut self.anti_entropy.ranges;
        self.detector.complete_report(ranges, cx, (to, key, have), report);
    }

    fn disputes(&mut self, cx: &mut Cx<'_>, from: NodeId, key: &Key, accepted: Round) -> bool {
        self.detector.disputes(&mut self.anti_entropy.ranges, cx, (from, key, accepted))
    }

    fn delta(&self, base: (Round, &State), state: &State) -> Option<Arc<Delta>> {
        self.deltas.between(base, state)
    }
}

impl Parts {
    pub(crate) fn open(env: &Env) -> Parts {
        Parts {
            combined: Combined::default(),
            deltas: Deltas::default(),
            deletion: Deletion::default(),
            expirer: Expirer::default(),
            recovery: Recovery::default(),
            anti_entropy: AntiEntropy::default(),
            detector: RollbackDetector::default(),
            forwarding: Forwarding::new(env.incarnation),
            lingering: Lingering::new(env.transient),
            lists: Lists::default(),
            explanations: Explanations::default(),
        }
    }

    /// Starts on a queue without work in progress: continues as owner, forwards, reads first, or
    /// combines both phases. False if phase 1 must follow.
    pub(crate) fn lead(&mut self, core: &mut Core, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        resumed::try_resume(core, cx, active)
            || self.forwarding.try_forward(core, cx, active)
            || core.try_read_first(cx, active)
            || self.combined.try_propose(core, cx, active, &self.deltas)
    }

    /// Handles a message before its handler does. True if no handler needs it any more.
    pub(crate) fn intercept(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        message: &Message,
    ) -> bool {
        match message {
            Message::Accept { key, .. }
            | Message::AcceptDelta { key, .. }
            | Message::PrepareAccept { key, .. }
            | Message::Prepare { key, .. }
            | Message::Read { key, .. }
            | Message::Remove { key, .. }
            | Message::Forward { key, .. } => {
                self.recovery.begin_if_lost(core, cx, key);
            }
            Message::Accepted { key, round } => {
                let parts = (&mut *core, &mut self.anti_entropy.ranges);
                if self.recovery.on_slow_accepted(parts, cx, from, (key, *round)) {
                    return true;
                }
                if let Some(member) = cx.replicas.index(from.node) {
                    self.anti_entropy.repairs.on_accepted(member, key, *round);
                }
            }
            Message::Promise { key, ballot, report }
                if self.recovery.on_slow_promise(core, cx, from, (key, *ballot), report) =>
            {
                return true;
            }
            Message::Nack { key, tried, promised, .. } => {
                core.saw(cx, key.shard(), *promised);
                if self.recovery.on_slow_nack(core, cx, key, *tried) {
                    return true;
                }
            }
            Message::Fenced { key, tried, .. } => {
                self.recovery.on_slow_nack(core, cx, key, *tried);
            }
            Message::State { id, report, .. }
                if self.explanations.on_report(core, cx, from.node, *id, report) =>
            {
                return true;
            }
            Message::Repair { key, round, state } => {
                self.anti_entropy.ranges.note_late(cx.now, state.bytes().len(), Pace::Steady);
                // A forgotten register does not reply, not even that it was removed.
                if self.recovery.begin_if_lost(core, cx, key)
                    || self.forbids_repair(cx, from.node, (key, *round), state)
                {
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    /// True if this node knows that it cannot hold a register that is delivered late.
    fn forbids_repair(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        (key, round): (&Key, Round),
        state: &State,
    ) -> bool {
        let ranges = &mut self.anti_entropy.ranges;
        if self.detector.denies(ranges, cx, (node, key, round)) {
            return true;
        }
        let is_removed = held(cx, key).is_none_or(|it| it.accepted.is_none());
        is_removed
            && !state.is_tombstone()
            && self.detector.tell_removed(ranges, cx, node, (key, round))
    }

    /// Handles a message for the parts. Messages for the core are ignored.
    pub(crate) fn on_message(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        message: Message,
    ) {
        match message {
            Message::PrepareAccept { key, round, base, payload } => {
                combined::on_prepare_accept(core, cx, from, key, (round, base), payload);
            }
            Message::NeedFull { key, round } => self.on_need_full(core, cx, from, (&key, round)),
            Message::Forward { key, forward } => {
                self.forwarding.on_forward(core, cx, from, (key, forward));
            }
            Message::Forwarded { key, sequence, verdict } => {
                self.forwarding.on_forwarded(core, cx, from, (&key, sequence), verdict);
            }
            Message::Recover { key, id } => self.recovery.on_recover(core, cx, from, (key, id)),
            Message::Recovered { key, id, promised, report, fences } => {
                core.take_fences(cx, key.shard(), &fences);
                let parts = (core, &mut self.anti_entropy.ranges);
                self.recovery.on_recovered(parts, cx, from, (&key, id), (promised, *report));
            }
            Message::List { shard, id, from_hash, limit } => {
                self.lists.on_list(core, cx, from, (shard, id), (from_hash, limit));
            }
            Message::Listed { shard, id, listing } => {
                if let Some(listing) = self.lists.on_listed(core, cx, from, id, listing) {
                    let parts = (core, &mut self.anti_entropy.ranges);
                    self.recovery.on_listed(parts, cx, from, (shard, id), listing);
                }
            }
            Message::Compare { shard, id, range, floor, digests } => {
                let asked = (range, floor);
                self.anti_entropy.on_compare(core, cx, from, (shard, id), asked, *digests);
            }
            Message::Compared { id, until, floor, buckets, entries, .. } => {
                let (anti_entropy, mut parts) = self.comparing(core);
                anti_entropy.on_compared(
                    &mut parts,
                    cx,
                    from,
                    id,
                    (until, floor),
                    (buckets, entries),
                );
            }
            Message::Want { key, have, insist } => {
                let (anti_entropy, mut parts) = self.comparing(core);
                anti_entropy.deliver_late(&mut parts, cx, (key, have), from.node, insist);
            }
            Message::Older { key, round, floor, amnesia } => {
                let past = Past { round, floor, amnesia };
                self.detector.on_older(core, cx, from, (&key, past));
            }
            Message::OlderFloor { shard, floor, amnesia } => {
                self.detector.on_older_floor(core, cx, shard, floor, amnesia);
            }
            Message::Touch { key, due } => self.on_due(core, cx, key, due),
            _ => {}
        }
    }

    /// Anti-entropy, and the parts that it uses.
    fn comparing<'a>(
        &'a mut self,
        core: &'a mut Core,
    ) -> (&'a mut AntiEntropy, comparison::Helpers<'a>) {
        let parts = comparison::Helpers {
            core,
            detector: &mut self.detector,
            deletion: &mut self.deletion,
            lingering: &mut self.lingering,
        };
        (&mut self.anti_entropy, parts)
    }

    fn on_need_full(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, round): (&Key, Round),
    ) {
        if mutation::is(Mutation::NeedFullIsAck) {
            return core.on_accepted(cx, from, key, round);
        }
        if !self.combined.on_need_full(core, cx, from, (key, round)) {
            self.deltas.on_need_full(core, cx, from, (key, round));
        }
    }

    /// The register is resident: starts its due action.
    fn on_due(&mut self, core: &mut Core, cx: &mut Cx<'_>, key: Key, due: Due) {
        match due {
            Due::Recover => {
                self.recovery.on_due(core, &mut self.anti_entropy.ranges, cx, &key);
            }
            Due::Collect => self.deletion.on_due(core, cx, &key),
            Due::Expire => expirer::on_due(core, cx, &key),
            Due::Linger => self.lingering.on_due(cx, key, core.env().transient),
            Due::Remind => self.anti_entropy.repairs.on_due(core, cx, &key),
            Due::Deliver { to, lower, insist } => {
                let (anti_entropy, mut parts) = self.comparing(core);
                anti_entropy.deliver_late(&mut parts, cx, (key, lower), to, insist);
            }
        }
    }

    pub(crate) fn on_timer(&mut self, core: &mut Core, cx: &mut Cx<'_>, timer: TimerId) {
        let ranges = &mut self.anti_entropy.ranges;
        match timer {
            deletion::COLLECT => {
                for shard in self.deletion.on_timer(cx) {
                    cx.about(shard);
                    ranges.doubt(cx, shard, ranges::own_place(cx));
                }
            }
            lingering::LINGER => self.lingering.on_timer(cx),
            expirer::EXPIRE => self.expirer.on_timer(cx),
            recovery::RETRY => self.recovery.on_timer(core, ranges, cx),
            patrol::PATROL => self.anti_entropy.patrol.on_timer(ranges, core.env(), cx),
            pending_repairs::REMIND => self.anti_entropy.repairs.on_timer(cx),
            ranges::COMPARE => {
                let (anti_entropy, mut parts) = self.comparing(core);
                anti_entropy.on_timer(&mut parts, cx);
            }
            retry_timer::RETRY => {
                self.forwarding.on_retry(core, cx);
                self.lists.on_retry(core, cx);
                self.explanations.on_retry(core, cx);
                if !self.lists.is_empty() || !self.explanations.is_empty() {
                    core.arm_retries(cx);
                }
            }
            other => unreachable!("{other:?} was never set"),
        }
    }

    pub(crate) fn on_scanned(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        mut scanned: Scanned<Register>,
    ) {
        let (anti_entropy, mut parts) = self.comparing(core);
        if anti_entropy.on_scanned(&mut parts, cx, &mut scanned) {
            return;
        }
        let ranges = &mut self.anti_entropy.ranges;
        if !self.recovery.on_scanned(core, ranges, cx, &mut scanned) {
            self.lists.on_scanned(cx, scanned);
        }
    }

    pub(crate) fn on_forgotten(&mut self, core: &mut Core, cx: &mut Cx<'_>, shard: Shard) {
        self.anti_entropy.ranges.doubt_holders(shard);
        lost::note_loss(cx, shard);
        self.recovery.on_forgotten(core, cx, shard);
    }

    pub(crate) fn on_meta_loaded(&mut self, core: &mut Core, cx: &mut Cx<'_>, shard: Shard) {
        if cx.metas.get(shard).void && !cx.cache.is_forgotten(shard) && cx.replicas.set.has_me() {
            self.detector.find_void(core, cx, shard);
        }
    }

    /// Precedes the core's handler.
    pub(crate) fn on_peer_up(&mut self, core: &Core, cx: &mut Cx<'_>, node: NodeId) {
        self.anti_entropy.repairs.on_returned(cx, node);
        self.anti_entropy.ranges.doubt_member(core.env(), cx, node);
        self.recovery.on_peer_up(cx, node);
    }

    /// Follows the core's resends.
    pub(crate) fn resend_to(&mut self, core: &mut Core, cx: &mut Cx<'_>, node: NodeId) {
        self.combined.on_peer_up(core, cx, node);
        self.forwarding.on_peer_up(cx, node);
    }

    /// Sends a steady member the proposals that it was spared.
    pub(crate) fn on_peer_steady(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.anti_entropy.repairs.on_returned(cx, node);
        // Comparisons with this member alone have waited until now.
        self.anti_entropy.ranges.arm(cx, cx.now);
    }

    pub(crate) fn on_notice(&mut self, cx: &mut Cx<'_>, notice: Notice) {
        let ranges = &mut self.anti_entropy.ranges;
        match notice {
            Notice::Accepted(shard) => ranges.on_write(cx, shard),
            Notice::Lingers { key } => self.lingering.note(cx, &key),
            Notice::Ended { key } => self.lingering.forget(&key),
            Notice::Removed(shard) => ranges.on_removal(cx, shard),
            Notice::Chosen { key, state } => {
                if state.has_expiry() {
                    self.expirer.schedule(cx, &key, &state);
                }
                if (state.is_tombstone() || state.has_once()) && !state.has_lock() {
                    self.deletion.schedule(cx, &key, &state);
                }
            }
            Notice::Missed { key, round, missing } => {
                self.anti_entropy.repairs.on_missed(cx, (key, round), missing);
            }
            Notice::HeldByAll { key, round } => self.deletion.on_held_by_all(cx, &key, round),
            Notice::NotCollected { key } => self.deletion.collect_later(cx, &key),
            Notice::Contested { shard, with } => ranges.doubt_once(cx, shard, with),
            Notice::ForwardedDone { forward, index, outcome } => {
                self.forwarding.on_done(cx, forward, index, outcome);
            }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.recovery.is_idle()
            && self.lists.is_empty()
            && self.explanations.is_empty()
            && self.deletion.is_empty()
            && self.lingering.is_empty()
            && self.anti_entropy.repairs.is_quiet()
            && self.anti_entropy.ranges.is_quiet()
    }

    pub(crate) fn stats(&self, stats: &mut Stats) {
        let (figures, patrol) = (&self.anti_entropy.figures, &self.anti_entropy.patrol);
        stats.add("rmw_forwards", self.forwarding.forwards());
        stats.add("rmw_joint_phases", self.combined.sent.get());
        stats.add("rmw_joint_phases_failed", self.combined.failed.get());
        stats.add("rmw_chosen_hints", self.anti_entropy.repairs.hints());
        stats.add("rmw_shards_compared", figures.shards_compared.get());
        stats.add("rmw_shards_different", figures.shards_different.get());
        stats.add("rmw_keys_compared", figures.keys_compared.get());
        stats.add("rmw_keys_different", figures.keys_different.get());
        stats.add("rmw_keys_older", self.detector.older());
        stats.add("rmw_compare_passes", patrol.passes);
        stats.add("rmw_compare_passed_unix", patrol.passed_at.0 / 1_000);
        stats.add("tombstones_found", self.deletion.found());
        stats.add("rmw_needed_full", self.deltas.needed_full());
        stats.add("recovered_keys", self.recovery.recovered());
        stats.add("recovering_keys", self.recovery.keys_going_on() as u64);
        stats.add("recovering_shards", self.recovery.shards_going_on() as u64);
        stats.add("recovering_in_vain", self.recovery.in_vain() as u64);
        stats.add("tombstones", self.deletion.tombstones() as u64);
        stats.add("keys_remembering", self.deletion.remembering() as u64);
    }
}
