//! Time: resending what was not answered, ending what took too long, trying again after losing.
//!
//! One timer looks at everything under way every few milliseconds; nothing is under way in an idle node.

use std::collections::BTreeSet;

use base::Nanos;
use types::{Key, NodeId, Outcome};

use crate::effects::TimerId;
use crate::peers::Pace;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::in_sync;
use crate::rmwpaxos::core::operation::{Active, Operation, Phase, ReadRound, Source};
use crate::rmwpaxos::core::proposer;
use crate::rmwpaxos::core::reader;
use crate::rmwpaxos::message::Message;

pub(crate) const SWEEP: TimerId = TimerId(0);
pub(crate) const BACK_OFF: TimerId = TimerId(3);

const SWEEP_EVERY: Nanos = Nanos::from_millis(10);
/// Work that nobody waits for is given up after as many resends.
const UNWANTED_RESENDS_MAX: u32 = 8;
/// Of as many resends a slow member gets one: the first after more than a second.
const SLOW_RESENDS: u32 = 5;

#[derive(Default, Debug)]
pub(crate) struct Sweep {
    armed: bool,
    back_offs: BTreeSet<(Nanos, Key)>,
}

impl Sweep {
    pub(crate) fn arm(&mut self, cx: &mut Cx<'_>) {
        if !self.armed {
            self.armed = true;
            cx.fx.timer(SWEEP, cx.now + SWEEP_EVERY);
        }
    }

    /// Has the key looked at again at `until`, when it backs off or its patience ends.
    pub(crate) fn back_off(&mut self, cx: &mut Cx<'_>, until: Nanos, key: Key) {
        self.back_offs.insert((until, key));
        cx.fx.timer(BACK_OFF, until);
    }
}

impl RmwPaxos {
    pub(crate) fn on_sweep(&mut self, cx: &mut Cx<'_>) {
        self.sweep.armed = false;
        let patience = self.patience();
        let is_due = |active: &Active| {
            is_due(active, cx.now)
                || active.is_refused_for(patience, cx.now)
                || active.asks_rest_now(cx.now)
                || active.contested_until > Nanos::ZERO
                || active.unproven.as_ref().is_some_and(|unproven| unproven.is_overdue(cx.now))
        };
        for key in self.actives.keys_of(is_due) {
            let mut active = self.take_active(cx, &key);
            self.end_overdue(cx, &mut active);
            self.lose_patience(cx, &mut active);
            self.resend(cx, &mut active);
            self.put_active(active);
        }
        self.sweep_lists(cx);
        self.sweep_explanations(cx);
        let is_busy = !self.actives.is_empty() || !self.lists.is_empty();
        if is_busy || !self.explanations.is_empty() {
            self.sweep.arm(cx);
        }
    }

    pub(crate) fn on_back_off_timer(&mut self, cx: &mut Cx<'_>) {
        while let Some((until, key)) = self.sweep.back_offs.pop_first() {
            if until > cx.now {
                self.sweep.back_offs.insert((until, key));
                return;
            }
            let Some(mut active) = self.actives.take(&key) else { continue };
            cx.about(key.shard());
            if matches!(active.phase, Phase::BackingOff { until } if until <= cx.now) {
                active.phase = Phase::Idle;
            }
            self.lose_patience(cx, &mut active);
            self.put_active(active);
        }
    }

    /// Goes on without those who did not answer: one of them may be paused.
    fn lose_patience(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        self.settle_late_read(cx, active);
        if active.phase == Phase::Preparing && active.asks_rest_now(cx.now) {
            proposer::ask_rest(cx, active);
        }
        if active.phase == Phase::Preparing && active.contested_until > Nanos::ZERO {
            self.try_win(cx, active);
        }
        if active.unproven.as_ref().is_some_and(|unproven| unproven.is_overdue(cx.now)) {
            self.give_up_joint(active);
        }
        let is_trying = matches!(active.phase, Phase::Preparing | Phase::Owner);
        if is_trying && active.is_refused_for(self.patience(), cx.now) {
            self.lose(cx, active);
        }
    }

