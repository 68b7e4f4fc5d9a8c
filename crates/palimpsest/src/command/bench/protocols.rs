//! `palimpsest bench protocols`: every protocol under the same load.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bench::protocols::{self, Config, Experiment, Links, ProtocolsReport, Reads};

use super::fault;
use crate::Failure;
use crate::config::{self, units};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Protocols to run [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    protocols: Vec<String>,
    /// Orders of reads to compare, where a protocol offers both: plain or linearizable
    #[arg(long, value_delimiter = ',', value_name = "ORDER", default_values_t = Reads::ALL)]
    reads: Vec<Reads>,
    /// Also run variants that answer once a majority knows the commit (rule Y5)
    #[arg(long)]
    after_commit: bool,
    /// Any of writes, skew, load, workers and leader
    #[arg(long, value_delimiter = ',', value_name = "NAME",
          default_values_t = Experiment::ALL)]
    experiments: Vec<Experiment>,
    /// Nodes, in one process: 3, 5 or 7
    #[arg(long, value_name = "N", default_value_t = Config::default().nodes)]
    nodes: usize,
    /// Number of keys, each of 8 bytes
    #[arg(long, default_value_t = Config::default().keys)]
    keys: u64,
    /// Size of a value
    #[arg(long, default_value = "32", value_name = "BYTES", value_parser = units::memory)]
    value_size: usize,
    /// Percentages of writes to compare
    #[arg(long, value_delimiter = ',', value_name = "PERCENT",
          default_values_t = Config::default().writes)]
    writes: Vec<u32>,
    /// Workers of a node, except where their numbers are compared
    #[arg(long, value_name = "N", default_value_t = Config::default().workers)]
    workers: usize,
    /// Numbers of workers to compare
    #[arg(long, value_delimiter = ',', value_name = "N",
          default_values_t = Config::default().sweep)]
    sweep: Vec<usize>,
    /// Sessions of each worker, with one request in progress each
    #[arg(long, value_name = "N", default_value_t = Config::default().sessions)]
    sessions: usize,
    /// Links between nodes: local (in memory), tcp, or both with a comma between
    #[arg(long, value_delimiter = ',', value_name = "KIND", default_values_t = [Links::Local])]
    links: Vec<Links>,
    /// volatile, pmem or disk
    #[arg(long, value_name = "MODE", default_value = "volatile")]
    durability: String,
    /// Length of each measurement
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = units::seconds)]
    time: Duration,
    /// Load before each measurement
    #[arg(long, default_value = "0.5", value_name = "SECONDS", value_parser = units::seconds)]
    warm_up: Duration,
    /// Write all rows to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw a plot of each experiment there, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Data directories are made below it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ProtocolsReport, Failure> {
    let defaults = Config::default();
    let config = Config {
        protocols: args.protocols.clone(),
        reads: args.reads.clone(),
        after_commit: args.after_commit,
        experiments: args.experiments.clone(),
        nodes: args.nodes,
        keys: args.keys,
        value_bytes: args.value_size,
        writes: args.writes.clone(),
        workers: args.workers,
        sweep: args.sweep.clone(),
        sessions: args.sessions,
        links: args.links.clone(),
        durability: config::parse_durability(&args.durability)?,
        warm_up: args.warm_up,
        window: args.time,
        dir: args.dir.clone().unwrap_or(defaults.dir.clone()),
        ..defaults
    };
    let report = protocols::run(&config, |row| {
        // Progress is for people; the table follows.
        let _ = writeln!(std::io::stderr(), "{row}");
    });
    let report = report.map_err(fault)?;
    if let Some(file) = &args.csv {
        report.write_csv(file).map_err(fault)?;
    }
    if let Some(dir) = &args.plots {
        report.write_plots(dir).map_err(fault)?;
    }
    Ok(report)
}
