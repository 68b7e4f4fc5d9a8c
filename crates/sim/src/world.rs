//! The world: whole nodes in virtual time, one event after the other.
//!
//! It plays the server's shell (turns, timers, frames, flushes), without clients, histories or
//! rules. Everything is drawn from one seed, and events are ordered by (time, sequence), so a seed
//! names one run. True time is nanoseconds from the start; nodes see only their own clocks.

mod agenda;
pub mod groups;
mod links;
mod processes;
mod storage_work;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Millis, Nanos, Prng};
use bytes::Bytes;
use membership::LocalRecord;
use membership::settings::Timing;
use node::REGISTER_OVERHEAD;
use node::frame_payload;
use node::registry;
use node::uptime::Keeper;
use node::worker::{DatabaseSpec, Input, Outputs, ScrubConfig, Words, Worker, WorkerConfig};
use protocols::{NoLeases, Pace, Stats};
use storage::Store;
use storage::identity::SavedClock;
use transactions::Transaction;
use types::{
    AmnesiaCount, Command, Database, Incarnation, Key, NodeId, Outcome, SessionId, Tag, Update,
};

use self::agenda::Agenda;
use self::groups::{CONTROL, ControlInput, ControlThread, Images};
use crate::clock::Clock;
use crate::invariants::{Sent, Watcher};
use crate::medium::{Medium, MediumConfig, NotOpened, Work};
use crate::network::{Fate, Links, Network};
use crate::reference_model::{CheckedStore, ReferenceModel};
use crate::store::{Durability, Survival};
use crate::trace::Trace;

/// The database that the simulator uses.
pub const DATABASE: Database = Database(0);
/// The same, and the keyspace of the records of its transactions.
const DATABASES: &[Database] = &[DATABASE, DATABASE.hidden()];
/// The same with the registers of its configurations.
const WITH_GROUPS: &[Database] = &[DATABASE, Database::SYSTEM];

/// Frames kept for dead links before their connections end.
const STALLED_MAX: usize = 4096;
/// How long a pair of nodes waits before it connects again.
const RECONNECT: u64 = 5_000_000;
/// Nodes notice the end of a connection within this.
const NOTICE_MAX: u64 = 100_000;

/// The parameters of a world. Spans are nanoseconds.
#[derive(Clone)]
pub struct WorldConfig {
    pub protocol: &'static str,
    pub nodes: usize,
    /// Number of nodes that keep a shard.
    pub replicas: usize,
    /// Members that a configured group wants.
    pub group_size: usize,
    pub workers: usize,
    /// Clients run transactions on several keys.
    pub has_transactions: bool,
    pub medium: MediumConfig,
    pub seed: u64,
    pub request_timeout: u64,
    /// Resident registers per worker.
    pub cells_max: usize,
    pub scrub: ScrubConfig,
    pub update: Arc<dyn Update>,
    pub links: Links,
    /// How long a turn takes.
    pub turn_max: u64,
    pub flush_min: u64,
    pub flush_max: u64,
    /// One clock per node.
    pub clocks: Vec<Clock>,
    /// Times of the membership service.
    pub timing: Timing,
    /// How often a turn stands still after it has read a value, in parts per million.
    pub late_ppm: u32,
}

/// A token that comes back from [`World::wake`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake(pub u64);

/// The kind of an event, for the driver of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    Wake(Wake),
    /// A worker had a turn. `spoke`: it sent frames or replies.
    Turn {
        node: usize,
        spoke: bool,
    },
    /// A node's medium failed as it was told to, and the node stopped.
    Stopped {
        node: usize,
    },
    Other,
}

/// An answer to a client of `node`.
#[derive(Clone, Debug)]
pub struct ClientReply {
    pub node: usize,
    pub tag: Tag,
    pub outcome: Outcome,
}

