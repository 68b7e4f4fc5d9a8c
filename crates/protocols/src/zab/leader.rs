//! The leader's state besides its history.

use std::collections::BTreeMap;

use types::limits::MEMBERS_MAX;
use types::{Command, Key};

use crate::replicas::ReplicaSet;

/// Acknowledgements and origins, as the leader counts them.
#[derive(Debug, Default)]
pub(super) struct Leader {
    /// By member index: its last transaction now, and at the last tick.
    pub(super) acked: [u64; MEMBERS_MAX],
    /// The last transaction that every member has.
    pub(super) acked_by_all: u64,
    pub(super) acked_before: [u64; MEMBERS_MAX],
    /// By member index: the writes that came from there.
    pub(super) origins: [Origin; MEMBERS_MAX],
    /// Proposed to all members at least once.
    pub(super) proposed: u64,
    /// The commit that was sent to all members at least once.
    pub(super) told: u64,
}

/// Writes of one node, taken in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Origin {
    pub(super) taken: u64,
    /// Those that came ahead of a gap.
    pub(super) early: BTreeMap<u64, (Key, Command)>,
}

impl Leader {
    /// The last transaction that a majority has. [ZAB, B3]
    pub(super) fn acked_by_majority(&self, set: &ReplicaSet) -> u64 {
        set.reached_by_quorum(&self.acked)
    }
}
