//! An explanation of one key: the record of each replica, for people.

use base::Millis;

use crate::{Key, NodeId};

/// The answers of all replicas of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    pub key: Key,
    /// One per member, sorted by node.
    pub replicas: Vec<Replica>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    pub node: NodeId,
    pub held: Held,
}

/// The record of one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Held {
    /// No answer in time: the replica is down, or recovers this key.
    Silent,
    /// The replica has no record.
    Absent,
    Present(Record),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Orders the states of the key, as the protocol writes it. Equal rounds mean equal states.
    pub round: String,
    /// Transitions since the key first existed.
    pub version: u64,
    /// The key was deleted, and its tombstone is not collected yet.
    pub is_tombstone: bool,
    /// Bytes of the encoded value.
    pub value_len: usize,
    /// Over the whole state.
    pub checksum: u64,
    /// Rest of the time to live, as this replica counts it.
    pub rest: Option<Millis>,
}
