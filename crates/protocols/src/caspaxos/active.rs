//! The proposer's side of one key: commands that wait, and the phase in progress.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Nanos;
use types::{Epoch, Key, NodeId};

use super::reports::Reports;
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::back_off::Resend;
use crate::toolkit::operation::{Attempt, Operation};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, ExpiryId, State};

/// A ballot that a quorum promised with its votes for the state before.
#[derive(Clone, Debug)]
pub struct Granted {
    pub ballot: Stamp,
    /// The chosen state.
    pub base: Base,
    pub promises: Tally,
    /// The replica set that the promises are counted in.
    pub epoch: Epoch,
}

/// Phase 1.
#[derive(Clone, Debug)]
pub struct Preparing {
    pub ballot: Stamp,
    pub reports: Reports,
    pub refused: Tally,
}

/// Phase 2.
#[derive(Clone, Debug)]
pub struct Accepting {
    pub ballot: Stamp,
    pub next: Stamp,
    pub state: Arc<State>,
    pub acks: Tally,
    pub refused: Tally,
}

/// An attempt, with its base and ballot, which decide its fate.
#[derive(Clone, Debug)]
pub struct Tried {
    pub attempt: Attempt,
    /// The state that it was computed from.
    pub base: Base,
    /// The highest ballot under which it was proposed.
    pub ballot: Stamp,
}

#[derive(Clone, Debug, Default)]
pub enum Phase {
    #[default]
    Idle,
    /// Another proposer is at work.
    Pausing,
    /// Asks a quorum for its registers.
    Reading(Box<Reports>),
    Preparing(Box<Preparing>),
    Accepting(Box<Accepting>),
}

#[derive(Debug)]
pub struct Active {
    pub key: Key,
    pub queue: VecDeque<Operation>,
    pub phase: Phase,
    /// Names the phase in messages.
    pub id: u64,
    /// When the phase began; for phase 2, when its phase 1 did.
    pub since: u64,
    pub tried: Option<Tried>,
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
            tried: None,
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

    /// Some of its work is left.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.queue.is_empty()
            || self.tried.is_some()
            || self.recover.is_some()
            || self.look_until.is_some()
            || self.voted.is_some()
    }

    /// Operations in progress.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.queue.len() + self.tried.as_ref().map_or(0, |it| it.attempt.ops.len())
    }

    pub fn push(&mut self, operation: Operation) {
        self.deadline = self.deadline.min(operation.deadline);
        self.queue.push_back(operation);
    }

    /// Puts operations back in front of the queue, in order.
    pub fn put_back(&mut self, operations: impl DoubleEndedIterator<Item = Operation>) {
        operations.rev().for_each(|operation| self.queue.push_front(operation));
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
            Phase::Preparing(it) => !has(&it.reports.tally) && !has(&it.refused),
            Phase::Accepting(it) => !has(&it.acks) && !has(&it.refused),
        }
    }

    /// The replicas that refused the phase's ballot.
    pub fn refused(&mut self) -> Option<&mut Tally> {
        match &mut self.phase {
            Phase::Preparing(it) => Some(&mut it.refused),
            Phase::Accepting(it) => Some(&mut it.refused),
            Phase::Idle | Phase::Pausing | Phase::Reading(_) => None,
        }
    }
}
