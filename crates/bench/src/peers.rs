//! The same load on this product and on its alternatives, in one run on one machine.
//!
//! Every repetition starts each system afresh, loads it, runs all its workloads and ends it.
//! So neither a slow minute of the machine nor idle neighbour processes favour one system.
//! Quote ratios within one run; absolute figures belong to the machine.

mod etcd;
#[cfg(feature = "etcd")]
mod grpc;
mod product;
mod redis;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::cluster::{self, Cluster};
use crate::report::{LoadReport, median};
use crate::resp::{self, RunEnd};
use crate::workload::{Keys, Mix};
use crate::{Error, Result};

/// A system under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum System {
    /// Three nodes of ours, in memory.
    PalimpsestVolatile,
    /// Three nodes of ours, on disk.
    PalimpsestDisk,
    /// One redis-server without persistence: the price of an unreplicated command.
    Redis,
    /// A redis-server with two replicas and `WAIT 1`: replicated in memory, not linearizable.
    RedisReplicated,
    /// Three nodes of etcd, on disk.
    Etcd,
}

/// All of them, in the order of a run.
pub const SYSTEMS: [System; 5] = [
    System::PalimpsestVolatile,
    System::PalimpsestDisk,
    System::Redis,
    System::RedisReplicated,
    System::Etcd,
];

/// Which nodes the connections go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Spread {
    One,
    All,
}

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Workload {
    pub name: &'static str,
    pub connections: usize,
    pub pipeline: u32,
    pub spread: Spread,
    #[serde(skip)]
    pub mix: Mix,
    #[serde(skip)]
    pub keys: Keys,
}

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    pub systems: Vec<System>,
    pub binary: PathBuf,
    /// Data directories of all systems lie below it, so that they share a disk.
    pub dir: PathBuf,
    pub repetitions: usize,
    /// Length of one measured window.
    pub window: Duration,
    pub warm_up: Duration,
    pub value_bytes: usize,
    pub keys: u64,
    /// Selects workloads whose name contains this; all if empty.
    pub filter: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            systems: SYSTEMS.to_vec(),
            binary: cluster::default_binary(),
            dir: std::env::temp_dir(),
            repetitions: 3,
            window: Duration::from_secs(2),
            warm_up: Duration::from_millis(700),
            value_bytes: 32,
            keys: 100_000,
            filter: String::new(),
        }
    }
}

/// One system under one load, over all repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct PeerRow {
    pub system: System,
    pub workload: Workload,
    pub per_second: f64,
    pub per_second_min: f64,
    pub per_second_max: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub server_cpu_s_per_million: f64,
    pub errors: u64,
    /// The report of each repetition.
    pub runs: Vec<LoadReport>,
}

/// Two rows that a claim compares.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub what: String,
    pub ours: f64,
    pub theirs: f64,
    pub ratio: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// By product.
    pub versions: BTreeMap<&'static str, String>,
    pub rows: Vec<PeerRow>,
    pub ratios: Vec<Ratio>,
    /// Requested systems that cannot be measured here, and why.
    pub missing: Vec<String>,
}

/// A system that runs.
enum Running {
    Palimpsest(Cluster),
    Redis(redis::RedisServers),
    Etcd(etcd::EtcdServers),
}

/// Measures all selected systems; reports those not installed as missing.
///
/// # Errors
/// When our own cluster does not come up, or no load's name contains the filter.
pub fn run(config: &Config) -> Result<Comparison> {
    if config.systems.iter().all(|&system| workloads(system, config).is_empty()) {
        let all = Config { filter: String::new(), ..config.clone() };
        let loads = config.systems.iter().flat_map(|&system| workloads(system, &all));
        let names: BTreeSet<&str> = loads.map(|load| load.name).collect();
        let names = Vec::from_iter(names).join(", ");
        return Err(Error::Usage(format!("no load is named {:?}: {names}", config.filter)));
    }
    let mut rows: Vec<PeerRow> = Vec::new();
    let mut missing = Vec::new();
    let mut systems = Vec::new();
    for &system in &config.systems {
        match obstacle(system) {
            None => systems.push(system),
            Some(why) => missing.push(format!("{}: {why}", system.name())),
        }
    }
    for _ in 0..config.repetitions {
        for &system in &systems {
            let running = start(system, config)?;
            for workload in workloads(system, config) {
                let report = measure(&running, workload, config)?;
                add(&mut rows, system, workload, report);
            }
        }
    }
    rows.iter_mut().for_each(summarize);
    rows.sort_by(|a, b| (a.workload.name, a.system).cmp(&(b.workload.name, b.system)));
    let ratios = ratios(&rows);
    let versions = product::versions(&systems, &config.binary);
    Ok(Comparison { versions, rows, ratios, missing })
}

