//! Client requests: taken in, answered, and ended at their deadlines.

use base::{Millis, Nanos};
use types::{Key, Outcome};

use super::active::{Active, Phase};
use super::machine::{Alarm, Cx, Machine};
use crate::protocol::Request;
use crate::toolkit::operation::{Attempt, Operation, answer_reads, end_proposed, end_queued};
use crate::toolkit::state::{Base, State};

/// Operations in progress.
const OPERATIONS_MAX: usize = 65_536;
/// Deadlines that this node waits for. Other keys expire when they are touched.
const EXPIRIES_MAX: usize = 65_536;
/// How long after its deadline a key expires without a client.
const SLACK: Nanos = Nanos::from_millis(20);

impl Machine {
    pub(super) fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        let Request { tag, key, command, asked_at, .. } = request;
        if command.once.is_some() {
            return cx.fx.reply(tag, Outcome::NoRetries(self.name));
        }
        if command.hold.is_some() {
            return cx.fx.reply(tag, Outcome::NoTransactions(self.name));
        }
        let deadline = asked_at + self.env.request_timeout;
        if self.ops >= OPERATIONS_MAX || deadline <= cx.now {
            return cx.fx.reply(tag, Outcome::NoQuorum);
        }
        let step = self.next_step();
        let operation = Operation { tag, command, deadline, step, changes: false };
        self.with(cx, &key, |_, _, active| active.push(operation));
    }

    /// The time of this key may be over.
    pub(super) fn on_expire(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let until = cx.now + self.env.request_timeout;
        self.with(cx, key, |_, _, active| active.look_until = Some(until));
    }

    /// This node's proposal set a deadline: asks a quorum once it is over.
    pub(super) fn schedule_expiry(&mut self, cx: &mut Cx<'_>, key: &Key, state: &State) {
        let Some(expiry) = state.expiry.filter(|expiry| expiry.id.slot == state.slot) else {
            return;
        };
        let span = expiry.ends.0.saturating_sub(cx.unix.0);
        // A deadline centuries away expires on access.
        let Some(span) = span.checked_mul(1_000_000) else { return };
        if self.due.len() < EXPIRIES_MAX {
            self.due.set(Alarm::Expire(key.clone()), cx.now + Nanos(span) + SLACK);
        }
    }

    /// A quorum found the deadline not over, with this rest.
    pub(super) fn expire_later(&mut self, cx: &Cx<'_>, key: &Key, rest: Option<Millis>) {
        let Some(rest) = rest.and_then(|rest| rest.0.checked_mul(1_000_000)) else { return };
        if self.due.len() < EXPIRIES_MAX {
            self.due.set(Alarm::Expire(key.clone()), cx.now + Nanos(rest) + SLACK);
        }
    }

    /// Answers the reads at the head of the queue from a state that the phase found.
    pub(super) fn answer_reads(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        base: &Base,
        rest: Option<Millis>,
    ) {
        let since = active.since;
        answer_reads(cx, &mut active.queue, since, base, rest);
    }

    /// Ends operations whose time is over.
    pub(super) fn end_overdue(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if cx.now < active.deadline {
            return;
        }
        // No accept that contains these was sent for a slot that is not decided.
        let mut overdue = end_queued(cx, &mut active.queue);
        if let Some(attempt) = &mut active.attempt {
            overdue |= end_proposed(cx, &mut attempt.ops);
        }
        if let Phase::Committing { ops, .. } = &mut active.phase {
            overdue |= end_proposed(cx, ops);
        }
        if overdue {
            let silent = cx.replicas.others().filter(|&node| active.lacks(cx.replicas, node));
            cx.fx.suspects.extend(silent);
        }
        let attempt = active.attempt.iter().flat_map(|attempt| &attempt.ops);
        let committing = match &active.phase {
            Phase::Committing { ops, .. } => &ops[..],
            _ => &[],
        };
        let waiting = attempt.chain(committing).map(|(operation, _)| operation);
        let deadlines = active.queue.iter().chain(waiting).map(|operation| operation.deadline);
        active.deadline = deadlines.min().unwrap_or(Nanos::MAX);
    }

    /// Gives up the proposer's work that no client waits for any more. Others finish it.
    pub(super) fn give_up(&mut self, cx: &Cx<'_>, active: &mut Active) {
        if active.look_until.is_some_and(|until| until <= cx.now) {
            (active.look_until, active.voted) = (None, None);
        }
        let is_over = |it: &Attempt| it.ops.is_empty() && it.deadline <= cx.now;
        active.attempt.take_if(|attempt| is_over(attempt));
        let is_wanted = active.attempt.is_some()
            || active.recover.is_some()
            || active.look_until.is_some()
            || !active.queue.is_empty();
        if matches!(&active.phase, Phase::Committing { ops, .. } if ops.is_empty()) {
            active.phase = Phase::Idle;
        }
        if !is_wanted && !matches!(active.phase, Phase::Committing { .. }) {
            active.phase = Phase::Idle;
            active.voted = None;
        }
    }
}
