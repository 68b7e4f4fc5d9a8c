//! Throughput over time while a node dies, pauses or is cut off, and comes back.
//!
//! Each node is a process. Clients of all nodes read and write a few shared keys at a steady rate.
//! The fault comes after a third of the time, and ends after two thirds.
//! Figures concern the clients of the *other* nodes, and are compared with a run without a fault.
//! Where one node leads all others, it and a follower are struck in different runs.
//! The gap is the longest time in which no client of one of those nodes had a success.

mod report;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use node::registry::{PROTOCOLS, Registration};
use serde::Serialize;

pub use report::{AvailabilityReport, AvailabilityRow, CSV_HEADER, TIMELINE_HEADER};

use crate::cluster::{self, Cluster};
use crate::process::{self, Process};
use crate::proxy::Proxies;
use crate::report::LoadReport;
use crate::resp::{self, RunEnd};
use crate::workload::{Keys, Mix};
use crate::{Error, Result};

/// Time-out for a leader to be there.
const LEADER_MAX: Duration = Duration::from_secs(30);
/// Runs of one kind, until the victim keeps its role up to the fault.
const CHOICES_MAX: usize = 5;

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

/// The part of the victim before the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All nodes are alike, or there is no fault.
    Any,
    Leader,
    Follower,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Any => "any",
            Role::Leader => "leader",
            Role::Follower => "follower",
        }
    }

    fn all_of(registration: &Registration, fault: Fault) -> &'static [Role] {
        match registration.properties.total_order && fault != Fault::None {
            true => &[Role::Leader, Role::Follower],
            false => &[Role::Any],
        }
    }
}

impl std::fmt::Display for Role {
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
    fn registrations(&self) -> Result<Vec<&'static Registration>> {
        let named = |name: &String| {
            PROTOCOLS.iter().find(|one| one.name == name).ok_or_else(|| {
                let names: Vec<&str> = PROTOCOLS.iter().map(|one| one.name).collect();
                let text = format!("no protocol is named {name:?}; there are {}", names.join(", "));
                Error::Usage(text)
            })
        };
        match self.protocols.is_empty() {
            true => Ok(PROTOCOLS.iter().collect()),
            false => self.protocols.iter().map(named).collect(),
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
    for registration in config.registrations()? {
        // Forwarders cost time of processors: only cuts need them.
        for is_cut in [false, true] {
            let faults: Vec<Fault> =
                config.faults.iter().copied().filter(|&it| (it == Fault::Cut) == is_cut).collect();
            if faults.is_empty() {
                continue;
            }
            let mut group = Group::start(config, registration.name, is_cut)?;
            for repetition in 0..config.repetitions {
                for &fault in &faults {
                    for &role in Role::all_of(registration, fault) {
                        let row = group.run_as(fault, role, repetition)?;
                        progress(&row);
                        rows.push(row);
                    }
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
        if is_cut {
            Proxies::choose_ports(&mut of_cluster)?;
        }
        let mut cluster = Cluster::prepare(&of_cluster)?;
        // Databases without clients would have leaders of their own.
        let file = cluster.dir().join("database.toml");
        let text = format!("[[database]]\nindex = 0\nprotocol = \"{protocol}\"\n");
        std::fs::write(&file, text).map_err(Error::io(file.display().to_string()))?;
        for node in &mut cluster.nodes {
            node.arguments.extend(["--config".to_string(), file.display().to_string()]);
        }
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

    /// Runs with a victim of this role. It may lose the role before the fault: then once more.
    fn run_as(&mut self, fault: Fault, role: Role, repetition: usize) -> Result<AvailabilityRow> {
        for _ in 0..CHOICES_MAX {
            let victim = self.victim(role, repetition)?;
            if let Some(row) = self.run(fault, role, (repetition, victim))? {
                return Ok(row);
            }
        }
        Err(Error::Protocol(format!("{}: the leader changes all the time", self.protocol)))
    }

    fn victim(&self, role: Role, repetition: usize) -> Result<usize> {
        let count = self.cluster.nodes.len();
        if role == Role::Any {
            return Ok(repetition % count);
        }
        let mut leader = None;
        process::wait_until(LEADER_MAX, || {
            leader = self.cluster.leader();
            leader.is_some()
        });
        let no_leader = || Error::Protocol(format!("{}: there is no leader", self.protocol));
        let leader = leader.ok_or_else(no_leader)?;
        match role {
            Role::Leader => Ok(leader),
            Role::Follower | Role::Any => Ok((leader + 1 + repetition % (count - 1)) % count),
        }
    }

    /// Whether the victim still has its role.
    fn has_role(&self, role: Role, victim: usize) -> bool {
        match role {
            Role::Any => true,
            Role::Leader => self.cluster.leader() == Some(victim),
            Role::Follower => self.cluster.leader().is_some_and(|leader| leader != victim),
        }
    }

    /// None if the victim lost its role before the fault.
    fn run(
        &mut self,
        fault: Fault,
        role: Role,
        (repetition, victim): (usize, usize),
    ) -> Result<Option<AvailabilityRow>> {
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
        let mut has_role = false;
        let (written, read, faults) = std::thread::scope(|scope| {
            let writes = scope.spawn(|| resp::run(&writes));
            let reads = scope.spawn(|| resp::run(&reads));
            std::thread::sleep(Duration::from_millis(500) + third);
            has_role = self.has_role(role, victim);
            if has_role {
                self.strike(fault, victim);
            }
            std::thread::sleep(third);
            let healed = if has_role { self.heal(fault, victim) } else { Ok(()) };
            let failed = |_| Error::Protocol("a client panicked".to_string());
            (writes.join().map_err(failed), reads.join().map_err(failed), healed)
        });
        let (written, read) = (written??, read??);
        faults?;
        self.cluster.wait_all_ready()?;
        let row = || self.row(fault, role, (repetition, victim), (&written, &read));
        Ok(has_role.then(row))
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
        role: Role,
        (repetition, victim): (usize, usize),
        (written, read): (&LoadReport, &LoadReport),
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
            role,
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
