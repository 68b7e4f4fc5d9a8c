//! Operations on their way, and everything a proposer knows of one key while it works on it.

use std::collections::VecDeque;

use base::{Millis, Nanos};
use bytes::Bytes;
use types::{
    Access, Ballot, Command, Incarnation, Key, NodeId, Once, Outcome, Round, SessionId, Shard, Tag,
};

use crate::quorum::{Acks, Tally};
use crate::rmwpaxos::core::ancestry::Attempt;
use crate::rmwpaxos::core::reports::Reports;
use crate::rmwpaxos::core::state::{ExpiryId, State};
use crate::rmwpaxos::fast::combined::Unproven;
use crate::rmwpaxos::once::table::EntryId;

/// Who waits for an operation.
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
    /// Collect the tombstone; propose what is there as it is.
    Collect,
    /// Have a majority say what may be forgotten of the commands that the key remembers.
    Forget,
    /// Nobody any more: the answer was `Unknown`. It is driven to its end, but not attempted anew.
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

/// A place in the order of a node's events. Places are compared and nothing else, which is why they are shown with a
/// mark of their own: states that differ in the distances between them are the same.
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
    /// The step that brought it: a report sent earlier says nothing about it.
    pub step: Place,
    /// Its proposals whose fate is open. [spec 9.4, E1]
    pub attempts: Vec<Attempt>,
    /// Its outcome when it last ran.
    pub outcome: Outcome,
    /// It changed the state when it last ran.
    pub effective: bool,
    /// A quorum read found that it has something to write, or could not decide: it goes through a proposal.
    pub must_propose: bool,
    /// It may have run without an attempt that is known here: the state has forgotten. Only commands that are safe to
    /// repeat go on then.
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

    #[must_use]
    pub fn once(&self) -> Option<&Once> {
        self.command.once.as_deref()
    }

    /// Where nobody can tell any more what became of its attempts, what the state remembers can.
    #[must_use]
    pub fn may_run_again(&self) -> bool {
        self.once().is_some() && self.source != Source::Answered
    }

    /// The same, of which nobody knows whether it ran.
    #[must_use]
    pub fn doubted(mut self) -> Operation {
        self.attempts.clear();
        self.doubtful = true;
        self
    }

    #[must_use]
    pub fn is_read(&self) -> bool {
        self.command.access == Access::Read
    }
}

/// Where a proposer stands with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Idle,
    /// Phase 1 of `Active::ballot` is under way.
    Preparing,
    /// Phase 1 is won: proposals may follow one another.
    Owner,
    /// Lost to somebody; tries again then.
    BackingOff {
        until: Nanos,
    },
    /// The queue's head was forwarded.
    Forwarding,
}

/// A proposal that is not known to be chosen.
#[derive(Debug)]
pub struct InFlight {
    pub k: u32,
    pub base_version: u64,
    pub state: State,
    /// Operations of earlier attempts that its base contains: chosen with it.
    pub carried: Vec<Operation>,
    pub operations: Vec<Operation>,
    pub sent: Nanos,
}

/// Why a quorum is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To answer `ReadRound::operations`.
    Answer,
    /// To learn whether an expiry is over.
    Vote,
    /// To learn what became of attempts. [spec 9.4, E5]
    Resolve,
}

/// One read of a quorum.
#[derive(Debug)]
pub struct ReadRound {
    pub id: u64,
    pub purpose: Purpose,
    pub operations: Vec<Operation>,
    pub reports: Reports,
    pub polls: u32,
    /// Until then a majority that disagrees waits for the others that are up: one of them may be paused.
    pub patient_until: Nanos,
    pub sent: Nanos,
    pub resend_at: Nanos,
    pub resends: u32,
}

/// A forward that was not answered yet.
#[derive(Debug)]
pub struct OutstandingForward {
    pub to: NodeId,
    pub incarnation: Incarnation,
    pub sequence: u64,
    pub operations: Vec<Operation>,
    pub sent: Nanos,
    pub resend_at: Nanos,
    pub resends: u32,
}

