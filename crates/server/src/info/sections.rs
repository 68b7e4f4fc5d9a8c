//! Sections of `INFO` in Redis' words. A field without a true value here is left out.

use std::fmt::Display;

use node::session::SessionContext;
use node::status::NodeStatus;

use super::process::{self, human};
use super::{REDIS_VERSION, line, stat};
use crate::endpoints::{Endpoints, forty_digits};
use crate::rates::HERTZ;
use crate::sentinel::info_line;
use crate::session::Session;

fn put(text: &mut String, name: &str, value: impl Display) {
    line(text, format_args!("{name}:{value}"));
}

/// Fields of features that this store does not have: their counters cannot rise.
fn put_zeros(text: &mut String, names: &[&str]) {
    names.iter().for_each(|name| put(text, name, 0));
}

pub(super) fn server(
    text: &mut String,
    session: &Session,
    status: &NodeStatus,
    cx: &SessionContext<'_>,
) {
    let up = status.up.0 / 1_000;
    let (host, port) = (status.listen.ip(), status.listen.port());
    let executable = std::env::current_exe().unwrap_or_default();
    put(text, "redis_version", REDIS_VERSION);
    put(text, "server_name", "palimpsest");
    put(text, "palimpsest_version", session.shared.config.version);
    if let Some(level) = status.level {
        put(text, "palimpsest_feature_level", level);
    }
    put(text, "redis_build_id", format_args!("palimpsest-{}", session.shared.config.version));
    let mode = if session.is_sentinel() { "sentinel" } else { "standalone" };
    put(text, "redis_mode", mode);
    put(text, "os", process::os());
    put(text, "arch_bits", usize::BITS);
    put(text, "monotonic_clock", "POSIX clock_gettime");
    if cfg!(target_os = "linux") {
        put(text, "multiplexing_api", "epoll");
    }
    put(text, "process_id", std::process::id());
    put(text, "process_supervised", "no");
    put(text, "run_id", run_id(status));
    put(text, "tcp_port", port);
    put(text, "server_time_usec", cx.unix.0 * 1_000);
    put(text, "uptime_in_seconds", up);
    put(text, "uptime_in_days", up / 86_400);
    put(text, "hz", HERTZ);
    put(text, "configured_hz", HERTZ);
    put(text, "lru_clock", (cx.unix.0 / 1_000) & 0xff_ffff);
    put(text, "executable", executable.display());
    let file = session.shared.config_file();
    put(text, "config_file", file.map(|path| path.display().to_string()).unwrap_or_default());
    put(text, "io_threads_active", 0);
    put(text, "listener0", format_args!("name=tcp,bind={host},port={port}"));
}

/// Forty digits that no other run of a node has.
fn run_id(status: &NodeStatus) -> String {
    let cluster = status.cluster.as_deref().unwrap_or("none");
    forty_digits(&format!("{cluster} {} {}", status.id, status.incarnation))
}

pub(super) fn clients(text: &mut String, session: &Session, cx: &SessionContext<'_>) {
    let all = session.shared.clients.all();
    let most = |of: fn(&crate::clients::Activity) -> u64| {
        all.iter().map(|client| of(&client.activity)).max().unwrap_or(0)
    };
    put(text, "connected_clients", session.shared.clients.count());
    put(text, "cluster_connections", 0);
    put(text, "maxclients", cx.node.client_settings().clients_max());
    put(text, "client_recent_max_input_buffer", most(|activity| activity.input_len()));
    put(text, "client_recent_max_output_buffer", most(|activity| activity.output_peak()));
    put(text, "blocked_clients", session.shared.clients.blocked());
    put_zeros(text, &["tracking_clients", "pubsub_clients", "watching_clients"]);
    put_zeros(text, &["clients_in_timeout_table", "total_watched_keys"]);
    put_zeros(text, &["total_blocking_keys", "total_blocking_keys_on_nokey"]);
}

