//! The configuration of a node, merged from flags, environment and file.
//!
//! The binary reads those sources. This module defines the meaning of each value.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use base::Millis;
use types::features::Supported;
use types::limits::{DATABASES, MEMBERS_MAX};
use types::{Database, NodeId};

use crate::settings::Limits;

pub use crate::worker::ScrubConfig;
pub use storage::disk::Config as DiskConfig;

/// A disk store that holds the system database only.
const SYSTEM_DISK: DiskConfig = DiskConfig {
    ring_bytes: 4 << 20,
    spare_pages: 64,
    initial_level: 1,
    cache_bytes: 2 << 20,
    fill_percent: 60,
    first_fit: false,
};

/// Worker threads of a node at most.
pub const WORKERS_MAX: usize = 64;

/// Members that a group may have instead of all nodes. Even numbers would survive no more failures.
pub const REPLICAS: [u8; 3] = [3, 5, 7];

/// Configuration of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// 1 to 65535.
    pub id: NodeId,
    /// Where clients connect. Port 0 takes any free one.
    pub listen: String,
    /// Where clients of Redis Sentinel connect; `None` for nowhere. Port 0 takes any free one.
    pub sentinel_listen: Option<String>,
    pub announced: Announced,
    /// The address that other nodes connect to. Must equal this node's entry in their lists.
    pub peer_listen: String,
    /// The first members, this node included; empty where the data directory already knows them.
    pub members: Vec<MemberAddress>,
    /// Shared by the nodes of a cluster. `None` authenticates no peer and suits loopback only.
    pub secret: Option<Vec<u8>>,
    pub data_dir: PathBuf,
    /// Databases that are served, each with its protocol and durability.
    pub databases: Vec<DatabaseConfig>,
    /// 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// How long a request may look for a quorum.
    pub request_timeout: Millis,
    /// Bytes of one key's value that this node allows; the smallest of all members' counts.
    pub max_value_size: usize,
    /// How long this node lets a command under `ONCE` be remembered; the shortest of all members'
    /// counts.
    pub once_window: Millis,
    /// Memory in bytes for registers of all workers, and for the unwritten data that a medium
    /// buffers. Other registers are read from the store on access.
    pub cache_memory: usize,
    /// The shape of a disk store.
    pub disk: DiskConfig,
    /// Client connections at most: those beyond are refused.
    pub clients_max: usize,
    /// Client connections for which there are file descriptors: those beyond wait.
    pub clients_accepted: usize,
    /// Background verification of stored data.
    pub scrub: ScrubConfig,
    /// The feature levels that this node supports: those of its version, except in tests.
    pub supported: Supported,
}

/// Facts that this node announces to the others and to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Version of the program.
    pub version: String,
    /// `HOST:PORT` that clients are told to connect to; `None` for the address that the node
    /// listens at.
    pub advertise: Option<String>,
    /// `HOST:PORT` of the admin pages; `None` without any.
    pub admin: Option<String>,
}

/// One database (`SELECT index`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseConfig {
    pub database: Database,
    /// The protocol's name on the command line.
    pub protocol: &'static str,
    pub durability: Durability,
    /// Members of its group, for a protocol that needs a configuration; `None`: all nodes.
    pub replicas: Option<u8>,
}

impl DatabaseConfig {
    /// Its protocol runs on a configured group of members.
    #[must_use]
    pub fn has_group(&self) -> bool {
        crate::registry::find(self.protocol).is_some_and(|it| it.properties.needs_config)
    }

    fn check_replicas(&self) -> Result<(), BadConfig> {
        let Some(replicas) = self.replicas else { return Ok(()) };
        let DatabaseConfig { database, protocol, .. } = self;
        if !REPLICAS.contains(&replicas) {
            return Err(BadConfig(format!(
                "database {database}: replicas must be 3, 5 or 7, not {replicas}"
            )));
        }
        if !self.has_group() {
            return Err(BadConfig(format!(
                "database {database}: {protocol} keeps every key on all nodes; replicas is for protocols of groups, \
                 which are {}",
                crate::registry::names_of_groups().join(", ")
            )));
        }
        Ok(())
    }

    /// Transactions over several keys run on it, with the help of a hidden keyspace.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        self.protocol == crate::registry::SYSTEM
    }

    /// Its protocol keeps a log, which outlives the process unless the database is volatile.
    #[must_use]
    pub fn keeps_log(&self) -> bool {
        crate::registry::find(self.protocol).is_some_and(|it| it.properties.keeps_log)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    Volatile,
    Pmem,
    Disk,
}