impl WorldConfig {
    /// The databases of the nodes.
    fn databases(&self) -> &'static [Database] {
        match self.has_transactions {
            _ if self.needs_config() => WITH_GROUPS,
            true => DATABASES,
            false => &DATABASES[..1],
        }
    }

    fn needs_config(&self) -> bool {
        registry::find(self.protocol).is_some_and(|it| it.properties.needs_config)
    }
}

enum PlannedEvent {
    Wake(Wake),
    Turn {
        node: usize,
        worker: usize,
        start: u64,
    },
    /// The end of a turn that stood still.
    HandOver {
        node: usize,
        worker: usize,
        start: u64,
        outputs: Box<Outputs>,
    },
    Control {
        node: usize,
        start: u64,
    },
    Frame(InFlight),
    Worked {
        node: usize,
        start: u64,
        work: Work,
    },
    Computed {
        node: usize,
        worker: usize,
        start: u64,
        input: Input,
    },
    LossRaised {
        node: usize,
        start: u64,
    },
    UptimesDue {
        node: usize,
        start: u64,
    },
    UptimesSaved {
        node: usize,
        start: u64,
    },
    Connect {
        a: usize,
        b: usize,
    },
    Reset {
        at: usize,
        peer: usize,
    },
}

#[derive(Clone)]
struct InFlight {
    from: usize,
    to: usize,
    worker: usize,
    connection: u32,
    bytes: Bytes,
}

struct WorkerState {
    worker: Worker,
    inbox: Vec<Input>,
    /// When the next turn is planned; `u64::MAX`: not at all.
    turn_at: u64,
    /// The end of the last turn.
    free_at: u64,
}

struct SimProcess {
    /// Tells the starts of all nodes apart.
    start: u64,
    workers_state: Vec<WorkerState>,
    paused_until: u64,
    control: Option<ControlThread>,
    is_amnesia_rising: bool,
    uptimes: Keeper,
    /// Clocks that are being saved to the identity.
    saving: Option<Vec<SavedClock>>,
    /// Next check of the clocks; `u64::MAX`: not before another event.
    uptimes_due: u64,
}

/// One node: its process, and the state that outlives it.
struct SimNode {
    id: NodeId,
    incarnation: Incarnation,
    /// The last one that is durably its own. Links keep naming the first one of the process.
    renewed: Incarnation,
    amnesia: AmnesiaCount,
    /// The countdown clocks saved in the identity.
    uptimes: Vec<SavedClock>,
    /// The node's durable records of its groups.
    records: BTreeMap<Database, LocalRecord>,
    clock: Clock,
    medium: Medium,
    model: ReferenceModel,
    workers: usize,
    process: Option<SimProcess>,
}

/// Figures of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorldCounts {
    pub events: u64,
    pub turns: u64,
    pub frames: u64,
    pub messages: u64,
    pub starts: u64,
}

/// See the module.
pub struct World {
    config: WorldConfig,
    now: u64,
    agenda: Agenda<PlannedEvent>,
    nodes: Vec<SimNode>,
    network: Network,
    stalled: Vec<InFlight>,
    connecting: Vec<bool>,
    images: Images,
    rng: Prng,
    outputs: Outputs,
    work: Vec<Work>,
    awake: Vec<usize>,
    pub replies: Vec<ClientReply>,
    /// Warnings to operators, with their nodes.
    pub warnings: Vec<(usize, String)>,
    /// The first violation. It ends the run.
    pub failure: Option<String>,
    pub watchers: Vec<Box<dyn Watcher>>,
    pub trace: Option<Trace>,
    /// If set, frames go here instead of the network: for directed schedules.
    pub taken: Option<Vec<Taken>>,
    pub counts: WorldCounts,
}

/// A frame taken out of the network.
#[derive(Clone, Debug)]
pub struct Taken {
    pub from: usize,
    pub to: usize,
    /// The sender's worker.
    pub worker: usize,
    pub bytes: Bytes,
}

