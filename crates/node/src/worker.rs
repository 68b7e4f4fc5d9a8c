//! A worker: the one owner of its registers, run in turns.
//!
//! Sans-IO: no thread, clock, socket or file. The server's shell and the simulator feed it
//! [`Input`]s and carry out its [`Outputs`]. Start reading at [`Worker::turn`] in `worker/turn.rs`.

pub(crate) mod amnesia;
pub(crate) mod census;
mod commits;
pub(crate) mod durability_queue;
pub(crate) mod effects;
pub(crate) mod engine_work;
mod engines;
mod eviction;
mod group_orders;
mod inbound;
pub(crate) mod load_waiters;
pub(crate) mod outbox;
pub(crate) mod register_cache;
pub(crate) mod scans;
mod scrub;
mod silence;
mod stats;
pub(crate) mod timers;
pub(crate) mod transactions;
mod turn;
mod words;
pub(crate) mod worker_state;

use std::sync::Arc;

use ::transactions::{Computation, Ran, Service, Transaction};
use base::histogram::Histogram;
use base::{Millis, Nanos, Prng};
use bytes::Bytes;
use protocols::{
    Env, GroupEvent, GroupReport, Leases, Pace, Peer, Peers, ReplicaSets, Stats, Violation,
};
use storage::{Completion, Room, Store};
use types::key::SHARDS;
use types::limits::SPACES;
use types::{
    AmnesiaCount, Command, Database, Epoch, Incarnation, Key, LogImage, NodeId, Outcome, SessionId,
    Shard, Tag, Update,
};

use crate::engine::{EngineParts, WAITERS_MAX};
use crate::registry::{PROTOCOLS, Registration, VARIANTS};
use crate::session::Shortage;
use crate::uptime::Uptimes;
use amnesia::AmnesiaHold;
use census::Counting;
use engines::Engines;
use outbox::Outbox;
pub use scrub::ScrubConfig;
use scrub::Scrubber;
pub use silence::GONE_AFTER;
use silence::Silence;
use timers::Timers;
pub use words::Words;
use worker_state::{StoreState, WorkerCounters, WorkerState};

/// Requests without an outcome before a worker asks for no more.
const IN_PROGRESS_MAX: usize = 1 << 16;

/// The same while a store has many loads to do.
const IN_PROGRESS_WHILE_LOADING: usize = 32;

/// Short client writes in progress, or fewer long ones, that a worker with a full store allows. Not
/// zero: writes of other nodes may keep the store full, and they do not stop for this node's
/// clients.
const WRITES_WHEN_FULL: usize = 32;

/// The epoch of every membership until reconfiguration counts it up.
const EPOCH: Epoch = Epoch(1);

/// Settings that a worker starts with.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// This worker owns the shards with `shard % workers == index`.
    pub index: usize,
    pub workers: usize,
    pub me: NodeId,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    /// The nodes of the cluster, this one included.
    pub members: Vec<NodeId>,
    /// How many of them are replicas of a shard; `None`: all. In the product it is all.
    pub replicas: Option<usize>,
    pub seed: u64,
    /// How long a request may look for a quorum.
    pub request_timeout: Nanos,
    /// The longest time of a request under `ONCE`, the same at all nodes.
    pub once_timeout: Nanos,
    /// Records of a coordinator that was not connected for so long are forgotten.
    pub gone_after: Nanos,
    /// Memory in bytes for resident registers of all databases and for the buffers of stores.
    /// Eviction begins beyond it.
    pub cache_memory: usize,
    pub scrub: ScrubConfig,
    /// Keys are counted, see [`Worker::figures`].
    pub counts_keys: bool,
    /// The node's clocks, shared by its workers; see [`protocols::Context::uptime`].
    pub uptimes: Arc<Uptimes>,
    /// The node's leases, shared with the membership service.
    pub leases: Arc<dyn Leases>,
    /// Shared by the node's workers.
    pub words: Words,
}

