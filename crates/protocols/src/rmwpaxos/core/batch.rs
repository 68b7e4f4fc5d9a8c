//! Batches [spec 9.5, step 4]: the commands queued on a key, run in order on the tip, are one
//! proposal.

use types::{Outcome, Refusal};

use super::hooks::Hooks;
use super::instance::Core;
use crate::mutation::{self, Mutation};
use crate::rmwpaxos::context::{Cx, clock, held};
use crate::rmwpaxos::progress::active::{
    Active, InFlight, LockedOut, Phase, PhaseTwo, Resend, Tip,
};
use crate::rmwpaxos::progress::operation::{Operation, Place, Source};
use crate::rmwpaxos::record::state::State;
use crate::rmwpaxos::record::state_builder::{self, StateBuilder};

/// Commands of one proposal.
const BATCH_MAX: usize = 512;

/// Commands that were run on the tip.
pub(crate) struct Batch {
    pub(crate) operations: Vec<Operation>,
    /// The state that they make of the tip; `None`: the tip.
    ///
    /// One effective operation is enough for a state: each effect marks the builder as changed,
    /// whatever the bytes. So every attempt of an effective operation has a place. [spec 9.4]
    pub(crate) state: Option<State>,
    /// Propose the tip itself if no command changes it.
    must_decide: bool,
    collects: bool,
}

impl Core {
    /// Runs the queue's head on the tip and proposes the result. False if there was no proposal.
    pub(super) fn propose_batch(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        hooks: &mut dyn Hooks,
    ) -> bool {
        let mut batch = self.run_batch(cx, active);
        if batch.state.is_none() && !batch.must_decide {
            return self.end_without_proposal(cx, active, batch.operations);
        }
        let Phase::Owner(two) = &mut active.phase else { return false };
        let state = batch.state.take().or_else(|| two.tip.state.clone());
        let state = state.unwrap_or_else(|| state_builder::nil(two.tip.version));
        let base = two.tip.state.as_ref().filter(|_| !two.tip.round.is_none());
        let delta = base.and_then(|base| hooks.delta((two.tip.round, base), &state));
        self.push_proposal(cx, two, batch, state);
        self.send_newest(cx, &active.key, two, delta);
        self.accept_own(cx, &active.key, two);
        self.settle_chosen(cx, active);
        true
    }

