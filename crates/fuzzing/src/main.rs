//! `cargo run -p fuzzing -- …`: lists targets, writes their seeds, replays an input. `./x fuzz` calls it.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use fuzzing::{TARGETS, find, mutate, redis};
use node::config::Durability;

#[derive(Parser)]
#[command(name = "fuzzing")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Name the targets, and what each holds.
    List,
    /// Write the seeds of every target into a folder of its name.
    Seeds { folder: PathBuf },
    /// Run a target once: on a file, or on bytes in hexadecimal digits.
    Replay { target: String, input: String },
    /// Run a target on inputs that a number draws, on any toolchain.
    Draw {
        target: String,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 100_000)]
        count: u64,
    },
    /// Send the same random command sequences to this store and to redis-server, and compare.
    Redis {
        /// Seconds.
        #[arg(long, default_value_t = 60)]
        time: u64,
        /// The first sequence's number.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many at most.
        #[arg(long, default_value_t = u64::MAX)]
        sequences: u64,
        #[arg(long, default_value_t = 1)]
        nodes: u16,
        /// volatile, pmem or disk.
        #[arg(long, default_value = "volatile")]
        durability: Durability,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().chore {
        Chore::List => {
            TARGETS.iter().for_each(|target| println!("{:<10} {}", target.name, target.claim))
        }
        Chore::Seeds { folder } => write_seeds(&folder)?,
        Chore::Replay { target, input } => (named(&target)?.run)(&bytes_of(&input)?),
        Chore::Draw { target, seed, count } => mutate::run(named(&target)?, seed, count),
        Chore::Redis { time, seed, sequences, nodes, durability } => {
            let time = Duration::from_secs(time);
            compare_with_redis(&redis::Options { seed, time, sequences, nodes, durability })?;
        }
    }
    Ok(())
}

fn compare_with_redis(options: &redis::Options) -> Result<()> {
    if let Some(obstacle) = redis::obstacle() {
        bail!("{obstacle}");
    }
    let is_terminal = std::io::stderr().is_terminal();
    let report = redis::compare(options, |report| {
        if is_terminal && report.sequences.is_multiple_of(100) {
            eprint!("\r{} sequences, {} replies", report.sequences, report.replies);
        }
    })?;
    if is_terminal {
        eprintln!();
    }
    let redis::Report { sequences, steps, replies, allowed, keys, passing } = report;
    println!(
        "{sequences} sequences from {}: {steps} commands, {replies} replies, {keys} keys in the end, all equal; \
         {allowed} replies differ as they may, {passing} sequences differed once and not again",
        options.seed
    );
    Ok(())
}

fn named(name: &str) -> Result<&'static fuzzing::Target> {
    find(name).with_context(|| format!("there is no target {name:?}: see `list`"))
}

fn write_seeds(folder: &std::path::Path) -> Result<()> {
    for target in TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = folder.join(format!("seed-{number}"));
            std::fs::write(&path, seed).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn bytes_of(input: &str) -> Result<Vec<u8>> {
    if let Ok(bytes) = std::fs::read(input) {
        return Ok(bytes);
    }
    ensure!(
        input.is_ascii() && input.len().is_multiple_of(2),
        "neither a file nor hexadecimal digits"
    );
    let byte = |at: usize| u8::from_str_radix(&input[at..at + 2], 16).context("hexadecimal digits");
    (0..input.len()).step_by(2).map(byte).collect()
}
