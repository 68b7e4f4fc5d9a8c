//! Operations in progress.

use base::Nanos;
use bytes::Bytes;
use types::{
    Access, Command, Hold, Incarnation, NodeId, Once, Outcome, Round, SessionId, Shard, Tag, Then,
};

use crate::rmwpaxos::record::state::ExpiryId;

/// A proposal that carried an operation, whose fate may be open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub round: Round,
    /// Version of the state that it was computed from; its own transition is the next one.
    pub base_version: u64,
    /// The outcome of the operation there.
    pub outcome: Outcome,
}

/// The origin of an operation, which gets its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Client(Tag),
    /// A command of a forward, by its place there.
    Forwarded {
        forward: ForwardKey,
        index: usize,
    },
    /// A quorum voted that this expiry is over.
    Expire(ExpiryId),
    /// Collect the tombstone; propose the state as it is.
    Collect,
    /// Have a majority vote on the commands that the key remembers.
    Forget,
    /// None any more: the answer was `Unknown`. It is driven to its end, but not attempted anew.
    Answered,
}

/// Names a forward at its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardKey {
    pub origin: NodeId,
    pub incarnation: Incarnation,
    pub shard: Shard,
    pub sequence: u64,
}

/// A place in the order of a node's events. Places are only compared, so `Debug` shows them with a
/// mark of their own: the explorer ignores the distances between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place(pub u64);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// One command in progress.
#[derive(Clone, Debug)]
pub struct Operation {
    pub source: Source,
    pub session: SessionId,
    pub command: Command,
    pub deadline: Nanos,
    /// The step that brought it: a report sent earlier is no evidence about it.
    pub step: Place,
    /// Its proposals whose fate is open. [spec 9.4, E1]
    pub attempts: Vec<Attempt>,
    /// Its outcome when it last ran.
    pub outcome: Outcome,
    /// It changed the state when it last ran.
    pub effective: bool,
    /// A quorum read found an effect of it, or could not decide. So it goes through a proposal.
    pub must_propose: bool,
    /// It may have run without an attempt that is known here: the state has forgotten. Only
    /// commands that are safe to repeat go on then.
    pub doubtful: bool,
}

impl Operation {
    #[must_use]
    pub fn new(
        source: Source,
        session: SessionId,
        command: Command,
        deadline: Nanos,
        step: Place,
    ) -> Operation {
        Operation {
            source,
            session,
            command,
            deadline,
            step,
            attempts: Vec::new(),
            outcome: Outcome::Unknown,
            effective: false,
            must_propose: false,
            doubtful: false,
        }
    }

    /// An operation of the proposer itself.
    #[must_use]
    pub fn internal(source: Source, step: Place) -> Operation {
        let command = Command::new(Access::Update, Bytes::new());
        let mut operation = Operation::new(source, SessionId(0), command, Nanos::MAX, step);
        operation.must_propose = true;
        operation
    }

    #[must_use]
    pub fn is_internal(&self) -> bool {
        matches!(self.source, Source::Expire(_) | Source::Collect | Source::Forget)
    }

    /// A command that meets a lock waits for its end, unless it is about locks.
    #[must_use]
    pub fn waits_for_locks(&self) -> bool {
        !self.is_internal() && !self.command.is_about_locks()
    }

    /// Its place among the commands of the key. Of those that came together, the ones with attempts
    /// came first.
    #[must_use]
    pub fn arrival(&self) -> (Place, bool) {
        (self.step, !self.has_attempts())
    }

    /// It was proposed, and that proposal may be chosen.
    #[must_use]
    pub fn has_attempts(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// It came from another node.
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        matches!(self.source, Source::Forwarded { .. })
    }

    #[must_use]
    pub fn once(&self) -> Option<&Once> {
        self.command.once.as_deref()
    }

    /// The session that needs room in the table of the state.
    #[must_use]
    pub fn remembered_by(&self) -> Option<&Once> {
        let taken = match self.command.hold.as_deref() {
            Some(Hold { then: Then::Take(take), .. }) => take.once.as_deref(),
            _ => None,
        };
        self.once().or(taken)
    }

    /// True if the table of a state decides the fate of its attempts where the ring cannot.
    #[must_use]
    pub fn may_run_again(&self) -> bool {
        self.once().is_some() && self.source != Source::Answered
    }

    /// The same, without knowledge whether it ran.
    #[must_use]
    pub fn doubted(mut self) -> Operation {
        self.attempts.clear();
        self.doubtful = true;
        self
    }

    /// If it is overdue and may have run, leaves it without a client. The copy is to be answered.
    pub fn give_up_at(&mut self, now: Nanos) -> Option<Operation> {
        if self.deadline > now || self.source == Source::Answered {
            return None;
        }
        let answered = self.clone();
        self.source = Source::Answered;
        Some(answered)
    }

    /// The outcome if it is not known whether it ran. A read has no effect.
    #[must_use]
    pub fn outcome_in_doubt(&self) -> Outcome {
        if self.is_read() { Outcome::NoQuorum } else { Outcome::Unknown }
    }

    #[must_use]
    pub fn is_read(&self) -> bool {
        self.command.access == Access::Read
    }
}