/// A database of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSpec {
    pub database: Database,
    /// The protocol's name on the command line.
    pub protocol: &'static str,
    /// Members that its group wants; `None`: all nodes.
    pub replicas: Option<usize>,
    /// Index into the worker's stores.
    pub store: usize,
    pub durable: bool,
}

impl DatabaseSpec {
    fn group_size(&self, nodes: usize) -> usize {
        self.replicas.map_or(nodes, |replicas| replicas.min(nodes))
    }
}

/// No protocol has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no protocol is named {0:?}")]
pub struct UnknownProtocol(pub String);

/// Inputs of a worker.
#[derive(Clone, Debug)]
pub enum Input {
    /// The key's shard belongs to this worker.
    Request { tag: Tag, session: SessionId, database: Database, key: Key, command: Command },
    /// List keys of the shard that `from_hash` lies in; it belongs to this worker.
    List { tag: Tag, database: Database, from_hash: u64, limit: usize },
    /// Ask every replica for its record of the key, whose shard belongs to this worker.
    Explain { tag: Tag, database: Database, key: Key },
    /// A transaction whose first key belongs to this worker.
    Transaction { tag: Tag, transaction: Transaction },
    /// The end of a request that this worker's service made of another worker.
    Outcome { tag: Tag, outcome: Outcome },
    /// The result of one of [`Outputs::computations`] of this worker.
    Computed { token: u64, ran: Ran },
    /// A word of this node's own transaction services.
    Word { from: Peer, bytes: Bytes },
    /// A protocol's message from another worker of this node, for the owner of the shard.
    Own { database: Database, shard: Shard, bytes: Bytes },
    /// The payload of one frame, see [`crate::frame_payload`].
    Frame { from: NodeId, bytes: Bytes },
    /// A connection to this peer stands.
    PeerUp { node: NodeId, incarnation: Incarnation, amnesia: AmnesiaCount },
    /// The connection to this peer ended. Messages sent on it may be lost.
    PeerReset { node: NodeId },
    /// The pace at which this peer takes messages changed.
    PeerPace { node: NodeId, pace: Pace },
    /// This node's amnesia count was durably raised, as asked for by [`Outputs::raise_amnesia`].
    /// Told to all workers of the node.
    Amnesia { amnesia: AmnesiaCount },
    /// This incarnation of the node is durably its own, as asked for by [`Outputs::renew`].
    Renewed { incarnation: Incarnation },
    /// An order of the membership service. Told to all workers of the node.
    Group { database: Database, event: GroupEvent },
}

/// Requests and results of a worker. [`Worker::turn`] appends; the caller takes out.
#[derive(Debug, Default)]
pub struct Outputs {
    pub replies: Vec<(Tag, Outcome)>,
    /// In order per peer. One per peer and turn, but more where it would grow too long or the
    /// amnesia count was just raised.
    pub frames: Vec<(NodeId, Vec<u8>)>,
    /// Parts of frames for another worker of this node: the peer runs another number of workers.
    pub misrouted: Vec<(usize, NodeId, Bytes)>,
    /// Inputs for other workers of this node, by their numbers: transactions span workers.
    pub for_workers: Vec<(usize, Input)>,
    /// Programs that would hold up the worker. Run each elsewhere, and bring [`Input::Computed`].
    pub computations: Vec<Computation>,
    /// Registers were found forgotten. Raise the amnesia count durably by one, then pass it to all
    /// workers in [`Input::Amnesia`]. Until then this worker sends no message and no reply.
    pub raise_amnesia: bool,
    /// Other nodes shut out this node's transactions below this incarnation. Durably take one that
    /// is not below, and bring [`Input::Renewed`]. Links keep naming the first one of the process.
    pub renew: Option<Incarnation>,
    /// Have the node's [`Keeper`](crate::uptime::Keeper) check, and turn all workers once it has
    /// saved. A worker may hold its messages and replies until then.
    pub uptimes_changed: bool,
    /// Peers that did not answer in time, each with the database that waits for them.
    pub suspects: Vec<(Database, NodeId)>,
    /// Answers to the membership service.
    pub group_reports: Vec<(Database, GroupReport)>,
    /// Warnings for the operator about faults of the medium.
    pub warnings: Vec<String>,
    /// Storage failed or an invariant is broken. Stop the node and send no output of this turn.
    pub failed: Option<String>,
}