/// A proposer's work on one key.
#[derive(Debug)]
pub struct Active {
    pub key: Key,
    pub phase: Phase,
    /// In the order of arrival; those with attempts first.
    pub queue: VecDeque<Operation>,
    /// Reads that wait for the quorum read under way to end.
    pub read_queue: Vec<Operation>,
    pub read: Option<ReadRound>,
    pub forward: Option<OutstandingForward>,

    /// The ballot of phase 1 or of ownership.
    pub ballot: Ballot,
    /// Last proposal made under it; 0 for none.
    pub k: u32,
    /// Last proposal of it that is chosen.
    pub chosen_k: u32,
    /// The state after the last proposal, or the base; `None` for an absent register.
    pub tip: Option<State>,
    /// Its version; the version floor of an absent register.
    pub tip_version: u64,
    /// The round of the tip; `NONE` for an absent register.
    pub tip_round: Round,
    /// Members that should hold the tip, or be about to: a hint for whom to send deltas.
    pub abreast: Tally,
    /// The base is chosen, or a proposal on top of it was made.
    pub base_decided: bool,
    /// The base is chosen, no proposal followed: operations older than this step may be answered from it.
    pub fresh_before: Place,
    pub in_flight: VecDeque<InFlight>,
    /// The proposal in flight went out before phase 1 was won.
    pub unproven: Option<Unproven>,
    /// Others were found to hold something else than this node: phase 1 comes first until one is won.
    pub differed: bool,
    /// Found in the base: succeed with the next proposal.
    pub carried: Vec<Operation>,
    /// Highest proposal of `ballot` acknowledged by each member, with its loss.
    pub acks: Acks,
    /// Members that refused `ballot`, and when the last of them did.
    pub refused: Tally,
    pub refused_at: Nanos,
    /// The highest promise by which this key's ballots were refused, and when that was.
    pub lost_to: Option<(Ballot, Nanos)>,
    /// What phase 1 was asked with: the own acceptor's round and state.
    pub have: Option<(Round, State)>,
    pub promises: Reports,
    pub prepared_at: Place,
    /// Until then only as many members as phase 1 needs were asked; `ZERO`: all were.
    pub ask_rest_at: Nanos,
    /// Until then phase 1, though won, waits for all who are up, for one may have removed what another holds; `ZERO`: it need
    /// not.
    pub contested_until: Nanos,
    /// Estimated rest of the base's time to live when phase 1 or a vote ended.
    pub rest: Option<Millis>,
    /// No vote on an expiry before this.
    pub vote_again_at: Nanos,
    /// Commands that a majority has found to be remembered for long enough: the next batch forgets them.
    pub droppable: Vec<EntryId>,
    /// Collect the tombstone once all members acknowledged exactly this proposal.
    pub collecting: Option<u32>,

    pub losses: u32,
    pub resend_at: Nanos,
    pub resends: u32,
    pub touched: bool,
}

impl Active {
    #[must_use]
    pub fn new(key: Key) -> Active {
        Active {
            key,
            phase: Phase::Idle,
            queue: VecDeque::new(),
            read_queue: Vec::new(),
            read: None,
            forward: None,
            ballot: Ballot::ZERO,
            k: 0,
            chosen_k: 0,
            tip: None,
            tip_version: 0,
            tip_round: Round::NONE,
            abreast: Tally::default(),
            base_decided: false,
            fresh_before: Place(0),
            in_flight: VecDeque::new(),
            unproven: None,
            differed: false,
            carried: Vec::new(),
            acks: Acks::default(),
            refused: Tally::default(),
            refused_at: Nanos::ZERO,
            lost_to: None,
            have: None,
            promises: Reports::default(),
            prepared_at: Place(0),
            ask_rest_at: Nanos::ZERO,
            contested_until: Nanos::ZERO,
            rest: None,
            vote_again_at: Nanos::ZERO,
            droppable: Vec::new(),
            collecting: None,
            losses: 0,
            resend_at: Nanos::MAX,
            resends: 0,
            touched: false,
        }
    }