pub(super) fn memory(text: &mut String, session: &Session, status: &NodeStatus) {
    if let Some(memory) = process::memory() {
        let peak = session.shared.samples.peak_memory(memory.used);
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        put(text, "used_memory", memory.used);
        put(text, "used_memory_human", human(memory.used));
        put(text, "used_memory_rss", memory.resident);
        put(text, "used_memory_rss_human", human(memory.resident));
        put(text, "used_memory_peak", peak);
        put(text, "used_memory_peak_human", human(peak));
        put(text, "used_memory_peak_perc", format_args!("{:.2}%", percent(memory.used, peak)));
        let dataset: u64 = status.databases.iter().map(|database| database.bytes).sum();
        let dataset = dataset.min(memory.used);
        put(text, "used_memory_overhead", memory.used - dataset);
        put(text, "used_memory_dataset", dataset);
        let share = percent(dataset, memory.used);
        put(text, "used_memory_dataset_perc", format_args!("{share:.2}%"));
        let ratio = memory.resident as f64 / memory.used.max(1) as f64;
        put(text, "mem_fragmentation_ratio", format_args!("{ratio:.2}"));
        put(text, "mem_fragmentation_bytes", memory.resident.saturating_sub(memory.used));
    }
    if let Some(total) = process::system_memory() {
        put(text, "total_system_memory", total);
        put(text, "total_system_memory_human", human(total));
    }
    put_scripts(text, session);
    put(text, "maxmemory", 0);
    put(text, "maxmemory_human", "0B");
    put(text, "maxmemory_policy", "noeviction");
    let of_clients = session.shared.clients.all();
    let of_clients: u64 = of_clients.iter().map(|client| client.activity.memory()).sum();
    put(text, "mem_clients_normal", of_clients);
    put_zeros(text, &["mem_clients_slaves", "mem_replication_backlog", "mem_aof_buffer"]);
    put(text, "mem_allocator", "jemalloc");
    put_zeros(text, &["active_defrag_running", "lazyfree_pending_objects"]);
}

/// Memory of Lua is bounded per thread, and not counted.
fn put_scripts(text: &mut String, session: &Session) {
    let scripts = &session.shared.scripts;
    let (count, len) = scripts.size();
    put_zeros(text, &["used_memory_lua", "used_memory_vm_eval"]);
    put(text, "used_memory_scripts_eval", len);
    put(text, "number_of_cached_scripts", count);
    put_zeros(text, &["number_of_functions", "number_of_libraries"]);
    put(text, "used_memory_scripts", len);
    put(text, "used_memory_scripts_human", human(len as u64));
}

/// There are no snapshots and no log: every acknowledged write is as durable as its database says.
pub(super) fn persistence(text: &mut String, status: &NodeStatus, cx: &SessionContext<'_>) {
    put(text, "loading", u8::from(status.loading));
    put_zeros(text, &["async_loading", "rdb_changes_since_last_save", "rdb_bgsave_in_progress"]);
    // As redis-server that has not saved since its start.
    put(text, "rdb_last_save_time", cx.unix.0.saturating_sub(status.up.0) / 1_000);
    put(text, "rdb_last_bgsave_status", "ok");
    put(text, "rdb_last_bgsave_time_sec", -1);
    put(text, "rdb_current_bgsave_time_sec", -1);
    put_zeros(text, &["rdb_saves", "aof_enabled", "aof_rewrite_in_progress"]);
    put(text, "aof_rewrite_scheduled", 0);
    put(text, "aof_last_rewrite_time_sec", -1);
    put(text, "aof_current_rewrite_time_sec", -1);
    put(text, "aof_last_bgrewrite_status", "ok");
    let refuses = stat(status, "storage_lacks_room") > 0;
    put(text, "aof_last_write_status", if refuses { "err" } else { "ok" });
    put(text, "module_fork_in_progress", 0);
}

