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
use super::{Config, Links};
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
}

impl Experiment {
    pub const ALL: [Experiment; 4] =
        [Experiment::Writes, Experiment::Skew, Experiment::Load, Experiment::Workers];

    pub fn name(self) -> &'static str {
        match self {
            Experiment::Writes => "writes",
            Experiment::Skew => "skew",
            Experiment::Load => "load",
            Experiment::Workers => "workers",
        }
    }
}

impl FromStr for Experiment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Experiment> {
        let found = Experiment::ALL.into_iter().find(|experiment| experiment.name() == text);
        let text = || format!("an experiment is writes, skew, load or workers, not {text:?}");
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
    if [Experiment::Writes, Experiment::Skew, Experiment::Load].into_iter().any(has) {
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

impl Run<'_> {
    fn writes(&mut self, harness: &mut Harness) -> Result<()> {
        for &writes in &self.config.writes {
            let requests = Requests { distribution: Distribution::Uniform, writes, rate: None };
            self.measure(harness, Experiment::Writes, requests, (self.config.workers, 100))?;
        }
        Ok(())
    }

    fn skew(&mut self, harness: &mut Harness) -> Result<()> {
        let keys = PARETO_KEYS.into_iter().filter(|&keys| keys <= self.config.keys);
        let pareto = keys.map(|keys| Distribution::Pareto { keys });
        let others = [Distribution::Uniform, Distribution::Zipf];
        for distribution in others.into_iter().chain(pareto) {
            for writes in WRITES_COMPARED {
                let requests = Requests { distribution, writes, rate: None };
                self.measure(harness, Experiment::Skew, requests, (self.config.workers, 100))?;
            }
        }
        Ok(())
    }

    fn load(&mut self, harness: &mut Harness) -> Result<()> {
        let requests = Requests { distribution: Distribution::Uniform, writes: 100, rate: None };
        let of_node = self.config.workers;
        let peak = self.measure(harness, Experiment::Load, requests, (of_node, 100))?;
        for load in LOADS {
            let requests = Requests { rate: Some(peak * f64::from(load) / 100.0), ..requests };
            self.measure(harness, Experiment::Load, requests, (of_node, load))?;
        }
        Ok(())
    }

    fn workers(&mut self, harness: &mut Harness, workers: usize) -> Result<()> {
        for writes in WRITES_COMPARED {
            let requests = Requests { distribution: Distribution::Uniform, writes, rate: None };
            self.measure(harness, Experiment::Workers, requests, (workers, 100))?;
        }
        Ok(())
    }

    /// Returns operations per second.
    fn measure(
        &mut self,
        harness: &mut Harness,
        experiment: Experiment,
        requests: Requests,
        (workers, load): (usize, u32),
    ) -> Result<f64> {
        let measured = harness.run(self.config, requests)?;
        let row = Row {
            experiment,
            protocol: self.registration.name,
            links: self.links,
            workers,
            load_percent: load,
            failures: harness.take_failures(),
            ..Row::of(self.config, self.registration.name, requests, load, &measured)
        };
        let per_second = row.per_second;
        (self.each)(row);
        Ok(per_second)
    }
}
