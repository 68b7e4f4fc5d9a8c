//! The cluster as this node sees it: its own summary and the last that it heard of each peer.

use std::collections::BTreeMap;
use std::path::Path;

use base::{Millis, Nanos};
use types::NodeId;

use super::node_status::{Membership, SharedNodeStatus};
use crate::status::{DatabaseFigures, MemberView, NodeStatus, Phase, WriteRefusal};
use crate::summary::{NodeState, Summary};

/// Without a link between workers, a member is down once it was silent for this long.
const SILENT_MAX: Nanos = Nanos::from_secs(3);

/// Counters whose sum is left to recover.
const RECOVERY_LEFT: [&str; 3] = ["recovering_shards", "shards_recovering", "recovering_keys"];

/// Summaries from the peers' reports.
#[derive(Debug, Default)]
pub(crate) struct ClusterView {
    /// As it was sent last.
    own: Summary,
    seen: BTreeMap<NodeId, HeardPeer>,
}

/// A peer as it was heard last.
#[derive(Clone, Debug)]
pub(crate) struct HeardPeer {
    pub(crate) summary: Summary,
    pub(crate) heard_at: Nanos,
    pub(crate) round_trip: Option<Nanos>,
    /// The control link on which it was heard still stands.
    pub(crate) is_linked: bool,
}

impl ClusterView {
    pub(crate) fn set_own(&mut self, summary: Summary) {
        self.own = summary;
    }

    pub(crate) fn set_seen(&mut self, peer: NodeId, seen: HeardPeer) {
        self.seen.insert(peer, seen);
    }

    pub(crate) fn set_unlinked(&mut self, peer: NodeId) {
        if let Some(seen) = self.seen.get_mut(&peer) {
            (seen.is_linked, seen.round_trip) = (false, None);
        }
    }

    /// All members, this node with `own` as its summary.
    pub(crate) fn members(
        &self,
        me: NodeId,
        own: Summary,
        membership: &Membership,
        now: Nanos,
    ) -> Vec<MemberView> {
        let one = |member: &crate::config::MemberAddress| {
            if member.node == me {
                // The rates are those of the last report, which took the time between two.
                let summary = Summary {
                    commands_per_second: self.own.commands_per_second,
                    latency_p50: self.own.latency_p50,
                    latency_p99: self.own.latency_p99,
                    round_trips: self.own.round_trips.clone(),
                    ..own.clone()
                };
                return MemberView {
                    node: me,
                    address: member.client.clone(),
                    is_self: true,
                    up: true,
                    silent_for: Some(Millis(0)),
                    round_trip: None,
                    summary: Some(summary),
                };
            }
            let seen = self.seen.get(&member.node);
            let is_linked = membership.linked.contains(&member.node);
            let is_recovering = membership.recovering.contains(&member.node);
            let is_heard =
                seen.is_some_and(|it| it.is_linked && now.since(it.heard_at) < SILENT_MAX);
            let silent_for = seen.map(|it| Millis(now.since(it.heard_at).as_millis()));
            MemberView {
                node: member.node,
                address: member.client.clone(),
                is_self: false,
                up: is_heard || is_linked,
                silent_for,
                round_trip: seen.and_then(|seen| seen.round_trip),
                summary: current(seen, is_linked, is_recovering),
            }
        };
        membership.durable.members.iter().map(one).collect()
    }
}

/// The peer's last summary. Worker links stand only between members that have begun, so a summary
/// from before that is out of date.
fn current(seen: Option<&HeardPeer>, is_linked: bool, is_recovering: bool) -> Option<Summary> {
    let summary = seen.map(|seen| seen.summary.clone());
    let state = summary.as_ref().map_or(NodeState::Forming, |summary| summary.state);
    if !is_linked || !matches!(state, NodeState::Forming | NodeState::Joining) {
        return summary;
    }
    let state = if is_recovering { NodeState::Recovering } else { NodeState::Ready };
    Some(Summary { state, remarks: Vec::new(), ..summary.unwrap_or_default() })
}