pub(super) fn stats(text: &mut String, session: &Session, status: &NodeStatus) {
    let counts = &session.shared.counts;
    let (totals, errors) = (counts.since_reset(), counts.errors.since_reset());
    let of_kind =
        |kind: &str| errors.iter().find(|(word, _)| word == kind).map_or(0, |(_, count)| *count);
    let all_errors: u64 = errors.iter().map(|(_, count)| count).sum();
    let rates = session.shared.samples.rates();
    let kilobytes = |bytes: f64| format!("{:.2}", bytes / 1_024.0);
    put(text, "total_connections_received", status.clients_total);
    put(text, "total_commands_processed", totals.calls());
    put(text, "instantaneous_ops_per_sec", rates.calls.round() as u64);
    put(text, "total_net_input_bytes", stat(status, "client_bytes_in"));
    put(text, "total_net_output_bytes", stat(status, "client_bytes_out"));
    put(text, "instantaneous_input_kbps", kilobytes(rates.bytes_in));
    put(text, "instantaneous_output_kbps", kilobytes(rates.bytes_out));
    put(text, "rejected_connections", status.clients_refused);
    put_zeros(text, &["sync_full", "sync_partial_ok", "sync_partial_err"]);
    put(text, "expired_keys", stat(status, "expired_keys"));
    put_zeros(text, &["evicted_keys", "evicted_clients"]);
    put(text, "evicted_scripts", session.shared.scripts.evicted());
    put(text, "keyspace_hits", totals.hits);
    put(text, "keyspace_misses", totals.misses);
    put_zeros(text, &["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"]);
    put_zeros(text, &["latest_fork_usec", "total_forks", "migrate_cached_sockets"]);
    put_zeros(text, &["slave_expires_tracked_keys", "active_defrag_hits"]);
    put_zeros(text, &["active_defrag_misses", "active_defrag_key_hits"]);
    put_zeros(text, &["active_defrag_key_misses", "tracking_total_keys"]);
    put_zeros(text, &["tracking_total_items", "tracking_total_prefixes"]);
    put(text, "unexpected_error_replies", 0);
    put(text, "total_error_replies", all_errors);
    put(text, "total_reads_processed", stat(status, "client_reads"));
    put(text, "total_writes_processed", stat(status, "client_writes"));
    put_zeros(text, &["io_threaded_reads_processed", "io_threaded_writes_processed"]);
    put(text, "acl_access_denied_auth", of_kind("WRONGPASS"));
}

/// Every node takes writes, so each says that it is a master and names the others as connected
/// replicas.
pub(super) fn replication(text: &mut String, status: &NodeStatus) {
    let others = status.members.iter().filter(|member| member.up && member.node != status.id);
    put(text, "role", "master");
    put(text, "connected_slaves", others.count());
    put(text, "master_failover_state", "no-failover");
    put(text, "master_replid", format_args!("{:0>40}", status.cluster.as_deref().unwrap_or("0")));
    put(text, "master_replid2", "0".repeat(40));
    put_zeros(text, &["master_repl_offset", "repl_backlog_active", "repl_backlog_size"]);
}

pub(super) fn cpu(text: &mut String) {
    let mut put_both = |cpu: Option<process::Cpu>, suffix: &str| {
        let Some(cpu) = cpu else { return };
        put(text, &format!("used_cpu_sys{suffix}"), format_args!("{:.6}", cpu.system));
        put(text, &format!("used_cpu_user{suffix}"), format_args!("{:.6}", cpu.user));
        if suffix.is_empty() {
            let system = cpu.system_of_children;
            put(text, "used_cpu_sys_children", format_args!("{system:.6}"));
            let user = cpu.user_of_children;
            put(text, "used_cpu_user_children", format_args!("{user:.6}"));
        }
    };
    put_both(process::cpu(), "");
    put_both(process::cpu_of_main_thread(), "_main_thread");
}

pub(super) fn sentinel(text: &mut String, session: &Session, cx: &SessionContext<'_>) {
    put(text, "sentinel_masters", 1);
    put(text, "sentinel_tilt", 0);
    put(text, "sentinel_tilt_since_seconds", -1);
    put_zeros(text, &["sentinel_running_scripts", "sentinel_scripts_queue_length"]);
    put_zeros(text, &["sentinel_simulate_failure_flags"]);
    let nodes = Endpoints::of(cx);
    line(text, format_args!("{}", info_line(&session.shared.config.sentinel_name, &nodes)));
}
