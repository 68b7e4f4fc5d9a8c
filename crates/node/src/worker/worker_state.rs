//! State that the engines of one worker share: time, view, stores, and outputs.

use std::sync::Arc;

use base::{Millis, Nanos};
use protocols::{GroupReport, Leases, Peer, Peers, ReplicaSets, Replicas, Scan};
use storage::Store;
use types::{Database, Incarnation, Key, Lock, NodeId, Outcome, Shard, Tag, Ticket, Update};

use super::Input;
use super::amnesia::AmnesiaHold;
use super::commits::CommitTimes;
use super::outbox::Outbox;
use super::scans::{ScanInFlight, ScanPurpose};
use super::silence::Silence;
use super::timers::Timers;
use crate::engine::shard_of;
use crate::uptime::Uptimes;

/// A store and this worker's view of its progress.
pub(crate) struct StoreState {
    pub(crate) store: Box<dyn Store>,
    pub(crate) outlives_process: bool,
    /// True if it holds a database of users.
    pub(crate) is_of_users: bool,
    /// The ticket of changes made now.
    pub(crate) open: Ticket,
    /// True when the open batch holds a change.
    pub(crate) has_changes: bool,
    /// The last batch that was handed over.
    pub(crate) submitted: Ticket,
    /// Changes up to this ticket are durable.
    pub(crate) durable: Ticket,
    pub(crate) commits: CommitTimes,
}

impl StoreState {
    pub(crate) fn new(store: Box<dyn Store>) -> StoreState {
        let outlives_process = store.outlives_process();
        let open = store.ticket();
        StoreState {
            store,
            outlives_process,
            is_of_users: false,
            open,
            has_changes: false,
            submitted: Ticket::DURABLE,
            durable: Ticket::DURABLE,
            commits: CommitTimes::default(),
        }
    }

    /// The ticket after which every change put so far is durable.
    pub(crate) fn last_change(&self) -> Ticket {
        if self.has_changes { self.open } else { self.submitted }
    }
}

/// Warnings per turn. Further ones show in the counters only.
const WARNINGS_MAX: usize = 16;

/// Counts since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) turns: u64,
    pub(crate) requests: u64,
    pub(crate) frames_in: u64,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) messages_looped: u64,
    pub(crate) frames_malformed: u64,
    pub(crate) frames_stale: u64,
    pub(crate) messages_malformed: u64,
    pub(crate) messages_misrouted: u64,
    /// Writes of peers that came while the medium could not keep up.
    pub(crate) messages_shed: u64,
    pub(crate) messages_undeliverable: u64,
    pub(crate) events_refused: u64,
    pub(crate) registers_loaded: u64,
    pub(crate) registers_lost: u64,
    pub(crate) registers_evicted: u64,
    pub(crate) registers_written: u64,
    pub(crate) sends_queued: u64,
    pub(crate) amnesias_raised: u64,
    /// Shards that storage found damaged.
    pub(crate) shards_damaged: u64,
    /// Damage that cost no register.
    pub(crate) damage_covered: u64,
}

