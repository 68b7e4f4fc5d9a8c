//! `/api/v1/cluster`: every member as the asked node sees it, dead ones included.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use node::status::{Facts, MemberView, NodeStatus};
use node::summary::{NodeState, Summary};
use serde::{Deserialize, Serialize};
use types::NodeId;

use crate::group::{self, Group};

/// The cluster as one node sees it. Fields are only ever added; `null` means unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Hexadecimal; `null` before the node belongs to a cluster.
    pub cluster: Option<String>,
    /// The level at which the cluster runs; `null` before the node belongs to one.
    #[serde(default)]
    pub feature_level: Option<u16>,
    /// The node that was asked.
    pub asked: u16,
    /// Members that must be ready for the cluster to serve.
    pub quorum: usize,
    /// Members that are ready, as far as the asked node knows.
    pub ready: usize,
    /// True when the ready members are a quorum.
    pub serving: bool,
    /// Ready members that may fail before the cluster serves no more.
    pub tolerates: usize,
    /// Lines that a person should read.
    pub warnings: Vec<String>,
    /// Sorted by id.
    pub nodes: Vec<NodeView>,
    /// Configured groups as the asked node knows them, sorted by database.
    #[serde(default)]
    pub groups: Vec<Group>,
}

/// A member. Of one that is down, everything below `last_seen` is as it was heard last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    pub node: u16,
    /// Its address for clients.
    pub address: String,
    /// Its address for HTTP.
    pub admin: Option<String>,
    /// `ready`, `down`, `no quorum`, `recovering`, `loading`, `joining`, `forming` or `stopping`.
    pub state: String,
    pub up: bool,
    /// True for the node that was asked.
    pub is_self: bool,
    /// The setting or level in which it differs from the asked node, which therefore refuses it.
    #[serde(default)]
    pub refused: Option<String>,
    /// Its limit that is smaller than another member's and counts everywhere.
    #[serde(default)]
    pub smallest_limit: Option<String>,
    /// RFC 3339; `null` while the asked node has not heard it since its own start.
    pub last_seen: Option<String>,
    pub last_seen_ms_ago: Option<u64>,
    /// Time of a message from the asked node and back.
    pub round_trip_us: Option<u64>,
    pub version: Option<String>,
    pub uptime_ms: Option<u64>,
    /// `ok`, or `refused` with the reason.
    pub writes: Option<String>,
    /// Lines about it that a person should read.
    pub remarks: Vec<String>,
    /// Shards and keys that it has to recover.
    pub recovery_left: Option<u64>,
    pub clients: Option<u64>,
    pub commands_per_second: Option<u64>,
    pub latency_p50_us: Option<u64>,
    pub latency_p99_us: Option<u64>,
    pub keys: Option<u64>,
    pub bytes: Option<u64>,
    pub disk_free_bytes: Option<u64>,
    pub disk_total_bytes: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub ring_bytes: Option<u64>,
    pub ring_used_bytes: Option<u64>,
    /// From this member to each of its peers, by id.
    pub round_trips_us: BTreeMap<u16, u64>,
}

impl Cluster {
    pub(crate) fn of(facts: &dyn Facts) -> Cluster {
        let status = facts.status();
        let now = SystemTime::now();
        let settings = |node: NodeView| NodeView {
            refused: refused(&status, node.node),
            smallest_limit: smallest_limit(&status, node.node),
            ..node
        };
        let nodes = facts.cluster().into_iter().map(|member| NodeView::of(member, now));
        let nodes = nodes.map(settings).collect();
        let level = status.level.map(|level| level.0);
        let groups = Group::all(facts, &status);
        let cluster = Cluster::judged(status.cluster, status.id.0, nodes);
        Cluster { feature_level: level, ..cluster }.with_groups(groups)
    }

    /// The cluster of these nodes, with the conclusions drawn from them.
    #[must_use]
    pub fn judged(cluster: Option<String>, asked: u16, mut nodes: Vec<NodeView>) -> Cluster {
        nodes.sort_by_key(|node| node.node);
        let quorum = nodes.len() / 2 + 1;
        let ready = nodes.iter().filter(|node| node.is_ready()).count();
        Cluster {
            cluster,
            feature_level: None,
            asked,
            quorum,
            ready,
            serving: ready >= quorum,
            tolerates: ready.saturating_sub(quorum),
            warnings: warnings(&nodes),
            nodes,
            groups: Vec::new(),
        }
    }

