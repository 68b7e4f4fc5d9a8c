//! The time for all nodes together from `kill -9` to serving, with many keys and with few.
//!
//! The clock starts with the first process. For root, the page cache is dropped before, so that
//! reads come from the disk.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base::Prng;
use serde::Serialize;

use crate::client::{Client, Value};
use crate::cluster::{self, Cluster};
use crate::report::median;
use crate::resp;
use crate::workload::Keys;
use crate::{Error, Result};

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    pub cluster: cluster::Config,
    /// Each is loaded into a cluster of its own.
    pub key_counts: Vec<u64>,
    pub value_bytes: usize,
    pub repetitions: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cluster: cluster::Config::default(),
            key_counts: vec![10_000, 1_000_000],
            value_bytes: 32,
            repetitions: 3,
        }
    }
}

/// One number of keys.
#[derive(Clone, Debug, Serialize)]
pub struct RestartRow {
    pub keys: u64,
    /// Until the slowest node had answered a SET, by repetition, in milliseconds.
    pub set_ms: Vec<f64>,
    /// Until the slowest node had answered a GET of a random key as well.
    pub get_ms: Vec<f64>,
    pub set_median_ms: f64,
    pub get_median_ms: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RestartReport {
    pub durability: String,
    /// The page cache was dropped before each restart.
    pub cold: bool,
    pub rows: Vec<RestartRow>,
}

/// Timeout of a restart.
const SERVE_MAX: Duration = Duration::from_secs(60);

/// Loads, kills, restarts and probes.
///
/// # Errors
/// When a cluster does not come up, or an acknowledged key is gone.
pub fn run(config: &Config) -> Result<RestartReport> {
    let mut rows = Vec::new();
    let mut cold = true;
    for &keys in &config.key_counts {
        let mut cluster = Cluster::start(&config.cluster)?;
        resp::load(&resp::Config {
            addresses: cluster.addresses(),
            keys: Keys::Sequential { count: keys },
            value_bytes: config.value_bytes,
            ..resp::Config::default()
        })?;
        let (mut set_ms, mut get_ms) = (Vec::new(), Vec::new());
        for repetition in 0..config.repetitions {
            let (set, get, dropped) = restart(&mut cluster, keys, repetition as u64)?;
            set_ms.push(set.as_secs_f64() * 1e3);
            get_ms.push(get.as_secs_f64() * 1e3);
            cold &= dropped;
        }
        let (set_median_ms, get_median_ms) = (median(&set_ms), median(&get_ms));
        rows.push(RestartRow { keys, set_ms, get_ms, set_median_ms, get_median_ms });
    }
    Ok(RestartReport { durability: config.cluster.durability.clone(), cold, rows })
}

/// Times to the first SET and the first GET through every node, and whether the cache was dropped.
fn restart(cluster: &mut Cluster, keys: u64, seed: u64) -> Result<(Duration, Duration, bool)> {
    for index in 0..cluster.nodes.len() {
        cluster.kill_node(index);
    }
    let dropped = drop_page_cache();
    let start = Instant::now();
    for index in 0..cluster.nodes.len() {
        cluster.start_node(index)?;
    }
    let answers: Vec<Result<(Duration, Duration)>> = std::thread::scope(|scope| {
        let probes: Vec<_> = cluster
            .addresses()
            .into_iter()
            .enumerate()
            .map(|(node, address)| {
                scope.spawn(move || probe(address, keys, seed * 64 + node as u64, start))
            })
            .collect();
        probes.into_iter().map(|p| p.join().expect("a probe does not panic")).collect()
    });
    let (mut set, mut get) = (Duration::ZERO, Duration::ZERO);
    for answer in answers {
        let (set_here, get_here) = answer?;
        set = set.max(set_here);
        get = get.max(get_here);
    }
    Ok((set, get, dropped))
}

/// Asks one node until it has answered a SET and then a GET of a random key.
fn probe(
    address: SocketAddr,
    keys: u64,
    seed: u64,
    start: Instant,
) -> Result<(Duration, Duration)> {
    let key = Prng::new(seed).below(keys);
    let set = until(address, &format!("SET restarted:{seed} yes"), start)?.0;
    let (get, value) = until(address, &format!("GET key:{key:012}"), start)?;
    if !matches!(value, Value::Bulk(_)) {
        return Err(Error::Protocol(format!("key:{key:012} is gone after a restart: {value:?}")));
    }
    Ok((set, get))
}

/// Repeats a command until it succeeds; returns the time and the reply.
fn until(address: SocketAddr, line: &str, start: Instant) -> Result<(Duration, Value)> {
    let mut last = None;
    while start.elapsed() < SERVE_MAX {
        let reply =
            Client::connect(address, Duration::from_secs(2)).and_then(|mut c| c.command(line));
        match reply {
            Ok(value) if !matches!(value, Value::Error(_)) => return Ok((start.elapsed(), value)),
            other => last = Some(other),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::NotReady {
        system: format!("{address}, asked {line:?},"),
        seconds: SERVE_MAX.as_secs(),
        details: format!("; the last answer was {last:?}"),
    })
}

/// Only root may; false on failure.
fn drop_page_cache() -> bool {
    rustix::fs::sync(); // dirty pages would stay
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

impl fmt::Display for RestartReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.cold { "page cache dropped" } else { "page cache warm: not root" };
        writeln!(
            f,
            "palimpsest ({}): restart of all nodes after kill -9, {cache}",
            self.durability
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "  {:>9} keys: first SET through every node after {:.0} ms, a random GET too after {:.0} ms \
                 (medians of {})",
                row.keys,
                row.set_median_ms,
                row.get_median_ms,
                row.set_ms.len()
            )?;
        }
        Ok(())
    }
}