impl SharedNodeStatus {
    /// This node's summary, from facts that its threads have published.
    pub(crate) fn summary(&self, status: &NodeStatus) -> Summary {
        let stat = |name: &str| status.stats.values.get(name).copied().unwrap_or(0);
        let recovery_left = recovery_left(status);
        let disk = disk(&self.config.data_dir);
        Summary {
            version: self.config.announced.version.clone(),
            advertise: status.advertise.clone(),
            sentinel: status.sentinel.clone().unwrap_or_default(),
            admin: self.config.announced.admin.clone().unwrap_or_default(),
            state: state(status),
            writes_refused: status.writes_refused.map(of_storage).unwrap_or_default(),
            remarks: remarks(status),
            recovery_left,
            up: status.up,
            clients: status.clients as u64,
            keys: sum_of(&status.databases, |one| one.keys),
            bytes: sum_of(&status.databases, |one| one.bytes),
            disk_free: disk.map(|(free, _)| free),
            disk_total: disk.map(|(_, total)| total),
            memory: resident_memory(),
            ring_bytes: stat("storage_ring_bytes"),
            ring_used: stat("storage_ring_used_bytes"),
            ..Summary::default()
        }
    }
}

/// Over all databases; `None` until one was counted.
fn sum_of(databases: &[DatabaseFigures], of: fn(&DatabaseFigures) -> u64) -> Option<u64> {
    (!databases.is_empty()).then(|| databases.iter().map(of).sum())
}

/// Shards and keys that are left to recover.
fn recovery_left(status: &NodeStatus) -> u64 {
    let stat = |name: &str| status.stats.values.get(name).copied().unwrap_or(0);
    RECOVERY_LEFT.into_iter().map(stat).sum()
}

pub(super) fn state(status: &NodeStatus) -> NodeState {
    match status.phase {
        Phase::Stopping => NodeState::Stopping,
        Phase::Forming { .. } => NodeState::Forming,
        Phase::Rejoining { .. } => NodeState::Joining,
        Phase::Formed if recovery_left(status) > 0 => NodeState::Recovering,
        Phase::Formed if status.loading => NodeState::Loading,
        Phase::Formed if status.ready => NodeState::Ready,
        Phase::Formed => NodeState::NoQuorum,
    }
}

/// Lines that the state does not tell.
fn remarks(status: &NodeStatus) -> Vec<String> {
    let list =
        |nodes: &[NodeId]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match &status.phase {
        Phase::Forming { waiting_for } if !waiting_for.is_empty() => {
            vec![format!("waits for node {} to form a cluster", list(waiting_for))]
        }
        Phase::Rejoining { waiting_for } if !waiting_for.is_empty() => {
            vec![format!("lost its memory and waits for node {}", list(waiting_for))]
        }
        _ => Vec::new(),
    }
}

/// Names a refusal, unless the state of the node tells as much.
fn of_storage(refusal: WriteRefusal) -> String {
    match refusal {
        WriteRefusal::DiskFull | WriteRefusal::FileSizeLimit => refusal.to_string(),
        WriteRefusal::Stopping | WriteRefusal::Loading | WriteRefusal::NoQuorum => String::new(),
    }
}

/// Free and total bytes of the file system with `dir`.
fn disk(dir: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some((found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize))
}

/// Bytes of the process in memory.
fn resident_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_peer_is_not_shown_as_forming() {
        let state = |state: Option<NodeState>, is_linked, is_recovering| {
            let seen = state.map(|state| HeardPeer {
                summary: Summary { state, remarks: vec!["waits".into()], ..Summary::default() },
                heard_at: Nanos::ZERO,
                round_trip: None,
                is_linked: true,
            });
            let summary = current(seen.as_ref(), is_linked, is_recovering);
            summary.map(|summary| (summary.state, summary.remarks.len()))
        };
        assert_eq!(state(None, false, false), None);
        assert_eq!(state(Some(NodeState::Forming), false, false), Some((NodeState::Forming, 1)));
        for old in [None, Some(NodeState::Forming), Some(NodeState::Joining)] {
            assert_eq!(state(old, true, false), Some((NodeState::Ready, 0)));
            assert_eq!(state(old, true, true), Some((NodeState::Recovering, 0)));
        }
        assert_eq!(state(Some(NodeState::NoQuorum), true, false), Some((NodeState::NoQuorum, 1)));
    }

    #[test]
    fn this_process_has_memory_and_a_disk() {
        assert!(resident_memory().is_some_and(|bytes| bytes > 0));
        assert!(disk(Path::new(".")).is_some_and(|(free, total)| free <= total && total > 0));
        assert_eq!(disk(Path::new("/no/such/directory")), None);
    }
}
