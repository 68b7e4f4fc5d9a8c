//! `INFO`: the sections that exporters of Redis read, and `# palimpsest`.

use std::fmt::Write;

use bytes::Bytes;
use node::front::SessionContext;
use node::status::{DatabaseFigures, NodeStatus};
use resp::encode;

use crate::counts::CommandTotal;
use crate::session::Session;

/// The version whose behaviour clients may expect.
pub(crate) const REDIS_VERSION: &str = "7.4.0";

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
/// Only in `INFO all` and by name.
const EXTRA: &[&str] = &["commandstats", "latencystats"];

pub(crate) fn reply(session: &Session, wanted: &[&[u8]], cx: &SessionContext<'_>) -> Bytes {
    let named = |name: &str| wanted.iter().any(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    let everything = named("all") || named("everything");
    let default = wanted.is_empty() || named("default");
    let status = cx.node.status();
    let mut text = String::new();
    for section in SECTIONS {
        let by_default = default && !EXTRA.contains(section);
        if everything || by_default || named(section) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            put(&mut text, section, session, &status, cx);
        }
    }
    let mut out = Vec::new();
    encode::verbatim(&mut out, *b"txt", text.as_bytes());
    out.into()
}

fn put(
    text: &mut String,
    section: &str,
    session: &Session,
    status: &NodeStatus,
    cx: &SessionContext<'_>,
) {
    let mut name = section.to_string();
    if section != "palimpsest" {
        name[..1].make_ascii_uppercase();
    }
    line(text, format_args!("# {name}"));
    match section {
        "server" => server(text, session, status, cx),
        "clients" => {
            line(text, format_args!("connected_clients:{}", status.clients));
            line(text, format_args!("cluster_connections:0"));
            line(text, format_args!("maxclients:{}", cx.node.config().clients_max));
            line(text, format_args!("tracking_clients:0"));
            line(text, format_args!("blocked_clients:0"));
        }
        "memory" => {
            let resident = resident_bytes();
            line(text, format_args!("used_memory:{resident}"));
            line(text, format_args!("used_memory_human:{:.2}M", resident as f64 / 1_048_576.0));
            line(text, format_args!("used_memory_rss:{resident}"));
            line(text, format_args!("used_memory_lua:0"));
            line(text, format_args!("maxmemory:0"));
            line(text, format_args!("maxmemory_policy:noeviction"));
        }
        "persistence" => {
            line(text, format_args!("loading:{}", u8::from(status.loading)));
            line(text, format_args!("async_loading:0"));
            line(text, format_args!("rdb_changes_since_last_save:0"));
            line(text, format_args!("rdb_bgsave_in_progress:0"));
            line(text, format_args!("rdb_last_bgsave_status:ok"));
            line(text, format_args!("aof_rewrite_in_progress:0"));
            line(text, format_args!("aof_enabled:0"));
        }
        "stats" => {
            let totals = session.shared.counts.since_reset();
            let errors = session.shared.counts.errors.since_reset();
            let errors: u64 = errors.iter().map(|(_, count)| count).sum();
            line(text, format_args!("total_connections_received:{}", status.clients_total));
            line(text, format_args!("total_commands_processed:{}", totals.calls()));
            line(text, format_args!("total_net_input_bytes:{}", stat(status, "client_bytes_in")));
            line(text, format_args!("total_net_output_bytes:{}", stat(status, "client_bytes_out")));
            line(text, format_args!("total_error_replies:{errors}"));
            line(text, format_args!("keyspace_hits:{}", totals.hits));
            line(text, format_args!("keyspace_misses:{}", totals.misses));
            line(text, format_args!("expired_keys:{}", stat(status, "expired_keys")));
            line(text, format_args!("evicted_keys:0"));
        }
        "replication" => {
            let others = status.members.len().saturating_sub(1);
            let up = status.members.iter().filter(|member| member.up).count();
            line(text, format_args!("role:master"));
            line(text, format_args!("connected_slaves:{}", up.saturating_sub(1).min(others)));
            line(text, format_args!("master_failover_state:no-failover"));
            line(text, format_args!("master_repl_offset:0"));
        }
        "cpu" => {
            let (user, system) = cpu_seconds();
            line(text, format_args!("used_cpu_sys:{system:.6}"));
            line(text, format_args!("used_cpu_user:{user:.6}"));
        }
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

fn server(text: &mut String, session: &Session, status: &NodeStatus, cx: &SessionContext<'_>) {
    let up = status.up.0 / 1_000;
    line(text, format_args!("redis_version:{REDIS_VERSION}"));
    line(text, format_args!("server_name:palimpsest"));
    line(text, format_args!("palimpsest_version:{}", session.shared.config.version));
    line(text, format_args!("redis_mode:standalone"));
    line(text, format_args!("os:{} {}", std::env::consts::OS, std::env::consts::ARCH));
    line(text, format_args!("arch_bits:{}", usize::BITS));
    line(text, format_args!("process_id:{}", std::process::id()));
    line(text, format_args!("run_id:{:0>40}", status.cluster.as_deref().unwrap_or("0")));
    line(text, format_args!("tcp_port:{}", status.listen.port()));
    line(text, format_args!("uptime_in_seconds:{up}"));
    line(text, format_args!("uptime_in_days:{}", up / 86_400));
    line(text, format_args!("hz:10"));
    line(text, format_args!("executable:palimpsest"));
    line(text, format_args!("config_file:"));
    line(text, format_args!("server_time_usec:{}", cx.unix.0 * 1_000));
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
    line(text, format_args!("loss:{}", status.loss));
    line(text, format_args!("members:{members}"));
    line(text, format_args!("members_up:{up}"));
    line(text, format_args!("quorum:{}", members / 2 + 1));
    for member in &status.members {
        line(
            text,
            format_args!(
                "member_{}:address={},up={},loading={},incarnation={},loss={}",
                member.node,
                member.address,
                u8::from(member.up),
                u8::from(member.loading),
                member.incarnation,
                member.loss
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
    for (name, value) in &status.stats.values {
        line(text, format_args!("{name}:{value}"));
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
    text.push_str("\r\n");
}

fn stat(status: &NodeStatus, name: &str) -> u64 {
    status.stats.values.get(name).copied().unwrap_or(0)
}

/// Of this process, as the kernel counts; zero where it does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// User and system time of this process; the kernel counts in hundredths.
fn cpu_seconds() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let field = |at: usize| {
        let text = after_name.split_whitespace().nth(at);
        text.and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
    };
    (field(11), field(12))
}