    /// The same with these groups, and warnings about them.
    #[must_use]
    pub fn with_groups(mut self, groups: Vec<Group>) -> Cluster {
        self.warnings.extend(group::warnings(&groups));
        Cluster { groups, ..self }
    }
}

impl NodeView {
    fn of(member: MemberView, now: SystemTime) -> NodeView {
        let heard = member.summary.is_some();
        let known = |number: u64| heard.then_some(number);
        let Summary {
            version,
            advertise,
            admin,
            sentinel: _,
            state,
            writes_refused,
            remarks,
            recovery_left,
            up,
            clients,
            commands_per_second,
            keys,
            bytes,
            disk_free,
            disk_total,
            memory,
            ring_bytes,
            ring_used,
            latency_p50,
            latency_p99,
            round_trips,
        } = member.summary.unwrap_or_default();
        let text = |text: String| (!text.is_empty()).then_some(text);
        let micros = |time: base::Nanos| time.0 / 1_000;
        let last_seen = member.silent_for.map(|ago| now - Duration::from_millis(ago.0));
        NodeView {
            node: member.node.0,
            address: text(advertise).unwrap_or(member.address),
            admin: text(admin),
            state: if member.up { state.name() } else { "down" }.to_owned(),
            up: member.up,
            is_self: member.is_self,
            refused: None,
            smallest_limit: None,
            last_seen: last_seen.map(|at| humantime::format_rfc3339_millis(at).to_string()),
            last_seen_ms_ago: member.silent_for.map(|ago| ago.0),
            round_trip_us: member.round_trip.map(micros),
            version: text(version),
            uptime_ms: known(up.0),
            writes: heard.then(|| match writes_refused.as_str() {
                "" => "ok".into(),
                reason => format!("refused ({reason})"),
            }),
            remarks,
            recovery_left: known(recovery_left),
            clients: known(clients),
            commands_per_second: known(commands_per_second),
            latency_p50_us: latency_p50.map(micros),
            latency_p99_us: latency_p99.map(micros),
            keys,
            bytes,
            disk_free_bytes: disk_free,
            disk_total_bytes: disk_total,
            memory_bytes: memory,
            ring_bytes: known(ring_bytes),
            ring_used_bytes: known(ring_used),
            round_trips_us: round_trips
                .into_iter()
                .map(|(id, time)| (id.0, micros(time)))
                .collect(),
        }
    }

    /// True when it can serve, as far as is known.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.up && self.state == NodeState::Ready.name()
    }
}

fn refused(status: &NodeStatus, node: u16) -> Option<String> {
    status.members.iter().find(|member| member.node.0 == node)?.refused.clone()
}

fn smallest_limit(status: &NodeStatus, node: u16) -> Option<String> {
    let is_among = |nodes: &[NodeId]| nodes.contains(&NodeId(node));
    let limits = &status.limits;
    let mut texts = Vec::new();
    if is_among(&limits.max_value_size_set_by) {
        texts.push(format!("max-value-size of {} bytes", limits.max_value_size));
    }
    if is_among(&limits.once_window_set_by) {
        texts.push(format!("once-window of {} ms", limits.once_window.0));
    }
    (!texts.is_empty()).then(|| texts.join(" and "))
}

fn warnings(nodes: &[NodeView]) -> Vec<String> {
    let mut lines = Vec::new();
    for one in nodes {
        let id = one.node;
        if let Some(reason) = &one.refused {
            lines.push(format!("node {id} is refused: {reason}"));
        }
        if let Some(limit) = &one.smallest_limit {
            lines.push(format!("node {id} has the smallest {limit}: it counts on all nodes"));
        }
        match (one.up, one.last_seen_ms_ago) {
            (false, None) => lines.push(format!("node {id} is down: not seen yet")),
            (false, Some(ago)) => {
                let seconds = Duration::from_secs(ago / 1_000);
                let ago = humantime::format_duration(seconds);
                lines.push(format!("node {id} is down: last seen {ago} ago"));
            }
            (true, _) => {
                if let Some(writes) = one.writes.as_deref().filter(|writes| *writes != "ok") {
                    lines.push(format!("node {id}: writes: {writes}"));
                }
                lines.extend(one.remarks.iter().map(|remark| format!("node {id}: {remark}")));
                if let Some(left) = one.recovery_left.filter(|left| *left > 0) {
                    lines
                        .push(format!("node {id} recovers its state: {left} shards and keys left"));
                }
            }
        }
    }
    lines.extend(differing_versions(nodes));
    lines
}

