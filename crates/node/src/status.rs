//! Facts about a running node, for sessions (`INFO`), the admin port and the process that started
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::histogram::Histogram;
use base::{Millis, Nanos};
use protocols::Stats;
use types::features::FeatureLevel;
use types::{AmnesiaCount, Epoch, Incarnation, NodeId};

use crate::client_settings::ClientSettings;
use crate::config::{Durability, NodeConfig};
pub use crate::events::{Level, NodeEvent};
use crate::group_view::{GroupOrder, GroupView};
use crate::settings::Agreed;
use crate::summary::Summary;

/// Read access to a running node's facts; cheap enough for `INFO`, too dear for every request.
pub trait Facts: Send + Sync {
    fn config(&self) -> &Arc<NodeConfig>;

    /// A snapshot; workers' counters in it may be a fraction of a second old.
    fn status(&self) -> NodeStatus;

    /// All members as this node sees them, dead ones included.
    fn cluster(&self) -> Vec<MemberView> {
        Vec::new()
    }

    /// Durations that the workers have measured; as old as the counters of [`Facts::status`].
    fn measures(&self) -> Measures {
        Measures::default()
    }

    /// The figures of [`NodeStatus::databases`] alone.
    fn databases(&self) -> Vec<DatabaseFigures> {
        self.status().databases
    }

    /// How often each worker has looked for work: a worker that hangs does not, and one without
    /// work need not.
    fn looks(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Wakes every worker to check for work.
    fn nudge(&self) {}

    /// Reads the monotonic clock of `SessionContext::now`. `None` where time stands still during a
    /// step.
    fn clock(&self) -> Option<Nanos> {
        None
    }

    /// Recent events, oldest first; at most [`EVENTS_MAX`](crate::events::EVENTS_MAX).
    fn events(&self) -> Vec<NodeEvent> {
        Vec::new()
    }

    /// Notes that a client gave a wrong password; logged for the operator at a bounded rate.
    fn note_wrong_password(&self, _from: IpAddr, _door: PasswordPort) {}

    /// Settings of client connections.
    fn client_settings(&self) -> &ClientSettings;

    /// Hands an operator's order to the membership service, and waits for the epoch that it begins.
    ///
    /// # Errors
    /// Why the order was refused, in words.
    fn order_group(&self, _order: GroupOrder) -> Result<Epoch, String> {
        Err("this node has no groups".to_owned())
    }

    /// Lets every session take a step soon
    /// ([`Session::on_timer`](crate::session::Session::on_timer)), because something outside of it
    /// has changed.
    fn step_sessions(&self) {}
}

/// A port that asks for a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PasswordPort {
    /// For clients, by `AUTH` or `HELLO`.
    Clients,
    /// For people and scrapers, by HTTP.
    Admin,
}

/// Statistics of the commands that a node's clients have sent, for `/metrics`.
pub trait CommandFacts: Send + Sync {
    /// Statistics of each command that a client has sent since the start. `CONFIG RESETSTAT` leaves
    /// them.
    fn commands(&self) -> Vec<CommandReading>;

    /// Error replies since the process started by their first word, such as `ERR` or `CLUSTERDOWN`.
    fn errors(&self) -> Vec<(String, u64)>;
}

/// Upper bounds of [`CommandReading::buckets`]: 1.024 microseconds and its doubles, up to 17
/// seconds.
pub const COMMAND_TIME_BOUNDS: [Nanos; 25] = {
    let mut bounds = [Nanos::ZERO; 25];
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = Nanos(1_024 << at);
        at += 1;
    }
    bounds
};

/// One command's statistics. Times run from the moment a session takes a request until its reply is
/// ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReading {
    /// As in `INFO commandstats`: `get`, `client|list`.
    pub name: &'static str,
    /// Calls that have ended, failed ones included.
    pub calls: u64,
    /// Calls that ended with an error.
    pub failed: u64,
    /// Requests refused before they ran: wrong arity, no authentication, no room. They are no
    /// calls.
    pub rejected: u64,
    /// Sum of the times of all calls.
    pub time: Nanos,
    /// Calls that took less than each of [`COMMAND_TIME_BOUNDS`]: cumulative, and the rest took
    /// longer.
    pub buckets: [u64; COMMAND_TIME_BOUNDS.len()],
}

