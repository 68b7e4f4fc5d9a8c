//! How other nodes stand, as they told.

use std::collections::BTreeMap;

use base::Nanos;
use types::NodeId;

use super::super::epoch::{Epoch, Zxid};

/// How a node stands.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub accepted: Epoch,
    pub current: Epoch,
    pub last: Zxid,
    pub is_looking: bool,
    pub votes: bool,
}

#[derive(Debug, Default)]
pub struct Looks {
    pub by_node: BTreeMap<NodeId, (Look, Nanos)>,
    pub asked_at: Nanos,
}
