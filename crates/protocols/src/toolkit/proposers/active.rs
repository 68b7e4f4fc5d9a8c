//! The proposer's side of one key: commands that wait, and the phase in progress.

use std::collections::VecDeque;
use std::fmt::Debug;

use base::Nanos;
use types::{Key, NodeId, Outcome};

use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::back_off::Resend;
use crate::toolkit::operation::{Attempt, Operation};
use crate::toolkit::report::{Report, Reports};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::ExpiryId;

/// The types of a protocol.
pub trait Kinds: Sized + Debug + Send + 'static {
    type Report: Report;
    type Round: Round<Body = <Self::Report as Report>::Body>;
    /// The facts, beside its state, that decide the fate of an attempt.
    type Basis: Debug + Send;
    /// Other knowledge about a key in use.
    type Notes: Default + Debug + Send;
}

/// A question to all replicas, with the answers so far: phase 1 or 2, for example.
pub trait Round: Debug + Send {
    type Body;

    fn question(&self) -> Self::Body;

    /// True if the node's answer is missing.
    fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool;

    /// The replicas that refused the ballot of the round.
    fn refused(&mut self) -> Option<&mut Tally>;

    /// Proposed commands that wait for this round alone.
    fn ops(&self) -> &[(Operation, Outcome)] {
        &[]
    }

    /// The same, if the round has any.
    fn ops_mut(&mut self) -> Option<&mut Vec<(Operation, Outcome)>> {
        None
    }
}

#[derive(Debug, Default)]
pub enum Phase<K: Kinds> {
    #[default]
    Idle,
    /// Another proposer is at work.
    Pausing,
    /// Asks a quorum for its registers.
    Reading(Box<Reports<K::Report>>),
    Asking(K::Round),
}

#[derive(Debug)]
pub struct Active<K: Kinds> {
    pub key: Key,
    pub queue: VecDeque<Operation>,
    pub phase: Phase<K>,
    /// Names the phase in messages.
    pub id: u64,
    /// When the phase began; for phase 2, when its phase 1 did. The phase answers operations from
    /// before.
    pub since: u64,
    pub attempt: Option<Attempt<K::Basis>>,
    pub notes: K::Notes,
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

impl<K: Kinds> Active<K> {
    #[must_use]
    pub fn new(key: Key) -> Active<K> {
        Active {
            key,
            queue: VecDeque::new(),
            phase: Phase::Idle,
            id: 0,
            since: 0,
            attempt: None,
            notes: K::Notes::default(),
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

    /// Some of its work is left, apart from the phase in progress.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.queue.is_empty()
            || self.attempt.is_some()
            || self.recover.is_some()
            || self.look_until.is_some()
            || self.voted.is_some()
    }

    /// It waits for reports only: no attempt, no help, no deadline to vote for.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.attempt.is_none()
            && self.voted.is_none()
            && !self.help
            && self.queue.iter().all(Operation::is_read)
    }

    /// Commands that are proposed, and may have an effect.
    pub fn proposed(&self) -> impl Iterator<Item = &(Operation, Outcome)> {
        let of_round = match &self.phase {
            Phase::Asking(round) => round.ops(),
            _ => &[],
        };
        let of_attempt = self.attempt.iter().flat_map(|attempt| &attempt.ops);
        of_attempt.chain(of_round)
    }

    /// Operations in progress.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.queue.len() + self.proposed().count()
    }

    pub fn push(&mut self, operation: Operation) {
        self.deadline = self.deadline.min(operation.deadline);
        self.queue.push_back(operation);
    }

    /// Puts operations back in front of the queue, in order: they run anew.
    pub fn put_back(&mut self, ops: Vec<(Operation, Outcome)>) {
        ops.into_iter().rev().for_each(|(operation, _)| self.queue.push_front(operation));
    }

    /// The next time at which it needs a timer.
    #[must_use]
    pub fn due_at(&self) -> Nanos {
        self.wake_at.min(self.deadline).min(self.look_until.unwrap_or(Nanos::MAX))
    }

    /// True if the phase still needs the node's answer.
    #[must_use]
    pub fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        match &self.phase {
            Phase::Idle | Phase::Pausing => false,
            Phase::Reading(reports) => !reports.tally.has(replicas, node),
            Phase::Asking(round) => round.lacks(replicas, node),
        }
    }

    /// The replicas that refused the phase's ballot.
    pub fn refused(&mut self) -> Option<&mut Tally> {
        match &mut self.phase {
            Phase::Asking(round) => round.refused(),
            Phase::Idle | Phase::Pausing | Phase::Reading(_) => None,
        }
    }
}