impl World {
    #[must_use]
    pub fn new(config: WorldConfig) -> World {
        let mut rng = Prng::new(config.seed);
        let network = Network::new(config.nodes, config.links.clone(), rng.fork());
        let nodes = (0..config.nodes)
            .map(|index| SimNode {
                id: node_id(index),
                incarnation: Incarnation(0),
                renewed: Incarnation(0),
                amnesia: AmnesiaCount(1),
                uptimes: Vec::new(),
                records: BTreeMap::new(),
                clock: config.clocks[index].clone(),
                medium: Medium::new(&config.medium, config.databases(), rng.fork()),
                model: ReferenceModel::default(),
                workers: config.workers,
                process: None,
            })
            .collect();
        World {
            now: 0,
            agenda: Agenda::new(),
            nodes,
            network,
            stalled: Vec::new(),
            connecting: vec![false; config.nodes * config.nodes],
            images: Images::default(),
            rng,
            outputs: Outputs::default(),
            work: Vec::new(),
            awake: Vec::new(),
            replies: Vec::new(),
            warnings: Vec::new(),
            failure: None,
            watchers: Vec::new(),
            trace: None,
            taken: None,
            counts: WorldCounts::default(),
            config,
        }
    }

    /// True time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The replica sets that hold this node; compare [`protocols::ReplicaSets::spread`].
    pub fn replica_sets_of(&self, node: usize) -> impl Iterator<Item = Vec<usize>> {
        let (nodes, replicas) = (self.nodes.len(), self.config.replicas);
        let sets =
            (0..nodes).map(move |first| (0..replicas).map(|it| (first + it) % nodes).collect());
        sets.filter(move |set: &Vec<usize>| set.contains(&node))
    }

    #[must_use]
    pub fn is_up(&self, node: usize) -> bool {
        self.nodes[node].process.is_some()
    }

    /// The node runs, and reaches all but a minority of the others: its requests may soon end.
    #[must_use]
    pub fn serves(&self, node: usize) -> bool {
        let others = (0..self.nodes.len()).filter(|&other| other != node);
        let missing = others.filter(|&other| !self.works(other) || !self.is_linked(node, other));
        self.works(node) && missing.count() <= (self.config.replicas - 1) / 2
    }

    /// The node runs and remembers its shards.
    fn works(&self, node: usize) -> bool {
        let it = &self.nodes[node];
        let runs = it.process.as_ref().is_some_and(|process| process.paused_until <= self.now);
        runs && !it.medium.is_recovering()
    }

    fn is_linked(&self, a: usize, b: usize) -> bool {
        self.network.is_up(a, b) && self.network.is_open(a, b)
    }

    #[must_use]
    pub fn medium(&self, node: usize) -> &Medium {
        &self.nodes[node].medium
    }

    /// Stops checking the answers of the node's medium.
    pub fn excuse_medium(&self, node: usize) {
        self.nodes[node].model.excuse();
    }

