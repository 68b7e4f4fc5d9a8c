//! The measurements of one protocol.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use node::registry::Registration;
use serde::Serialize;
use types::Update;

use super::draws::Distribution;
use super::harness::{Harness, Requests};
use super::report::Row;
use super::{Config, Links, Reads};
use crate::{Error, Result};

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// Throughput over the percentage of writes, uniform keys.
    Writes,
    /// Throughput under other distributions of keys.
    Skew,
    /// Latency over load, relative to the peak with writes only.
    Load,
    /// Throughput over workers of a node.
    Workers,
    /// As `Writes`, but only the leader has clients. For protocols with one.
    Leader,
}

impl Experiment {
    pub const ALL: [Experiment; 5] = [
        Experiment::Writes,
        Experiment::Skew,
        Experiment::Load,
        Experiment::Workers,
        Experiment::Leader,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Experiment::Writes => "writes",
            Experiment::Skew => "skew",
            Experiment::Load => "load",
            Experiment::Workers => "workers",
            Experiment::Leader => "leader",
        }
    }
}

impl FromStr for Experiment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Experiment> {
        let found = Experiment::ALL.into_iter().find(|experiment| experiment.name() == text);
        let names = Experiment::ALL.map(Experiment::name).join(", ");
        let text = || format!("an experiment is one of {names}, not {text:?}");
        found.ok_or_else(|| Error::Usage(text()))
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Percentages of writes at which distributions and numbers of workers are compared.
const WRITES_COMPARED: [u32; 2] = [5, 100];

/// Percentages of the peak.
const LOADS: [u32; 3] = [25, 50, 75];

/// Keys of the Pareto distributions, as far as there are so many.
const PARETO_KEYS: [u64; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// Measurements of one kind, until the leader stays the same in one of them.
const LEADERS_MAX: usize = 5;

/// One protocol over one kind of links.
struct Run<'a> {
    config: &'a Config,
    registration: &'static Registration,
    links: Links,
    each: &'a mut dyn FnMut(Row),
}

pub(super) fn run(
    config: &Config,
    registration: &'static Registration,
    links: Links,
    update: &Arc<dyn Update>,
    each: &mut dyn FnMut(Row),
) -> Result<()> {
    let mut run = Run { config, registration, links, each };
    let has = |experiment| config.experiments.contains(&experiment);
    let start = |workers| Harness::start(config, registration, links, workers, update);
    let is_led = registration.properties.total_order;
    let on_one_cluster = [
        has(Experiment::Writes),
        has(Experiment::Skew),
        has(Experiment::Load),
        has(Experiment::Leader) && is_led,
    ];
    if on_one_cluster.contains(&true) {
        let mut harness = start(config.workers)?;
        if has(Experiment::Writes) {
            run.writes(&mut harness)?;
        }
        if has(Experiment::Skew) {
            run.skew(&mut harness)?;
        }
        if has(Experiment::Load) {
            run.load(&mut harness)?;
        }
        if has(Experiment::Leader) && is_led {
            run.leader(&mut harness)?;
        }
        harness.stop()?;
    }
    if has(Experiment::Workers) {
        for &workers in &config.sweep {
            let mut harness = start(workers)?;
            run.workers(&mut harness, workers)?;
            harness.stop()?;
        }
    }
    Ok(())
}

/// As many plain requests for uniform keys as the nodes can answer.
const PLAIN: Requests = Requests {
    distribution: Distribution::Uniform,
    writes: 100,
    reads: Reads::Plain,
    only_node: None,
    rate: None,
};

impl Run<'_> {
    /// The orders of reads to compare. Only one makes sense without a read.
    fn reads(&self, writes: u32) -> impl Iterator<Item = Reads> + use<> {
        let properties = self.registration.properties;
        let all = self.config.reads.clone().into_iter();
        all.filter(move |reads| reads.is_of(&properties)).take(if writes == 100 { 1 } else { 2 })
    }

    fn writes(&mut self, harness: &mut Harness) -> Result<()> {
        for &writes in &self.config.writes {
            for reads in self.reads(writes) {
                let requests = Requests { writes, reads, ..PLAIN };
                self.measure(harness, Experiment::Writes, requests, (self.config.workers, 100))?;
            }
        }
        Ok(())
    }

    fn skew(&mut self, harness: &mut Harness) -> Result<()> {
        let keys = PARETO_KEYS.into_iter().filter(|&keys| keys <= self.config.keys);
        let pareto = keys.map(|keys| Distribution::Pareto { keys });
        let others = [Distribution::Uniform, Distribution::Zipf];
        for distribution in others.into_iter().chain(pareto) {
            for writes in WRITES_COMPARED {
                for reads in self.reads(writes) {
                    let requests = Requests { distribution, writes, reads, ..PLAIN };
                    let place = (self.config.workers, 100);
                    self.measure(harness, Experiment::Skew, requests, place)?;
                }
            }
        }
        Ok(())
    }

    fn load(&mut self, harness: &mut Harness) -> Result<()> {
        let of_node = self.config.workers;
        let peak = self.measure(harness, Experiment::Load, PLAIN, (of_node, 100))?;
        for load in LOADS {
            let requests = Requests { rate: Some(peak * f64::from(load) / 100.0), ..PLAIN };
            self.measure(harness, Experiment::Load, requests, (of_node, load))?;
        }
        Ok(())
    }

    fn workers(&mut self, harness: &mut Harness, workers: usize) -> Result<()> {
        for writes in WRITES_COMPARED {
            for reads in self.reads(writes) {
                let requests = Requests { writes, reads, ..PLAIN };
                self.measure(harness, Experiment::Workers, requests, (workers, 100))?;
            }
        }
        Ok(())
    }

    /// A window with another leader at its end shows something else, and is measured again.
    fn leader(&mut self, harness: &mut Harness) -> Result<()> {
        for &writes in &self.config.writes {
            for reads in self.reads(writes) {
                let mut leader = harness.wait_for_leader()?;
                let mut measured = None;
                for _ in 0..LEADERS_MAX {
                    let requests = Requests { writes, reads, only_node: Some(leader), ..PLAIN };
                    let place = (self.config.workers, 100);
                    let row = self.row(harness, Experiment::Leader, requests, place)?;
                    let before = std::mem::replace(&mut leader, harness.wait_for_leader()?);
                    if before == leader {
                        measured = Some(row);
                        break;
                    }
                }
                let changing = || Error::Protocol("the leader changes all the time".to_string());
                (self.each)(measured.ok_or_else(changing)?);
            }
        }
        Ok(())
    }

    fn row(
        &self,
        harness: &mut Harness,
        experiment: Experiment,
        requests: Requests,
        (workers, load): (usize, u32),
    ) -> Result<Row> {
        let measured = harness.run(self.config, requests)?;
        let failures = harness.take_failures();
        let (protocol, links) = (self.registration.name, self.links);
        let row = Row::of(self.config, protocol, requests, load, &measured);
        Ok(Row { experiment, links, workers, failures, ..row })
    }

    /// Returns operations per second.
    fn measure(
        &mut self,
        harness: &mut Harness,
        experiment: Experiment,
        requests: Requests,
        place: (usize, u32),
    ) -> Result<f64> {
        let row = self.row(harness, experiment, requests, place)?;
        let per_second = row.per_second;
        (self.each)(row);
        Ok(per_second)
    }
}
