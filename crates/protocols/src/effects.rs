//! Effects: the requests of a step to its worker.
//!
//! Durability is data. A message names the ticket that must be durable before it may leave, so no
//! message makes a claim that a crash could refute. Messages to this node take the same path and
//! wait for the same ticket.

use base::Nanos;
use bytes::Bytes;
use types::{Incarnation, Key, Lock, LogChanges, NodeId, Outcome, Shard, Tag, Ticket};

use crate::group::GroupReport;
use crate::request::PutAside;

/// A timer of one protocol instance; the instance chooses the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId(pub u64);

/// A message that leaves once `after` is durable.
#[derive(Debug)]
pub struct Send<M> {
    pub to: NodeId,
    pub message: M,
    pub after: Ticket,
}

/// A scan of stored records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    pub id: u64,
    pub from_hash: u64,
    pub limit: usize,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// The effects of a turn's steps, in order.
#[derive(Debug)]
pub struct Effects<M> {
    pub sends: Vec<Send<M>>,
    pub outcomes: Vec<(Tag, Outcome, Ticket)>,
    pub timers: Vec<(TimerId, Nanos)>,
    pub scans: Vec<Scan>,
    /// Changes of the log since the last submission.
    pub log: LogChanges,
    /// The ticket of changes made now, of the log as of registers.
    pub open_ticket: Ticket,
    /// Shards that are recovered: absence means absence again.
    pub recovered: Vec<Shard>,
    /// Registers whose stored copies must not be trusted any more, nor their shards' fields. The
    /// worker raises the amnesia count and [`Event::Forgotten`](crate::Event::Forgotten) follows.
    pub disowned: Vec<Key>,
    /// Shards that are forgotten by their fields although storage does not know it yet.
    pub forgotten: Vec<Shard>,
    /// For the operator.
    pub warnings: Vec<String>,
    /// Keys whose commands wait for the end of a transaction, which the worker sees to.
    pub locked: Vec<(Key, Lock)>,
    /// Records of transactions that should be forgotten by now, and since when each stays.
    pub records: Vec<(Key, Nanos)>,
    /// A fence shuts out this node's ballots of incarnations below. The worker takes a later one,
    /// and calls [`Protocol::renew`](crate::Protocol::renew).
    pub fenced: Option<Incarnation>,
    /// Inputs to be delivered again.
    pub again: Vec<PutAside<M>>,
    /// Answers to the membership service.
    pub group: Vec<GroupReport>,
    /// Peers that did not answer in time.
    pub suspects: Vec<NodeId>,
    pub violation: Option<Violation>,
}

impl<M> Default for Effects<M> {
    fn default() -> Effects<M> {
        Effects {
            sends: Vec::new(),
            outcomes: Vec::new(),
            timers: Vec::new(),
            scans: Vec::new(),
            log: LogChanges::default(),
            open_ticket: Ticket::DURABLE,
            recovered: Vec::new(),
            disowned: Vec::new(),
            forgotten: Vec::new(),
            warnings: Vec::new(),
            locked: Vec::new(),
            records: Vec::new(),
            fenced: None,
            again: Vec::new(),
            group: Vec::new(),
            suspects: Vec::new(),
            violation: None,
        }
    }
}

impl<M> Effects<M> {
    /// Sends once `after` is durable.
    pub fn send(&mut self, to: NodeId, message: M, after: Ticket) {
        self.sends.push(Send { to, message, after });
    }

    /// Sends at once. Only for messages without a claim that a crash could refute.
    pub fn send_now(&mut self, to: NodeId, message: M) {
        self.send(to, message, Ticket::DURABLE);
    }

    /// Answers a request whose outcome rests on a quorum's durable state, not on this node's.
    pub fn reply(&mut self, tag: Tag, outcome: Outcome) {
        self.outcomes.push((tag, outcome, Ticket::DURABLE));
    }

    /// Answers a request once `after` is durable here.
    pub fn reply_after(&mut self, after: Ticket, tag: Tag, outcome: Outcome) {
        self.outcomes.push((tag, outcome, after));
    }

    /// Asks for [`Event::Timer`](crate::Event::Timer) at `at` or a little later. Timers cannot be
    /// cancelled.
    pub fn timer(&mut self, id: TimerId, at: Nanos) {
        self.timers.push((id, at));
    }

    /// Asks for [`Event::Scanned`](crate::Event::Scanned).
    pub fn scan(&mut self, scan: Scan) {
        self.scans.push(scan);
    }

    /// Appends a record to the log. Records from this index on are replaced. Durable after the
    /// returned ticket, which is that of registers changed now.
    pub fn append(&mut self, index: u64, record: impl Into<Bytes>) -> Ticket {
        self.log.append(index, record.into());
        self.open_ticket
    }

    /// Drops the log's records from this index on. Durable after the returned ticket.
    pub fn truncate_log(&mut self, index: u64) -> Ticket {
        self.log.truncate(index);
        self.open_ticket
    }

    /// Cuts the log's records below this index off, after all other changes of the turn. A crash
    /// may bring them back.
    pub fn cut_log(&mut self, below: u64) {
        self.log.cut(below);
    }

    pub fn recovered(&mut self, shard: Shard) {
        self.recovered.push(shard);
    }

    pub fn disown(&mut self, key: Key) {
        self.disowned.push(key);
    }

    pub fn forget(&mut self, shard: Shard) {
        self.forgotten.push(shard);
    }

    pub fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    pub fn locked(&mut self, key: Key, lock: Lock) {
        self.locked.push((key, lock));
    }

    pub fn fenced(&mut self, below: Incarnation) {
        self.fenced = self.fenced.max(Some(below));
    }

    /// Delivers the input again, after those that are on their way already.
    pub fn again(&mut self, input: PutAside<M>) {
        self.again.push(input);
    }

    pub fn report(&mut self, report: GroupReport) {
        self.group.push(report);
    }

    pub fn suspect(&mut self, node: NodeId) {
        self.suspects.push(node);
    }

    /// Stops the node: an invariant is broken here, and others must not be harmed.
    pub fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }
}
