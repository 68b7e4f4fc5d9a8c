//! `palimpsest bench availability`: throughput over time while a node fails.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bench::availability::{self, AvailabilityReport, Config, Fault, Outputs};
use bench::cluster;

use super::{fault, this_binary};
use crate::Failure;
use crate::config::{self, units};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Protocols to run [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    protocols: Vec<String>,
    /// Any of none, kill, pause and cut
    #[arg(long, value_delimiter = ',', value_name = "FAULT", default_values_t = Fault::ALL)]
    faults: Vec<Fault>,
    /// Nodes, each a process
    #[arg(long, value_name = "N", default_value_t = Config::default().cluster.nodes)]
    nodes: u16,
    /// Runs of each fault, of which the median is shown; each has another victim
    #[arg(long, value_name = "N", default_value_t = Config::default().repetitions)]
    repeat: usize,
    /// Length of each run: the fault comes after a third of it, and ends after two thirds
    #[arg(long, default_value = "6", value_name = "SECONDS", value_parser = units::seconds)]
    time: Duration,
    /// Clients of each node that write, and as many that read
    #[arg(long, value_name = "N", default_value_t = Config::default().clients)]
    clients: usize,
    /// Number of keys
    #[arg(long, default_value_t = Config::default().keys)]
    keys: u64,
    /// volatile, pmem or disk
    #[arg(long, value_name = "MODE", default_value = "disk")]
    durability: String,
    /// Write gaps to this file, and timelines beside it
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw a plot of each fault there, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Data directories are made below it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<AvailabilityReport, Failure> {
    let defaults = Config::default();
    let config = Config {
        protocols: args.protocols.clone(),
        faults: args.faults.clone(),
        cluster: cluster::Config {
            binary: this_binary(),
            nodes: args.nodes,
            durability: config::parse_durability(&args.durability)?.to_string(),
            dir: args.dir.clone().unwrap_or(defaults.cluster.dir.clone()),
            ..defaults.cluster.clone()
        },
        clients: args.clients,
        keys: args.keys,
        repetitions: args.repeat,
        window: args.time,
        ..defaults
    };
    let report = availability::run(&config, |row| {
        // Progress is for people; the table follows.
        let _ = writeln!(std::io::stderr(), "{row}");
    });
    let report = report.map_err(fault)?;
    let outputs = Outputs { csv: args.csv.clone(), plots: args.plots.clone() };
    report.write(&outputs).map_err(fault)?;
    Ok(report)
}
