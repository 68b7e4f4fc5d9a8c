//! A node's facts as JSON: the shape of `/api/v1/status`.

use std::collections::BTreeMap;

use node::config::NodeConfig;
use node::settings::Agreed;
use node::status::{Facts, Measures, NodeStatus, Phase};
use serde::Serialize;
use storage::usage::usage;

use crate::group::Group;
use crate::health;

/// `/api/v1/status`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub version: &'static str,
    pub node: u16,
    pub cluster: Option<String>,
    /// The level at which the cluster runs; absent before the node belongs to one.
    pub feature_level: Option<u16>,
    pub phase: String,
    pub ready: bool,
    pub loading: bool,
    /// `ok`, or `refused (…)` with the reason.
    pub writes: String,
    pub incarnation: u32,
    pub loss: u32,
    pub listen: String,
    /// The address that clients are told.
    pub advertise: String,
    pub uptime_ms: u64,
    pub clients: usize,
    pub clients_total: u64,
    pub clients_refused: u64,
    pub quorum: usize,
    /// Members that may fail before this node serves no more.
    pub tolerates: i64,
    pub members: Vec<Member>,
    pub limits: Limits,
    pub databases: Vec<Database>,
    /// Absent when the system does not tell.
    pub disk: Option<Disk>,
    /// Internal counters by name; they may change with every version.
    pub stats: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Member {
    pub node: u16,
    pub address: String,
    pub up: bool,
    /// It recovers its state and does not count for a quorum.
    pub loading: bool,
    /// It takes messages too slowly.
    pub slow: bool,
    /// The newest round trip to it; absent for this node and before the first one.
    pub round_trip_us: Option<u64>,
    /// The setting or level in which it differs from this node, which therefore refuses it.
    pub refused: Option<String>,
    pub incarnation: u32,
    pub loss: u32,
}

/// Limits that count in the whole cluster.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limits {
    pub max_value_size: Limit,
    pub once_window_ms: Limit,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limit {
    /// The one that counts.
    pub value: u64,
    /// This node's own.
    pub own: u64,
    /// Nodes whose own limit is smaller than another node's, and counts.
    pub set_by: Vec<u16>,
}

impl Limits {
    fn of(agreed: &Agreed, config: &NodeConfig) -> Limits {
        let nodes = |nodes: &[types::NodeId]| nodes.iter().map(|node| node.0).collect();
        Limits {
            max_value_size: Limit {
                value: agreed.max_value_size as u64,
                own: config.max_value_size as u64,
                set_by: nodes(&agreed.max_value_size_set_by),
            },
            once_window_ms: Limit {
                value: agreed.once_window.0,
                own: config.once_window.0,
                set_by: nodes(&agreed.once_window_set_by),
            },
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Database {
    pub index: u8,
    pub protocol: &'static str,
    pub durability: String,
    /// Members that its group wants as configured; absent: all nodes, or no group.
    pub replicas: Option<u8>,
    /// Absent for protocols without one.
    pub group: Option<Group>,
    /// About; absent until they were counted.
    pub keys: Option<u64>,
    pub expiring: Option<u64>,
    pub bytes: Option<u64>,
}

/// Bytes of the data directory and of the file system below it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Disk {
    pub used_bytes: u64,
    pub free_bytes: u64,
    pub size_bytes: u64,
}

impl Status {
    pub(crate) fn of(facts: &dyn Facts, version: &'static str) -> Status {
        let status = facts.status();
        let quorum = status.members.len() / 2 + 1;
        let databases = facts.config().databases.iter().map(|one| {
            let figures = status.databases.iter().find(|figures| figures.index == one.database.0);
            let group = status.groups.iter().find(|group| group.database == one.database);
            Database {
                index: one.database.0,
                protocol: one.protocol,
                durability: one.durability.to_string(),
                replicas: one.replicas,
                group: group.map(|group| Group::of(group, one.protocol)),
                keys: figures.map(|figures| figures.keys),
                expiring: figures.map(|figures| figures.expiring),
                bytes: figures.map(|figures| figures.bytes),
            }
        });
        let databases = databases.collect();
        Status {
            version,
            node: status.id.0,
            feature_level: status.level.map(|level| level.0),
            phase: phase(&status.phase),
            ready: status.ready,
            loading: status.loading,
            writes: health::writes(&status),
            incarnation: status.incarnation.0,
            loss: status.amnesia.0,
            listen: status.listen.to_string(),
            advertise: status.advertise.clone(),
            uptime_ms: status.up.0,
            clients: status.clients,
            clients_total: status.clients_total,
            clients_refused: status.clients_refused,
            quorum,
            tolerates: helpful(&status) as i64 - quorum as i64,
            members: members(&status, &facts.measures()),
            limits: Limits::of(&status.limits, facts.config()),
            databases,
            disk: disk(facts),
            cluster: status.cluster,
            stats: status.stats.values,
        }
    }
}

/// Members that count for a quorum.
pub(crate) fn helpful(status: &NodeStatus) -> usize {
    status.members.iter().filter(|member| member.up && !member.loading).count()
}

fn members(status: &NodeStatus, measures: &Measures) -> Vec<Member> {
    let member = |one: &node::status::MemberStatus| Member {
        node: one.node.0,
        address: one.address.clone(),
        up: one.up,
        loading: one.loading,
        slow: measures.slow.contains(&one.node),
        refused: one.refused.clone(),
        round_trip_us: measures.last_round_trips.get(&one.node).map(|time| time.as_micros()),
        incarnation: one.incarnation.0,
        loss: one.amnesia.0,
    };
    status.members.iter().map(member).collect()
}

pub(crate) fn disk(facts: &dyn Facts) -> Option<Disk> {
    let usage = usage(&facts.config().data_dir).ok()?;
    Some(Disk { used_bytes: usage.used, free_bytes: usage.free, size_bytes: usage.size })
}

/// How far a node is in belonging to a cluster, in words.
pub(crate) fn phase(phase: &Phase) -> String {
    let list = |nodes: &[types::NodeId]| {
        nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(", ")
    };
    match phase {
        Phase::Forming { waiting_for } => format!("forming, waiting for {}", list(waiting_for)),
        Phase::Rejoining { waiting_for } => format!("rejoining, waiting for {}", list(waiting_for)),
        Phase::Formed => "formed".into(),
        Phase::Stopping => "stopping".into(),
    }
}