/// A member and where other nodes reach it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberAddress {
    pub node: NodeId,
    /// `HOST:PORT` for clients.
    pub client: String,
    /// `HOST:PORT` for nodes.
    pub peer: String,
}

/// A configuration that cannot work. One line that names the value to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadConfig(pub String);

impl NodeConfig {
    /// Checks the values against each other, without touching files or sockets.
    ///
    /// # Errors
    /// [`BadConfig`] names the field to change.
    pub fn check(&self) -> Result<(), BadConfig> {
        let bad = |text: String| Err(BadConfig(text));
        if self.id.0 == 0 {
            return bad("--id must be 1 to 65535".into());
        }
        if self.workers == 0 || self.workers > WORKERS_MAX {
            return bad(format!("--workers must be 1 to {WORKERS_MAX}, not {}", self.workers));
        }
        if self.databases.is_empty() || self.databases.len() > DATABASES {
            return bad(format!("1 to {DATABASES} databases can be configured"));
        }
        for (at, one) in self.databases.iter().enumerate() {
            if usize::from(one.database.0) >= DATABASES {
                return bad(format!("database {} does not exist: 0 to 15 do", one.database.0));
            }
            if self.databases[..at].iter().any(|other| other.database == one.database) {
                return bad(format!("database {} is configured twice", one.database.0));
            }
            one.check_replicas()?;
        }
        self.disk.check().map_err(|error| BadConfig(error.to_string()))?;
        check_members(&self.members, self.id)
    }

    /// Checks that each group has enough nodes.
    ///
    /// # Errors
    /// [`BadConfig`] names the database.
    pub fn check_groups(&self, nodes: usize) -> Result<(), BadConfig> {
        for one in &self.databases {
            if let Some(replicas) = one.replicas.filter(|&it| usize::from(it) > nodes) {
                return Err(BadConfig(format!(
                    "database {}: {replicas} replicas need as many nodes, and the cluster has {nodes}",
                    one.database
                )));
            }
        }
        Ok(())
    }

    /// All that the node keeps: the users' databases, the system database, and the hidden keyspaces
    /// beside those databases whose protocol can run transactions.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<DatabaseConfig> {
        let first = self.databases.iter().min_by_key(|one| one.database);
        let durability = match first.map(|one| one.durability) {
            Some(Durability::Pmem) => Durability::Pmem,
            _ => Durability::Disk,
        };
        let protocol = crate::registry::SYSTEM;
        let system =
            DatabaseConfig { database: Database::SYSTEM, protocol, durability, replicas: None };
        let visible: Vec<DatabaseConfig> =
            self.databases.iter().cloned().chain(std::iter::once(system)).collect();
        let hidden = visible
            .iter()
            .filter(|one| one.has_transactions())
            .map(|one| DatabaseConfig { database: one.database.hidden(), ..one.clone() });
        let hidden: Vec<DatabaseConfig> = hidden.collect();
        [visible, hidden].concat()
    }

    /// The durabilities of all keyspaces, each once, in the order of the stores of a worker.
    #[must_use]
    pub fn durabilities(&self) -> Vec<Durability> {
        let mut kinds: Vec<Durability> =
            self.keyspaces().iter().map(|one| one.durability).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// True if users keep data in a medium of this kind.
    #[must_use]
    pub fn users_have(&self, durability: Durability) -> bool {
        self.databases.iter().any(|database| database.durability == durability)
    }

    /// The shape of the disk store: a small one where it holds the system database only.
    #[must_use]
    pub fn disk_shape(&self) -> DiskConfig {
        if self.users_have(Durability::Disk) { self.disk } else { SYSTEM_DISK }
    }

    /// The limits that this node announces to the others.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let NodeConfig { max_value_size, once_window, .. } = *self;
        Limits { max_value_size, once_window }
    }

    /// True where any database keeps its state in memory only.
    #[must_use]
    pub fn has_volatile(&self) -> bool {
        self.users_have(Durability::Volatile)
    }
}

