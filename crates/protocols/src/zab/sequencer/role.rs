//! The roles of a node in the order.

use std::collections::BTreeMap;

use base::Nanos;
use types::{AmnesiaCount, NodeId};

use super::super::epoch::{Epoch, Zxid};
use super::super::message::ToSequencer;
use super::super::txn::Stream;
use super::looks::Look;
use super::places::Places;
use crate::quorum::Tally;

#[derive(Debug)]
pub enum Role {
    /// It has no leader.
    Looking,
    /// It lost its promises, and asks the others.
    Recalling(Recalling),
    Leading(Box<Leading>),
    Following(Following),
}

#[derive(Debug)]
pub struct Recalling {
    pub id: u64,
    pub answers: Tally,
    /// The highest epoch that this node may have promised.
    pub floor: Epoch,
    pub asked_at: Nanos,
}

/// The way of a follower into an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It will join no earlier epoch.
    Promised,
    /// It takes in the leader's history up to `last`.
    Syncing {
        last: u64,
    },
    /// The same; that its state is partial becomes durable first.
    Clearing {
        base: Zxid,
        last: u64,
    },
    /// The same; its workers copy the leader's registers.
    Copying {
        last: u64,
    },
    /// It has all, and notes it durably.
    Noting,
    /// It has noted it, and waits for the epoch to stand.
    Joined,
    Serving,
}

impl Step {
    /// The leader's entries are appended.
    pub fn takes_entries(self) -> bool {
        !matches!(self, Step::Promised | Step::Clearing { .. })
    }

    /// The entry is from before the epoch, and the follower has not joined.
    pub fn needs_entry(self, index: u64) -> bool {
        match self {
            Step::Syncing { last } | Step::Copying { last } => index <= last,
            _ => false,
        }
    }

    pub fn is_syncing(self) -> bool {
        matches!(self, Step::Syncing { .. })
    }

    pub fn waits_for_fields(self) -> bool {
        matches!(self, Step::Clearing { .. } | Step::Noting)
    }
}

#[derive(Debug)]
pub struct Following {
    pub epoch: Epoch,
    /// Names this attempt to join: answers to earlier ones may be late.
    pub attempt: u64,
    pub leader: NodeId,
    pub step: Step,
    pub heard_at: Nanos,
    pub step_at: Nanos,
}

impl Following {
    /// Its leader looks for one itself. An earlier look may be late: it names an earlier epoch.
    pub fn is_given_up_by(&self, node: NodeId, look: Look) -> bool {
        self.leader == node && look.is_looking && look.accepted >= self.epoch
    }
}

/// The way of a leader into its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It waits for the promises of a majority.
    Discovery,
    /// A majority takes in its history.
    Sync,
    Broadcast,
}

#[derive(Debug)]
pub struct Leading {
    pub epoch: Epoch,
    pub phase: Phase,
    pub since: Nanos,
    /// The last entry of the initial history.
    pub initial: u64,
    /// Promises of nodes that vote.
    pub promised: Tally,
    /// Nodes with the initial history, durably.
    pub joined: Tally,
    /// The answers to its epoch that it takes up once it has the promises of a majority.
    pub waiting: BTreeMap<NodeId, Promise>,
    pub followers: BTreeMap<NodeId, Follower>,
    /// The last attempt of each node that was taken up. A late copy of its promise is void, also
    /// once the follower is given up: its acknowledgements would count for another start.
    pub attempts: BTreeMap<NodeId, u64>,
    /// By node and worker.
    pub origins: BTreeMap<(NodeId, u64), Origin>,
    /// Bytes of the commands that came early.
    pub early_bytes: usize,
    /// Of writes that are no entries yet.
    pub places: Places,
    /// As told to the followers.
    pub told: u64,
}

/// The history of a node that promised to join no earlier epoch.
#[derive(Clone, Debug)]
pub struct Promise {
    pub attempt: u64,
    pub amnesia: AmnesiaCount,
    pub current: Epoch,
    /// It may not cut its log in front of this.
    pub first: u64,
    pub ends: Option<Vec<Zxid>>,
}

/// Writes of a worker's newest stream, taken in the order of their numbers.
#[derive(Debug)]
pub struct Origin {
    pub stream: Stream,
    pub taken: u64,
    /// Those that came ahead of a gap: their keys and commands are in the messages.
    pub early: BTreeMap<u64, ToSequencer>,
}

/// A follower as its leader knows it.
#[derive(Debug)]
pub struct Follower {
    pub attempt: u64,
    pub amnesia: AmnesiaCount,
    /// Entries up to here were sent, and are there durably.
    pub sent: u64,
    pub acked: u64,
    /// The last time at which it had everything that was sent, or had more than before.
    pub moved_at: Nanos,
    pub heard_at: Nanos,
    pub is_joined: bool,
}

impl Leading {
    pub fn is_idle(&self, last: u64) -> bool {
        self.phase == Phase::Broadcast
            && self.places.last() == last
            && self.followers.values().all(|it| it.is_joined && it.acked >= last)
    }
}
