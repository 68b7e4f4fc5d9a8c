//! Batches [spec 9.5, step 4]: the commands queued on a key, run in order on the tip, are one proposal.

use types::{Outcome, Refusal};

use crate::mutation::{self, Mutation};
use crate::rmwpaxos::BATCH_MAX;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::{Active, InFlight, Operation, Place, Source};
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::core::state::State;
use crate::rmwpaxos::core::state_builder::{self, Draft};
use crate::rmwpaxos::expiry;

/// Commands that were run on the tip.
pub(crate) struct Batch {
    pub(crate) operations: Vec<Operation>,
    /// What they make of the tip; `None`: nothing.
    pub(crate) state: Option<State>,
    /// The tip itself is proposed if nothing else is.
    must_decide: bool,
    collects: bool,
}

impl RmwPaxos {
    /// Runs the queue's head on the tip and proposes what comes of it. False when nothing was proposed.
    pub(crate) fn propose_batch(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let mut batch = self.run_batch(cx, active);
        if batch.state.is_none() && !batch.must_decide {
            return self.end_without_proposal(cx, active, batch.operations);
        }
        let state = batch.state.take().or_else(|| active.tip.clone());
        let state = state.unwrap_or_else(|| state_builder::nil(active.tip_version));
        let delta = self.delta_from_tip(active, &state);
        self.push_proposal(cx, active, batch, state);
        self.send_newest(cx, active, delta);
        self.accept_own(cx, active);
        self.settle_chosen(cx, active);
        true
    }

    /// Runs the queue's head on the tip; the state that comes of it is born under the ballot.
    pub(crate) fn run_batch(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> Batch {
        let count = active.queue.len().min(BATCH_MAX);
        let mut operations: Vec<Operation> = active.queue.drain(..count).collect();
        let rest = expiry::estimated_rest(cx, active);
        let mut draft = Draft::on(active.tip.as_ref(), rest);
        if !active.droppable.is_empty() {
            base::sometimes!("what was remembered for long enough is forgotten");
            draft.drop_over(&std::mem::take(&mut active.droppable));
        }
        let mut must_decide = !active.carried.is_empty();
        for operation in &mut operations {
            self.run(cx, operation, &mut draft);
            // A result that changes nothing waits until all attempts of its operation are excluded. [corrections F1]
            let excludes =
                !operation.attempts.is_empty() && !mutation::is(Mutation::NoOpBelowAttempt);
            must_decide |= excludes || (operation.must_propose && !operation.is_internal());
            // Absent to a majority, and still there for the one that collects: nil is proposed to all.
            let is_there = active.tip.is_some()
                || replies::held(cx, &active.key).is_some_and(|register| register.state.is_some());
            must_decide |= operation.source == Source::Collect && is_there;
        }
        let collects = operations.iter().any(|operation| operation.source == Source::Collect);
        let state = draft.is_changed().then(|| draft.finish(active.tip_version, active.ballot));
        Batch { operations, state, must_decide, collects }
    }

    /// Makes `state` the next proposal of the ballot, and the tip.
    pub(crate) fn push_proposal(
        &mut self,
        cx: &Cx<'_>,
        active: &mut Active,
        batch: Batch,
        state: State,
    ) {
        let base_version = active.tip_version;
        active.k += 1;
        let is_collectable = batch.collects && state.is_tombstone() && !remembers(&state);
        active.collecting = is_collectable.then_some(active.k);
        active.tip = Some(state.clone());
        active.tip_round = active.ballot.round(active.k);
        active.tip_version = state.version();
        active.base_decided = true;
        active.fresh_before = Place(0);
        let carried = std::mem::take(&mut active.carried);
        active.in_flight.push_back(InFlight {
            k: active.k,
            base_version,
            state,
            carried,
            operations: batch.operations,
            sent: cx.now,
        });
        if active.in_flight.len() == 1 {
            active.resends = 0;
            active.resend_at = cx.now + self.round_trip.resend_after(0);
        }
        self.counters.proposals += 1;
    }

    fn run(&mut self, cx: &mut Cx<'_>, operation: &mut Operation, draft: &mut Draft) {
        match operation.source {
            Source::Expire(id) => {
                operation.effective = draft.expire(id);
                self.counters.expired += u64::from(operation.effective);
            }
            Source::Collect | Source::Forget => operation.effective = false,
            Source::Client(_) | Source::Forwarded { .. } | Source::Answered => {
                let clock = RmwPaxos::clock(cx);
                if operation.once().is_some() && operation.deadline <= cx.now {
                    // A copy that was held up for long might find what it did forgotten.
                    let refusal = Outcome::Refused(Refusal::TooLate);
                    (operation.outcome, operation.effective) = (refusal, false);
                    operation.doubtful = true;
                    return;
                }
                (operation.outcome, operation.effective) =
                    draft.run(cx.update, &operation.command, clock);
            }
        }
    }

    /// A batch that changes nothing: its results are released on a chosen state that is not older than they are.
    fn end_without_proposal(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        batch: Vec<Operation>,
    ) -> bool {
        if !active.in_flight.is_empty() {
            // A quorum read now could miss what its sessions wrote before.
            put_back(active, batch);
            return false;
        }
        if !active.queue.is_empty() && batch.iter().any(|operation| !operation.is_internal()) {
            // What follows of the same sessions must not overtake them on its way into a proposal.
            let must_propose = |operation: Operation| Operation { must_propose: true, ..operation };
            put_back(active, batch.into_iter().map(must_propose).collect());
            return true;
        }
        for operation in batch {
            let is_fresh = operation.step < active.fresh_before && active.base_decided;
            if operation.is_internal() {
                continue;
            } else if is_fresh || answers_from_tip(&operation) {
                self.answer(cx, &operation, operation.outcome.clone());
            } else {
                active.read_queue.push(operation);
            }
        }
        false
    }
}

fn answers_from_tip(operation: &Operation) -> bool {
    mutation::is(Mutation::AnswerFromTip)
        || (mutation::is(Mutation::OnceFromUndecided) && operation.once().is_some())
}

/// It must not be forgotten: whoever repeats a command has to find that it ran.
fn remembers(state: &State) -> bool {
    state.has_once() && !mutation::is(Mutation::OnceCollected)
}

/// Operations that were taken from the queue, in front of it again.
pub(crate) fn put_back(active: &mut Active, operations: Vec<Operation>) {
    for operation in operations.into_iter().rev() {
        active.queue.push_front(operation);
    }
}
