//! Messages in flight.

use std::fmt::Debug;

use types::{AmnesiaCount, NodeId, Wire};

use super::node_id;
use crate::protocol::Peer;

/// A message between two nodes, with the losses that its sender knows.
pub(super) struct Letter<M> {
    pub from: Peer,
    pub to: usize,
    pub losses: Vec<(NodeId, AmnesiaCount)>,
    pub message: M,
}

impl<M: Debug + Wire> Letter<M> {
    pub fn goes(&self, from: usize, to: usize) -> bool {
        self.from.node == node_id(from) && self.to == to
    }

    pub fn goes_between(&self, one: usize, other: usize) -> bool {
        self.goes(one, other) || self.goes(other, one)
    }

    /// True if the text of the message has this part.
    pub fn has(&self, part: &str) -> bool {
        part.is_empty() || format!("{:?}", self.message).contains(part)
    }

    pub fn copy(&self) -> Letter<M> {
        let bytes = self.message.to_bytes();
        let message = M::from_bytes(&bytes).expect("a message comes from its bytes");
        Letter { from: self.from, to: self.to, losses: self.losses.clone(), message }
    }
}
