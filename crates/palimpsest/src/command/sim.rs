//! `palimpsest sim`: the deterministic simulator.

use std::io::IsTerminal;
use std::time::Instant;

use sim::{Campaign, Cuts, FaultSet, MediumKind, Mix, SimConfig, Speech};

use crate::Failure;
use crate::config::{self, units};

/// Failures shown before a campaign stops.
const FAILURES_MAX: usize = 1;

#[derive(clap::Args)]
#[command(
    after_help = "Example, a thousand seeds with every fault:\n  palimpsest sim --protocol rmwpaxos --seeds 1000"
)]
pub(crate) struct Args {
    /// rmwpaxos, abd, and of the laboratory hermes and zab
    #[arg(long, default_value = "rmwpaxos")]
    protocol: String,
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// First seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Client operations per seed
    #[arg(long, default_value_t = 200)]
    ops: u64,
    /// none, all, or a list of faults separated by commas
    #[arg(long, default_value = "all")]
    faults: String,
    /// What nodes store on: model, disk, pmem; drawn from each seed where it is not given
    #[arg(long)]
    medium: Option<String>,
    /// How clients speak to nodes: direct, resp; drawn from each seed where it is not given
    #[arg(long)]
    clients: Option<String>,
    /// What a shrunk run leaves out, as its replay line says
    #[arg(long)]
    cut: Option<String>,
    /// Show a failing seed as it is, not the smallest run found that fails in the same way
    #[arg(long)]
    whole: bool,
    /// Print the marks that these seeds reached, and those known that they did not
    #[arg(long)]
    marks: bool,
    /// What clients do with every key, retries for one; drawn from each seed where it is not given
    #[arg(long)]
    workload: Option<String>,
    /// So often a node's medium is struck once all is quiet: damaged, or partly as it was before
    #[arg(long, value_name = "N", default_value_t = 0)]
    media_strikes: u64,
    /// Milliseconds that every message takes on top of its delay, as between regions
    #[arg(long, value_name = "MS", value_parser = units::millis)]
    distance: Option<u64>,
}

fn find_medium(name: &str) -> Result<MediumKind, Failure> {
    MediumKind::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = MediumKind::ALL.iter().map(|kind| kind.name()).collect();
        Failure::usage(format!("no medium is called '{name}'; use {}", known.join(", ")))
    })
}

fn find_speech(name: &str) -> Result<Speech, Failure> {
    Speech::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = Speech::ALL.iter().map(|speech| speech.name()).collect();
        Failure::usage(format!("no clients speak '{name}'; use {}", known.join(", ")))
    })
}

fn print_marks(protocol: &str) {
    let reached = base::assertions::reached();
    println!("\n{} marks reached", reached.len());
    for mark in &reached {
        println!("  {mark}");
    }
    let missed = sim::marks::missed(protocol, &reached);
    println!("{} marks not reached", missed.len());
    for mark in &missed {
        println!("  {mark}");
    }
}

fn find_mix(name: &str) -> Result<Mix, Failure> {
    Mix::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = Mix::NAMED.iter().map(|(_, name)| *name).collect();
        Failure::usage(format!("no workload is called '{name}'; use {}", known.join(", ")))
    })
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let faults = FaultSet::parse(&args.faults).map_err(Failure::usage)?;
    let protocol = args.protocol.as_str();
    let config = SimConfig {
        nodes: args.nodes,
        ops: args.ops,
        media_strikes: args.media_strikes,
        distance: args.distance,
        faults,
        speech: args.clients.as_deref().map(find_speech).transpose()?,
        mix: args.workload.as_deref().map(find_mix).transpose()?,
        medium: args.medium.as_deref().map(find_medium).transpose()?,
        cuts: args
            .cut
            .as_deref()
            .map_or(Ok(Cuts::default()), Cuts::parse)
            .map_err(Failure::usage)?,
        ..SimConfig::new(protocol, args.seed)
    };
    sim::validate(&config).map_err(|misuse| Failure::usage(misuse.0))?;
    let threads = config::cores();
    let campaign =
        Campaign { config: config.clone(), seeds: args.seeds, threads, failures_max: FAILURES_MAX };
    let begun = Instant::now();
    let shows = std::io::stderr().is_terminal();
    let step = (args.seeds / 100).max(1);
    let report = sim::campaign(&campaign, |done| {
        if shows && (done % step == 0 || done == args.seeds) {
            eprint!("\r{done}/{} seeds", args.seeds);
        }
    });
    if shows {
        eprintln!();
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} operations ({} answered, {} without effect, {} refused, {} unknown), {} events, {:.1} s, {:.0} operations/s",
        report.seeds,
        report.ops,
        report.returned,
        report.failed,
        report.refused,
        report.unknown,
        report.events,
        seconds,
        report.ops as f64 / seconds,
    );
    if report.undecided > 0 {
        println!("{} histories were too hard to decide", report.undecided);
    }
    for (seed, failure) in &report.failures {
        let config = SimConfig { seed: *seed, ..config.clone() };
        println!("\nseed {seed} failed; the whole of it: {}\n", config.replay_line());
        let (smallest, failure) = match args.whole {
            true => (config, failure.clone()),
            false => sim::shrink(&config, failure, sim::shrink::EVENTS_MAX),
        };
        println!("{}", sim::replay(&smallest, failure));
    }
    if args.marks {
        print_marks(protocol);
    }
    match report.failures.first() {
        None => Ok(()),
        Some((seed, _)) => Err(Failure::fault(format!("seed {seed} violates {protocol}"))),
    }
}
