//! An event on its way to a protocol, which may have to wait for its register or shard.

use protocols::{Message as _, Peer, Protocol, Request, Scan, Touches};
use types::{Key, Shard, Tag};

use super::load_waiters::Waiter;
use crate::engine::shard_of;

/// An event that may have to wait for its register or shard.
pub(crate) enum EngineWork<P: Protocol> {
    Request(Request),
    List {
        tag: Tag,
        from_hash: u64,
        limit: usize,
    },
    Explain {
        tag: Tag,
        key: Key,
    },
    /// `len`: bytes of the message as it came; 0 for one of this node's own.
    Peer {
        from: Peer,
        message: P::Message,
        len: u32,
    },
    Scan(Scan),
    Forgotten(Shard),
}

impl<P: Protocol> EngineWork<P> {
    pub(crate) fn touches(&self) -> Touches<'_> {
        match self {
            EngineWork::Request(request) => Touches::Key(&request.key),
            EngineWork::List { from_hash, .. } => Touches::Shard(shard_of(*from_hash)),
            EngineWork::Explain { key, .. } => Touches::Key(key),
            EngineWork::Peer { message, .. } => message.touches(),
            EngineWork::Scan(scan) => Touches::Shard(shard_of(scan.from_hash)),
            EngineWork::Forgotten(shard) => Touches::Shard(*shard),
        }
    }
}

impl<P: Protocol> Waiter for EngineWork<P> {
    fn len(&self) -> usize {
        match self {
            EngineWork::Peer { len, .. } => *len as usize,
            _ => 0, // a client's commands count where they come in
        }
    }
}