/// One worker of a node.
pub struct Worker {
    shared: WorkerState,
    engines: Engines,
    /// Engine per database.
    by_database: [Option<u8>; SPACES],
    cache_memory: usize,
    /// Next engine and shard that the evicting hand looks at.
    hand: (usize, u8),
    scrubber: Scrubber,
    counting: Counting,
    /// Next shard that the packing hand looks at, in all engines.
    packing: u8,
    packs_at: Nanos,
    completions: Vec<Completion>,
    misrouted: Vec<(usize, NodeId, Bytes)>,
    service: Service,
    /// Outcomes for the service.
    service_outcomes: Vec<(Tag, Outcome)>,
    for_workers: Vec<(usize, Input)>,
    computations: Vec<Computation>,
    /// By engine: the protocol's name, and whether transactions may lock its registers.
    locking: Vec<(&'static str, bool)>,
    request_timeout: Nanos,
    once_timeout: Nanos,
    /// Peers whose held frames exceeded the bound. Their links count as reset.
    resets: Vec<NodeId>,
}

impl Worker {
    /// Opens a worker with the protocols of this build.
    ///
    /// # Errors
    /// [`UnknownProtocol`] for a database whose protocol does not exist.
    ///
    /// # Panics
    /// If the configuration contradicts itself.
    pub fn new(
        config: WorkerConfig,
        stores: Vec<Box<dyn Store>>,
        databases: &[DatabaseSpec],
        update: Arc<dyn Update>,
        now: Nanos,
    ) -> Result<Worker, UnknownProtocol> {
        let protocols = [PROTOCOLS, VARIANTS].concat();
        Worker::with_protocols(&protocols, config, stores, databases, update, now)
    }

    /// Opens a worker with protocols of the caller's choice.
    ///
    /// # Errors
    /// [`UnknownProtocol`] for a database whose protocol is not among them.
    ///
    /// # Panics
    /// If the configuration contradicts itself.
    pub fn with_protocols(
        protocols: &[Registration],
        config: WorkerConfig,
        stores: Vec<Box<dyn Store>>,
        databases: &[DatabaseSpec],
        update: Arc<dyn Update>,
        now: Nanos,
    ) -> Result<Worker, UnknownProtocol> {
        assert!(
            config.index < config.workers && config.workers <= SHARDS,
            "worker {} of {}, at most {SHARDS}",
            config.index,
            config.workers
        );
        let shared = shared(&config, stores, update, now);
        let scrubber = Scrubber::new(&config, &shared, now);
        let mut worker = Worker {
            shared,
            engines: Engines::default(),
            by_database: [None; SPACES],
            cache_memory: config.cache_memory,
            hand: (0, config.index as u8),
            scrubber,
            counting: Counting::new(config.counts_keys, now),
            packing: config.index as u8,
            packs_at: now,
            completions: Vec::new(),
            misrouted: Vec::new(),
            service: Service::new(config.me, config.incarnation, config.index),
            service_outcomes: Vec::new(),
            for_workers: Vec::new(),
            computations: Vec::new(),
            locking: Vec::new(),
            request_timeout: config.request_timeout,
            once_timeout: config.once_timeout,
            resets: Vec::new(),
        };
        let mut rng = Prng::new(config.seed);
        for spec in databases {
            worker.shared.stores[spec.store].is_of_users |= spec.database.is_of_users();
            let registration = protocols
                .iter()
                .find(|registration| registration.name == spec.protocol)
                .ok_or_else(|| UnknownProtocol(spec.protocol.to_string()))?;
            worker.open(registration, &config, spec, rng.fork());
        }
        Ok(worker)
    }