/// Why a system cannot be measured here, if it cannot.
fn obstacle(system: System) -> Option<String> {
    match system {
        System::PalimpsestVolatile | System::PalimpsestDisk => None,
        System::Redis | System::RedisReplicated => redis::obstacle(),
        System::Etcd => etcd::obstacle(),
    }
}

fn start(system: System, config: &Config) -> Result<Running> {
    let ours = |durability: &str| {
        let cluster = cluster::Config {
            binary: config.binary.clone(),
            durability: durability.to_string(),
            dir: config.dir.clone(),
            ..cluster::Config::default()
        };
        Cluster::start(&cluster).map(Running::Palimpsest)
    };
    match system {
        System::PalimpsestVolatile => ours("volatile"),
        System::PalimpsestDisk => ours("disk"),
        System::Redis => redis::RedisServers::start(&config.dir, 0).map(Running::Redis),
        System::RedisReplicated => redis::RedisServers::start(&config.dir, 2).map(Running::Redis),
        System::Etcd => etcd::EtcdServers::start(&config.dir).map(Running::Etcd),
    }
}

/// The loads of a system: the same for all, as far as the system supports them.
fn workloads(system: System, config: &Config) -> Vec<Workload> {
    let keys = Keys::Uniform { count: config.keys };
    let load = |name, mix, connections, pipeline| Workload {
        name,
        connections,
        pipeline,
        spread: Spread::All,
        mix,
        keys,
    };
    let mut all = vec![
        load("set c64", Mix::SET, 64, 1),
        load("get c64", Mix::GET, 64, 1),
        load("set c256", Mix::SET, 256, 1),
        load("set c64 P16", Mix::SET, 64, 16),
        load("get c64 P16", Mix::GET, 64, 16),
    ];
    if system != System::Etcd {
        // etcd has no INCR.
        all.push(load("incr c64", Mix::INCR, 64, 1));
        all.push(Workload { keys: Keys::Hot, ..load("incr c64 one key", Mix::INCR, 64, 1) });
    }
    if matches!(system, System::PalimpsestVolatile | System::PalimpsestDisk) {
        // A client of ours may go to any node: half the runs to one, half to all.
        let to_one = all.clone().into_iter().map(|w| Workload { spread: Spread::One, ..w });
        all.extend(to_one);
    }
    all.retain(|workload| workload.name.contains(&config.filter));
    all
}

fn measure(running: &Running, workload: Workload, config: &Config) -> Result<LoadReport> {
    let (mut addresses, server_pids, wait_replicas): (Vec<SocketAddr>, Vec<u32>, Option<u32>) =
        match running {
            Running::Palimpsest(cluster) => (cluster.addresses(), cluster.pids(), None),
            Running::Redis(servers) => {
                let wait = (servers.replicas() > 0 && workload.mix != Mix::GET).then_some(1);
                (vec![servers.primary()], servers.pids(), wait)
            }
            Running::Etcd(servers) => (servers.addresses(), servers.pids(), None),
        };
    if workload.spread == Spread::One {
        addresses.truncate(1);
    }
    let load = resp::Config {
        addresses,
        connections: workload.connections,
        pipeline: workload.pipeline,
        mix: workload.mix,
        keys: workload.keys,
        value_bytes: config.value_bytes,
        wait_replicas,
        warm_up: config.warm_up,
        stop: RunEnd::After(config.window),
        server_pids,
        ..resp::Config::default()
    };
    if let Running::Etcd(_) = running {
        return etcd::measure(&load);
    }
    if workload.mix == Mix::GET {
        resp::load(&load)?;
    }
    resp::run(&load)
}

fn add(rows: &mut Vec<PeerRow>, system: System, workload: Workload, report: LoadReport) {
    match rows.iter_mut().find(|row| row.system == system && row.workload == workload) {
        Some(row) => row.runs.push(report),
        None => rows.push(PeerRow {
            system,
            workload,
            per_second: 0.0,
            per_second_min: 0.0,
            per_second_max: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            server_cpu_s_per_million: 0.0,
            errors: 0,
            runs: vec![report],
        }),
    }
}

fn summarize(row: &mut PeerRow) {
    let each = |of: fn(&LoadReport) -> f64| row.runs.iter().map(of).collect::<Vec<f64>>();
    let speeds = each(|run| run.per_second);
    row.per_second = median(&speeds);
    row.per_second_min = speeds.iter().copied().fold(f64::INFINITY, f64::min);
    row.per_second_max = speeds.iter().copied().fold(0.0, f64::max);
    row.p50_us = median(&each(|run| run.latency.p50_us));
    row.p99_us = median(&each(|run| run.latency.p99_us));
    row.server_cpu_s_per_million = median(&each(|run| run.server_cpu_s_per_million));
    row.errors = row.runs.iter().map(LoadReport::error_count).sum();
}

