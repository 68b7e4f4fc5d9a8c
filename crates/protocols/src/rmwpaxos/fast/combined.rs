//! Both phases in one round trip, where two members are a majority [spec 9.5, P0].
//!
//! A proposer that is one of three is a majority together with either of the others. It promises its ballot to itself,
//! computes the first proposal from what it holds, and names the round that it holds. Another acceptor that holds the
//! same round and has promised nothing higher sees by that alone that phase 1 is won, and with which base: it accepts.
//! One that holds something else accepts nothing, promises the ballot and asks for the proposal whole.
//!
//! The proposer's own acceptor accepts last: until another has, nothing says that phase 1 is won. If none can, phase 1
//! follows under another ballot. Where everybody who was asked holds something else the proposal never was one; else
//! it becomes an attempt whose fate is open.
//!
//! What an acceptor is told of the proposer's promise is void once it knows that the proposer has lost its memory
//! since, like any promise [DISC17].

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{Loss, NodeId, Round, Ticket};

use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::protocol::Peer;
use crate::quorum::{Acks, Tally};
use crate::replicas::Replicas;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::acceptor::Payload;
use crate::rmwpaxos::core::batch;
use crate::rmwpaxos::core::operation::{Active, Operation, Phase, Source};
use crate::rmwpaxos::core::proposer;
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::core::state::State;
use crate::rmwpaxos::message::Message;
use crate::rmwpaxos::once::table;

/// A longer state waits until it is known who holds its base, unless a delta stands for it.
const STATE_LEN_MAX: usize = 4096;

/// The first proposal of a ballot, which nobody is known to have accepted.
#[derive(Debug)]
pub(crate) struct Unproven {
    /// The round that it follows.
    base: Round,
    payload: Payload,
    /// This node's loss when it promised the ballot.
    loss: Loss,
    /// To whom it was sent, and the loss that was known of each then.
    asked: [Option<Loss>; MEMBERS_MAX],
    /// Somebody was asked again who had lost its memory: what it did before, it does not know.
    is_asked_anew: bool,
    /// Members that hold something else.
    differing: Tally,
    /// When the others, too, have had their time.
    until: Nanos,
}

impl Unproven {
    fn ask(&mut self, index: usize, loss: Loss) {
        let known = *self.asked[index].get_or_insert(loss);
        self.is_asked_anew |= known != loss;
    }

    /// Everybody who could accept it has promised its ballot, holds something else and has forgotten nothing since it was
    /// asked: nobody has accepted it, and nobody ever will.
    fn is_dead(&self, replicas: Replicas<'_>) -> bool {
        let is_out = |(member, asked): (&Member, &Option<Loss>)| {
            asked
                .is_none_or(|loss| loss == member.loss && self.differing.has(replicas, member.node))
        };
        !self.is_asked_anew && replicas.members().zip(&self.asked).all(is_out)
    }

    pub(crate) fn is_overdue(&self, now: Nanos) -> bool {
        now >= self.until
    }
}

impl RmwPaxos {
    /// Proposes on top of what is held here, together with phase 1. False when nothing was proposed.
    pub(crate) fn try_joint(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        if !self.may_join(cx, active) {
            return false;
        }
        let Some(ballot) = self.mint(cx, &active.key) else { return false };
        let held = replies::held(cx, &active.key);
        let base = held.map_or(Round::NONE, |register| register.accepted);
        active.tip = held.and_then(|register| register.state.clone());
        active.tip_round = base;
        active.tip_version = match &active.tip {
            Some(state) => state.version(),
            None => cx.metas.get(active.key.shard()).floor_version,
        };
        active.ballot = ballot;
        active.k = 0;
        active.chosen_k = 0;
        active.rest = None;
        active.acks = Acks::default();
        active.refused = Tally::default();
        let mut batch = self.run_batch(cx, active);
        let fitting = batch.state.take().and_then(|state| self.payload(active, state));
        let promised = fitting
            .and_then(|fitting| Some((fitting, self.promise(cx, &active.key, ballot).ok()?)));
        let Some(((state, payload), after)) = promised else {
            batch::put_back(active, batch.operations);
            active.forget_states();
            return false;
        };
        self.push_proposal(cx, active, batch, state);
        self.send_unproven(cx, active, (base, payload), after);
        true
    }

    /// Worth trying: nothing speaks against the other members holding what is held here.
    fn may_join(&self, cx: &Cx<'_>, active: &Active) -> bool {
        let is_plain = |operation: &Operation| {
            let is_asked = matches!(operation.source, Source::Client(_) | Source::Forwarded { .. });
            // What is long by itself would be run in vain.
            is_asked
                && operation.attempts.is_empty()
                && operation.command.body.len() <= STATE_LEN_MAX
        };
        // Whether a time to live is over is found out by phase 1 alone.
        let expires = |state: &State| state.has_expiry();
        let held = replies::held(cx, &active.key);
        // What is full may have room once a majority was asked.
        let table = held.and_then(|register| register.state.as_ref()?.once());
        let lacks_room = |operation: &Operation| {
            let once = operation.once();
            table.zip(once).is_some_and(|(table, once)| table::is_full_for(table, &once.session))
        };
        cx.replicas.set.me().is_some()
            && cx.replicas.set.is_quorum_of_any_two()
            && (table.is_none() || !active.queue.iter().any(lacks_room))
            && self.takes_short_ways()
            && active.losses == 0
            && !active.differed
            && active.carried.is_empty()
            && active.queue.iter().all(is_plain)
            && !replies::is_lost(cx, &active.key)
            && !held.and_then(|register| register.state.as_ref()).is_some_and(expires)
            && cx.replicas.members().any(|member| member.up && member.node != cx.replicas.me())
    }

