//! `INFO`: the sections that exporters of Redis read, and `# palimpsest`.

pub(crate) mod process;
mod sections;

use std::fmt::Write;

use node::group_view::{GroupView, role_name};
use node::session::SessionContext;
use node::status::{DatabaseFigures, NodeStatus};
use types::Reply;

use crate::counts::CommandTotal;
use crate::session::Session;

pub(crate) use commands::REDIS_VERSION;

const SECTIONS: &[&str] = &[
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "modules",
    "commandstats",
    "errorstats",
    "latencystats",
    "cluster",
    "keyspace",
    "palimpsest",
];
/// At the port for clients of Redis Sentinel.
const OF_SENTINEL: &[&str] = &["server", "clients", "cpu", "stats", "sentinel"];
/// Only in `INFO all` and by name.
const EXTRA: &[&str] = &["commandstats", "latencystats"];

pub(crate) fn reply(session: &Session, wanted: &[&[u8]], cx: &SessionContext<'_>) -> Reply {
    let named = |name: &str| wanted.iter().any(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    let everything = named("all") || named("everything");
    let default = wanted.is_empty() || named("default");
    let status = cx.node.status();
    let mut text = String::new();
    let sections = if session.is_sentinel() { OF_SENTINEL } else { SECTIONS };
    for section in sections {
        let by_default = default && !EXTRA.contains(section);
        if everything || by_default || named(section) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            put(&mut text, section, session, &status, cx);
        }
    }
    Reply::text(text)
}

fn put(
    text: &mut String,
    section: &str,
    session: &Session,
    status: &NodeStatus,
    cx: &SessionContext<'_>,
) {
    let mut name = section.to_string();
    match section {
        "palimpsest" => {}
        "cpu" => name.make_ascii_uppercase(),
        _ => name[..1].make_ascii_uppercase(),
    }
    line(text, format_args!("# {name}"));
    match section {
        "server" => sections::server(text, session, status, cx),
        "clients" => sections::clients(text, session, cx),
        "memory" => sections::memory(text, session, status),
        "persistence" => sections::persistence(text, status, cx),
        "stats" => sections::stats(text, session, status),
        "replication" => sections::replication(text, status),
        "cpu" => sections::cpu(text),
        "commandstats" => {
            for total in session.shared.counts.since_reset().sent() {
                let CommandTotal { name, calls, time, failed, rejected, .. } = total;
                let (usec, per_call) =
                    (time.as_micros(), time.0 as f64 / 1e3 / (*calls).max(1) as f64);
                line(
                    text,
                    format_args!(
                        "cmdstat_{name}:calls={calls},usec={usec},usec_per_call={per_call:.2},rejected_calls={rejected},failed_calls={failed}"
                    ),
                );
            }
        }
        "latencystats" => {
            let slow = &session.shared.slow;
            let totals = session.shared.counts.since_reset();
            for CommandTotal { name, times, .. } in totals.sent() {
                let Some(times) = times.as_ref().filter(|it| it.count() > 0 && slow.tracks())
                else {
                    continue;
                };
                let at = |percent: &f64| {
                    format!("p{percent}={:.3}", times.percentile(*percent).0 as f64 / 1e3)
                };
                let percentiles: Vec<String> = slow.percentiles().iter().map(at).collect();
                let percentiles = percentiles.join(",");
                line(text, format_args!("latency_percentiles_usec_{name}:{percentiles}"));
            }
        }
        "errorstats" => {
            for (kind, count) in session.shared.counts.errors.since_reset() {
                line(text, format_args!("errorstat_{kind}:count={count}"));
            }
        }
        "sentinel" => sections::sentinel(text, session, cx),
        "cluster" => line(text, format_args!("cluster_enabled:0")),
        "palimpsest" => palimpsest(text, session, status, cx),
        // `avg_ttl` is left out: no node knows it.
        _ => {
            for DatabaseFigures { index, keys, expiring, .. } in &status.databases {
                if *keys > 0 {
                    line(text, format_args!("db{index}:keys={keys},expires={expiring}"));
                }
            }
        }
    }
}

fn palimpsest(text: &mut String, session: &Session, status: &NodeStatus, cx: &SessionContext<'_>) {
    let members = status.members.len();
    let up = status.members.iter().filter(|member| member.up).count();
    line(text, format_args!("version:{}", session.shared.config.version));
    line(text, format_args!("node_id:{}", status.id));
    line(text, format_args!("cluster_id:{}", status.cluster.as_deref().unwrap_or("none")));
    line(text, format_args!("phase:{:?}", status.phase));
    line(text, format_args!("ready:{}", u8::from(status.ready)));
    line(text, format_args!("loading:{}", u8::from(status.loading)));
    line(text, format_args!("incarnation:{}", status.incarnation));
    line(text, format_args!("loss:{}", status.amnesia));
    line(text, format_args!("members:{members}"));
    line(text, format_args!("members_up:{up}"));
    line(text, format_args!("quorum:{}", members / 2 + 1));
    limits(text, status);
    for member in &status.members {
        line(
            text,
            format_args!(
                "member_{}:address={},up={},loading={},refused={},incarnation={},loss={}",
                member.node,
                member.address,
                u8::from(member.up),
                u8::from(member.loading),
                u8::from(member.refused.is_some()),
                member.incarnation,
                member.amnesia
            ),
        );
    }
    for database in &cx.node.config().databases {
        line(
            text,
            format_args!(
                "database_{}:protocol={},durability={}",
                database.database, database.protocol, database.durability
            ),
        );
    }
    status.groups.iter().for_each(|group| self::group(text, group));
    for (name, value) in &status.stats.values {
        line(text, format_args!("{name}:{value}"));
    }
}

fn group(text: &mut String, group: &GroupView) {
    let member =
        |&(node, role): &(types::NodeId, types::Role)| format!("{node}/{}", role_name(role));
    let members: Vec<String> = group.members.iter().map(member).collect();
    line(
        text,
        format_args!(
            "group_{}:state={},epoch={},wanted={},members={},role={},lease={}",
            group.database,
            group.state.name(),
            group.epoch,
            group.wanted,
            members.join(" "),
            group.role_name(),
            u8::from(group.has_lease)
        ),
    );
}

/// The limits that count, and the nodes whose own are smaller than another node's.
fn limits(text: &mut String, status: &NodeStatus) {
    let nodes = |nodes: &[types::NodeId]| {
        nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(",")
    };
    let limits = &status.limits;
    line(text, format_args!("max_value_size:{}", limits.max_value_size));
    line(text, format_args!("max_value_size_set_by:{}", nodes(&limits.max_value_size_set_by)));
    line(text, format_args!("once_window_ms:{}", limits.once_window.0));
    line(text, format_args!("once_window_set_by:{}", nodes(&limits.once_window_set_by)));
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
    text.push_str("\r\n");
}

fn stat(status: &NodeStatus, name: &str) -> u64 {
    status.stats.values.get(name).copied().unwrap_or(0)
}
