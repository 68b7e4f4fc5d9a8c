//! Throughput over time while a node dies, pauses or is cut off, and comes back.
//!
//! Each node is a process. Clients of all nodes read and write a few shared keys at a steady rate.
//! The fault comes after a third of the time, and ends after two thirds.
//! Figures concern the clients of the *other* nodes, and are compared with a run without a fault.
//! The gap is the longest time in which no client of one of those nodes had a success.

mod report;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use node::registry::PROTOCOLS;
use serde::Serialize;

pub use report::{AvailabilityReport, AvailabilityRow, CSV_HEADER, TIMELINE_HEADER};

use crate::cluster::{self, Cluster};
use crate::process::{self, Process};
use crate::proxy::Proxies;
use crate::report::LoadReport;
use crate::resp::{self, RunEnd};
use crate::workload::{Keys, Mix};
use crate::{Error, Result};

/// The victim's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    None,
    /// `kill -9`, then a new start.
    Kill,
    /// SIGSTOP, then SIGCONT.
    Pause,
    /// No byte passes between it and the other nodes. Its clients still reach it.
    Cut,
}

impl Fault {
    pub const ALL: [Fault; 4] = [Fault::None, Fault::Kill, Fault::Pause, Fault::Cut];

    pub fn name(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::Kill => "kill",
            Fault::Pause => "pause",
            Fault::Cut => "cut",
        }
    }
}

impl FromStr for Fault {
    type Err = Error;

    fn from_str(text: &str) -> Result<Fault> {
        let found = Fault::ALL.into_iter().find(|fault| fault.name() == text);
        let bad = || Error::Usage(format!("a fault is none, kill, pause or cut, not {text:?}"));
        found.ok_or_else(bad)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names; empty for all of the registry.
    pub protocols: Vec<String>,
    pub faults: Vec<Fault>,
    pub cluster: cluster::Config,
    /// Clients of each node that write, and as many that read.
    pub clients: usize,
    /// Between a client's reply and its next request.
    pub pause: Duration,
    /// After this time without a reply a client connects anew.
    pub timeout: Duration,
    pub keys: u64,
    /// Runs of each fault, each with another victim.
    pub repetitions: usize,
    /// Length of one run.
    pub window: Duration,
    /// Length of a point of the timeline.
    pub slice: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            protocols: Vec::new(),
            faults: Fault::ALL.to_vec(),
            cluster: cluster::Config::default(),
            clients: 4,
            pause: Duration::from_millis(2),
            timeout: Duration::from_millis(200),
            keys: 100,
            repetitions: 5,
            window: Duration::from_secs(6),
            slice: Duration::from_millis(100),
        }
    }
}

impl Config {
    fn names(&self) -> Result<Vec<String>> {
        if self.protocols.is_empty() {
            return Ok(PROTOCOLS.iter().map(|one| one.name.to_string()).collect());
        }
        let names: Vec<&str> = PROTOCOLS.iter().map(|one| one.name).collect();
        match self.protocols.iter().find(|name| !names.contains(&name.as_str())) {
            None => Ok(self.protocols.clone()),
            Some(name) => {
                let text = format!("no protocol is named {name:?}; there are {}", names.join(", "));
                Err(Error::Usage(text))
            }
        }
    }

    fn check(&self) -> Result<()> {
        let bad = |text: &str| Err(Error::Usage(text.to_string()));
        if !(2..=7).contains(&self.cluster.nodes) {
            return bad("--nodes is 2 to 7");
        }
        if self.repetitions == 0 {
            return bad("--repeat is at least 1");
        }
        if self.window < Duration::from_millis(300) {
            return bad("--time is at least 0.3 s");
        }
        Ok(())
    }
}

/// Runs every fault on every protocol, `repetitions` times. `progress` is told of each run.
///
/// # Errors
/// When a cluster does not come up, or not again.
pub fn run(
    config: &Config,
    mut progress: impl FnMut(&AvailabilityRow),
) -> Result<AvailabilityReport> {
    config.check()?;
    let mut rows = Vec::new();
    for name in config.names()? {
        // Forwarders cost time of processors: only cuts need them.
        for is_cut in [false, true] {
            let faults: Vec<Fault> =
                config.faults.iter().copied().filter(|&it| (it == Fault::Cut) == is_cut).collect();
            if faults.is_empty() {
                continue;
            }
            let mut group = Group::start(config, &name, is_cut)?;
            for repetition in 0..config.repetitions {
                for &fault in &faults {
                    let row = group.run(fault, repetition)?;
                    progress(&row);
                    rows.push(row);
                }
            }
        }
    }
    Ok(AvailabilityReport::new(config, rows))
}

/// A cluster that runs one protocol.
struct Group<'a> {
    config: &'a Config,
    protocol: String,
    cluster: Cluster,
    proxies: Option<Proxies>,
}

