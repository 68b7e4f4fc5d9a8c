//! Proposals: commands run on a state. Rounds begin, are refused, and are repeated.

use std::sync::Arc;

use base::Millis;
use types::{NodeId, Outcome};

use super::active::{Active, Phase, Round};
use super::machine::{Cx, Machine, Rules};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::replicas::{Places, Replicas};
use crate::toolkit::back_off::{Resend, pause};
use crate::toolkit::batch::Batch;
use crate::toolkit::message::{About, Message};
use crate::toolkit::operation::{Attempt, Operation, clock};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, OpId, State};

/// Commands of one proposal.
const BATCH_MAX: usize = 512;

/// Commands with their outcomes.
pub type Ops = Vec<(Operation, Outcome)>;

impl<R: Rules> Machine<R> {
    /// Begins a phase that answers operations from before it.
    pub fn begin(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>, phase: Phase<R>) {
        active.since = self.next_step();
        self.continue_with(cx, active, phase);
    }

    /// Begins a phase that answers the same operations as the one before.
    pub fn continue_with(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>, phase: Phase<R>) {
        active.phase = phase;
        active.id = self.next_id();
        active.resend = Resend::default();
        active.wake_at = active.resend.next(cx.now);
        ask_missing(cx, active);
    }

    /// Runs the queue on a state. `is_over`: a quorum finds its time over; `rest`: of that time.
    pub fn run<'b>(
        &mut self,
        cx: &mut Cx<'_, R>,
        active: &mut Active<R>,
        base: &'b Base,
        (is_over, rest): (bool, Option<Millis>),
    ) -> (Batch<'b>, Ops) {
        let id = base.as_ref().and_then(|state| state.expiry_id());
        let mut batch = Batch::on(base, rest);
        if let Some(voted) = active.voted.take().or(id.filter(|_| is_over)) {
            batch.expire(voted);
        }
        self.counters.expired += u64::from(batch.is_changed());
        let count = active.queue.len().min(BATCH_MAX);
        let run = |operation: Operation| {
            let clock = clock(cx);
            let outcome = batch.run(cx.update, &operation.command, clock);
            (operation, outcome)
        };
        let ops = active.queue.drain(..count).map(run).collect();
        (batch, ops)
    }

    /// The state that a batch makes, as an operation of this node.
    pub fn finish(&mut self, cx: &Cx<'_, R>, batch: Batch<'_>) -> Arc<State> {
        self.seq += 1;
        let (node, incarnation) = (self.env.me, self.env.incarnation);
        let peers = cx.replicas.peers;
        let op = OpId { node, incarnation, seq: self.seq };
        batch.finish(op, |node| peers.get(node).is_some())
    }

    /// Makes a batch with its commands the attempt of this node.
    pub fn attempt(
        &mut self,
        cx: &Cx<'_, R>,
        active: &mut Active<R>,
        (batch, ops): (Batch<'_>, Ops),
        basis: R::Basis,
    ) -> Arc<State> {
        let state = self.finish(cx, batch);
        self.counters.proposals += 1;
        let deadline = cx.now + self.env.request_timeout;
        active.attempt = Some(Attempt { state: state.clone(), ops, deadline, basis });
        state
    }

    /// Answers commands without effect by a state that was the newest when the phase began. Later
    /// operations need another look.
    pub fn answer_unchanged(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>, mut ops: Ops) {
        let is_late = |(it, _): &(Operation, Outcome)| it.step >= active.since;
        let late = match mutation::is(Mutation::AnswerNewer) {
            true => None,
            false => ops.iter().position(is_late),
        };
        let later = ops.split_off(late.unwrap_or(ops.len()));
        ops.into_iter().for_each(|(operation, outcome)| cx.fx.reply(operation.tag, outcome));
        active.put_back(later);
    }

    /// A replica refuses the round's ballot, since it promised a higher one.
    pub fn on_refused(
        &mut self,
        cx: &mut Cx<'_, R>,
        active: &mut Active<R>,
        from: Peer,
        promised: Stamp,
    ) {
        active.seen = active.seen.max(promised);
        let Some(refused) = active.refused() else { return };
        refused.add(cx.replicas, from.node, from.amnesia);
        if !cx.replicas.may_win(refused) {
            self.back_off(cx, active);
        }
    }

    /// Another proposer is ahead: lets it finish, then tries a higher ballot.
    fn back_off(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>) {
        active.tries += 1;
        self.counters.duels += 1;
        self.pause(cx, active, active.tries);
    }

    /// Waits, as after so many attempts in vain.
    pub fn pause(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>, tries: u32) {
        active.phase = Phase::Pausing;
        active.wake_at = cx.now + pause(cx.rng, tries);
    }

    /// The timer of a proposer is due.
    pub(super) fn on_active_due(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>) {
        self.end_overdue(cx, active);
        self.give_up(cx, active);
        if cx.now < active.wake_at {
            return;
        }
        let replicas = cx.replicas;
        let is_refused = |it: &mut Tally| it.places(replicas.set, replicas.peers) != 0;
        if active.refused().is_some_and(is_refused) {
            return self.back_off(cx, active);
        }
        match active.phase {
            Phase::Idle => {}
            Phase::Pausing => self.advance(cx, active),
            Phase::Reading(_) => self.on_read_due(cx, active),
            Phase::Asking(_) => {
                active.wake_at = active.resend.next(cx.now);
                ask_missing(cx, active);
            }
        }
    }
}

/// True if these replicas, which find a time to live over, are enough to end it.
#[must_use]
pub fn is_over(replicas: Replicas<'_>, over: Places) -> bool {
    replicas.set.is_quorum_of(over) || (over != 0 && mutation::is(Mutation::ExpireByOne))
}

/// Sends the phase's message to every replica whose answer is missing, this node included.
pub(super) fn ask_missing<R: Rules>(cx: &mut Cx<'_, R>, active: &Active<R>) {
    let replicas = cx.replicas;
    let missing = replicas.all().filter(|&node| active.lacks(replicas, node));
    missing.for_each(|node| ask(cx, active, node));
}

fn ask<R: Rules>(cx: &mut Cx<'_, R>, active: &Active<R>, node: NodeId) {
    let body = match &active.phase {
        Phase::Idle | Phase::Pausing => return,
        Phase::Reading(_) => About::Read,
        Phase::Asking(round) => About::Own(round.question()),
    };
    cx.fx.send_now(node, Message::About { id: active.id, key: active.key.clone(), body });
}