    /// Answers what has waited too long. [spec 9.5: request deadline]
    fn end_overdue(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let now = cx.now;
        let overdue = |operation: &Operation| operation.deadline <= now;
        let mut ended: Vec<Operation> = Vec::new();
        let mut doubtful: Vec<Operation> = Vec::new();
        active.queue.retain(|operation| keep_or_end(operation, now, &mut ended));
        active.read_queue.retain(|operation| keep_or_end(operation, now, &mut ended));
        if let Some(round) = &mut active.read {
            round.operations.retain(|operation| keep_or_end(operation, now, &mut ended));
        }
        let in_flight = active
            .in_flight
            .iter_mut()
            .flat_map(|proposal| proposal.carried.iter_mut().chain(proposal.operations.iter_mut()));
        let forwarded = active.forward.iter_mut().flat_map(|forward| &mut forward.operations);
        for operation in in_flight.chain(&mut active.carried).chain(forwarded) {
            if overdue(operation) && operation.source != Source::Answered {
                doubtful.push(operation.clone());
                operation.source = Source::Answered;
            }
        }
        for operation in ended {
            let outcome = if operation.attempts.is_empty() {
                self.unavailable(cx, active.key.shard())
            } else {
                Outcome::Unknown
            };
            self.answer(cx, &operation, outcome);
        }
        for operation in doubtful {
            // A read, wherever it rides, has no effect.
            let outcome = if operation.is_read() { Outcome::NoQuorum } else { Outcome::Unknown };
            self.answer(cx, &operation, outcome);
        }
        self.end_unwanted(cx, active);
    }

    /// Gives up what nobody waits for and nobody answers.
    fn end_unwanted(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let is_unwanted = |round: &mut ReadRound| {
            round.operations.is_empty() && round.resends >= UNWANTED_RESENDS_MAX
        };
        if active.queue.is_empty() {
            active.read.take_if(is_unwanted);
        }
        let wanted = |operation: &Operation| {
            matches!(operation.source, Source::Client(_) | Source::Forwarded { .. })
        };
        let in_flight = active
            .in_flight
            .iter()
            .flat_map(|proposal| proposal.carried.iter().chain(proposal.operations.iter()));
        let is_wanted = active.queue.iter().chain(&active.carried).chain(in_flight).any(wanted);
        // A forward ends by itself, and the phase is its own until then.
        if is_wanted || active.forward.is_some() || active.resends < UNWANTED_RESENDS_MAX {
            return;
        }
        if active.collecting.take().is_some() {
            self.collect_later(cx, &active.key.clone());
        }
        active.in_flight.clear();
        active.unproven = None;
        active.carried.clear();
        active.queue.clear();
        active.k = 0;
        active.phase = Phase::Idle;
        active.resend_at = Nanos::MAX;
    }

    fn resend(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        self.resend_read(cx, active);
        self.resend_forward(cx, active);
        if cx.now < active.resend_at {
            return;
        }
        active.resends += 1;
        active.resend_at = cx.now + self.round_trip.resend_after(active.resends);
        if self.is_void(cx, active) {
            return self.give_up_joint(active);
        }
        if active.phase == Phase::Preparing
            && active.promises.has_disputes()
            && !active.promises.is_quorum(cx.replicas)
        {
            // What was denied may be held by others by now, and who has promised once says nothing more of it.
            let resends = active.resends;
            self.prepare(cx, active);
            active.resends = resends;
            active.resend_at = cx.now + self.round_trip.resend_after(resends);
            return;
        }
        match active.phase {
            Phase::Preparing | Phase::Owner => {
                let nodes: Vec<NodeId> = cx.replicas.all().collect();
                for node in nodes {
                    self.resend_to(cx, active, node);
                }
            }
            Phase::Idle | Phase::BackingOff { .. } | Phase::Forwarding => {
                active.resend_at = Nanos::MAX;
            }
        }
    }

    /// Sends a member again what it did not answer, unless that most likely still waits in front of its link.
    fn resend_to(&mut self, cx: &mut Cx<'_>, active: &mut Active, node: NodeId) {
        let is_slow = cx.replicas.member(node).is_some_and(|member| member.pace == Pace::Slow);
        if is_slow && active.phase == Phase::Owner && !active.in_flight.is_empty() {
            // What it was spared it is told. A link on which much waits may have lost that.
            let is_told = active.abreast.has(cx.replicas, node);
            if is_told && !active.resends.is_multiple_of(SLOW_RESENDS) {
                base::sometimes!("nothing is sent again to a slow peer");
                return;
            }
            in_sync::note(cx, &mut active.abreast, node, true);
        }
        self.resend_lost(cx, active, node);
    }