impl Group<'_> {
    fn start<'a>(config: &'a Config, protocol: &str, is_cut: bool) -> Result<Group<'a>> {
        let mut of_cluster = config.cluster.clone();
        of_cluster.arguments.extend(["--protocol".to_string(), protocol.to_string()]);
        if is_cut {
            Proxies::choose_ports(&mut of_cluster)?;
        }
        let cluster = Cluster::prepare(&of_cluster)?;
        let proxies = match is_cut {
            true => Some(Proxies::listen(&cluster, &of_cluster.peer_ports)?),
            false => None,
        };
        let protocol = protocol.to_string();
        let mut group = Group { config, protocol, cluster, proxies };
        for index in 0..group.cluster.nodes.len() {
            group.start_node(index)?;
        }
        group.cluster.wait_all_ready()?;
        Ok(group)
    }

    fn start_node(&mut self, index: usize) -> Result<()> {
        self.cluster.start_node(index)?;
        if let Some(proxies) = &self.proxies {
            proxies.note_processes(&self.cluster);
        }
        Ok(())
    }

    fn run(&mut self, fault: Fault, repetition: usize) -> Result<AvailabilityRow> {
        let victim = repetition % self.cluster.nodes.len();
        // The victim's address comes last.
        let mut addresses = self.cluster.addresses();
        let last = addresses.len() - 1;
        addresses.swap(victim, last);
        let load = |mix, seed| resp::Config {
            connections: self.config.clients * addresses.len(),
            addresses: addresses.clone(),
            mix,
            keys: Keys::Uniform { count: self.config.keys },
            pause: self.config.pause,
            timeout: Some(self.config.timeout),
            stop: RunEnd::After(self.config.window),
            warm_up: Duration::from_millis(500),
            slice: self.config.slice,
            seed,
            ..resp::Config::default()
        };
        let (writes, reads) = (load(Mix::SET, 1), load(Mix::GET, 2));
        let third = self.config.window / 3;
        let (written, read, faults) = std::thread::scope(|scope| {
            let writes = scope.spawn(|| resp::run(&writes));
            let reads = scope.spawn(|| resp::run(&reads));
            std::thread::sleep(Duration::from_millis(500) + third);
            self.strike(fault, victim);
            std::thread::sleep(third);
            let healed = self.heal(fault, victim);
            let failed = |_| Error::Protocol("a client panicked".to_string());
            (writes.join().map_err(failed), reads.join().map_err(failed), healed)
        });
        let (written, read) = (written??, read??);
        faults?;
        self.cluster.wait_all_ready()?;
        Ok(self.row(fault, repetition, victim, &written, &read))
    }

    fn pid(&self, victim: usize) -> Option<u32> {
        self.cluster.nodes[victim].process.as_ref().map(Process::pid)
    }

    fn strike(&mut self, fault: Fault, victim: usize) {
        match (fault, self.pid(victim)) {
            (Fault::Kill, _) => self.cluster.kill_node(victim),
            (Fault::Pause, Some(pid)) => process::pause_pid(pid),
            (Fault::Cut, _) => {
                if let Some(proxies) = &self.proxies {
                    proxies.isolate(victim);
                }
            }
            _ => {}
        }
    }

    fn heal(&mut self, fault: Fault, victim: usize) -> Result<()> {
        match (fault, self.pid(victim)) {
            (Fault::Kill, _) => self.start_node(victim)?,
            (Fault::Pause, Some(pid)) => process::resume_pid(pid),
            (Fault::Cut, _) => {
                if let Some(proxies) = &self.proxies {
                    proxies.heal();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn row(
        &self,
        fault: Fault,
        repetition: usize,
        victim: usize,
        written: &LoadReport,
        read: &LoadReport,
    ) -> AvailabilityRow {
        let gap = |report: &LoadReport| {
            let others = &report.gaps[..report.gaps.len() - 1];
            others.iter().map(|gap| gap.together_ms).fold(0.0, f64::max)
        };
        AvailabilityRow {
            protocol: self.protocol.clone(),
            fault,
            repetition,
            victim: self.cluster.nodes[victim].id,
            write_gap_ms: gap(written),
            read_gap_ms: gap(read),
            writes: written.operations,
            reads: read.operations,
            failed: written.error_count() + read.error_count(),
            writes_per_second: self.timeline(written),
            reads_per_second: self.timeline(read),
        }
    }

    /// Of the clients of the other nodes, whole slices only.
    fn timeline(&self, report: &LoadReport) -> Vec<f64> {
        let slice = self.config.slice;
        let slices = (self.config.window.as_nanos() / slice.as_nanos()) as usize;
        let others = &report.timelines[..report.timelines.len() - 1];
        let count = |at: usize| -> u64 { others.iter().filter_map(|line| line.get(at)).sum() };
        (0..slices).map(|at| count(at) as f64 / slice.as_secs_f64()).collect()
    }
}

/// Where the tables and plots of a run go.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// Gaps; the timelines stand beside it, with `-timeline` in the name.
    pub csv: Option<PathBuf>,
    pub plots: Option<PathBuf>,
}