    /// Makes a finished one as new, for another key. Its queues are empty and keep their memory.
    pub fn start_over(&mut self, key: Key) {
        assert!(self.is_done(), "{:?} still has something to do", self.key);
        self.key = key;
        self.phase = Phase::Idle;
        self.ballot = Ballot::ZERO;
        (self.k, self.chosen_k) = (0, 0);
        self.forget_states();
        self.tip_version = 0;
        (self.tip_round, self.abreast) = (Round::NONE, Tally::default());
        (self.base_decided, self.fresh_before) = (false, Place(0));
        (self.unproven, self.differed) = (None, false);
        self.acks = Acks::default();
        (self.refused, self.refused_at) = (Tally::default(), Nanos::ZERO);
        self.lost_to = None;
        self.prepared_at = Place(0);
        (self.ask_rest_at, self.contested_until) = (Nanos::ZERO, Nanos::ZERO);
        (self.rest, self.vote_again_at) = (None, Nanos::ZERO);
        self.droppable.clear();
        self.losses = 0;
        (self.resend_at, self.resends) = (Nanos::MAX, 0);
        self.touched = false;
    }

    /// Lets go of everything that may be as big as a value.
    pub fn forget_states(&mut self) {
        self.tip = None;
        self.have = None;
        self.promises.clear();
    }

    /// Nothing waits here for anything.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.queue.is_empty()
            && self.read_queue.is_empty()
            && self.read.is_none()
            && self.forward.is_none()
            && self.in_flight.is_empty()
            && self.carried.is_empty()
            && self.collecting.is_none()
    }

    /// A write is queued or under way: a read that came later rides along behind it.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        self.phase != Phase::Idle
            || !self.queue.is_empty()
            || !self.in_flight.is_empty()
            || !self.carried.is_empty()
    }

    #[must_use]
    pub fn asks_rest_now(&self, now: Nanos) -> bool {
        self.ask_rest_at > Nanos::ZERO && now >= self.ask_rest_at
    }

    /// Somebody refused the ballot, and those who might still carry it have had their time: one may be paused.
    #[must_use]
    pub fn is_refused_for(&self, patience: Nanos, now: Nanos) -> bool {
        self.refused != Tally::default() && now >= self.refused_at + patience
    }

    #[must_use]
    pub fn has_attempts(&self) -> bool {
        self.queue.iter().any(|operation| !operation.attempts.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use types::Epoch;

    use super::*;

    #[test]
    fn a_proposer_that_starts_over_is_as_new() {
        let mut active = Active::new(Key::new(b"former"));
        let ballot = Ballot::new(Epoch(1), 1, NodeId(1), Incarnation(1));
        active.phase = Phase::Owner;
        active.ballot = ballot;
        (active.k, active.chosen_k, active.tip_version) = (1, 2, 3);
        (active.base_decided, active.fresh_before, active.prepared_at) = (true, Place(4), Place(5));
        active.differed = true;
        active.tip_round = ballot.round(6);
        active.acks.add(0, 6, types::Loss(7));
        (active.rest, active.vote_again_at) = (Some(Millis(8)), Nanos(9));
        (active.refused_at, active.ask_rest_at) = (Nanos(10), Nanos(11));
        active.contested_until = Nanos(12);
        active.lost_to = Some((ballot, Nanos(13)));
        (active.losses, active.resend_at, active.resends, active.touched) = (1, Nanos(2), 3, true);
        active.start_over(Key::new(b"next"));
        assert_eq!(format!("{active:?}"), format!("{:?}", Active::new(Key::new(b"next"))));
    }
}
