//! Listings in progress.

use std::collections::BTreeMap;

use base::Nanos;
use types::{NodeId, Shard, Tag};

#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// Scans under way, each with its requester.
    pub(crate) scans: BTreeMap<u64, Requester>,
    /// Steps that other nodes run, each with the node.
    pub(crate) sent: BTreeMap<u64, (Wanted, NodeId)>,
    /// Steps that wait for an epoch or a member.
    pub(crate) waiting: Vec<Wanted>,
}

/// A step that a client of this node waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) tag: Tag,
    pub(crate) from_hash: u64,
    pub(crate) limit: usize,
    pub(crate) deadline: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Requester {
    Client(Wanted),
    Node { node: NodeId, shard: Shard, id: u64 },
}

impl Listings {
    pub(crate) fn is_empty(&self) -> bool {
        self.scans.is_empty() && self.sent.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.scans.len() + self.sent.len() + self.waiting.len()
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.sent.values().map(|(wanted, _)| wanted.deadline).min()
    }
}
