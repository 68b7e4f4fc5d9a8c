//! Requests of workers to the engine.

use bytes::Bytes;
use types::{Database, Shard, Ticket};

use crate::Place;

/// One request of one worker; they are taken in order.
#[derive(Debug)]
pub enum Request {
    Change(Batch),
    Load(Place),
    Scan(ScanRequest),
    /// Verifies about so many bytes more.
    Scrub {
        bytes: u64,
    },
}

/// Lists about `limit` records from `from_hash` to the end of its shard.
#[derive(Clone, Copy, Debug)]
pub struct ScanRequest {
    pub id: u64,
    pub database: Database,
    pub from_hash: u64,
    pub limit: usize,
}

/// Changes that become durable together. Built by a worker's store handle; opaque to everybody else.
#[derive(Debug, Default)]
pub struct Batch {
    /// Entries, one after the other.
    pub(super) entries: Vec<u8>,
    /// No entry takes more bytes.
    pub(super) entry_len_max: usize,
    /// Records that are too long for a page.
    pub(super) large: Vec<Large>,
    pub(super) marks: Vec<ShardMark>,
    /// The ticket that is durable with it; `None` for all but the last part of a divided batch.
    pub(super) ticket: Option<Ticket>,
}

/// The content of an extent, whose entry stands in the batch with a reference that has no unit yet.
#[derive(Debug)]
pub(super) struct Large {
    /// Where the entry starts in the batch.
    pub(super) at: usize,
    pub(super) content: Bytes,
}

/// A worker's word on one of its shards.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardMark {
    pub(super) database: Database,
    pub(super) shard: Shard,
    pub(super) forgotten: bool,
    /// How many losses of this shard the worker had heard of: it cannot have recovered from a later one.
    pub(super) losses_heard: u32,
}
