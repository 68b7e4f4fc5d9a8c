//! Time: resends unanswered messages, ends overdue operations, retries lost phases.

use base::Nanos;
use types::{Key, NodeId, Outcome};

use super::hooks::{Hooks, Notice};
use super::in_sync;
use super::instance::Core;
use super::proposer;
use super::reader;
use super::send;
use crate::peers::Pace;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::progress::active::{Active, Phase, PhaseTwo, ReadRound, Resend};
use crate::rmwpaxos::progress::operation::{Operation, Source};

/// Resends before work without a client is given up.
const UNWANTED_RESENDS_MAX: u32 = 8;
/// A slow member gets one of this many resends: the first after more than a second.
const SLOW_RESENDS: u32 = 5;

impl Core {
    /// Keys for which something is due, in order.
    pub(crate) fn due_keys(&mut self, now: Nanos) -> Vec<Key> {
        self.retry.on_fired();
        let patience = self.patience();
        self.actives.keys_of(|active| is_due(active, now, patience))
    }

    /// The next key that backed off until now, or whose patience ends now.
    pub(crate) fn next_backed_off(&mut self, cx: &mut Cx<'_>) -> Option<Box<Active>> {
        while let Some(key) = self.retry.next_due(cx.now) {
            let Some(mut active) = self.find_active(cx, &key) else { continue };
            if matches!(active.phase, Phase::BackingOff(until) if until <= cx.now) {
                active.leave();
            }
            return Some(active);
        }
        None
    }

    /// Continues without members that did not answer. One of them may be paused.
    pub(crate) fn lose_patience(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        self.settle_late_read(cx, active);
        if let Phase::Preparing(one) = &active.phase {
            let is_contested = one.contested_until.is_some();
            if one.ask_rest_at.is_some_and(|at| cx.now >= at) {
                proposer::ask_rest(cx, active);
            }
            if is_contested {
                self.try_win(cx, active);
            }
        }
        if is_refused_for(active, self.patience(), cx.now) {
            self.lose(cx, active);
        }
    }

