//! How a request ends. Not knowing is an outcome.

use bytes::Bytes;

use crate::Key;
use crate::explain::Explanation;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The command ran; RESP3 bytes.
    Reply(Bytes),
    /// A listing step: keys that exist, in hash order; those on which no quorum agreed yet, which a
    /// read of each settles; and where to go on (`None`: the shard is done).
    Listed { keys: Vec<Key>, unsettled: Vec<Key>, next_hash: Option<u64> },
    /// The record of each replica of a key.
    Explained(Box<Explanation>),
    /// Not enough replicas answered; surely no effect, now and for ever.
    NoQuorum,
    /// No quorum confirmed it; it may or may not take effect.
    Unknown,
    /// This node forgot its state and cannot answer yet, not even through others.
    Loading,
    /// The protocol of this database cannot run the command. Holds the protocol's name.
    Unsupported(&'static str),
}