    /// What to send of a state, unless it is long and has to be sent whole.
    fn payload(&self, active: &Active, state: State) -> Option<(State, Payload)> {
        if let Some(delta) = self.delta_from_tip(active, &state) {
            return Some((state, Payload::Delta(delta)));
        }
        let is_short = state.bytes().len() <= STATE_LEN_MAX;
        is_short.then(|| (state.clone(), Payload::Whole(state)))
    }

    fn send_unproven(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        (base, payload): (Round, Payload),
        after: Ticket,
    ) {
        base::sometimes!("a first proposal travels with phase 1");
        self.counters.joint += 1;
        let loss = cx.replicas.member(self.env.me).map_or(Loss(0), |member| member.loss);
        active.unproven = Some(Unproven {
            base,
            payload,
            loss,
            asked: [None; MEMBERS_MAX],
            is_asked_anew: false,
            differing: Tally::default(),
            until: Nanos::MAX,
        });
        active.abreast = self.addressees(cx);
        active.phase = Phase::Owner;
        let replicas = cx.replicas;
        for member in replicas.members().filter(|it| it.up && it.node != replicas.me()) {
            match self.spares(cx, member.node) {
                true => self.spare(cx, active, member.node),
                false => send(cx, active, member.node, after),
            }
        }
        if mutation::is(Mutation::FirstAcceptedByProposer) {
            self.accept_own(cx, active);
        }
    }

    /// Sends it again to a member that did not answer.
    pub(crate) fn resend_unproven(&mut self, cx: &mut Cx<'_>, active: &mut Active, node: NodeId) {
        if node != self.env.me && !self.is_void(cx, active) {
            let after = replies::gate(cx, &active.key);
            send(cx, active, node, after);
        }
    }

    /// It rests on a promise from before a loss, which must not be repeated under the loss that is known now.
    pub(crate) fn is_void(&self, cx: &Cx<'_>, active: &Active) -> bool {
        let is_void = |unproven: &Unproven| {
            cx.replicas.member(self.env.me).is_none_or(|member| member.loss != unproven.loss)
        };
        active.unproven.as_ref().is_some_and(is_void)
            && !mutation::is(Mutation::FirstRepeatedAfterLoss)
    }

    /// Another member has accepted it, so phase 1 is won: the own acceptor follows, and so may others.
    pub(crate) fn prove(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if active.unproven.is_none() || active.acks.at_least(cx.replicas, 1) == 0 {
            return;
        }
        let Some(unproven) = active.unproven.take() else { return };
        self.accept_own(cx, active);
        for node in cx.replicas.others() {
            if unproven.differing.has(cx.replicas, node) {
                proposer::send_accept(cx, active, 0, node);
            }
        }
    }

    /// A member holds something else than what was proposed on.
    pub(crate) fn on_differing(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let until = cx.now + self.patience();
        let Some(unproven) = &mut active.unproven else { return };
        unproven.differing.add(cx.replicas, from.node, from.loss);
        unproven.until = unproven.until.min(until);
        if unproven.is_dead(cx.replicas) {
            base::sometimes!("a first proposal that travels with phase 1 never was one");
            take_back(active);
            self.give_up_joint(active);
        } else if is_hopeless(cx, active) {
            self.give_up_joint(active);
        } else {
            self.sweep.back_off(cx, until, active.key.clone());
        }
    }

    /// Phase 1 must find out what there is to propose on.
    pub(crate) fn give_up_joint(&mut self, active: &mut Active) {
        base::sometimes!("a first proposal that travels with phase 1 does not fit");
        self.counters.joint_failed += 1;
        proposer::abandon_proposals(active);
        active.differed = true;
        active.phase = Phase::Idle;
        active.resend_at = Nanos::MAX;
    }
}

/// What it would have made of the operations is no attempt of theirs.
fn take_back(active: &mut Active) {
    for operation in active.in_flight.iter_mut().flat_map(|it| it.operations.iter_mut()) {
        operation.effective = false;
    }
}

/// Whoever is up holds something else or has promised more: phase 1 will not be won by this proposal.
pub(crate) fn is_hopeless(cx: &Cx<'_>, active: &Active) -> bool {
    let may_prove = |unproven: &Unproven, node: NodeId| {
        let is_up = cx.replicas.member(node).is_some_and(|member| member.up);
        is_up
            && !unproven.differing.has(cx.replicas, node)
            && !active.refused.has(cx.replicas, node)
    };
    let unproven = active.unproven.as_ref();
    unproven.is_some_and(|unproven| !cx.replicas.others().any(|node| may_prove(unproven, node)))
}

fn send(cx: &mut Cx<'_>, active: &mut Active, node: NodeId, after: Ticket) {
    let (Some(unproven), Some(index)) = (&mut active.unproven, cx.replicas.index(node)) else {
        return;
    };
    unproven.ask(index, cx.replicas.at(index).loss);
    let message = Message::PrepareAccept {
        key: active.key.clone(),
        round: active.ballot.round(1),
        base: unproven.base,
        payload: unproven.payload.clone(),
    };
    cx.fx.send(node, message, after);
}
