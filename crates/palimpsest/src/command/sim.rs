//! `palimpsest sim`: the deterministic simulator.

use std::io::IsTerminal;
use std::time::Instant;

use sim::{Campaign, CampaignReport, Cuts, FaultSet, MediumKind, Mix, SimConfig, Speech};

use crate::Failure;
use crate::config::{self, units};

/// Failures shown before a campaign stops.
const FAILURES_MAX: usize = 1;

#[derive(clap::Args)]
#[command(
    after_help = "Example, a thousand seeds with every fault:\n  palimpsest sim --protocol rmwpaxos --seeds 1000"
)]
pub(crate) struct Args {
    /// rmwpaxos, classic-paxos, caspaxos, abd, hermes, craq, zab
    #[arg(long, default_value = "rmwpaxos")]
    protocol: String,
    /// Nodes of the simulated cluster
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Nodes that keep each shard, or members of a group [default: all; with 5 nodes or more drawn
    /// from each seed]
    #[arg(long)]
    replicas: Option<usize>,
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
    /// The nodes' medium: model, disk or pmem [default: drawn from each seed]
    #[arg(long)]
    medium: Option<String>,
    /// How clients speak to nodes: direct or resp [default: drawn from each seed]
    #[arg(long)]
    clients: Option<String>,
    /// Parts that a shrunk run leaves out, as its replay line has them
    #[arg(long)]
    cut: Option<String>,
    /// Print one JSON object: the seeds, counts, and each violation with the line that replays it
    #[arg(long, conflicts_with = "marks")]
    json: bool,
    /// Show a failing seed as it is; otherwise the smallest run that fails in the same way
    #[arg(long)]
    whole: bool,
    /// Print the marks that these seeds reached, and the known ones that they missed
    #[arg(long)]
    marks: bool,
    /// The clients' operations, such as retries [default: drawn from each seed]
    #[arg(long)]
    workload: Option<String>,
    /// How often a node's medium is damaged, or partly set back, after the faults have ended
    #[arg(long, value_name = "N", default_value_t = 0)]
    media_strikes: u64,
    /// Time that each message takes on top of its delay, as between regions
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
        replicas: args.replicas,
        ops: args.ops,
        media_faults: args.media_strikes,
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
    let violations: Vec<Violation> = report
        .failures
        .iter()
        .map(|(seed, failure)| violation(args, &config, *seed, failure))
        .collect();
    if args.json {
        println!("{:#}", as_json(args, &report, seconds, &violations));
    } else {
        print_report(&report, seconds);
        for violation in &violations {
            println!("\nseed {} failed; the whole of it: {}\n", violation.seed, violation.whole);
            println!("{}", violation.smallest);
        }
        if args.marks {
            print_marks(protocol);
        }
    }
    match violations.first() {
        None if args.json => Ok(()),
        None => {
            println!("no violation");
            Ok(())
        }
        Some(violation) => Err(Failure::fault(format!(
            "seed {} violates {protocol}: replay it with the line above",
            violation.seed
        ))),
    }
}

/// A seed in which something did not hold.
struct Violation {
    seed: u64,
    /// The line that replays all of it.
    whole: String,
    /// The smallest run found that fails in the same way.
    smallest: sim::Failure,
}

fn violation(args: &Args, config: &SimConfig, seed: u64, failure: &sim::Failure) -> Violation {
    let config = SimConfig { seed, ..config.clone() };
    let whole = config.replay_line();
    let (smallest, failure) = match args.whole {
        true => (config, failure.clone()),
        false => sim::shrink(&config, failure, sim::shrink::EVENTS_MAX),
    };
    Violation { seed, whole, smallest: sim::replay(&smallest, failure) }
}

fn print_report(report: &CampaignReport, seconds: f64) {
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
    if report.lost > 0 {
        println!("{} groups lost their last whole copy, and stood still", report.lost);
    }
}

fn as_json(
    args: &Args,
    report: &CampaignReport,
    seconds: f64,
    violations: &[Violation],
) -> serde_json::Value {
    let one = |violation: &Violation| {
        serde_json::json!({
            "seed": violation.seed,
            "violation": violation.smallest.reason,
            "replay": violation.smallest.replay_line,
            "replay_whole": violation.whole,
            "messages": violation.smallest.chart,
        })
    };
    serde_json::json!({
        "result": if violations.is_empty() { "no violation" } else { "violation" },
        "protocol": args.protocol,
        "nodes": args.nodes,
        "first_seed": args.seed,
        "seeds": report.seeds,
        "operations": report.ops,
        "answered": report.returned,
        "without_effect": report.failed,
        "refused": report.refused,
        "unknown": report.unknown,
        "undecided_histories": report.undecided,
        "lost_groups": report.lost,
        "events": report.events,
        "seconds": seconds,
        "violations": violations.iter().map(one).collect::<Vec<_>>(),
    })
}
