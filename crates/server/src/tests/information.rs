//! `INFO` and `CLIENT LIST`: the fields that exporters and tools read.

use base::Nanos;
use node::session::Socket;

use super::world::World;

/// Fields of the default sections of redis-server 7.0.15 that redis_exporter, Datadog, redis-cli,
/// RedisInsight or redis-py read.
const READ: &[&str] = &[
    "redis_version redis_build_id redis_mode os arch_bits multiplexing_api process_id process_supervised run_id",
    "tcp_port server_time_usec uptime_in_seconds uptime_in_days hz configured_hz lru_clock executable config_file",
    "io_threads_active connected_clients cluster_connections maxclients client_recent_max_input_buffer",
    "client_recent_max_output_buffer blocked_clients tracking_clients clients_in_timeout_table used_memory",
    "used_memory_human used_memory_rss used_memory_rss_human used_memory_peak used_memory_peak_human",
    "used_memory_peak_perc used_memory_overhead used_memory_dataset used_memory_dataset_perc total_system_memory",
    "total_system_memory_human used_memory_lua used_memory_scripts number_of_cached_scripts maxmemory",
    "maxmemory_human maxmemory_policy mem_fragmentation_ratio mem_fragmentation_bytes mem_clients_normal",
    "mem_clients_slaves mem_replication_backlog mem_aof_buffer mem_allocator active_defrag_running",
    "lazyfree_pending_objects loading async_loading rdb_changes_since_last_save rdb_bgsave_in_progress",
    "rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec aof_enabled",
    "aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec",
    "aof_last_bgrewrite_status aof_last_write_status total_connections_received total_commands_processed",
    "instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes instantaneous_input_kbps",
    "instantaneous_output_kbps rejected_connections sync_full sync_partial_ok sync_partial_err expired_keys",
    "evicted_keys keyspace_hits keyspace_misses pubsub_channels pubsub_patterns latest_fork_usec total_forks",
    "total_error_replies total_reads_processed total_writes_processed role connected_slaves",
    "master_failover_state master_replid master_repl_offset repl_backlog_active used_cpu_sys used_cpu_user",
    "used_cpu_sys_children used_cpu_user_children used_cpu_sys_main_thread used_cpu_user_main_thread",
    "cluster_enabled",
];

#[test]
fn info_has_every_field_that_tools_read_once() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.ask(&mut client, "INFO");
    let redis = said.split("# palimpsest").next().unwrap_or_default();
    let names: Vec<&str> = redis.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    for name in READ.iter().flat_map(|line| line.split(' ')) {
        let count = names.iter().filter(|one| **one == name).count();
        assert_eq!(count, 1, "{name} in {said}");
    }
    let sections: Vec<&str> = said.lines().filter(|line| line.starts_with('#')).collect();
    let expected = [
        "# Server",
        "# Clients",
        "# Memory",
        "# Persistence",
        "# Stats",
        "# Replication",
        "# CPU",
        "# Modules",
        "# Errorstats",
        "# Cluster",
        "# Keyspace",
        "# palimpsest",
    ];
    assert_eq!(sections, expected);
}

#[test]
fn info_fields_have_the_form_that_tools_parse() {
    let mut world = World::new(None);
    let mut client = world.connect();
    let said = world.ask(&mut client, "INFO all");
    let field = |name: &str| {
        let lines = said.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(one, _)| *one == name).map(|(_, value)| value.to_string());
        values.next().unwrap_or_else(|| panic!("{name} in {said}"))
    };
    let number = |name: &str| field(name).parse::<f64>().unwrap_or_else(|_| panic!("{name}"));
    assert!(number("used_memory") > 100_000.0);
    assert!(number("used_memory_rss") >= number("used_memory"));
    assert!(number("used_memory_peak") >= number("used_memory"));
    assert!(number("mem_fragmentation_ratio") >= 1.0);
    assert!(number("total_system_memory") > number("used_memory_rss"));
    for name in ["run_id", "master_replid"] {
        assert_eq!(field(name).len(), 40, "{name}");
    }
    assert!(field("executable").starts_with('/') && field("config_file").is_empty());
    assert_eq!(field("maxclients"), "100");
    assert!(said.contains("# Latencystats\r\n") && said.contains("# Commandstats\r\n"));
}

#[test]
fn rates_come_from_samples_of_the_last_seconds() {
    let mut world = World::new(None);
    let mut client = world.connect();
    for _ in 0..10 {
        world.sample();
        (0..40).for_each(|_| drop(world.ask(&mut client, "PING")));
        world.tick(Nanos::from_millis(200));
    }
    world.sample();
    let said = world.ask(&mut client, "INFO stats");
    assert!(said.contains("instantaneous_ops_per_sec:200\r\n"), "{said}");
}

#[test]
fn a_client_list_shows_buffers_and_states() {
    let mut world = World::new(None);
    let (mut one, mut other) = (world.connect(), world.connect());
    world.ask(&mut one, "CLIENT SETNAME first");
    world.send(&mut one, b"GET under-way\r\n");
    one.note_socket(Socket { descriptor: 12, input: (3, 64), output: (20_000, 32_768) });
    world.ask(&mut other, "MONITOR");
    let said = world.ask(&mut other, "CLIENT LIST");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("id=")).collect();
    let fields = [
        "fd=12",
        "name=first",
        "flags=N",
        "multi=-1",
        "qbuf=3",
        "qbuf-free=61",
        "rbs=32768",
        "obl=16384",
        "oll=1",
        "omem=3616",
        "events=rw",
        "cmd=get",
        "resp=2",
    ];
    for field in fields {
        assert!(lines[0].split(' ').any(|one| one == field), "{field} in {}", lines[0]);
    }
    assert!(!lines[0].contains(" argv-mem=0 ") && !lines[0].contains(" tot-mem=0 "));
    assert!(lines[1].contains(" flags=O ") && lines[1].contains(" cmd=client|list "), "{said}");
    world.say(&mut one, b"");
    world.ask(&mut one, "MULTI");
    let said = world.ask(&mut other, "CLIENT LIST ID 1");
    assert!(said.contains(" flags=x ") && said.contains(" multi=0 "), "{said}");
}

#[test]
fn last_save_is_the_start_of_the_process() {
    let mut world = World::new(None);
    let mut client = world.connect();
    world.tick(Nanos::from_secs(9));
    assert_eq!(world.ask(&mut client, "LASTSAVE"), ":5\r\n");
    let said = world.ask(&mut client, "BGSAVE");
    assert!(said.starts_with("-ERR 'bgsave' is not supported: there are no snapshots"), "{said}");
    assert!(world.ask(&mut client, "LOLWUT").contains("\nRedis ver. 7.4.0\n"));
}
