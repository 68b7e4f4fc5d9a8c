//! Members that should hold the state which the next proposal starts from: they are sent what it changes.
//!
//! Whether they do hold it only they know. Being wrong here costs a round trip, never more: whoever cannot apply a
//! delta asks for the whole state and has changed nothing, as if the delta had been lost.

use std::sync::Arc;

use base::Nanos;
use types::{Key, NodeId, Round};

use crate::mutation::{self, Mutation};
use crate::peers::{Member, Pace};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::{Active, Phase};
use crate::rmwpaxos::core::proposer;
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::core::reports::Reports;
use crate::rmwpaxos::core::state::State;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::message::delta::Delta;

/// After a proposal that took a member which was to be spared.
const SPARES_NOBODY_FOR: Nanos = Nanos::from_secs(5);

/// Those whose promise reported `round`: below this ballot nothing else is accepted there any more. Where it is chosen,
/// those of its `addressees` who were not asked, too.
pub(crate) fn reporters(
    cx: &Cx<'_>,
    promises: &Reports,
    round: Round,
    addressees: Option<Tally>,
) -> Tally {
    let mut abreast = addressees.unwrap_or_default();
    for (node, report) in promises.counted(cx.replicas) {
        note(cx, &mut abreast, node, report.accepted == round);
    }
    abreast
}

pub(crate) fn note(cx: &Cx<'_>, abreast: &mut Tally, node: NodeId, is_abreast: bool) {
    match cx.replicas.member(node) {
        Some(member) if is_abreast => {
            abreast.add(cx.replicas, node, member.loss);
        }
        _ => abreast.remove(cx.replicas, node),
    }
}

impl RmwPaxos {
    /// What `state` changes in the tip, where that is worth sending instead.
    pub(crate) fn delta_from_tip(&self, active: &Active, state: &State) -> Option<Arc<Delta>> {
        let base = (active.tip_round, active.tip.as_ref()?);
        if base.0.is_none() {
            return None;
        }
        #[cfg(test)]
        if self.always_deltas {
            return Delta::between(base, state).map(Arc::new);
        }
        Delta::where_it_pays(base, state).map(Arc::new)
    }

    /// Sends the newest proposal to all others but those that are spared, as a delta to those who should hold its base.
    pub(crate) fn send_newest(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        delta: Option<Arc<Delta>>,
    ) {
        let (round, chosen_k) = (active.ballot.round(active.k), active.chosen_k);
        let newest = active.in_flight.len() - 1;
        for node in cx.replicas.others() {
            if self.spares(cx, node) {
                self.spare(cx, active, node);
                continue;
            }
            let is_up = cx.replicas.member(node).is_some_and(|member| member.up);
            match &delta {
                Some(delta) if is_up && active.abreast.has(cx.replicas, node) => {
                    let (key, delta) = (active.key.clone(), delta.clone());
                    base::sometimes!("a proposal travels as a delta");
                    self.counters.deltas += 1;
                    cx.fx.send_now(node, Message::AcceptDelta { key, round, chosen_k, delta });
                }
                _ => proposer::send_accept(cx, active, newest, node),
            }
            note(cx, &mut active.abreast, node, is_up);
        }
    }

    /// Those who most likely were sent the last proposal.
    pub(crate) fn addressees(&self, cx: &Cx<'_>) -> Tally {
        let mut abreast = Tally::default();
        for member in cx.replicas.members() {
            note(cx, &mut abreast, member.node, member.up && !self.spares(cx, member.node));
        }
        abreast
    }

    /// Whether others stand in for this member.
    pub(crate) fn spares(&self, cx: &Cx<'_>, node: NodeId) -> bool {
        let is_spared = cx.replicas.member(node).is_some_and(|member| member.pace == Pace::Spared);
        is_spared && cx.now >= self.spares_nobody_until
    }

