//! Measures how clients of the other nodes notice that a node dies or pauses.
//!
//! Writers on all nodes write to a few shared keys, so that the victim takes part in them.
//! Both figures concern the *other* nodes, and are compared with a run without a fault.
//! The first is the longest time without a success of any writer of such a node.
//! The second is the longest time without a success of one writer.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::Result;
use crate::cluster::{self, Cluster};
use crate::process;
use crate::report::{self, median};
use crate::resp::{self, RunEnd};
use crate::workload::{Keys, Mix};

/// The victim's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VictimFault {
    None,
    Kill,
    Pause,
}

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    pub cluster: cluster::Config,
    /// On the surviving nodes, and as many per node on the victim.
    pub writers: usize,
    pub pause: Duration,
    pub timeout: Duration,
    pub keys: u64,
    pub repetitions: usize,
    /// Length of one run; the fault comes after a third of it.
    pub window: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cluster: cluster::Config::default(),
            writers: 8,
            pause: Duration::from_millis(2),
            timeout: Duration::from_millis(200),
            keys: 100,
            repetitions: 5,
            window: Duration::from_secs(3),
        }
    }
}

/// One kind of fault, over all repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct FailoverRow {
    pub fault: VictimFault,
    /// Longest time without a success of any writer of a surviving node, by repetition, in
    /// milliseconds.
    pub together_ms: Vec<f64>,
    pub together_median_ms: f64,
    /// Longest time without a success of some writer of a surviving node.
    pub writer_ms: Vec<f64>,
    pub writer_median_ms: f64,
    /// Commands that failed, over all nodes and repetitions.
    pub errors: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct FailoverReport {
    pub durability: String,
    pub rows: Vec<FailoverRow>,
}

/// Runs without a fault, with a kill and with a pause in turn, `repetitions` times.
///
/// # Errors
/// When the cluster does not come up, or not again.
pub fn run(config: &Config) -> Result<FailoverReport> {
    let mut cluster = Cluster::start(&config.cluster)?;
    let faults = [VictimFault::None, VictimFault::Kill, VictimFault::Pause];
    let mut rows: Vec<FailoverRow> = faults
        .map(|fault| FailoverRow {
            fault,
            together_ms: Vec::new(),
            together_median_ms: 0.0,
            writer_ms: Vec::new(),
            writer_median_ms: 0.0,
            errors: 0,
        })
        .into_iter()
        .collect();
    for repetition in 0..config.repetitions {
        let victim = repetition % cluster.nodes.len();
        for row in &mut rows {
            let report = run_one(config, &mut cluster, victim, row.fault)?;
            // The victim's address comes last.
            let others = &report.gaps[..report.gaps.len() - 1];
            row.together_ms.push(others.iter().map(|gap| gap.together_ms).fold(0.0, f64::max));
            row.writer_ms.push(others.iter().map(|gap| gap.connection_ms).fold(0.0, f64::max));
            row.errors += report.error_count();
        }
    }
    for row in &mut rows {
        row.together_median_ms = median(&row.together_ms);
        row.writer_median_ms = median(&row.writer_ms);
    }
    Ok(FailoverReport { durability: config.cluster.durability.clone(), rows })
}

fn run_one(
    config: &Config,
    cluster: &mut Cluster,
    victim: usize,
    fault: VictimFault,
) -> Result<report::LoadReport> {
    let mut addresses = cluster.addresses();
    let last = addresses.len() - 1;
    addresses.swap(victim, last);
    let per_node = config.writers.div_ceil(last.max(1));
    let load = resp::Config {
        connections: per_node * addresses.len(),
        addresses,
        mix: Mix::SET,
        keys: Keys::Uniform { count: config.keys },
        pause: config.pause,
        timeout: Some(config.timeout),
        stop: RunEnd::After(config.window),
        warm_up: Duration::from_millis(500),
        server_pids: cluster.pids(),
        ..resp::Config::default()
    };
    let pid = cluster.nodes[victim].process.as_ref().map(process::Process::pid);
    let strike_after = load.warm_up + config.window / 3;
    let report = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(strike_after);
            match (fault, pid) {
                (VictimFault::Kill, Some(pid)) => process::kill_pid(pid),
                (VictimFault::Pause, Some(pid)) => process::pause_pid(pid),
                _ => {}
            }
        });
        resp::run(&load)
    })?;
    match (fault, pid) {
        (VictimFault::Kill, _) => {
            cluster.kill_node(victim); // reaps the dead process
            cluster.start_node(victim)?;
        }
        (VictimFault::Pause, Some(pid)) => process::resume_pid(pid),
        _ => {}
    }
    cluster.wait_all_ready()?;
    Ok(report)
}

impl fmt::Display for FailoverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "palimpsest ({}): longest time without a success on the other nodes",
            self.durability
        )?;
        for row in &self.rows {
            let each: Vec<String> = row.together_ms.iter().map(|gap| format!("{gap:.1}")).collect();
            let fault = format!("{:?}", row.fault).to_lowercase();
            writeln!(
                f,
                "  {fault:<6} {:>8.1} ms median [{}]; of some one writer {:.1} ms; {} commands failed, on all nodes",
                row.together_median_ms,
                each.join(" "),
                row.writer_median_ms,
                row.errors
            )?;
        }
        Ok(())
    }
}