    /// Answers operations that have waited too long. [spec 9.5: request deadline]
    pub(crate) fn end_overdue(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let now = cx.now;
        let mut ended: Vec<Operation> = Vec::new();
        let mut doubtful: Vec<Operation> = Vec::new();
        active.queue.retain(|operation| keep_or_end(operation, now, &mut ended));
        active.read_queue.retain(|operation| keep_or_end(operation, now, &mut ended));
        if let Some(locked_out) = &mut active.locked_out {
            locked_out.operations.retain(|operation| keep_or_end(operation, now, &mut ended));
            if locked_out.operations.is_empty() {
                active.locked_out = None;
            }
        }
        if let Some(round) = &mut active.read {
            round.operations.retain(|operation| keep_or_end(operation, now, &mut ended));
        }
        if let Phase::Owner(two) = &mut active.phase {
            let in_flight = two
                .in_flight
                .iter_mut()
                .flat_map(|proposal| proposal.carried.iter_mut().chain(&mut proposal.operations));
            for operation in in_flight.chain(&mut two.carried) {
                doubtful.extend(operation.give_up_at(now));
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
            self.answer(cx, &operation, operation.outcome_in_doubt());
        }
        self.end_unwanted(active);
    }

    /// Gives up work that no client waits for and no member answers.
    fn end_unwanted(&mut self, active: &mut Active) {
        let is_unwanted = |round: &mut ReadRound| {
            round.operations.is_empty() && round.resends >= UNWANTED_RESENDS_MAX
        };
        if active.queue.is_empty() {
            active.read.take_if(is_unwanted);
        }
        let wanted = |operation: &Operation| {
            matches!(operation.source, Source::Client(_) | Source::Forwarded { .. })
        };
        let (is_wanted, resends) = match &active.phase {
            Phase::Preparing(one) => (false, one.resend.count),
            Phase::Owner(two) => (two.operations().any(wanted), two.resend.count),
            Phase::Idle | Phase::BackingOff(_) | Phase::Waiting => return,
        };
        if is_wanted || active.queue.iter().any(wanted) || resends < UNWANTED_RESENDS_MAX {
            return;
        }
        if active.owner().is_some_and(|two| two.collecting.is_some()) {
            self.notices.push(Notice::NotCollected { key: active.key.clone() });
        }
        active.queue.clear();
        active.leave();
    }

    /// Resends the due messages of a read, a phase 1 or a proposal.
    pub(crate) fn resend(&mut self, cx: &mut Cx<'_>, active: &mut Active, hooks: &mut dyn Hooks) {
        self.resend_read(cx, active);
        let is_disputed = active
            .preparing()
            .is_some_and(|one| one.promises.has_disputes() && !one.promises.is_quorum(cx.replicas));
        let resend = match &mut active.phase {
            Phase::Preparing(one) => &mut one.resend,
            Phase::Owner(two) => &mut two.resend,
            Phase::Idle | Phase::BackingOff(_) | Phase::Waiting => return,
        };
        if cx.now < resend.at {
            return;
        }
        resend.count += 1;
        resend.at = cx.now + self.round_trip.resend_after(resend.count);
        let next = *resend;
        if is_disputed {
            // Other members may hold the denied round by now, and a member that has promised
            // reports only once.
            self.prepare(cx, active, hooks);
            if let Phase::Preparing(one) = &mut active.phase {
                one.resend = next;
            }
            return;
        }
        let nodes: Vec<NodeId> = cx.replicas.all().collect();
        for node in nodes {
            if let Phase::Owner(two) = &mut active.phase
                && !may_resend(cx, two, node)
            {
                continue;
            }
            resend_lost(cx, active, node);
        }
    }

    /// Resends messages that a dead connection to this member may have lost.
    pub(crate) fn on_peer_up(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        for key in self.actives.keys_of(|_| true) {
            let mut active = self.take_active(cx, &key);
            if cx.replicas.index(node).is_some() {
                resend_lost(cx, &mut active, node);
                match &active.read {
                    Some(round) if !round.reports.tally.has(cx.replicas, node) => {
                        reader::ask(cx, &key, round, node);
                    }
                    _ => {}
                }
            }
            self.put_active(active);
        }
    }

    /// Decisions that waited for this peer continue without it.
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

/// False if messages to a silent member most likely still wait in its link's queue.
pub(crate) fn may_resend(cx: &Cx<'_>, two: &mut PhaseTwo, node: NodeId) -> bool {
    let is_slow = cx.replicas.member(node).is_some_and(|member| member.pace == Pace::Slow);
    if !is_slow || two.in_flight.is_empty() {
        return true;
    }
    // Proposals that it was spared are sent now. A link with a long queue may have lost others.
    let is_told = two.in_sync.has(cx.replicas, node);
    if is_told && !two.resend.count.is_multiple_of(SLOW_RESENDS) {
        base::sometimes!("no message is resent to a slow peer");
        return false;
    }
    in_sync::note(cx, &mut two.in_sync, node, true);
    true
}

/// Resends messages that a member did not answer. An unproven proposal is resent elsewhere.
fn resend_lost(cx: &mut Cx<'_>, active: &mut Active, node: NodeId) {
    match &active.phase {
        Phase::Preparing(one) if !one.promises.tally.has(cx.replicas, node) => {
            send::prepare(cx, &active.key, one, node);
        }
        Phase::Owner(two) if two.unproven.is_none() => {
            let Some(index) = cx.replicas.index(node) else { return };
            let acked = two.acks.at(cx.replicas, index);
            for at in 0..two.in_flight.len() {
                if two.in_flight[at].k > acked {
                    send::accept(cx, &active.key, two, at, node);
                }
            }
            if two.in_flight.is_empty() && two.collecting.is_some_and(|k| k > acked) {
                resend_tombstone(cx, &active.key, two, node);
            }
        }
        _ => {}
    }
}

/// The tombstone is chosen, but all members must hold it before it is collected.
fn resend_tombstone(cx: &mut Cx<'_>, key: &Key, two: &PhaseTwo, node: NodeId) {
    let (Some(state), Some(k)) = (&two.tip.state, two.collecting) else { return };
    let message = Message::Accept {
        key: key.clone(),
        round: two.round(k),
        chosen_k: two.chosen_k,
        state: state.clone(),
    };
    cx.fx.send_now(node, message);
}

/// Keeps an operation that is in time or internal, moves an overdue one to `ended`, and drops one
/// that was answered.
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

/// True if a member refused and the others have had their time. One may be paused.
fn is_refused_for(active: &Active, patience: Nanos, now: Nanos) -> bool {
    match &active.phase {
        Phase::Preparing(one) => one.refusals.is_any_for(patience, now),
        Phase::Owner(two) => two.refusals.is_any_for(patience, now),
        Phase::Idle | Phase::BackingOff(_) | Phase::Waiting => false,
    }
}

fn is_due(active: &Active, now: Nanos, patience: Nanos) -> bool {
    let is_past = |resend: &Resend| now >= resend.at;
    let is_late = |operation: &Operation| operation.deadline <= now;
    let (is_phase_due, first) = match &active.phase {
        Phase::Preparing(one) => {
            let is_asked = one.ask_rest_at.is_some_and(|at| now >= at);
            (is_past(&one.resend) || is_asked || one.contested_until.is_some(), None)
        }
        Phase::Owner(two) => {
            let is_unproven = two.unproven.as_ref().is_some_and(|it| now >= it.until);
            let flying = two.in_flight.first().and_then(|proposal| proposal.operations.first());
            (is_past(&two.resend) || is_unproven, two.carried.first().or(flying))
        }
        Phase::Idle | Phase::BackingOff(_) | Phase::Waiting => (false, None),
    };
    let read = active.read.as_ref();
    let first = [active.read_queue.first(), read.and_then(|round| round.operations.first()), first];
    is_phase_due
        || is_refused_for(active, patience, now)
        || read.is_some_and(|round| now >= round.resend_at || now >= round.patient_until)
        || first.into_iter().flatten().any(is_late)
        || active.queue.iter().any(is_late)
        || active.locked_out.as_ref().is_some_and(|it| it.operations.iter().any(is_late))
}