/// The comparisons behind this project's claims.
fn ratios(rows: &[PeerRow]) -> Vec<Ratio> {
    let cpu: fn(&PeerRow) -> f64 = |row| row.server_cpu_s_per_million;
    let speed: fn(&PeerRow) -> f64 = |row| row.per_second;
    let p99: fn(&PeerRow) -> f64 = |row| row.p99_us;
    let (volatile, disk) = (System::PalimpsestVolatile, System::PalimpsestDisk);
    let (replicated, etcd) = (System::RedisReplicated, System::Etcd);
    let claims = [
        (
            "CPU of SET, 1 per packet: palimpsest (memory) / redis (2 replicas, WAIT 1)",
            cpu,
            volatile,
            "set c64",
            replicated,
            "set c64",
        ),
        (
            "CPU of SET, 16 per packet: palimpsest (memory) / redis (2 replicas, WAIT 1)",
            cpu,
            volatile,
            "set c64 P16",
            replicated,
            "set c64 P16",
        ),
        (
            "CPU of GET / SET, 1 per packet: palimpsest (memory)",
            cpu,
            volatile,
            "get c64",
            volatile,
            "set c64",
        ),
        (
            "CPU of GET / SET, 16 per packet: palimpsest (memory)",
            cpu,
            volatile,
            "get c64 P16",
            volatile,
            "set c64 P16",
        ),
        (
            "writes/s, 64 connections: palimpsest (disk) / etcd",
            speed,
            disk,
            "set c64",
            etcd,
            "set c64",
        ),
        (
            "writes/s, 256 connections: palimpsest (disk) / etcd",
            speed,
            disk,
            "set c256",
            etcd,
            "set c256",
        ),
        (
            "writes/s, 64 connections, 16 commands in flight each: palimpsest (disk) / etcd",
            speed,
            disk,
            "set c64 P16",
            etcd,
            "set c64 P16",
        ),
        ("p99, 64 connections: palimpsest (disk) / etcd", p99, disk, "set c64", etcd, "set c64"),
        ("p99, 256 connections: palimpsest (disk) / etcd", p99, disk, "set c256", etcd, "set c256"),
        (
            "INCR/s, one key / spread keys: palimpsest (memory)",
            speed,
            volatile,
            "incr c64 one key",
            volatile,
            "incr c64",
        ),
        (
            "INCR/s, one key / spread keys: palimpsest (disk)",
            speed,
            disk,
            "incr c64 one key",
            disk,
            "incr c64",
        ),
    ];
    let ratio =
        |(what, of, our, our_load, their, their_load): (&str, fn(&PeerRow) -> f64, _, _, _, _)| {
            let ours = mean(rows, our, our_load, of)?;
            let theirs = mean(rows, their, their_load, of)?;
            Some(Ratio { what: what.to_string(), ours, theirs, ratio: ours / theirs })
        };
    claims.into_iter().filter_map(ratio).collect()
}

/// Over the rows of one load: to one node and to all.
fn mean(rows: &[PeerRow], system: System, load: &str, of: fn(&PeerRow) -> f64) -> Option<f64> {
    let found: Vec<f64> =
        rows.iter().filter(|r| r.system == system && r.workload.name == load).map(of).collect();
    (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (product, version) in &self.versions {
            writeln!(f, "{product} {version}")?;
        }
        writeln!(
            f,
            "{:<18} {:<26} {:<5} {:>9} {:>19} {:>8} {:>8} {:>9} {:>7}",
            "load",
            "system",
            "nodes",
            "per s",
            "(min to max)",
            "p50 µs",
            "p99 µs",
            "CPU-s/M",
            "errors"
        )?;
        for row in &self.rows {
            let spread = if row.workload.spread == Spread::One { "one" } else { "all" };
            writeln!(
                f,
                "{:<18} {:<26} {spread:<5} {:>9.0} {:>19} {:>8.0} {:>8.0} {:>9.2} {:>7}",
                row.workload.name,
                row.system.name(),
                row.per_second,
                format!("({:.0} to {:.0})", row.per_second_min, row.per_second_max),
                row.p50_us,
                row.p99_us,
                row.server_cpu_s_per_million,
                row.errors
            )?;
        }
        for ratio in &self.ratios {
            writeln!(
                f,
                "{:>7.2}  {} ({:.2} / {:.2})",
                ratio.ratio, ratio.what, ratio.ours, ratio.theirs
            )?;
        }
        for missing in &self.missing {
            writeln!(f, "not measured: {missing}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_without_match_lists_the_loads() {
        let config = Config { filter: "nosuch".into(), ..Config::default() };
        let error = run(&config).expect_err("no load matches").to_string();
        assert!(error.contains("\"nosuch\"") && error.contains("set c64 P16"), "{error}");
    }
}
