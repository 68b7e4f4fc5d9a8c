//! Converts between formation's durable state and the identity in the data directory.

use std::collections::BTreeMap;

use base::Nanos;
use storage::data_dir::{DataDir, DataDirError};
use storage::identity::{self, Identity, SavedClock};
use transport::ClusterId;
use types::Database;

use crate::config::{Durability, MemberAddress, NodeConfig};
use crate::formation::{Cluster, Counters, Durable, Standing};
use crate::registry;
use crate::settings::{DatabaseSetting, Databases, Limits};
use crate::uptime::{Keeper, Scale};

/// Converts an identity to formation's state.
pub(crate) fn read(identity: &Identity) -> Durable {
    let cluster = identity.cluster.map(|identity::Cluster { id, secret }| Cluster {
        id: ClusterId(id.to_le_bytes()),
        secret,
    });
    let standing = match (identity.standing, cluster) {
        (identity::Standing::Unformed, None) => Standing::Empty,
        (identity::Standing::Unformed, Some(cluster)) => Standing::Proposed(cluster),
        (identity::Standing::Formed, Some(cluster)) => Standing::Formed(cluster),
        (identity::Standing::Uncertain, Some(cluster)) => Standing::Rejoining(cluster),
        // A directory that is being wiped is never opened.
        (_, _) => Standing::Uncertain,
    };
    let address = |member: &identity::Member| MemberAddress {
        node: member.node,
        client: member.listen.clone(),
        peer: member.peer_listen.clone(),
    };
    let counters = |member: &identity::Member| {
        let noted = Counters { incarnation: member.incarnation, amnesia: member.amnesia };
        (noted != Counters::default()).then_some((member.node, noted))
    };
    Durable {
        standing,
        running: identity.running,
        mine: Counters { incarnation: identity.incarnation, amnesia: identity.amnesia },
        members: identity.members.iter().map(address).collect(),
        known: identity.members.iter().filter_map(counters).collect(),
        databases: databases(identity),
        limits: identity.members.iter().filter_map(limits).collect(),
        generations: identity.databases.iter().filter_map(generation).collect(),
    }
}

fn generation(saved: &identity::DatabaseSetting) -> Option<(Database, u64)> {
    (saved.generation > 0).then_some((Database(saved.index), saved.generation))
}

fn databases(identity: &Identity) -> Databases {
    let one = |saved: &identity::DatabaseSetting| DatabaseSetting {
        database: Database(saved.index),
        protocol: saved.protocol.clone(),
        durability: match saved.durability {
            identity::Durability::Volatile => Durability::Volatile,
            identity::Durability::Pmem => Durability::Pmem,
            identity::Durability::Disk => Durability::Disk,
        },
        replicas: Some(saved.replicas).filter(|&replicas| replicas > 0),
    };
    Databases::new(identity.databases.iter().map(one).collect())
}

fn limits(member: &identity::Member) -> Option<(types::NodeId, Limits)> {
    let identity::Limits { max_value_size, once_window } = member.limits?;
    let max_value_size = usize::try_from(max_value_size).ok()?;
    Some((member.node, Limits { max_value_size, once_window }))
}

/// Writes `durable` to the data directory.
///
/// # Errors
/// Those of the directory. The node must not send any message afterwards.
pub(crate) fn write(dir: &mut DataDir, durable: &Durable) -> Result<(), DataDirError> {
    let members = members(durable);
    if let Standing::Rejoining(cluster) = durable.standing {
        let known = dir.identity().map_or_else(Counters::default, counters);
        if known != durable.mine {
            let Counters { incarnation, amnesia } = durable.mine;
            return dir.rejoin(
                saved_cluster(cluster),
                durable.running,
                &members,
                incarnation,
                amnesia,
            );
        }
    }
    let (standing, cluster) = match durable.standing {
        Standing::Empty => (identity::Standing::Unformed, None),
        Standing::Proposed(cluster) => (identity::Standing::Unformed, Some(cluster)),
        Standing::Uncertain => (identity::Standing::Uncertain, None),
        Standing::Rejoining(cluster) => (identity::Standing::Uncertain, Some(cluster)),
        Standing::Formed(cluster) => (identity::Standing::Formed, Some(cluster)),
    };
    let rejoins = matches!(durable.standing, Standing::Rejoining(_));
    dir.update(|identity| {
        // Its stores are made anew, and the records were about the old ones.
        if rejoins && identity.standing != standing {
            identity.groups.clear();
        }
        identity.standing = standing;
        identity.cluster = cluster.map(saved_cluster);
        identity.running = durable.running;
        identity.members = members;
        let setting = |one| setting(one, &durable.generations);
        identity.databases = durable.databases.as_slice().iter().map(setting).collect();
    })
}

fn saved_cluster(Cluster { id, secret }: Cluster) -> identity::Cluster {
    identity::Cluster { id: u128::from_le_bytes(id.0), secret }
}

fn setting(
    one: &DatabaseSetting,
    generations: &BTreeMap<Database, u64>,
) -> identity::DatabaseSetting {
    let DatabaseSetting { database, protocol, durability, replicas } = one;
    identity::DatabaseSetting {
        index: database.0,
        protocol: protocol.clone(),
        durability: saved(*durability),
        replicas: replicas.unwrap_or(0),
        generation: generations.get(database).copied().unwrap_or(0),
        has_log_area: *durability != Durability::Volatile
            && registry::find(protocol).is_some_and(|it| it.properties.keeps_log),
    }
}

fn saved(durability: Durability) -> identity::Durability {
    match durability {
        Durability::Volatile => identity::Durability::Volatile,
        Durability::Pmem => identity::Durability::Pmem,
        Durability::Disk => identity::Durability::Disk,
    }
}

fn counters(identity: &Identity) -> Counters {
    Counters { incarnation: identity.incarnation, amnesia: identity.amnesia }
}

fn members(durable: &Durable) -> Vec<identity::Member> {
    let one = |address: &MemberAddress| {
        let noted = durable.known.get(&address.node).copied().unwrap_or_default();
        let limits = durable.limits.get(&address.node).map(|one| identity::Limits {
            max_value_size: one.max_value_size as u64,
            once_window: one.once_window,
        });
        identity::Member {
            node: address.node,
            listen: address.client.clone(),
            peer_listen: address.peer.clone(),
            incarnation: noted.incarnation,
            amnesia: noted.amnesia,
            limits,
        }
    };
    durable.members.iter().map(one).collect()
}

/// The durability that the identity names: that of the first database.
pub(crate) fn durability(config: &NodeConfig) -> identity::Durability {
    let first = config.databases.iter().min_by_key(|one| one.database);
    first.map_or(identity::Durability::Disk, |one| saved(one.durability))
}

/// The clocks as the last start left them.
pub(crate) fn restore_clocks(identity: &Identity, now: Nanos) -> Keeper {
    let before = identity.incarnation.0.saturating_sub(1);
    let orderly = before > 0 && identity.stopped.0 == before;
    Keeper::restore(Scale::REAL, &identity.clocks, orderly, now)
}

/// Saves the clocks. `stops`: no countdown uses them before the next start.
pub(crate) fn save_clocks(
    dir: &mut DataDir,
    clocks: Vec<SavedClock>,
    stops: bool,
) -> Result<(), DataDirError> {
    dir.update(|identity| {
        identity.clocks = clocks;
        if stops {
            identity.stopped = identity.incarnation;
        }
    })
}