    /// Runs the queue's head on the tip. The resulting state is born under the ballot.
    ///
    /// # Panics
    /// If the proposer is no owner.
    pub(crate) fn run_batch(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> Batch {
        let Phase::Owner(two) = &mut active.phase else { panic!("{:?} has no owner", active.key) };
        let mut turned_away: Vec<Operation> = Vec::new();
        let rest = self.estimated_rest(cx, &active.key, two);
        let mut builder = StateBuilder::on(two.tip.state.as_ref(), rest);
        builder.set_base_version(two.tip.version);
        if !two.droppable.is_empty() {
            base::sometimes!("a command is forgotten after its window");
            builder.drop_over(&std::mem::take(&mut two.droppable));
        }
        if !builder.is_locked() {
            LockedOut::let_in(&mut active.locked_out, Vec::new(), &mut active.queue);
        }
        let mut left = active.queue.len().min(BATCH_MAX);
        let mut operations: Vec<Operation> = Vec::with_capacity(left);
        let mut must_decide = !two.carried.is_empty();
        while left > 0
            && let Some(mut operation) = active.queue.pop_front()
        {
            left -= 1;
            if !turned_away.is_empty() && operation.waits_for_locks() {
                turned_away.push(operation);
                continue;
            }
            let has_waiting = active.locked_out.is_some() || !turned_away.is_empty();
            if has_waiting && builder.settle_before_take(&operation.command, clock(cx)) {
                // Those that waited come between the end of one transaction and the next lock.
                turned_away.push(operation);
                let last = std::mem::take(&mut turned_away);
                left += LockedOut::let_in(&mut active.locked_out, last, &mut active.queue);
                continue;
            }
            self.run(cx, &mut operation, &mut builder);
            if operation.command.is_about_locks() {
                if !builder.is_locked() {
                    // Those that waited share the transition: no other lock comes in between.
                    let last = std::mem::take(&mut turned_away);
                    left += LockedOut::let_in(&mut active.locked_out, last, &mut active.queue);
                }
            } else if matches!(operation.outcome, Outcome::Locked(_)) {
                turned_away.push(operation);
                continue;
            }
            // A result without effect waits until all attempts of its operation are excluded.
            // [corrections F1]
            let excludes =
                !operation.attempts.is_empty() && !mutation::is(Mutation::NoOpBelowAttempt);
            must_decide |= excludes || (operation.must_propose && !operation.is_internal());
            // A majority lacks the register to collect, and this node still holds it: propose nil.
            let is_there = two.tip.state.is_some()
                || held(cx, &active.key).is_some_and(|register| register.state.is_some());
            must_decide |= operation.source == Source::Collect && is_there;
            operations.push(operation);
        }
        let lock = builder.lock().filter(|_| !turned_away.is_empty());
        if lock.is_some() {
            let queue = std::mem::take(&mut active.queue);
            let (later, others): (Vec<_>, Vec<_>) =
                queue.into_iter().partition(Operation::waits_for_locks);
            turned_away.extend(later);
            active.queue.extend(others);
            // The next chosen proposal of the ballot excludes their attempts.
            must_decide |= turned_away.iter().any(Operation::has_attempts);
        }
        let collects = operations.iter().any(|operation| operation.source == Source::Collect);
        let state = builder.is_changed().then(|| builder.finish(two.tip.version, two.ballot));
        if let Some(lock) = lock {
            self.lock_out(cx, active, lock, turned_away);
        }
        Batch { operations, state, must_decide, collects }
    }

    /// Makes `state` the next proposal of the ballot, and the tip.
    pub(crate) fn push_proposal(
        &mut self,
        cx: &Cx<'_>,
        two: &mut PhaseTwo,
        batch: Batch,
        state: State,
    ) {
        let base_version = two.tip.version;
        two.k += 1;
        let is_collectable =
            batch.collects && state.is_tombstone() && !state.has_lock() && !remembers(&state);
        two.collecting = is_collectable.then_some(two.k);
        let (version, round) = (state.version(), two.round(two.k));
        two.tip = Tip { state: Some(state.clone()), version, round };
        two.base_decided = true;
        two.fresh_before = Place(0);
        two.in_flight.push(InFlight {
            k: two.k,
            base_version,
            state,
            carried: std::mem::take(&mut two.carried),
            operations: batch.operations,
            sent: cx.now,
        });
        if two.in_flight.len() == 1 {
            two.resend = Resend { at: cx.now + self.round_trip.resend_after(0), count: 0 };
        }
        self.counters.proposals += 1;
    }

    fn run(&mut self, cx: &mut Cx<'_>, operation: &mut Operation, builder: &mut StateBuilder) {
        match operation.source {
            Source::Expire(id) => {
                operation.effective = builder.expire(id);
                self.counters.expired += u64::from(operation.effective);
            }
            Source::Collect | Source::Forget => operation.effective = false,
            Source::Client(_) | Source::Forwarded { .. } | Source::Answered => {
                let clock = clock(cx);
                if operation.once().is_some() && operation.deadline <= cx.now {
                    // A copy that was delayed for long might find its entry forgotten.
                    let refusal = Outcome::Refused(Refusal::TooLate);
                    (operation.outcome, operation.effective) = (refusal, false);
                    operation.doubtful = true;
                    return;
                }
                (operation.outcome, operation.effective) =
                    builder.run(cx.update, &operation.command, clock);
            }
        }
    }

    /// Handles a batch without effect. Its results wait for a chosen state that is not older.
    fn end_without_proposal(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        batch: Vec<Operation>,
    ) -> bool {
        let Phase::Owner(two) = &active.phase else { return false };
        if !two.in_flight.is_empty() {
            // A quorum read now could miss earlier writes of its sessions.
            active.put_back(batch);
            return false;
        }
        if !active.queue.is_empty() && batch.iter().any(|operation| !operation.is_internal()) {
            // Later operations of the same sessions must not overtake them.
            let must_propose = |operation: Operation| Operation { must_propose: true, ..operation };
            active.put_back(batch.into_iter().map(must_propose).collect());
            return true;
        }
        for operation in batch {
            // Only a quorum's reports show since when a key is absent.
            let is_look = operation.command.hold.as_ref().is_some_and(|hold| hold.waits());
            let is_shown = !is_look || two.tip.state.is_some();
            let is_fresh = operation.step < two.fresh_before && two.base_decided && is_shown;
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

/// True if the state remembers commands. It must not be forgotten, because a repeated command must
/// find that it ran.
fn remembers(state: &State) -> bool {
    state.has_once() && !mutation::is(Mutation::OnceCollected)
}