    /// Sends a member again what it did not answer: if it was sent, it was lost.
    fn resend_lost(&mut self, cx: &mut Cx<'_>, active: &mut Active, node: NodeId) {
        match active.phase {
            Phase::Preparing if !active.promises.tally.has(cx.replicas, node) => {
                proposer::send_prepare(cx, active, node);
            }
            Phase::Owner if active.unproven.is_some() => self.resend_unproven(cx, active, node),
            Phase::Owner => {
                let Some(index) = cx.replicas.index(node) else { return };
                let acked = active.acks.at(cx.replicas, index);
                for at in 0..active.in_flight.len() {
                    if active.in_flight[at].k > acked {
                        proposer::send_accept(cx, active, at, node);
                    }
                }
                if active.in_flight.is_empty() && active.collecting.is_some_and(|k| k > acked) {
                    self.resend_tombstone(cx, active, node);
                }
            }
            _ => {}
        }
    }

    /// The tombstone is chosen, but to be collected everybody must hold it.
    fn resend_tombstone(&mut self, cx: &mut Cx<'_>, active: &Active, node: NodeId) {
        let (Some(state), Some(k)) = (&active.tip, active.collecting) else { return };
        let message = Message::Accept {
            key: active.key.clone(),
            round: active.ballot.round(k),
            chosen_k: active.chosen_k,
            state: state.clone(),
        };
        cx.fx.send_now(node, message);
    }

    /// What a dead connection may have lost is sent again as soon as there is one.
    pub(crate) fn on_peer_up(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.owe_returned(cx, node);
        self.doubt_member(cx, node);
        self.ask_returned(cx, node);
        for key in self.actives.keys_of(|_| true) {
            let mut active = self.take_active(cx, &key);
            let is_replica = cx.replicas.index(node).is_some();
            if is_replica {
                self.resend_lost(cx, &mut active, node);
            }
            match &active.read {
                Some(round) if is_replica && !round.reports.tally.has(cx.replicas, node) => {
                    reader::ask(cx, &key, round, node);
                }
                _ => {}
            }
            if active.forward.as_ref().is_some_and(|forward| forward.to == node) {
                self.send_forward(cx, &active);
            }
            self.put_active(active);
        }
    }

    /// What others stood in for, while it was slow, it is told now.
    pub(crate) fn on_peer_steady(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.owe_returned(cx, node);
        // What was left to compare with it only, nobody has waited for.
        self.arm_comparison(cx, cx.now);
    }

    /// Decisions that waited for this peer go on without it.
    pub(crate) fn on_peer_reset(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if let Some(index) = cx.replicas.peers.index(node) {
            self.left_at[index] = Some(cx.now);
        }
        for key in self.actives.keys_of(|active| active.read.is_some()) {
            let mut active = self.take_active(cx, &key);
            if let Some(round) = active.read.take() {
                self.settle_read(cx, &mut active, round);
            }
            self.put_active(active);
        }
    }
}

/// Keeps what is in time or internal; moves what is overdue to `ended`; drops what was answered.
fn keep_or_end(operation: &Operation, now: Nanos, ended: &mut Vec<Operation>) -> bool {
    if operation.source == Source::Answered {
        return !operation.attempts.is_empty() && operation.deadline > now;
    }
    if operation.deadline > now {
        return true;
    }
    ended.push(operation.clone());
    false
}

fn is_due(active: &Active, now: Nanos) -> bool {
    let read = active.read.as_ref();
    let forward = active.forward.as_ref();
    let first = [
        active.queue.front(),
        active.read_queue.first(),
        active.carried.first(),
        read.and_then(|round| round.operations.first()),
        forward.and_then(|forward| forward.operations.first()),
        active.in_flight.front().and_then(|proposal| proposal.operations.first()),
    ];
    now >= active.resend_at
        || read.is_some_and(|round| now >= round.resend_at || now >= round.patient_until)
        || forward.is_some()
        || first.into_iter().flatten().any(|operation| operation.deadline <= now)
        || active.queue.iter().any(|operation| operation.deadline <= now)
}