pub(crate) struct WorkerState {
    pub(crate) index: usize,
    pub(crate) workers: usize,
    pub(crate) now: Nanos,
    pub(crate) unix: Millis,
    pub(crate) started: Nanos,
    pub(crate) uptimes: Arc<Uptimes>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) sets: ReplicaSets,
    pub(crate) peers: Peers,
    pub(crate) update: Arc<dyn Update>,
    pub(crate) stores: Vec<StoreState>,
    pub(crate) outbox: Outbox,
    pub(crate) timers: Timers,
    pub(crate) replies: Vec<(Tag, Outcome)>,
    pub(crate) suspects: Vec<(Database, NodeId)>,
    pub(crate) group_reports: Vec<(Database, GroupReport)>,
    /// Messages of protocols to other workers of this node.
    pub(crate) for_workers: Vec<(usize, Input)>,
    pub(crate) silence: Silence,
    /// A fence shuts out this node's transactions below this incarnation.
    pub(crate) fenced: Option<Incarnation>,
    /// Keys whose commands wait for the end of a transaction.
    pub(crate) locked: Vec<(Database, Key, Lock)>,
    /// Records that should be forgotten by now, each with its hidden keyspace, and since when it
    /// stays.
    pub(crate) records: Vec<(Database, Key, Nanos)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) hold: AmnesiaHold,
    pub(crate) scans: Vec<ScanInFlight>,
    pub(crate) scan_next: u64,
    /// Some database has more to count.
    pub(crate) census_wanted: bool,
    /// Requests without an outcome.
    pub(crate) in_progress: usize,
    /// Encoded records on their way to a store.
    pub(crate) scratch: Vec<u8>,
    pub(crate) counters: WorkerCounters,
    /// Set once, by the first failure. The worker sends no output afterwards.
    pub(crate) failed: Option<String>,
}

impl WorkerState {
    /// The stores that hold databases of users.
    pub(crate) fn stores_of_users(&self) -> impl Iterator<Item = &dyn Store> {
        self.stores.iter().filter(|state| state.is_of_users).map(|state| &*state.store)
    }

    /// This node as the sender of messages to itself.
    pub(crate) fn me(&self) -> Peer {
        let me = self.peers.own();
        Peer { node: me.node, incarnation: me.incarnation, amnesia: me.amnesia }
    }

    /// The replicas of the shard that an event is about, if it is about one.
    pub(crate) fn replicas_of(&self, shard: Option<Shard>) -> Replicas<'_> {
        let set = shard.map_or(self.sets.any(), |shard| self.sets.of(shard));
        Replicas { set, peers: &self.peers }
    }

    /// False for messages of an earlier incarnation or from before an announced amnesia.
    pub(crate) fn is_current(&self, from: Peer) -> bool {
        self.peers.get(from.node).is_some_and(|member| {
            from.incarnation >= member.incarnation && from.amnesia >= member.amnesia
        })
    }

    pub(crate) fn fail(&mut self, text: String) {
        self.failed.get_or_insert(text);
    }

    pub(crate) fn note_damage(&mut self, database: Database, shard: Shard) {
        self.counters.shards_damaged += 1;
        self.warn(format!(
            "database {} shard {}: stored records are damaged; the shard is recovered from the other members",
            database.0, shard.0
        ));
    }

    /// Logs a line, up to a maximum per turn.
    pub(crate) fn warn(&mut self, text: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(text);
        }
    }

    pub(crate) fn reply(&mut self, tag: Tag, outcome: Outcome) {
        match self.in_progress.checked_sub(1) {
            Some(left) => self.in_progress = left,
            None => self.fail(format!("request {tag:?} was answered more often than asked")),
        }
        self.replies.push((tag, outcome));
    }

    /// Asks the store for a scan on behalf of an engine.
    pub(crate) fn start_scan(
        &mut self,
        engine: usize,
        store: usize,
        database: Database,
        scan: Scan,
        purpose: ScanPurpose,
    ) {
        let id = self.scan_next;
        self.scan_next += 1;
        self.scans.push(ScanInFlight { id, engine, scan, purpose });
        self.stores[store].store.scan(id, database, scan.from_hash, scan.limit.max(1));
    }

    /// True while a scan of this engine's shard is in flight. Changes since must stay in memory.
    pub(crate) fn is_scanned(&self, engine: usize, shard: Shard) -> bool {
        let is_it = |scan: &ScanInFlight| shard_of(scan.scan.from_hash) == shard;
        self.scans.iter().any(|scan| scan.engine == engine && is_it(scan))
    }

    pub(crate) fn take_scan(&mut self, id: u64) -> Option<ScanInFlight> {
        let at = self.scans.iter().position(|scan| scan.id == id)?;
        Some(self.scans.swap_remove(at))
    }
}
