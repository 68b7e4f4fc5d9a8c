//! A node's facts as JSON: the shape of `/api/v1/status`.

use std::collections::BTreeMap;

use node::status::{Facts, Phase};
use serde::Serialize;

/// `/api/v1/status`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub version: &'static str,
    pub node: u16,
    pub cluster: Option<String>,
    pub phase: String,
    pub ready: bool,
    pub loading: bool,
    pub incarnation: u32,
    pub loss: u32,
    pub listen: String,
    pub uptime_ms: u64,
    pub clients: usize,
    pub clients_total: u64,
    pub quorum: usize,
    /// Members that may fail before this node serves no more.
    pub tolerates: i64,
    pub members: Vec<Member>,
    pub databases: Vec<Database>,
    pub stats: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Member {
    pub node: u16,
    pub address: String,
    pub up: bool,
    /// It recovers what it forgot and does not count for a quorum.
    pub loading: bool,
    pub incarnation: u32,
    pub loss: u32,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Database {
    pub index: u8,
    pub protocol: &'static str,
    pub durability: String,
}

impl Status {
    pub(crate) fn of(facts: &dyn Facts, version: &'static str) -> Status {
        let status = facts.status();
        let helpful = status.members.iter().filter(|member| member.up && !member.loading).count();
        let quorum = status.members.len() / 2 + 1;
        Status {
            version,
            node: status.id.0,
            cluster: status.cluster,
            phase: phase(&status.phase),
            ready: status.ready,
            loading: status.loading,
            incarnation: status.incarnation.0,
            loss: status.loss.0,
            listen: status.listen.to_string(),
            uptime_ms: status.up.0,
            clients: status.clients,
            clients_total: status.clients_total,
            quorum,
            tolerates: helpful as i64 - quorum as i64,
            members: status
                .members
                .into_iter()
                .map(|member| Member {
                    node: member.node.0,
                    address: member.address,
                    up: member.up,
                    loading: member.loading,
                    incarnation: member.incarnation.0,
                    loss: member.loss.0,
                })
                .collect(),
            databases: facts
                .config()
                .databases
                .iter()
                .map(|one| Database {
                    index: one.database.0,
                    protocol: one.protocol,
                    durability: one.durability.to_string(),
                })
                .collect(),
            stats: status.stats.values,
        }
    }
}

fn phase(phase: &Phase) -> String {
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