fn check_members(members: &[MemberAddress], me: NodeId) -> Result<(), BadConfig> {
    if members.is_empty() {
        return Ok(());
    }
    if members.len() > MEMBERS_MAX {
        return Err(BadConfig(format!(
            "--cluster lists {} members, at most {MEMBERS_MAX} are possible",
            members.len()
        )));
    }
    for (at, member) in members.iter().enumerate() {
        if members[..at].iter().any(|other| other.node == member.node) {
            return Err(BadConfig(format!("--cluster lists member {} twice", member.node)));
        }
        if members[..at].iter().any(|other| other.peer == member.peer) {
            return Err(BadConfig(format!("--cluster lists the address {} twice", member.peer)));
        }
    }
    if members.iter().all(|member| member.node != me) {
        return Err(BadConfig(format!(
            "--cluster must list this node too: {me}=HOST:PORT is missing"
        )));
    }
    Ok(())
}

/// The default node-to-node port minus the client port.
pub const PEER_PORT_OFFSET: u16 = 10_000;

/// `1=HOST:PORT[@PEERPORT]`.
impl FromStr for MemberAddress {
    type Err = BadConfig;

    fn from_str(text: &str) -> Result<MemberAddress, BadConfig> {
        let bad = || BadConfig(format!("{text:?} is not a member: write ID=HOST:PORT[@PEERPORT]"));
        let (id, address) = text.split_once('=').ok_or_else(bad)?;
        let node = NodeId(id.trim().parse().ok().filter(|&id| id > 0).ok_or_else(bad)?);
        let (client, peer_port) = match address.trim().split_once('@') {
            Some((client, port)) => (client, Some(port.parse::<u16>().map_err(|_| bad())?)),
            None => (address.trim(), None),
        };
        let (host, port) = client.rsplit_once(':').ok_or_else(bad)?;
        let port: u16 = port.parse().map_err(|_| bad())?;
        if host.is_empty() {
            return Err(bad());
        }
        let peer_port = match peer_port {
            Some(port) => port,
            None => port.checked_add(PEER_PORT_OFFSET).ok_or_else(|| {
                BadConfig(format!(
                    "{text:?}: port {port} + {PEER_PORT_OFFSET} is no port; add @PEERPORT"
                ))
            })?,
        };
        Ok(MemberAddress { node, client: client.to_string(), peer: format!("{host}:{peer_port}") })
    }
}

/// Members separated by commas.
///
/// # Errors
/// [`BadConfig`] quotes the part that is wrong.
pub fn parse_members(text: &str) -> Result<Vec<MemberAddress>, BadConfig> {
    let mut members = text
        .split(',')
        .filter(|part| !part.trim().is_empty())
        .map(|part| part.trim().parse())
        .collect::<Result<Vec<MemberAddress>, BadConfig>>()?;
    members.sort();
    Ok(members)
}

impl FromStr for Durability {
    type Err = BadConfig;

    fn from_str(text: &str) -> Result<Durability, BadConfig> {
        match text {
            "volatile" => Ok(Durability::Volatile),
            "pmem" => Ok(Durability::Pmem),
            "disk" => Ok(Durability::Disk),
            other => Err(BadConfig(format!("durability is volatile, pmem or disk, not {other:?}"))),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Volatile => "volatile",
            Durability::Pmem => "pmem",
            Durability::Disk => "disk",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_port_is_given_or_ten_thousand_above() {
        let members = parse_members("2=b:7000@7001, 1=a:6379").unwrap();
        assert_eq!(
            members
                .iter()
                .map(|m| (m.node.0, m.client.as_str(), m.peer.as_str()))
                .collect::<Vec<_>>(),
            [(1, "a:6379", "a:16379"), (2, "b:7000", "b:7001")]
        );
        assert_eq!(parse_members("3=[::1]:6379").unwrap()[0].peer, "[::1]:16379");
    }

    #[test]
    fn what_is_no_member_is_quoted() {
        for text in ["a:1", "0=a:1", "x=a:1", "1=a", "1=:1", "1=a:1@x", "1=a:60000", "70000=a:1"] {
            let error = parse_members(text).unwrap_err();
            assert!(error.0.contains(text), "{error}");
        }
    }

    #[test]
    fn lists_without_this_node_or_with_doubles_are_refused() {
        let check = |text: &str| check_members(&parse_members(text).unwrap(), NodeId(1));
        assert_eq!(check("1=a:1,2=b:1"), Ok(()));
        assert!(check("2=b:1").unwrap_err().0.contains("1=HOST:PORT is missing"));
        assert!(check("1=a:1,1=b:1").unwrap_err().0.contains("twice"));
        assert!(check("1=a:1,2=a:1").unwrap_err().0.contains("a:10001 twice"));
    }
}