    fn open(
        &mut self,
        registration: &Registration,
        config: &WorkerConfig,
        spec: &DatabaseSpec,
        rng: Prng,
    ) {
        let slot = &mut self.by_database[usize::from(spec.database.0)];
        assert!(slot.is_none(), "database {} is configured twice", spec.database);
        *slot = Some(self.engines.len() as u8);
        let store = &mut self.shared.stores[spec.store];
        let keeps_log = registration.properties.keeps_log && config.index == 0;
        let log = if keeps_log { store.store.open_log(spec.database) } else { LogImage::default() };
        let mut engine = registration.open(EngineParts {
            index: self.engines.len(),
            database: spec.database,
            store: spec.store,
            outlives_process: store.outlives_process,
            env: Env {
                me: config.me,
                incarnation: config.incarnation,
                request_timeout: config.request_timeout,
                once_timeout: config.once_timeout,
                compare_every: config.scrub.compare_every,
                group_size: spec.group_size(config.members.len()),
                transient: spec.database.is_hidden(),
                worker: config.index,
                workers: config.workers,
                durable: spec.durable,
                log,
                shared: config.words.of(spec.database),
            },
            rng,
        });
        self.locking.push((registration.name, registration.properties.locks));
        engine.set_open_ticket(store.open);
        engine.on_start(&mut self.shared);
        self.engines.push(engine);
    }

    /// The time of the next turn without input; `None`: never.
    #[must_use]
    pub fn next_timer(&self) -> Option<Nanos> {
        // Changes that wait for a clock's save are submitted in the turn after it.
        let submits = !self.shared.uptimes.is_held();
        let is_due = !self.resets.is_empty()
            || self.has_service_work()
            || self.shared.hold.asks()
            || self.engines.awake().any(|it| it.has_work() || (submits && it.has_dirty()));
        if is_due {
            return Some(self.shared.now);
        }
        let moments = [
            self.shared.timers.next(),
            self.scrubber.next(),
            self.counting.next(&self.shared),
            self.next_packing(),
            self.service.next_timer(),
        ];
        moments.into_iter().flatten().min()
    }

    /// Checks the local invariants of every protocol and of the worker itself.
    ///
    /// # Errors
    /// Names the invariant that does not hold.
    pub fn check(&mut self) -> Result<(), Violation> {
        for state in &self.shared.stores {
            if state.store.ticket() != state.open {
                let (open, ticket) = (state.open, state.store.ticket());
                return Err(Violation(format!("changes carry {open:?}, their batch {ticket:?}")));
            }
        }
        self.engines.all().iter().try_for_each(|engine| engine.check(&self.shared))
    }

    /// True when no request is in progress and no event waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.in_progress == 0
            && !self.shared.hold.is_on()
            && self.shared.scans.is_empty()
            && self.service.is_idle()
            && self.engines.all().iter().all(|engine| engine.is_idle())
    }

    /// The same for one database alone.
    #[must_use]
    pub fn is_idle_in(&self, database: Database) -> bool {
        self.shared.in_progress == 0
            && !self.shared.hold.is_on()
            && self.engine_of(database).is_none_or(|it| self.engines.all()[it].is_idle())
    }

