//! `./x chaos`: the command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chaos::calls::Mix;
use chaos::catalogue::Fault;
use chaos::host::{Host, Tool};
use chaos::lab::{self, Lab};
use chaos::nodes::Durability;
use chaos::report;
use chaos::run::{self, RunPlan, RunResult};
use chaos::sh::{Interrupted, StopSignal};
use clap::Parser;

/// Attacks a cluster of real processes and checks the replies to its clients.
#[derive(Parser)]
#[command(name = "chaos")]
struct Arguments {
    /// How long faults go on, over all modes together: 90s, 10m. Starting and checking take about a
    /// minute more
    #[arg(long, default_value = "3m", value_parser = parse_time)]
    time: Duration,
    /// The modes to attack; without it all three, one after another
    #[arg(long, value_delimiter = ',')]
    durability: Vec<Durability>,
    /// 3 to 9 nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=9))]
    nodes: u8,
    #[arg(long, default_value = "rmwpaxos")]
    protocol: String,
    /// The calls of clients
    #[arg(long, value_enum, default_value_t)]
    calls: Mix,
    /// Seed for the order of faults, their victims and the clients' calls; without it another one
    /// each time
    #[arg(long)]
    seed: Option<u64>,
    /// Only these faults
    #[arg(long, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Takes something for missing on this host
    #[arg(long, value_delimiter = ',')]
    without: Vec<Tool>,
    /// Where histories, logs and data are kept after a violation
    #[arg(long, default_value = "target/chaos")]
    keep: PathBuf,
    /// Keeps them in any case
    #[arg(long)]
    keep_always: bool,
    /// The program under attack; without it the one beside this program
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The program of tools/porcupine, which checks the histories once more
    #[arg(long)]
    porcupine: Option<PathBuf>,
    /// Panics after this time, to show that the run cleans up
    #[arg(long, value_parser = parse_time, hide = true)]
    panic_after: Option<Duration>,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let number: u64 = number.parse().map_err(|_| "say 90s or 10m".to_string())?;
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds <= 24 * 3_600);
    seconds.map(Duration::from_secs).ok_or_else(|| "at most a day".to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match lab::enter().and_then(|()| attack(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("chaos: interrupted; everything was cleaned up");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs all modes; true when all passed.
fn attack(arguments: &Arguments) -> Result<bool> {
    let stop = StopSignal::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.0.clone()).context("signals")?;
    }
    let host = Host::look(&arguments.without);
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let modes = match arguments.durability.is_empty() {
        true => vec![Durability::Disk, Durability::Pmem, Durability::Volatile],
        false => arguments.durability.clone(),
    };
    println!("seed {seed}, {} nodes, {} per mode", arguments.nodes, seconds(arguments, &modes));
    host.gaps().iter().for_each(|gap| println!("{gap}"));
    let mut lab = Lab::build(usize::from(arguments.nodes), &host)?;
    let mut is_well = true;
    for &durability in &modes {
        let plan = plan(arguments, (durability, &modes), seed, &host)?;
        if plan.faults.is_empty() {
            println!("durability {}: none of these faults can happen", durability.name());
            continue;
        }
        let done = run::run(&plan, &mut lab, &host, &stop)?;
        is_well &= tell(&done, arguments, &host);
    }
    println!("{}", if is_well { "no violation was found" } else { "violations were found" });
    Ok(is_well)
}

fn seconds(arguments: &Arguments, modes: &[Durability]) -> String {
    format!("{:.0} s", arguments.time.as_secs_f64() / modes.len() as f64)
}

fn plan(
    arguments: &Arguments,
    (durability, modes): (Durability, &[Durability]),
    seed: u64,
    host: &Host,
) -> Result<RunPlan> {
    let is_asked_for = |fault: &Fault| arguments.only.contains(fault);
    let is_possible = |fault: &Fault| match fault.obstacle(durability, host) {
        Some(chaos::catalogue::Obstacle::OnDemand) => is_asked_for(fault),
        Some(_) => false,
        None => arguments.only.is_empty() || is_asked_for(fault),
    };
    let beside = std::env::current_exe().context("this program's own path")?;
    let binary = arguments.binary.clone().unwrap_or_else(|| beside.with_file_name("palimpsest"));
    ensure!(binary.is_file(), "{} is no program: build it first", binary.display());
    let modes_count = u32::try_from(modes.len()).context("modes")?;
    Ok(RunPlan {
        binary: std::path::absolute(binary).context("the program under attack")?,
        durability,
        nodes: usize::from(arguments.nodes),
        protocol: arguments.protocol.clone(),
        mix: arguments.calls,
        // Another order of faults in each mode.
        seed: seed.wrapping_add(durability as u64),
        time: arguments.time / modes_count,
        faults: Fault::all().iter().copied().filter(is_possible).collect(),
        porcupine: arguments.porcupine.clone(),
        keep: arguments.keep.clone(),
        is_always_kept: arguments.keep_always,
        panic_after: arguments.panic_after,
    })
}

/// Prints the result of a run; true when it passed.
fn tell(done: &RunResult, arguments: &Arguments, host: &Host) -> bool {
    let wanted: Vec<Fault> = match arguments.only.is_empty() {
        true => Fault::all().iter().copied().filter(|f| *f != Fault::ForgetAll).collect(),
        false => arguments.only.clone(),
    };
    println!("\n{}\n{}\n", report::faults(done, &wanted, host), report::summary(done));
    for finding in &done.findings {
        println!("WRONG: {finding}\n");
    }
    if let Some(kept) = &done.kept {
        println!("histories, logs and data are in {}", kept.display());
    }
    done.findings.is_empty()
}

fn fresh_seed() -> u64 {
    let pid = u64::from(std::process::id());
    base::checksum::checksum(pid, &chaos::load::wall_ms().to_le_bytes()) % 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_minutes() {
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("3m"), Ok(Duration::from_secs(180)));
        assert!(parse_time("soon").is_err());
        assert!(parse_time("100000m").is_err());
    }
}
