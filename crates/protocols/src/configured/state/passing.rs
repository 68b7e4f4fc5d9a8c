//! Requests under way to full members, and those of other nodes that run here.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Access, Incarnation, Key, NodeId, SessionId, Shard, Tag};

use crate::configured::envelope::{Answer, Envelope};
use crate::protocol::Request;

/// Tags of requests of other nodes, which no session of this node has.
pub(crate) const SERVED: u64 = 0xfd << 56;
/// Sessions of other nodes: their ids lie beside those of this node.
pub(crate) const SESSION_SHIFT: u32 = 47;

/// Both ends of passing on.
#[derive(Debug)]
pub(crate) struct Passing {
    pub(crate) next: u64,
    pub(crate) sent: BTreeMap<u64, Sent>,
    pub(crate) due: Option<Nanos>,
    pub(crate) next_served: u64,
    pub(crate) served: BTreeMap<Tag, Asker>,
    /// Requests from each worker of each node: a copy of a message must not run again.
    pub(crate) streams: BTreeMap<(NodeId, u64), Stream>,
}

/// Requests of one worker of another node.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) low: u64,
    pub(crate) seen: BTreeMap<u64, (SessionId, Key)>,
}

impl Stream {
    /// Notes a request. False if it came before, or is older than another of its session and key:
    /// the other node has given it up.
    pub(crate) fn admit(&mut self, id: u64, low: u64, lane: (SessionId, Key)) -> bool {
        if low > self.low {
            self.low = low;
            self.seen = self.seen.split_off(&low);
        }
        let is_late = id < self.low || self.seen.range(id..).any(|(_, newer)| *newer == lane);
        if !is_late && !self.seen.contains_key(&id) {
            self.seen.insert(id, lane);
            return true;
        }
        false
    }
}

/// An id names the process, its worker, and a number.
pub(crate) const WORKER_SHIFT: u32 = 34;
const INCARNATION_SHIFT: u32 = 40;
pub(crate) const WORKERS_MASK: u64 = (1 << (INCARNATION_SHIFT - WORKER_SHIFT)) - 1;

/// The node that passed a request on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) node: NodeId,
    pub(crate) shard: Shard,
    pub(crate) id: u64,
    pub(crate) access: Access,
}

impl Asker {
    pub(crate) fn answer<M>(self, answer: Answer) -> (NodeId, Envelope<M>) {
        let Asker { node, shard, id, .. } = self;
        (node, Envelope::Passed { shard, id, answer })
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) request: Request,
    pub(crate) to: NodeId,
}

impl Passing {
    pub(crate) fn new(incarnation: Incarnation, worker: usize) -> Passing {
        let process = u64::from(incarnation.0) << INCARNATION_SHIFT;
        let next = process | (worker as u64 & WORKERS_MASK) << WORKER_SHIFT;
        Passing {
            next,
            sent: BTreeMap::new(),
            due: None,
            next_served: 0,
            served: BTreeMap::new(),
            streams: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.served.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// True for a request of another node.
    pub(crate) fn serves(&self, tag: Tag) -> bool {
        self.served.contains_key(&tag)
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_was_given_up_never_runs_behind_a_newer_one() {
        let lane = |session, key: &[u8]| (SessionId(session), Key::new(key));
        let mut stream = Stream::default();
        assert!(stream.admit(7, 4, lane(1, b"k")));
        assert!(!stream.admit(7, 4, lane(1, b"k")), "a copy");
        assert!(!stream.admit(6, 4, lane(1, b"k")), "given up");
        assert!(stream.admit(5, 4, lane(2, b"k")), "sessions have no common order");
        assert!(stream.admit(4, 4, lane(1, b"other")));
        assert!(!stream.admit(3, 4, lane(3, b"k")), "below the lowest one under way");
    }
}
