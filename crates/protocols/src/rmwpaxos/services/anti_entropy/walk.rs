//! A walk: one comparison of a shard with members.

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Ballot, Shard};

use crate::replicas::Places;
use crate::rmwpaxos::message::Held;

/// One comparison of a shard.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) shard: Shard,
    pub(crate) with: Places,
    /// Members without a difference so far.
    pub(crate) equal: Places,
    pub(crate) from_hash: u64,
    pub(crate) step: Step,
    /// Late accepts did not help: propose instead.
    pub(crate) insist: bool,
    pub(crate) differs: bool,
    /// Equal members where one of the two sides has removed a tombstone that the other holds.
    pub(crate) left_over: Places,
    /// The lowest floor that each member named.
    pub(crate) floors: [Ballot; MEMBERS_MAX],
    /// The highest amnesia counts of members when the walk began.
    pub(crate) losses: [AmnesiaCount; MEMBERS_MAX],
    pub(crate) started: Nanos,
}

/// The step of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    Pausing { until: Nanos },
    Scanning { scan: u64, began: Nanos },
    Asking(Question),
}

/// A question about one range.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: u64,
    pub(crate) own: Vec<Held>,
    /// The floor that covers registers missing from `own`.
    pub(crate) floor: Ballot,
    pub(crate) range: (u64, Option<u64>),
    /// The end of the shortest answer.
    pub(crate) until: Option<u64>,
    pub(crate) awaited: Places,
    pub(crate) deadline: Nanos,
    pub(crate) resends: u32,
}

impl Walk {
    /// Notes that a member differs.
    pub(crate) fn note_difference(&mut self, member: usize) {
        self.equal &= !(1 << member);
        self.differs = true;
    }

    /// Notes a tombstone that only one of the two sides has removed.
    pub(crate) fn note_left_over(&mut self, member: usize) {
        self.left_over |= 1 << member;
    }

    /// Notes that the state of these members is unknown.
    pub(crate) fn note_doubt(&mut self, members: Places) {
        self.equal &= !members;
    }
}
