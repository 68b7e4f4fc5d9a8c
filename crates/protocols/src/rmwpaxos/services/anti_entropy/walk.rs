//! A walk: one comparison of a shard with members, from its beginning to its end.

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{Ballot, Loss, Shard};

use crate::replicas::Places;
use crate::rmwpaxos::message::Held;

/// One comparison of a shard, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) shard: Shard,
    pub(crate) with: Places,
    /// Of those: no difference so far.
    pub(crate) equal: Places,
    pub(crate) from_hash: u64,
    pub(crate) step: Step,
    /// Late accepts did not help.
    pub(crate) insist: bool,
    pub(crate) differs: bool,
    /// Of those equal: one holds a tombstone that the other has removed.
    pub(crate) left_over: Places,
    /// The lowest floor that each member had.
    pub(crate) floors: [Ballot; MEMBERS_MAX],
    /// The losses of members when it began, at most.
    pub(crate) losses: [Loss; MEMBERS_MAX],
    pub(crate) started: Nanos,
}

/// Where a walk stands.
#[derive(Debug)]
pub(crate) enum Step {
    Pausing { until: Nanos },
    Scanning { scan: u64, began: Nanos },
    Asking(Question),
}

/// A range that members were asked about.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: u64,
    pub(crate) own: Vec<Held>,
    /// It stands for registers that are not among them.
    pub(crate) floor: Ballot,
    pub(crate) range: (u64, Option<u64>),
    /// As far as all answers go.
    pub(crate) until: Option<u64>,
    pub(crate) awaited: Places,
    pub(crate) deadline: Nanos,
    pub(crate) resends: u32,
}

impl Walk {
    /// A member does not hold the same as this node.
    pub(crate) fn note_difference(&mut self, member: usize) {
        self.equal &= !(1 << member);
        self.differs = true;
    }

    /// A member holds a tombstone that was removed here, or the other way round.
    pub(crate) fn note_left_over(&mut self, member: usize) {
        self.left_over |= 1 << member;
    }

    /// The registers held here, or by these members, are not known.
    pub(crate) fn note_doubt(&mut self, members: Places) {
        self.equal &= !members;
    }
}