/// A node at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub id: NodeId,
    pub phase: Phase,
    /// Hexadecimal; `None` before the node belongs to a cluster.
    pub cluster: Option<String>,
    /// The feature level at which the cluster runs; `None` before the node belongs to one.
    pub level: Option<FeatureLevel>,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    /// Sorted by id, this node included.
    pub members: Vec<MemberStatus>,
    /// True when this node is formed and it and enough others for a majority have not forgotten
    /// their state.
    pub ready: bool,
    /// Part of this node's state is forgotten and not recovered yet.
    pub loading: bool,
    /// Why this node takes no writes, or only those that need no room; `None` while it takes all.
    pub writes_refused: Option<WriteRefusal>,
    /// The limits that count in the cluster.
    pub limits: Agreed,
    /// Client connections now.
    pub clients: usize,
    /// Client connections accepted since the process started.
    pub clients_total: u64,
    /// Client connections refused since the process started, because there were too many.
    pub clients_refused: u64,
    /// Counters of all workers and of the shell.
    pub stats: Stats,
    /// Sorted by index; a database is missing until its keys were counted.
    pub databases: Vec<DatabaseFigures>,
    /// Configured groups, sorted by database.
    pub groups: Vec<GroupView>,
    /// Since the process started.
    pub up: Millis,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// `HOST:PORT` that clients are told to connect to.
    pub advertise: String,
    /// `HOST:PORT` that clients of Redis Sentinel are told to connect to, if the node answers them.
    pub sentinel: Option<String>,
}

/// Estimated contents of this node's replica of a database. See the module `worker::census`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DatabaseFigures {
    pub index: u8,
    /// Keys, without deleted ones.
    pub keys: u64,
    /// Keys with a time to live.
    pub expiring: u64,
    /// Bytes of the keys and of their encoded values.
    pub bytes: u64,
}

impl DatabaseFigures {
    /// The sum over two parts of one database.
    #[must_use]
    pub fn plus(self, other: DatabaseFigures) -> DatabaseFigures {
        DatabaseFigures {
            index: self.index,
            keys: self.keys + other.keys,
            expiring: self.expiring + other.expiring,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Why a node refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefusal {
    /// The node is stopping.
    Stopping,
    /// It belongs to no cluster yet, or has not recovered its state.
    Loading,
    /// Too few members for a majority can be reached.
    NoQuorum,
    /// Its file system or quota is full, or nearly so.
    DiskFull,
    /// Its files may not grow longer.
    FileSizeLimit,
}

impl WriteRefusal {
    pub const ALL: [WriteRefusal; 5] = [
        WriteRefusal::Stopping,
        WriteRefusal::Loading,
        WriteRefusal::NoQuorum,
        WriteRefusal::DiskFull,
        WriteRefusal::FileSizeLimit,
    ];
}

impl fmt::Display for WriteRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WriteRefusal::Stopping => "stopping",
            WriteRefusal::Loading => "loading",
            WriteRefusal::NoQuorum => "no quorum",
            WriteRefusal::DiskFull => "disk full",
            WriteRefusal::FileSizeLimit => "file size limit",
        })
    }
}

/// Durations since the process started, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// From a change to the moment when the worker learns that it is durable, per medium that
    /// outlives the process.
    pub commits: BTreeMap<Durability, Histogram>,
    /// From a frame's end to its acknowledgement by the peer's event loop.
    pub round_trips: BTreeMap<NodeId, Histogram>,
    /// The newest of them.
    pub last_round_trips: BTreeMap<NodeId, Nanos>,
    /// Peers that take messages too slowly, as far as any worker can tell.
    pub slow: BTreeSet<NodeId>,
}

impl Measures {
    /// Adds the measures of another worker.
    pub fn add(&mut self, other: &Measures) {
        for (&kind, latency) in &other.commits {
            self.commits.entry(kind).or_default().add(latency);
        }
        for (&peer, times) in &other.round_trips {
            self.round_trips.entry(peer).or_default().add(times);
        }
        self.last_round_trips.extend(&other.last_round_trips);
        self.slow.extend(&other.slow);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    pub node: NodeId,
    /// Host and port of its node-to-node address, as configured.
    pub address: String,
    /// All connections to it stand (true for this node).
    pub up: bool,
    /// True if its latest status reports recovery. It counts for no quorum meanwhile.
    pub loading: bool,
    /// The setting or feature level in which it differs from this node, which therefore refuses it.
    pub refused: Option<String>,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
}

/// A member as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    pub node: NodeId,
    /// Its client address in the member list.
    pub address: String,
    pub is_self: bool,
    /// It is connected to this node.
    pub up: bool,
    /// Since its last report; `None` while this process has heard none.
    pub silent_for: Option<Millis>,
    /// Of a message to it and back.
    pub round_trip: Option<Nanos>,
    /// Of its last report.
    pub summary: Option<Summary>,
}

/// The stage of a node on its way into a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its directory is empty. It waits for the statuses of these members.
    Forming {
        waiting_for: Vec<NodeId>,
    },
    /// It lost its memory and waits until enough members have noted so.
    Rejoining {
        waiting_for: Vec<NodeId>,
    },
    Formed,
    Stopping,
}
