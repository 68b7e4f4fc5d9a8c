//! Client requests: taken in, and ended at their deadlines.

use base::Nanos;
use types::Outcome;

use super::active::{Active, Phase, Round};
use super::machine::{Cx, Machine, Rules};
use crate::protocol::Request;
use crate::toolkit::operation::{Operation, end_proposed, end_queued};

/// Operations in progress.
const OPERATIONS_MAX: usize = 65_536;

impl<R: Rules> Machine<R> {
    pub(super) fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request) {
        let Request { tag, key, command, asked_at, .. } = request;
        let name = self.rules.name();
        if command.once.is_some() {
            return cx.fx.reply(tag, Outcome::NoRetries(name));
        }
        if command.hold.is_some() {
            return cx.fx.reply(tag, Outcome::NoTransactions(name));
        }
        let deadline = asked_at + self.env.request_timeout;
        if self.ops >= OPERATIONS_MAX || deadline <= cx.now {
            return cx.fx.reply(tag, Outcome::NoQuorum);
        }
        let step = self.next_step();
        let operation = Operation { tag, command, deadline, step, changes: false };
        self.with(cx, &key, |_, _, active| active.push(operation));
    }

    /// Ends operations whose time is over.
    pub(super) fn end_overdue(&mut self, cx: &mut Cx<'_, R>, active: &mut Active<R>) {
        if cx.now < active.deadline {
            return;
        }
        // Every attempt that contained these is dead.
        let mut is_overdue = end_queued(cx, &mut active.queue);
        if let Some(attempt) = &mut active.attempt {
            is_overdue |= end_proposed(cx, &mut attempt.ops);
        }
        if let Phase::Asking(round) = &mut active.phase
            && let Some(ops) = round.ops_mut()
        {
            is_overdue |= end_proposed(cx, ops);
        }
        if is_overdue {
            let silent = cx.replicas.others().filter(|&node| active.lacks(cx.replicas, node));
            cx.fx.suspects.extend(silent);
        }
        let proposed = active.proposed().map(|(operation, _)| operation);
        let deadlines = active.queue.iter().chain(proposed).map(|operation| operation.deadline);
        active.deadline = deadlines.min().unwrap_or(Nanos::MAX);
    }

    /// Gives up the work that no client waits for any more. Others finish it.
    pub(super) fn give_up(&mut self, cx: &Cx<'_, R>, active: &mut Active<R>) {
        if active.look_until.is_some_and(|until| until <= cx.now) {
            self.give_up_look(cx, active);
        }
        active.attempt.take_if(|it| it.ops.is_empty() && it.deadline <= cx.now);
        active.voted = active.voted.filter(|_| active.look_until.is_some());
        let is_done = match &mut active.phase {
            Phase::Asking(round) => round.ops_mut().map(|ops| ops.is_empty()),
            _ => None,
        };
        if is_done.unwrap_or(!active.is_wanted()) {
            active.phase = Phase::Idle;
        }
    }
}
