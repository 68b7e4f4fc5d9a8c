//! Writes and reads of this node's clients in progress.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Command, Key, NodeId, SessionId, Tag};

use super::message::Txn;
use crate::protocol::Request;

/// Requests of one node in progress; more are refused.
pub(super) const REQUESTS_MAX: usize = 8_192;

#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// Numbers given to writes.
    numbered: u64,
    /// Writes that this node has not seen proposed. They are resent to the leader.
    pub untaken: BTreeMap<u64, Untaken>,
    /// Requests whose write is not applied yet. The write continues after the request's deadline.
    pub pending: BTreeMap<u64, Pending>,
    /// The last write of each session that is not applied yet.
    last_writes: BTreeMap<SessionId, u64>,
    /// Reads by the write of their session that they wait for. Their registers are pinned.
    pub reads: BTreeMap<u64, Vec<(Request, Nanos)>>,
    pub reads_count: usize,
}

#[derive(Debug)]
pub(super) struct Untaken {
    pub key: Key,
    pub command: Command,
    pub sent_at: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub tag: Tag,
    pub deadline: Nanos,
}

impl Forwards {
    pub fn is_empty(&self) -> bool {
        self.untaken.is_empty() && self.pending.is_empty() && self.reads.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.pending.len().max(self.untaken.len()) + self.reads_count >= REQUESTS_MAX
            || self.last_writes.len() >= REQUESTS_MAX
    }

    /// Numbers a write.
    pub fn add(&mut self, request: &Request, now: Nanos, deadline: Nanos) -> u64 {
        self.numbered += 1;
        let Request { tag, session, key, command, .. } = request.clone();
        self.untaken.insert(self.numbered, Untaken { key, command, sent_at: now });
        self.pending.insert(self.numbered, Pending { tag, deadline });
        self.last_writes.insert(session, self.numbered);
        self.numbered
    }

    /// The write that a read of this session has to wait for.
    pub fn last_write(&self, session: SessionId) -> Option<u64> {
        self.last_writes.get(&session).copied()
    }

    pub fn park(&mut self, behind: u64, read: Request, deadline: Nanos) {
        self.reads.entry(behind).or_default().push((read, deadline));
        self.reads_count += 1;
    }

    /// Notes that a transaction has its place. A write of this node is not resent any more.
    pub fn on_taken(&mut self, me: NodeId, txn: &Txn) {
        if txn.origin == me {
            self.untaken.remove(&txn.number);
        }
    }

    /// Notes that a write of this node was applied. Returns its requester and the reads that waited
    /// for it.
    pub fn on_applied(&mut self, number: u64) -> (Option<Tag>, Vec<(Request, Nanos)>) {
        self.last_writes.retain(|_, last| *last != number);
        let reads = self.reads.remove(&number).unwrap_or_default();
        self.reads_count -= reads.len();
        (self.pending.remove(&number).map(|pending| pending.tag), reads)
    }

    /// Removes writes and reads whose time is over.
    pub fn expire(&mut self, now: Nanos) -> (Vec<Tag>, Vec<Request>) {
        let writes = self.pending.extract_if(.., |_, pending| pending.deadline <= now);
        let writes = writes.map(|(_, pending)| pending.tag).collect();
        let mut reads = Vec::new();
        for waiting in self.reads.values_mut() {
            let expired = waiting.extract_if(.., |(_, deadline)| *deadline <= now);
            reads.extend(expired.map(|(read, _)| read));
        }
        self.reads.retain(|_, waiting| !waiting.is_empty());
        self.reads_count -= reads.len();
        (writes, reads)
    }
}
