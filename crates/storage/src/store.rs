//! A worker's view of storage: places with records, batches with tickets.
//!
//! A worker puts the registers that a turn changed into the open batch, submits the batch once, and
//! learns later up to which ticket everything is durable. It never waits: a record that is not in
//! memory comes back as a [`Completion`]. All workers of a node share a medium; each has a store
//! handle of its own and touches only its own shards.

use bytes::Bytes;
use types::{Database, Key, LogChanges, LogImage, Positions, Shard, Ticket};

/// Where a record lives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A register, overwritten in place.
    Cell(Database, Key),
    /// The protocol's fields for a whole shard: floors and ceilings.
    Meta(Database, Shard),
}

/// The answer to a load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Load {
    /// The newest record.
    Found(Bytes),
    /// There is none, and there was none: its shard has not been forgotten.
    Absent,
    /// There may have been one: it is damaged, or its shard was forgotten. Never before the
    /// [`Completion::Forgotten`] of damage that storage has found: acknowledgements of before are
    /// not void until the node has heard of it.
    Lost,
    /// It is being read, or was found damaged just now; a [`Completion::Loaded`] follows.
    Pending,
}

/// The outcome of an earlier request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Completion {
    /// Everything up to and including this ticket is durable. Never decreases.
    Stored(Ticket),
    /// The answer to a pending load; never `Load::Pending`.
    Loaded { place: Place, load: Load },
    /// The answer to a scan: records of one shard in key order (hash, then bytes), from the asked
    /// position on. `next_hash` is where to go on, `None` at the end of the shard.
    Scanned { id: u64, records: Vec<(Key, Bytes)>, next_hash: Option<u64> },
    /// Records of this shard were found damaged and are forgotten: absence is no proof there any
    /// more. The node must raise its loss durably before it answers for a register of it.
    Forgotten { database: Database, shard: Shard },
    /// Damage that costs no record: its place and kind, for the operator.
    Warning(String),
    /// The answer to [`Store::scrub`].
    Scrubbed(Scrubbed),
    /// The medium failed and is poisoned: only changes up to the last `Stored` may be believed. The
    /// node stops.
    Failed(String),
}

/// The scope of [`Store::scrub`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubScope {
    /// There is no medium.
    Nothing,
    /// The shards of the worker that asks.
    Shards,
    /// The whole medium, for all workers: the first of them asks.
    Medium,
}

/// The outcome of a step of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scrubbed {
    /// Read and verified.
    pub bytes: u64,
    /// Registers among them.
    pub registers: u64,
    /// Places found damaged since the last answer, by a scrub or by a load.
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

/// Changes that a medium has taken and not yet brought to their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staging {
    /// Bytes that are not free for new changes.
    pub used: u64,
    /// Bytes that there are.
    pub len: u64,
}

/// The room that the file system has for the writes of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Room {
    #[default]
    Enough,
    /// Little for the growth of the store.
    Little,
    /// None: something waits for it.
    Missing,
}

/// Why a file system takes no more writes of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// The file system or the quota is full, or nearly so.
    DiskFull,
    /// Files may not grow longer: `ulimit -f`.
    FileSizeLimit,
}

/// Bytes of keys and records after which a listing of a medium outside memory ends, whatever its
/// limit.
pub(crate) const LISTED_LEN_MAX: usize = 4 << 20;

/// Storage for the shards of one worker.
pub trait Store: Send {
    /// The newest record of a place, changes of the open batch included. `Pending` starts a read.
    fn load(&mut self, place: &Place) -> Load;

    /// Puts a record into the open batch. A place may be put more than once; the last one counts.
    fn put(&mut self, place: &Place, record: &[u8]);

    /// Removes a record in the open batch. A batch is atomic, or its metas become durable before
    /// its removals.
    fn remove(&mut self, place: &Place);

    /// Marks a shard as forgotten (absent keys are `Lost`) or, once recovered, as known; in the
    /// open batch.
    fn set_forgotten(&mut self, database: Database, shard: Shard, forgotten: bool);

    fn is_forgotten(&self, database: Database, shard: Shard) -> bool;

    /// Lists about `limit` records of the shard that `from_hash` lies in, from there on, fewer
    /// where they are large. Never splits a hash.
    fn scan(&mut self, id: u64, database: Database, from_hash: u64, limit: usize);

    /// The ticket that a change made now will carry; `Ticket::DURABLE` where changes need no
    /// waiting.
    fn ticket(&self) -> Ticket;

    /// Hands the open batch to the medium and opens the next one. An empty batch stays open.
    fn submit(&mut self);

    /// Appends the completions since the last call.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// The log of a database as this start finds it, on a medium that was opened with one; else an
    /// empty one.
    fn open_log(&mut self, _database: Database) -> LogImage {
        LogImage::default()
    }

    /// Changes a database's log in the open batch: durable with the batch's ticket. Dropped by
    /// media that do not outlive the process.
    fn change_log(&mut self, _database: Database, _changes: LogChanges) {}

    /// Tells where keys lie, before the first of them is put or found. Media that store positions
    /// ignore it.
    fn set_positions(&mut self, _positions: &Positions) {}

    /// False where records live no longer than the process (`volatile`): a register need only be
    /// put before it leaves the worker's cells, and shard fields, which never leave them, are not
    /// kept.
    fn outlives_process(&self) -> bool;

    /// True while the store cannot take more changes for now: the worker stops taking new requests,
    /// not messages that help others finish.
    fn is_full(&self) -> bool {
        false
    }

    /// True while so many loads are under way that no request should be made that may need another.
    fn has_many_loads(&self) -> bool {
        false
    }

    /// True while so much waits for the medium that no change may be added. The worker then refuses
    /// changes of other nodes, too. They do without it, as with a message that was lost.
    fn is_overrun(&self) -> bool {
        false
    }

    /// The room in the file system. If it is missing the store tries again by itself. Reads go on,
    /// and so do changes for as long as there is room for them in the store's files.
    fn room(&self) -> Room {
        Room::Enough
    }

    /// Bytes of memory for records that the medium has taken and not yet brought to their places:
    /// this worker's part of them. These records are found without reading.
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

    /// Verifies about `bytes` of the store, on from the end of the step before. Answered by a
    /// [`Completion::Scrubbed`], before which it must not be called again. Damage is told as if a
    /// load met it. It writes only to mend damage, or to give back unused space. `share` is the
    /// worker that this handle belongs to.
    fn scrub(&mut self, _share: Share, _bytes: u64) {}
}
