//! The proposer's side of one key: commands that wait, and the phase in progress.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Millis, Nanos};
use types::{Key, NodeId, Outcome};

use super::reports::Reports;
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::back_off::Resend;
use crate::toolkit::operation::{Attempt, Operation};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, ExpiryId, State};

/// Phase 1.
#[derive(Clone, Debug)]
pub struct Preparing {
    pub base: Base,
    pub slot: u64,
    pub ballot: Stamp,
    pub promises: Tally,
    pub nacks: Tally,
    /// The highest vote that a promise reports.
    pub highest: Option<(Stamp, Arc<State>)>,
    /// Promises that find the base's time over.
    pub over: Tally,
    /// The largest rest of it that is reported.
    pub rest: Option<Millis>,
}

/// Phase 2.
#[derive(Clone, Debug)]
pub struct Accepting {
    pub base: Base,
    pub ballot: Stamp,
    pub state: Arc<State>,
    pub acks: Tally,
    pub nacks: Tally,
}

#[derive(Clone, Debug, Default)]
pub enum Phase {
    #[default]
    Idle,
    /// Another proposer is at work on the slot.
    Pausing,
    /// Asks a quorum for its registers.
    Reading(Box<Reports>),
    Preparing(Box<Preparing>),
    Accepting(Accepting),
    /// Waits until a quorum knows that the state is decided. Only under rule Y5.
    Committing {
        state: Arc<State>,
        ops: Vec<(Operation, Outcome)>,
        acks: Tally,
    },
}

#[derive(Debug)]
pub struct Active {
    pub key: Key,
    pub queue: VecDeque<Operation>,
    pub phase: Phase,
    /// Names the phase in messages.
    pub id: u64,
    /// When the phase began; for phase 2, when its phase 1 did. The phase answers operations from
    /// before.
    pub since: u64,
    pub attempt: Option<Attempt>,
    /// An attempt that others decided, and whose clients wait for their answers.
    pub resolved: Option<Attempt>,
    /// The newest state that this node saw decided in the present run of operations.
    pub base: Option<Base>,
    /// The own register is forgotten, since this step.
    pub recover: Option<u64>,
    /// A quorum is asked whether the time of the key is over, until then.
    pub look_until: Option<Nanos>,
    /// The deadline that a quorum found over.
    pub voted: Option<ExpiryId>,
    /// A read found a vote that only a proposal decides.
    pub help: bool,
    /// Attempts in vain.
    pub tries: u32,
    /// The highest ballot that was met.
    pub seen: Stamp,
    pub resend: Resend,
    /// When the phase goes on without an answer.
    pub wake_at: Nanos,
    /// The earliest deadline of an operation.
    pub deadline: Nanos,
}

impl Active {
    #[must_use]
    pub fn new(key: Key) -> Active {
        Active {
            key,
            queue: VecDeque::new(),
            phase: Phase::Idle,
            id: 0,
            since: 0,
            attempt: None,
            resolved: None,
            base: None,
            recover: None,
            look_until: None,
            voted: None,
            help: false,
            tries: 0,
            seen: Stamp::NONE,
            resend: Resend::default(),
            wake_at: Nanos::MAX,
            deadline: Nanos::MAX,
        }
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// All its work is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_idle()
            && self.queue.is_empty()
            && self.attempt.is_none()
            && self.recover.is_none()
            && self.look_until.is_none()
            && self.voted.is_none()
    }

    /// Operations in progress.
    #[must_use]
    pub fn operations(&self) -> usize {
        let waiting = match &self.phase {
            Phase::Committing { ops, .. } => ops.len(),
            _ => 0,
        };
        let attempts = self.attempt.iter().chain(&self.resolved);
        self.queue.len() + waiting + attempts.map(|attempt| attempt.ops.len()).sum::<usize>()
    }

    pub fn push(&mut self, operation: Operation) {
        self.deadline = self.deadline.min(operation.deadline);
        self.queue.push_back(operation);
    }

    /// Puts operations back in front of the queue, in order.
    pub fn put_back(&mut self, operations: Vec<Operation>) {
        operations.into_iter().rev().for_each(|operation| self.queue.push_front(operation));
    }

    /// The next time at which it needs a timer.
    #[must_use]
    pub fn due_at(&self) -> Nanos {
        self.wake_at.min(self.deadline).min(self.look_until.unwrap_or(Nanos::MAX))
    }

    /// True if the phase still needs the node's answer.
    #[must_use]
    pub fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        let has = |tally: &Tally| tally.has(replicas, node);
        match &self.phase {
            Phase::Idle | Phase::Pausing => false,
            Phase::Reading(reports) => !has(&reports.tally),
            Phase::Preparing(it) => !has(&it.promises) && !has(&it.nacks),
            Phase::Accepting(it) => !has(&it.acks) && !has(&it.nacks),
            Phase::Committing { acks, .. } => !has(acks),
        }
    }
}
