//! How the newest proposal travels, and the members that should hold its base.
//!
//! Members in sync are sent the change of a proposal. Only they know whether they hold the base.
//! Being wrong here costs a round trip, never more: a member that cannot apply a delta is unchanged
//! and asks for the whole state.

use std::sync::Arc;

use base::Nanos;
use types::{Key, NodeId, Round};

use super::instance::Core;
use super::send;
use crate::peers::{Member, Pace};
use crate::quorum::Tally;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::message::delta::Delta;
use crate::rmwpaxos::progress::active::PhaseTwo;
use crate::rmwpaxos::progress::reports::Reports;

/// How long sparing pauses after a proposal that needed a spared member.
const SPARES_NOBODY_FOR: Nanos = Nanos::from_secs(5);

/// Members whose promise reported `round`: below this ballot they accept no other round any more.
/// If it is chosen, also its `addressees` that were not asked.
pub(super) fn reporters(
    cx: &Cx<'_>,
    promises: &Reports,
    round: Round,
    addressees: Option<Tally>,
) -> Tally {
    let mut in_sync = addressees.unwrap_or_default();
    for (node, report) in promises.counted(cx.replicas) {
        note(cx, &mut in_sync, node, report.accepted == round);
    }
    in_sync
}

pub(crate) fn note(cx: &Cx<'_>, in_sync: &mut Tally, node: NodeId, is_in_sync: bool) {
    match cx.replicas.member(node) {
        Some(member) if is_in_sync => {
            in_sync.add(cx.replicas, node, member.amnesia);
        }
        _ => in_sync.remove(cx.replicas, node),
    }
}

impl Core {
    /// Sends the newest proposal to all others except spared ones. Members in sync get a delta.
    pub(super) fn send_newest(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        two: &mut PhaseTwo,
        delta: Option<Arc<Delta>>,
    ) {
        let (round, chosen_k) = (two.round(two.k), two.chosen_k);
        let newest = two.in_flight.len() - 1;
        for node in cx.replicas.others() {
            if self.spares(cx, node) {
                self.spare(cx, two, node);
                continue;
            }
            let is_up = cx.replicas.member(node).is_some_and(|member| member.up);
            match &delta {
                Some(delta) if is_up && two.in_sync.has(cx.replicas, node) => {
                    let (key, delta) = (key.clone(), delta.clone());
                    base::sometimes!("a proposal travels as a delta");
                    self.counters.deltas += 1;
                    cx.fx.send_now(node, Message::AcceptDelta { key, round, chosen_k, delta });
                }
                _ => send::accept(cx, key, two, newest, node),
            }
            note(cx, &mut two.in_sync, node, is_up);
        }
    }

    /// Members that were most likely sent the last proposal.
    pub(crate) fn addressees(&self, cx: &Cx<'_>) -> Tally {
        let mut in_sync = Tally::default();
        for member in cx.replicas.members() {
            note(cx, &mut in_sync, member.node, member.up && !self.spares(cx, member.node));
        }
        in_sync
    }

    /// True if the others stand in for this member.
    pub(crate) fn spares(&self, cx: &Cx<'_>, node: NodeId) -> bool {
        let is_spared = cx.replicas.member(node).is_some_and(|member| member.pace == Pace::Spared);
        is_spared && cx.now >= self.spares_nobody_until
    }

    /// Skips a member, because the others make a majority. It gets the proposal if they do not
    /// answer, or once it is steady.
    pub(crate) fn spare(&mut self, cx: &Cx<'_>, two: &mut PhaseTwo, node: NodeId) {
        base::sometimes!("a slow peer is spared a proposal");
        self.counters.spared += 1;
        note(cx, &mut two.in_sync, node, false);
    }

    /// Learns from a chosen proposal that took `took`. If its quorum needed a member that was to be
    /// spared, the other members are silent although their links are fast. Sparing then pauses.
    pub(super) fn judge_sparing(&mut self, cx: &Cx<'_>, two: &PhaseTwo, k: u32, took: Nanos) {
        let replicas = cx.replicas;
        let is_spared = |member: &Member| member.pace == Pace::Spared;
        if took < self.round_trip.resend_after(0) || !replicas.members().any(is_spared) {
            return;
        }
        let acked = two.acks.at_least(replicas, k) & replicas.places(|it| !is_spared(it));
        if !replicas.set.is_quorum_of(acked) {
            base::sometimes!("others do not stand in for a slow peer");
            self.spares_nobody_until = cx.now + SPARES_NOBODY_FOR;
        }
    }
}
