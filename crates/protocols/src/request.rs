//! Inputs that a protocol may keep for later: a client's request, and the sender of a message.

use base::Nanos;
use types::{AmnesiaCount, Command, Incarnation, Key, NodeId, SessionId, Tag};

/// The sender of a message, as its frame names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
}

/// A client's command on one key.
#[derive(Clone, Debug)]
pub struct Request {
    pub tag: Tag,
    pub session: SessionId,
    pub key: Key,
    pub command: Command,
    /// When the node took it in: it may have waited for its register since.
    pub asked_at: Nanos,
}

/// An input that the protocol put aside. It comes again once its register is resident.
#[derive(Debug)]
pub enum PutAside<M> {
    Message { from: Peer, message: M },
    Request(Request),
}