    /// The others make a majority. It is told when they do not answer after all, or once it is steady.
    pub(crate) fn spare(&mut self, cx: &Cx<'_>, active: &mut Active, node: NodeId) {
        base::sometimes!("a slow peer is spared a proposal");
        self.counters.spared += 1;
        note(cx, &mut active.abreast, node, false);
    }

    /// A proposal is chosen, so long after it was sent. Where that took a member that was to be spared because the others are
    /// silent, they do not stand in for it: their links are fast, and they answer nothing.
    pub(crate) fn judge_sparing(&mut self, cx: &Cx<'_>, active: &Active, k: u32, took: Nanos) {
        let replicas = cx.replicas;
        let is_spared = |member: &Member| member.pace == Pace::Spared;
        if took < self.round_trip.resend_after(0) || !replicas.members().any(is_spared) {
            return;
        }
        let acked = active.acks.at_least(replicas, k) & replicas.places(|it| !is_spared(it));
        if !replicas.set.is_quorum_of(acked) {
            base::sometimes!("others do not stand in for a slow peer");
            self.spares_nobody_until = cx.now + SPARES_NOBODY_FOR;
        }
    }

    /// Somebody could not apply a delta, or holds something else than its base: it gets the state of exactly that round, or a later one under its own
    /// round. [corrections B3] It has neither accepted nor refused anything.
    pub(crate) fn on_need_full(&mut self, cx: &mut Cx<'_>, from: Peer, key: &Key, round: Round) {
        if mutation::is(Mutation::NeedFullIsAck) {
            return self.on_accepted(cx, from, key, round);
        }
        let Some(mut active) = self.actives.take(key) else {
            return self.send_held(cx, from, key, round);
        };
        if active.unproven.is_some() && active.ballot == round.ballot() {
            self.on_differing(cx, &mut active, from);
            return self.put_active(active);
        }
        base::sometimes!("a delta cannot be applied");
        self.counters.needed_full += 1;
        if active.phase == Phase::Owner && active.ballot == round.ballot() {
            base::sometimes!("a proposal is asked for whole while it is under way");
            send_whole(cx, &mut active, from, round);
        } else {
            self.send_held(cx, from, key, round);
        }
        self.actives.put_back(active);
    }

    /// The proposal is not under way any more: nobody waits for its acknowledgement, but what came of it is known here.
    fn send_held(&mut self, cx: &mut Cx<'_>, from: Peer, key: &Key, round: Round) {
        if replies::is_lost(cx, key) {
            return;
        }
        let Some(held) = replies::held(cx, key).filter(|held| held.accepted >= round) else {
            return;
        };
        let Some(state) = held.state.clone() else { return };
        base::sometimes!("a proposal is asked for whole when it is settled");
        self.counters.repairs += 1;
        let message = Message::Repair { key: key.clone(), round: held.accepted, state };
        let after = replies::gate(cx, key);
        cx.fx.send(from.node, message, after);
    }
}

fn send_whole(cx: &mut Cx<'_>, active: &mut Active, from: Peer, round: Round) {
    let found = active.in_flight.iter().position(|proposal| proposal.k == round.k());
    let is_newest = found.is_none_or(|at| at + 1 == active.in_flight.len());
    match found {
        Some(at) if !mutation::is(Mutation::TipUnderAskedRound) => {
            proposer::send_accept(cx, active, at, from.node);
        }
        _ => send_tip(cx, active, from, round),
    }
    // What was sent after it changes what was not accepted either, and is asked for next.
    note(cx, &mut active.abreast, from.node, is_newest);
}

fn send_tip(cx: &mut Cx<'_>, active: &Active, from: Peer, asked: Round) {
    let Some(state) = active.tip.clone().filter(|_| active.k >= asked.k()) else { return };
    let own = active.ballot.round(active.k);
    let round = if mutation::is(Mutation::TipUnderAskedRound) { asked } else { own };
    let (key, chosen_k) = (active.key.clone(), active.chosen_k);
    cx.fx.send_now(from.node, Message::Accept { key, round, chosen_k, state });
}
