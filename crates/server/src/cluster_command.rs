//! `CLUSTER …` and `ROLE`: how clients of a Redis cluster see the nodes.
//!
//! Every node serves every key. Each node that serves is the master of its share of the slots.
//! The others are replicas of that share, which clients may fall back to.

use std::fmt::Write;

use commands::{SessionVerb, hash_slot};
use node::session::SessionContext;
use types::Reply;

use crate::endpoints::{Endpoint, Endpoints, SlotRange};

pub(crate) fn reply(verb: SessionVerb, args: &[&[u8]], cx: &SessionContext<'_>) -> Reply {
    let nodes = Endpoints::of(cx);
    match verb {
        SessionVerb::Role => role(&nodes),
        SessionVerb::ClusterMyId => Reply::bulk(nodes.me().id.clone()),
        SessionVerb::ClusterMyShardId => Reply::bulk(nodes.shard_id(place_of_me(&nodes))),
        SessionVerb::ClusterSlots => slots(&nodes),
        SessionVerb::ClusterShards => shards(&nodes),
        SessionVerb::ClusterNodes => {
            let slots = nodes.slots();
            let lines = (0..nodes.all.len()).map(|at| line(&nodes, at, None, &slots, cx) + "\n");
            Reply::text(lines.collect::<String>())
        }
        SessionVerb::ClusterReplicas | SessionVerb::ClusterSlaves => {
            of_node(&nodes, args[2], |at| {
                let master = nodes.all[at].id.as_str();
                let others = replicas(&nodes, at).into_iter();
                Reply::array(others.map(|at| Reply::bulk(line(&nodes, at, Some(master), &[], cx))))
            })
        }
        SessionVerb::ClusterCountFailureReports => {
            of_node(&nodes, args[2], |at| Reply::count(!nodes.all[at].is_up))
        }
        _ => info(&nodes, cx),
    }
}

fn of_node(nodes: &Endpoints, id: &[u8], reply: impl Fn(usize) -> Reply) -> Reply {
    match nodes.all.iter().position(|node| node.id.as_bytes() == id) {
        Some(at) => reply(at),
        None => Reply::error(format!("ERR Unknown node {}", String::from_utf8_lossy(id))),
    }
}

fn place_of_me(nodes: &Endpoints) -> usize {
    nodes.all.iter().position(|node| node.is_self).unwrap_or(0)
}

/// Places of the usable members other than `at`, the next one first.
fn replicas(nodes: &Endpoints, at: usize) -> Vec<usize> {
    let mut others: Vec<usize> = nodes.usable().into_iter().filter(|&other| other != at).collect();
    let later = others.partition_point(|&other| other < at);
    others.rotate_left(later);
    others
}

fn role(nodes: &Endpoints) -> Reply {
    let replica = |node: &Endpoint| {
        let fields = [node.host.clone(), node.port.to_string(), "0".into()];
        Reply::array(fields.into_iter().map(Reply::bulk))
    };
    let others = nodes.all.iter().filter(|node| node.is_up && !node.is_self);
    Reply::array([Reply::bulk("master"), Reply::Integer(0), Reply::array(others.map(replica))])
}

fn slots(nodes: &Endpoints) -> Reply {
    let one = |at: usize| {
        let node = &nodes.all[at];
        Reply::array([
            Reply::bulk(node.host.clone()),
            Reply::Integer(i64::from(node.port)),
            Reply::bulk(node.id.clone()),
            Reply::Map(Vec::new()),
        ])
    };
    let range = |range: SlotRange| {
        let bounds = [range.first, range.last].map(|slot| Reply::Integer(i64::from(slot)));
        let serving = std::iter::once(range.owner).chain(replicas(nodes, range.owner));
        Reply::array(bounds.into_iter().chain(serving.map(one)))
    };
    Reply::array(nodes.slots().into_iter().map(range))
}

