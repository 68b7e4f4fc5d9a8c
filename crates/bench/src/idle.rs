//! The cost of a cluster without requests.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cluster::{self, Cluster};
use crate::process::{self, Cpu};
use crate::{Result, resp, workload};

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    pub cluster: cluster::Config,
    /// Keys written before the measurement, so that nodes hold data.
    pub keys: u64,
    /// Time to come to rest.
    pub settle: Duration,
    pub window: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cluster: cluster::Config::default(),
            keys: 10_000,
            settle: Duration::from_secs(5),
            window: Duration::from_secs(10),
        }
    }
}

/// One node's cost.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    pub id: u16,
    /// Of one core.
    pub cpu_percent: f64,
    /// To storage, in the window; `None` where the kernel does not count it.
    pub bytes_written: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct IdleReport {
    pub durability: String,
    pub seconds: f64,
    pub nodes: Vec<NodeReport>,
}

/// Starts a cluster, writes some keys, waits, and measures.
///
/// # Errors
/// When the cluster does not come up.
pub fn run(config: &Config) -> Result<IdleReport> {
    let cluster = Cluster::start(&config.cluster)?;
    resp::load(&resp::Config {
        addresses: cluster.addresses(),
        keys: workload::Keys::Sequential { count: config.keys },
        ..resp::Config::default()
    })?;
    std::thread::sleep(config.settle);
    let pids = cluster.pids();
    let sample = || -> Vec<(Cpu, Option<u64>)> {
        pids.iter().map(|&pid| (process::cpu(&[pid]), process::bytes_written(pid))).collect()
    };
    let (start, before) = (Instant::now(), sample());
    std::thread::sleep(config.window);
    let after = sample();
    let seconds = start.elapsed().as_secs_f64();
    let node = |((node, (cpu, written)), (cpu_before, written_before))| {
        let node: &cluster::Node = node;
        let cpu: Cpu = cpu;
        NodeReport {
            id: node.id,
            cpu_percent: cpu.since(cpu_before).total_s() / seconds * 100.0,
            bytes_written: Option::zip(written, written_before)
                .map(|(now, then): (u64, u64)| now - then),
        }
    };
    let nodes = cluster.nodes.iter().zip(after).zip(before).map(node).collect();
    Ok(IdleReport { durability: config.cluster.durability.clone(), seconds, nodes })
}

impl fmt::Display for IdleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "palimpsest ({}): idle for {:.0} s", self.durability, self.seconds)?;
        for node in &self.nodes {
            let written =
                node.bytes_written.map_or("unknown".to_string(), |bytes| bytes.to_string());
            writeln!(
                f,
                "  node {}: {:.2} % of a core, {written} bytes written",
                node.id, node.cpu_percent
            )?;
        }
        Ok(())
    }
}
