//! A proposer's operations: commands of clients, and the attempt that contains some of them.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Millis, Nanos};
use types::{Access, Clock, Command, Outcome, Tag};

use super::batch::Batch;
use super::state::{Base, OpId, State};
use crate::protocol::Scope;

/// A client's command.
#[derive(Clone, Debug)]
pub struct Operation {
    pub tag: Tag,
    pub command: Command,
    pub deadline: Nanos,
    /// Its place in the order in which this node took in operations and began phases.
    pub step: u64,
    /// It would change the state although its access says otherwise.
    pub changes: bool,
}

impl Operation {
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.command.access == Access::Read && !self.changes
    }
}

/// A node's proposal for a key, until its fate is known. It stays the same under all ballots. `B`
/// has the facts, beside the state, that decide its fate.
#[derive(Clone, Debug)]
pub struct Attempt<B> {
    pub state: Arc<State>,
    /// The commands that made the state, with their outcomes.
    pub ops: Vec<(Operation, Outcome)>,
    /// An attempt without clients is given up then.
    pub deadline: Nanos,
    pub basis: B,
}

impl<B> Attempt<B> {
    #[must_use]
    pub fn op(&self) -> OpId {
        self.state.op
    }
}

/// Reads the clock and draws a seed for one command.
pub fn clock<R, S, M>(cx: &mut Scope<'_, R, S, M>) -> Clock {
    Clock { unix: cx.unix, seed: cx.rng.next_u64() }
}

/// Answers the reads at the head of the queue that came before step `since`. The state was the
/// newest at some moment after that step.
pub fn answer_reads<R, S, M>(
    cx: &mut Scope<'_, R, S, M>,
    queue: &mut VecDeque<Operation>,
    since: u64,
    base: &Base,
    rest: Option<Millis>,
) {
    while let Some(operation) = queue.front_mut() {
        if !operation.is_read() || operation.step >= since {
            return;
        }
        let mut batch = Batch::on(base, rest);
        let clock = clock(cx);
        let outcome = batch.run(cx.update, &operation.command, clock);
        if batch.is_changed() {
            operation.changes = true;
            return;
        }
        cx.fx.reply(operation.tag, outcome);
        queue.pop_front();
    }
}

/// Ends queued operations whose time is over: they had no effect. True if there were any.
pub fn end_queued<R, S, M>(cx: &mut Scope<'_, R, S, M>, queue: &mut VecDeque<Operation>) -> bool {
    let before = queue.len();
    queue.retain(|operation| {
        let is_over = operation.deadline <= cx.now;
        if is_over {
            cx.fx.reply(operation.tag, Outcome::NoQuorum);
        }
        !is_over
    });
    queue.len() < before
}

/// Ends proposed operations whose time is over: they may have an effect. True if there were any.
pub fn end_proposed<R, S, M>(
    cx: &mut Scope<'_, R, S, M>,
    ops: &mut Vec<(Operation, Outcome)>,
) -> bool {
    let before = ops.len();
    ops.retain(|(operation, _)| {
        let is_over = operation.deadline <= cx.now;
        if is_over {
            cx.fx.reply(operation.tag, Outcome::Unknown);
        }
        !is_over
    });
    ops.len() < before
}