fn shards(nodes: &Endpoints) -> Reply {
    let slots = nodes.slots();
    let node = |at: usize, role: &'static str| {
        let node = &nodes.all[at];
        let health = match (node.is_up, node.serves) {
            (false, _) => "fail",
            (true, false) => "loading",
            (true, true) => "online",
        };
        Reply::map([
            ("id", Reply::bulk(node.id.clone())),
            ("port", Reply::Integer(i64::from(node.port))),
            ("ip", Reply::bulk(node.host.clone())),
            ("endpoint", Reply::bulk(node.host.clone())),
            ("role", Reply::bulk(role)),
            ("replication-offset", Reply::Integer(0)),
            ("health", Reply::bulk(health)),
        ])
    };
    let shard = |at: usize| {
        let own = slots.iter().filter(|range| range.owner == at);
        let bounds: Vec<Reply> = own
            .flat_map(|range| [range.first, range.last])
            .map(|slot| Reply::Integer(i64::from(slot)))
            .collect();
        // A shard without slots has no replicas: its master is down.
        let others = if bounds.is_empty() { Vec::new() } else { replicas(nodes, at) };
        let others = others.into_iter().map(|at| node(at, "replica"));
        let members = std::iter::once(node(at, "master")).chain(others);
        Reply::map([("slots", Reply::Array(bounds)), ("nodes", Reply::array(members))])
    };
    Reply::array((0..nodes.all.len()).map(shard))
}

/// A line of `CLUSTER NODES`. As a replica of `master`, the node has no slots.
fn line(
    nodes: &Endpoints,
    at: usize,
    master: Option<&str>,
    slots: &[SlotRange],
    cx: &SessionContext<'_>,
) -> String {
    let node = &nodes.all[at];
    let mut flags = Vec::new();
    if node.is_self {
        flags.push("myself");
    }
    flags.push(if master.is_some() { "slave" } else { "master" });
    match (node.is_up, node.serves) {
        (false, _) => flags.push("fail"),
        (true, false) => flags.push("fail?"),
        (true, true) => {}
    }
    let heard = match node.silent_for {
        _ if node.is_self => 0,
        Some(time) => cx.unix.0.saturating_sub(time),
        None => 0,
    };
    let mut text = format!(
        "{} {}:{}@{} {} {} 0 {heard} {} {}",
        node.id,
        node.host,
        node.port,
        node.bus_port,
        flags.join(","),
        master.unwrap_or("-"),
        node.node,
        if node.is_up { "connected" } else { "disconnected" },
    );
    for range in slots.iter().filter(|range| range.owner == at) {
        let _ = match range.first == range.last {
            true => write!(text, " {}", range.first),
            false => write!(text, " {}-{}", range.first, range.last),
        };
    }
    text
}

fn info(nodes: &Endpoints, cx: &SessionContext<'_>) -> Reply {
    let stats = cx.node.status().stats.values;
    let stat = |name: &str| stats.get(name).copied().unwrap_or(0);
    let (state, ok, failed) = match nodes.is_ready {
        true => ("ok", hash_slot::COUNT, 0),
        false => ("fail", 0, hash_slot::COUNT),
    };
    let slots = nodes.slots();
    let size = (0..nodes.all.len()).filter(|&at| slots.iter().any(|range| range.owner == at));
    let epoch = nodes.all.iter().map(|node| node.node.0).max().unwrap_or(0);
    let fields = [
        ("cluster_state", state.to_string()),
        ("cluster_slots_assigned", hash_slot::COUNT.to_string()),
        ("cluster_slots_ok", ok.to_string()),
        ("cluster_slots_pfail", "0".into()),
        ("cluster_slots_fail", failed.to_string()),
        ("cluster_known_nodes", nodes.all.len().to_string()),
        ("cluster_size", size.count().to_string()),
        ("cluster_current_epoch", epoch.to_string()),
        ("cluster_my_epoch", nodes.me().node.to_string()),
        ("cluster_stats_messages_sent", stat("worker_messages_out").to_string()),
        ("cluster_stats_messages_received", stat("worker_messages_in").to_string()),
        ("total_cluster_links_buffer_limit_exceeded", "0".into()),
    ];
    Reply::text(fields.map(|(name, value)| format!("{name}:{value}\r\n")).concat())
}