    /// The protocol has one order over all keys.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        registry::find(self.config.protocol).is_some_and(|it| it.properties.total_order)
    }

    /// The node's amnesia count.
    #[must_use]
    pub fn amnesia(&self, node: usize) -> AmnesiaCount {
        self.nodes[node].amnesia
    }

    /// A node's clocks: monotonic time, and the time of day.
    #[must_use]
    pub fn times(&self, node: usize) -> (Nanos, Millis) {
        let clock = &self.nodes[node].clock;
        (clock.local(self.now), clock.unix(self.now))
    }

    pub fn clock_mut(&mut self, node: usize) -> &mut Clock {
        &mut self.nodes[node].clock
    }

    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    fn schedule(&mut self, at: u64, event: PlannedEvent) {
        self.agenda.plan(at.max(self.now), event);
    }

    /// Requests [`Happened::Wake`] at `at`.
    pub fn wake(&mut self, at: u64, wake: Wake) {
        self.schedule(at, PlannedEvent::Wake(wake));
    }

    /// Runs the next event; `None` when no event is left.
    pub fn run_next(&mut self) -> Option<Happened> {
        let (at, event) = self.agenda.next()?;
        self.now = at;
        self.counts.events += 1;
        Some(match event {
            PlannedEvent::Wake(wake) => Happened::Wake(wake),
            PlannedEvent::Turn { node, worker, start } => self.on_turn(node, worker, start),
            PlannedEvent::HandOver { node, worker, start, mut outputs } => {
                if !self.is_start(node, start) {
                    return Some(Happened::Other);
                }
                let spoke = self.carry_out(node, worker, &mut outputs);
                Happened::Turn { node, spoke }
            }
            PlannedEvent::Control { node, start } => {
                if self.is_start(node, start) {
                    self.on_control(node);
                }
                Happened::Other
            }
            PlannedEvent::Frame(frame) => self.on_frame(frame),
            PlannedEvent::Worked { node, start, work } => {
                if self.is_start(node, start) {
                    self.on_worked(node, work);
                }
                Happened::Other
            }
            PlannedEvent::Computed { node, worker, start, input } => {
                if self.is_start(node, start) {
                    self.on_computed(node, worker, input);
                }
                Happened::Other
            }
            PlannedEvent::LossRaised { node, start } => {
                if self.is_start(node, start) {
                    self.raise_amnesia(node);
                }
                Happened::Other
            }
            PlannedEvent::UptimesDue { node, start } => {
                if self.is_start(node, start) {
                    self.keep_uptimes(node);
                }
                Happened::Other
            }
            PlannedEvent::UptimesSaved { node, start } => {
                if self.is_start(node, start) {
                    self.on_uptimes_saved(node);
                }
                Happened::Other
            }
            PlannedEvent::Connect { a, b } => {
                self.on_connect(a, b);
                Happened::Other
            }
            PlannedEvent::Reset { at, peer } => {
                let node = node_id(peer);
                self.input_all(at, &Input::PeerReset { node });
                self.tell_control(at, ControlInput::Down { node });
                Happened::Other
            }
        })
    }

    fn is_start(&self, node: usize, start: u64) -> bool {
        self.nodes[node].process.as_ref().is_some_and(|process| process.start == start)
    }
}

impl World {
    /// Hands a command to a node. False when it does not take requests now.
    pub fn request(
        &mut self,
        node: usize,
        tag: Tag,
        session: SessionId,
        key: &Key,
        command: Command,
    ) -> bool {
        let Some(process) = &mut self.nodes[node].process else { return false };
        let worker = usize::from(key.shard().0) % process.workers_state.len();
        let worker_state = &mut process.workers_state[worker];
        let is_write = !command.access.is_read();
        if !worker_state.worker.takes_requests()
            || (is_write && !worker_state.worker.takes_writes())
        {
            return false;
        }
        worker_state.inbox.push(Input::Request {
            tag,
            session,
            database: DATABASE,
            key: key.clone(),
            command,
        });
        self.plan_turn(node, worker, self.now);
        true
    }

    /// Hands a transaction to a node. False when it does not take requests now.
    pub fn transact(&mut self, node: usize, tag: Tag, transaction: Transaction) -> bool {
        let Some(process) = &mut self.nodes[node].process else { return false };
        let shard = transaction.keys.first().map_or(0, |key| usize::from(key.shard().0));
        let worker = shard % process.workers_state.len();
        let worker_state = &mut process.workers_state[worker];
        if !worker_state.worker.takes_requests() || !worker_state.worker.takes_writes() {
            return false;
        }
        worker_state.inbox.push(Input::Transaction { tag, transaction });
        self.plan_turn(node, worker, self.now);
        true
    }