fn differing_versions(nodes: &[NodeView]) -> Option<String> {
    let mut by_version: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in nodes.iter().filter(|one| one.up) {
        if let Some(version) = &one.version {
            by_version.entry(version).or_default().push(one.node.to_string());
        }
    }
    let of = |(version, ids): (&&str, &Vec<String>)| format!("{version} on {}", ids.join(", "));
    let parts: Vec<String> = by_version.iter().map(of).collect();
    (parts.len() > 1).then(|| format!("versions differ: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use base::{Millis, Nanos};

    use super::*;

    fn member(node: u16, up: bool, summary: Option<Summary>) -> NodeView {
        let view = MemberView {
            node: NodeId(node),
            address: format!("host-{node}:6379"),
            is_self: node == 1,
            up,
            silent_for: summary.as_ref().map(|_| Millis(2_500)),
            round_trip: up.then_some(Nanos(150_999)),
            summary,
        };
        NodeView::of(view, SystemTime::UNIX_EPOCH + Duration::from_secs(10))
    }

    fn ready(version: &str) -> Option<Summary> {
        Some(Summary { version: version.into(), state: NodeState::Ready, ..Summary::default() })
    }

    #[test]
    fn dead_members_are_listed_with_what_is_known() {
        let nodes =
            vec![member(3, false, None), member(1, true, ready("1")), member(2, false, ready("1"))];
        let cluster = Cluster::judged(None, 1, nodes);
        assert_eq!((cluster.quorum, cluster.ready, cluster.serving), (2, 1, false));
        let states: Vec<&str> = cluster.nodes.iter().map(|node| node.state.as_str()).collect();
        assert_eq!(states, ["ready", "down", "down"]);
        assert_eq!(cluster.nodes[1].last_seen.as_deref(), Some("1970-01-01T00:00:07.500Z"));
        assert_eq!(cluster.nodes[1].version.as_deref(), Some("1"));
        assert_eq!((cluster.nodes[2].version.as_deref(), cluster.nodes[2].clients), (None, None));
        assert_eq!(
            cluster.warnings,
            ["node 2 is down: last seen 2s ago", "node 3 is down: not seen yet"]
        );
    }

    #[test]
    fn failures_tolerated_are_counted_from_ready_members() {
        let tolerates = |ready_count: u16, members: u16| {
            let nodes = (1..=members).map(|id| member(id, id <= ready_count, ready("1")));
            Cluster::judged(None, 1, nodes.collect()).tolerates
        };
        assert_eq!((tolerates(3, 3), tolerates(2, 3), tolerates(1, 3)), (1, 0, 0));
        assert_eq!((tolerates(5, 5), tolerates(1, 1)), (2, 0));
    }

    #[test]
    fn refused_nodes_and_small_limits_are_warned_of() {
        let reason = "database 0: protocol abd there, rmwpaxos here".to_owned();
        let nodes = vec![
            NodeView { refused: Some(reason), ..member(2, true, ready("1")) },
            NodeView {
                smallest_limit: Some("max-value-size of 9 bytes".to_owned()),
                ..member(1, true, ready("1"))
            },
        ];
        assert_eq!(
            Cluster::judged(None, 1, nodes).warnings,
            [
                "node 1 has the smallest max-value-size of 9 bytes: it counts on all nodes",
                "node 2 is refused: database 0: protocol abd there, rmwpaxos here"
            ]
        );
    }

    #[test]
    fn refused_writes_recovery_and_versions_are_warned_of() {
        let full = Summary {
            writes_refused: "disk full".into(),
            remarks: vec!["its clock runs".into()],
            ..ready("2").expect("it is")
        };
        let busy = Summary {
            state: NodeState::Recovering,
            recovery_left: 7,
            ..ready("1").expect("it is")
        };
        let nodes = vec![
            member(1, true, ready("1")),
            member(2, true, Some(full)),
            member(3, true, Some(busy)),
        ];
        let cluster = Cluster::judged(None, 1, nodes);
        assert_eq!(
            cluster.warnings,
            [
                "node 2: writes: refused (disk full)",
                "node 2: its clock runs",
                "node 3 recovers its state: 7 shards and keys left",
                "versions differ: 1 on 1, 3; 2 on 2"
            ]
        );
        assert_eq!(cluster.nodes[1].writes.as_deref(), Some("refused (disk full)"));
        assert_eq!(cluster.nodes[1].round_trip_us, Some(150));
    }
}
