//! What a worker sees of storage: places with records, batches with tickets.
//!
//! A worker puts the registers that a turn changed into the open batch, submits the batch once, and learns
//! later up to which ticket everything is durable. It never waits: a record that is not in memory comes back
//! as a [`Completion`]. All workers of a node share a medium; each has a store handle of its own and touches
//! only its own shards.

use bytes::Bytes;
use types::{Database, Key, Positions, Shard, Ticket};

/// Where a record lives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A register, overwritten in place.
    Cell(Database, Key),
    /// The protocol's fields for a whole shard: floors and ceilings.
    Meta(Database, Shard),
}

/// What is known of a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Load {
    /// The newest record.
    Found(Bytes),
    /// There is none, and there was none: nothing has been forgotten here.
    Absent,
    /// There may have been one: it is damaged, or its shard was forgotten. Never before the [`Completion::Forgotten`]
    /// of damage that storage has found: acknowledgements of before are not void until the node has heard of it.
    Lost,
    /// It is being read, or was found damaged just now; a [`Completion::Loaded`] follows.
    Pending,
}

/// What became of something asked for earlier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Completion {
    /// Everything up to and including this ticket is durable. Never decreases.
    Stored(Ticket),
    /// The answer to a pending load; never `Load::Pending`.
    Loaded { place: Place, load: Load },
    /// The answer to a scan: records of one shard in key order (hash, then bytes), from the asked position on.
    /// `next_hash` is where to go on, `None` at the end of the shard.
    Scanned { id: u64, records: Vec<(Key, Bytes)>, next_hash: Option<u64> },
    /// Records of this shard were found damaged and are forgotten: absence proves nothing there any more.
    /// The node must raise its loss durably before it says anything about a register of it.
    Forgotten { database: Database, shard: Shard },
    /// Damage that costs no record: where, and what of it, for whoever runs the node.
    Remark(String),
    /// The answer to [`Store::scrub`].
    Scrubbed(Scrubbed),
    /// The medium failed and is poisoned: nothing after the last `Stored` may ever be believed. The node stops.
    Failed(String),
}

/// What [`Store::scrub`] looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubScope {
    /// There is no medium.
    Nothing,
    /// The shards of the worker that asks.
    Shards,
    /// The whole medium, for all workers: the first of them asks.
    Medium,
}

/// What a step of a scrub did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scrubbed {
    /// Read and verified.
    pub bytes: u64,
    /// Registers among them.
    pub registers: u64,
    /// Places found damaged since the last answer, by a scrub or by somebody who asked for a record.
    pub damaged: u64,
    /// Everything has been looked at; the next step begins anew.
    pub has_ended: bool,
}

/// One worker of a node: it owns the shards with `shard % workers == worker`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    pub worker: usize,
    pub workers: usize,
}

/// How far a medium is with what it has taken and not yet brought to its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staging {
    /// Bytes that are not free for what comes next.
    pub used: u64,
    /// Bytes that there are.
    pub len: u64,
}

/// What room the file system has for what a store has to write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Room {
    #[default]
    Enough,
    /// Little for what the store grows by.
    Little,
    /// None: something waits for it.
    Missing,
}

/// Why a file system takes no more of what a store has to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// The file system or the quota is full, or nearly so.
    DiskFull,
    /// Files may not grow longer: `ulimit -f`.
    FileSizeLimit,
}

/// Bytes of keys and records after which a listing of a medium outside memory ends, whatever its limit.
pub(crate) const LISTED_LEN_MAX: usize = 4 << 20;

/// Storage for the shards of one worker.
pub trait Store: Send {
    /// The newest record of a place, changes of the open batch included. `Pending` starts a read.
    fn load(&mut self, place: &Place) -> Load;

    /// Puts a record into the open batch. A place may be put more than once; the last one counts.
    fn put(&mut self, place: &Place, record: &[u8]);

    /// Removes a record in the open batch. A batch is atomic, or its metas become durable before its removals.
    fn remove(&mut self, place: &Place);

    /// Marks a shard as forgotten (absent keys are `Lost`) or, once recovered, as known; in the open batch.
    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool);

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool;

    /// Lists about `limit` records of the shard that `from_hash` lies in, from there on, fewer where they are large. Never
    /// splits a hash.
    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize);

    /// The ticket that a change made now will carry; `Ticket::DURABLE` where changes need no waiting.
    fn ticket(&self) -> Ticket;

    /// Hands the open batch to the medium and opens the next one. Does nothing for an empty batch.
    fn submit(&mut self);

    /// Appends what has completed since the last call.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Tells where keys lie, before the first of them is put or found. Media that store positions
    /// ignore it.
    fn set_positions(&mut self, _positions: &Positions) {}

    /// False where records live no longer than the process (`volatile`): a register need only be put before it leaves
    /// the worker's cells, and shard fields, which never leave them, are not kept.
    fn outlives_process(&self) -> bool;

    /// True while the store cannot take more changes for now: the worker stops taking new requests, not messages
    /// that help others finish.
    fn is_full(&self) -> bool {
        false
    }

    /// True while so many loads are under way that nothing should be asked for that may need another.
    fn has_many_loads(&self) -> bool {
        false
    }

    /// True while so much waits for the medium that nobody may add to it: the worker does not take in what other nodes
    /// have it store either. They do without it, as with a message that was lost.
    fn is_overrun(&self) -> bool {
        false
    }

    /// What room the file system has. Where it is missing the store tries again by itself; reads go on, and so do changes for
    /// as long as there is room for them in what the store has.
    fn room(&self) -> Room {
        Room::Enough
    }

    /// Bytes of memory that the store takes for what the medium has taken and not yet brought to its place: this worker's
    /// part of them. What is there is found without reading.
    fn memory(&self) -> usize {
        0
    }

    /// Of media that have such a thing, through one of their handles.
    fn staging(&self) -> Option<Staging> {
        None
    }

    fn scrub_scope(&self) -> ScrubScope {
        ScrubScope::Nothing
    }

    /// Verifies about `bytes` of what is stored, on from where the step before ended. Answered by a
    /// [`Completion::Scrubbed`], before which it must not be called again; damage is told as where a load meets it.
    /// Writes nothing where everything is whole and no space is found that is not used any more. `share` is the worker that this handle belongs to.
    fn scrub(&mut self, _share: Share, _bytes: u64) {}
}