    /// Asks a node to list keys from `from_hash` on. False when it does not take requests now.
    pub fn list(
        &mut self,
        node: usize,
        tag: Tag,
        database: Database,
        from_hash: u64,
        limit: usize,
    ) -> bool {
        let Some(process) = &mut self.nodes[node].process else { return false };
        let worker = (from_hash >> 56) as usize % process.workers_state.len();
        if !process.workers_state[worker].worker.takes_requests() {
            return false;
        }
        let input = Input::List { tag, database, from_hash, limit };
        process.workers_state[worker].inbox.push(input);
        self.plan_turn(node, worker, self.now);
        true
    }

    fn input_all(&mut self, node: usize, input: &Input) {
        let Some(process) = &mut self.nodes[node].process else { return };
        for worker_state in &mut process.workers_state {
            worker_state.inbox.push(input.clone());
        }
        for worker in 0..process.workers_state.len() {
            self.plan_turn(node, worker, self.now);
        }
    }

    /// Every worker of every node is idle, and no shard is known to be forgotten.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.nodes.iter().all(|it| {
            let is_idle = |worker_state: &WorkerState| {
                self.is_worker_idle(&worker_state.worker) && worker_state.inbox.is_empty()
            };
            it.process.as_ref().is_some_and(|process| process.workers_state.iter().all(is_idle))
                && !it.medium.is_recovering()
        })
    }

    /// The registers of configurations are compared again and again: they are never idle for long.
    fn is_worker_idle(&self, worker: &Worker) -> bool {
        if self.config.needs_config() { worker.is_idle_in(DATABASE) } else { worker.is_idle() }
    }

    /// Every two nodes have a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let nodes = self.nodes.len();
        (0..nodes).all(|a| (0..nodes).all(|b| a == b || self.network.is_up(a, b)))
    }

    /// Nodes that are not idle, for messages.
    #[must_use]
    pub fn busy(&self) -> Option<String> {
        if self.is_idle() {
            return None;
        }
        for it in &self.nodes {
            let Some(process) = &it.process else { return Some(format!("n{} is down", it.id)) };
            if it.medium.is_recovering() {
                return Some(format!("n{} has not recovered its forgotten shards", it.id));
            }
            for (index, worker_state) in process.workers_state.iter().enumerate() {
                if !self.is_worker_idle(&worker_state.worker) || !worker_state.inbox.is_empty() {
                    let mut stats = Stats::default();
                    worker_state.worker.stats(&mut stats);
                    return Some(format!("worker {index} of n{} is busy: {stats:?}", it.id));
                }
            }
        }
        None
    }

    /// Workers that run.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        let processes = self.nodes.iter().filter_map(|it| it.process.as_ref());
        processes.map(|process| process.workers_state.len()).sum()
    }

    /// Registers that busy workers keep in memory.
    #[must_use]
    pub fn pinned(&self) -> usize {
        let processes = self.nodes.iter().filter_map(|it| it.process.as_ref());
        processes
            .flat_map(|process| &process.workers_state)
            .map(|worker_state| worker_state.worker.pinned())
            .sum()
    }

    /// Frames that dead links keep.
    #[must_use]
    pub fn kept_frames(&self) -> usize {
        self.stalled.len()
    }

    /// Counters of all workers that run.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for process in self.nodes.iter().filter_map(|it| it.process.as_ref()) {
            for worker_state in &process.workers_state {
                worker_state.worker.stats(&mut stats);
            }
        }
        stats
    }
}

impl World {
    /// Adds a line, if lines are kept.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let line = text();
            let now = self.now;
            if let Some(trace) = &mut self.trace {
                trace.note(now, line);
            }
        }
    }

    /// Records that a frame arrived, or why it was lost.
    fn note_end(&mut self, (from, to): (usize, usize), bytes: &Bytes, lost: Option<&str>) {
        let (now, protocol) = (self.now, self.config.protocol);
        if let Some(trace) = &mut self.trace {
            trace.ended(now, protocol, (from, to), bytes, lost);
        }
    }
}

/// The id of the node with this index.
#[must_use]
pub fn node_id(index: usize) -> NodeId {
    NodeId(index as u16 + 1)
}