    /// A transaction of this node is in progress, or not settled at all keys.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        !self.service.is_idle()
    }

    /// Registers that an engine needs in memory. Visits every resident one: for tests.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.engines.all().iter().map(|engine| engine.pinned()).sum()
    }

    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.shared.peers
    }

    /// False: stop reading requests from clients for now. Frames of peers are always taken: they
    /// help others finish.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        self.request_room() > 0
    }

    /// About how many requests to read from clients now.
    #[must_use]
    pub fn request_room(&self) -> usize {
        let waiters: usize = self.engines.awake().map(|engine| engine.load_waiters()).sum();
        if self.shared.failed.is_some() || self.shared.hold.is_on() || waiters >= WAITERS_MAX / 2 {
            return 0;
        }
        let is_loading = self.shared.stores.iter().any(|state| state.store.has_many_loads());
        let most = if is_loading { IN_PROGRESS_WHILE_LOADING } else { IN_PROGRESS_MAX };
        most.saturating_sub(self.shared.in_progress)
    }

    /// False: hold back clients' writes for now. For a caller that does not count them itself.
    #[must_use]
    pub fn takes_writes(&self) -> bool {
        self.shared.in_progress < self.writes_max()
    }

    /// Short client writes that may be in progress now, or fewer long ones. A store that falls
    /// behind slows writes, not reads.
    #[must_use]
    pub fn writes_max(&self) -> usize {
        let is_full = self.shared.stores_of_users().any(|store| store.is_full());
        if is_full { WRITES_WHEN_FULL } else { usize::MAX }
    }

    /// The writes that clients may not make because storage has too little room.
    #[must_use]
    pub fn shortage(&self) -> Shortage {
        let stores = || self.shared.stores_of_users();
        if stores().all(|store| store.room() == Room::Enough) {
            Shortage::None
        } else if stores().any(|store| store.room() == Room::Missing && store.is_overrun()) {
            Shortage::OfWrites
        } else {
            Shortage::OfGrowth
        }
    }

    /// Keeps the memory of a written frame for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        self.shared.outbox.recycle(frame);
    }

    /// Adds this worker's counters and gauges.
    pub fn stats(&self, stats: &mut Stats) {
        stats::add(&self.shared, self.engines.all(), stats);
        self.scrubber.stats(stats);
    }

    /// How long each store has taken to make batches durable, in the order of the stores.
    pub fn commit_latencies(&self) -> impl Iterator<Item = &Histogram> {
        self.shared.stores.iter().map(|state| state.commits.latency())
    }

    /// Call this at the end of a turn where a clock is at hand: it measures media that are faster
    /// than a turn.
    pub fn turn_ended(&mut self, now: Nanos) {
        for state in &mut self.shared.stores {
            state.commits.iteration_ended(now);
        }
    }

    fn engine_of(&self, database: Database) -> Option<usize> {
        self.by_database.get(usize::from(database.0)).copied().flatten().map(usize::from)
    }

    fn owns(&self, shard: Shard) -> bool {
        usize::from(shard.0) % self.shared.workers == self.shared.index
    }
}

fn shared(
    config: &WorkerConfig,
    stores: Vec<Box<dyn Store>>,
    update: Arc<dyn Update>,
    now: Nanos,
) -> WorkerState {
    let peers = Peers::new(config.me, config.incarnation, config.amnesia, &config.members);
    let replicas = config.replicas.unwrap_or(config.members.len());
    let sets = ReplicaSets::spread(EPOCH, config.me, &config.members, replicas);
    WorkerState {
        silence: Silence::new(&peers, config.gone_after, now),
        fenced: None,
        index: config.index,
        workers: config.workers,
        now,
        unix: Millis(0),
        started: now,
        uptimes: Arc::clone(&config.uptimes),
        leases: Arc::clone(&config.leases),
        outbox: Outbox::new(&peers),
        sets,
        peers,
        update,
        stores: stores.into_iter().map(StoreState::new).collect(),
        timers: Timers::default(),
        replies: Vec::new(),
        suspects: Vec::new(),
        group_reports: Vec::new(),
        for_workers: Vec::new(),
        locked: Vec::new(),
        records: Vec::new(),
        warnings: Vec::new(),
        hold: AmnesiaHold::default(),
        scans: Vec::new(),
        scan_next: 1,
        census_wanted: true,
        in_progress: 0,
        scratch: Vec::new(),
        counters: WorkerCounters::default(),
        failed: None,
    }
}
