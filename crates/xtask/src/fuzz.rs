//! `./x fuzz`, `./x miri`, `./x sanitize`, `./x shuttle`: what wants time or a nightly toolchain.
//!
//! `./x` installs the toolchain and cargo-fuzz; here is what is run with them. `docs/testing.md` says what each covers.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{root, tested};

/// Which target, and for how long.
#[derive(Args)]
pub struct Arguments {
    /// `redis`, or a target of `cargo run -p fuzzing -- list`; without it, all of them one after the other.
    target: Option<String>,
    /// Seconds, for each target.
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `redis`: sequences at most.
    #[arg(long)]
    sequences: Option<u64>,
    /// `redis`: nodes of the cluster that is asked.
    #[arg(long, default_value_t = 1)]
    nodes: u16,
    /// `redis`: volatile, pmem or disk.
    #[arg(long, default_value = "volatile")]
    durability: String,
}

/// The name under which redis-server is compared with.
const REDIS: &str = "redis";

/// Where corpora, findings and nightly builds lie.
const FOLDER: &str = "target/fuzz";

/// Fuzzes until the time is over.
///
/// # Errors
/// When something is found, or a program cannot be built.
pub fn fuzz(arguments: &Arguments) -> Result<()> {
    if arguments.target.as_deref() == Some(REDIS) {
        return redis(arguments);
    }
    let corpus = format!("{FOLDER}/corpus");
    run(product().args(["seeds", &corpus]))?;
    match &arguments.target {
        Some(name) => guided(name, arguments),
        None => {
            for name in targets()? {
                guided(&name, arguments)?;
            }
            redis(arguments)
        }
    }
}

/// What `./x test` has time for, with the program that its tests have left.
///
/// # Errors
/// When a reply or a state differs.
pub fn redis_short() -> Result<()> {
    run(tested("fuzzing").args([REDIS, "--time", "8", "--seed", "1"]))?;
    run(tested("fuzzing").args([
        REDIS,
        "--time",
        "4",
        "--seed",
        "1000000",
        "--durability",
        "disk",
        "--nodes",
        "3",
    ]))
}

/// Why there is no redis-server to compare with, if there is none.
#[must_use]
pub fn obstacle() -> Option<&'static str> {
    let output = Command::new("redis-server").arg("--version").output();
    (!output.is_ok_and(|output| output.status.success())).then_some("redis-server is not installed")
}

fn redis(arguments: &Arguments) -> Result<()> {
    let mut command = product();
    command.arg(REDIS).args(["--time", &arguments.time.to_string()]);
    command.args(["--seed", &arguments.seed.to_string(), "--nodes", &arguments.nodes.to_string()]);
    command.args(["--durability", &arguments.durability]);
    if let Some(sequences) = arguments.sequences {
        command.args(["--sequences", &sequences.to_string()]);
    }
    run(&mut command)
}

/// libFuzzer with AddressSanitizer, from the target's seeds and what was found in earlier runs.
fn guided(name: &str, arguments: &Arguments) -> Result<()> {
    let (corpus, found) = (format!("{FOLDER}/corpus/{name}"), format!("{FOLDER}/found/{name}/"));
    for folder in [&corpus, &found] {
        std::fs::create_dir_all(root().join(folder)).with_context(|| folder.clone())?;
    }
    let mut command = nightly();
    command.args([
        "fuzz",
        "run",
        "--fuzz-dir",
        "fuzz",
        "--target-dir",
        &format!("{FOLDER}/build"),
        name,
    ]);
    command.args([&root().join(&corpus)]).arg("--");
    command.arg(format!("-max_total_time={}", arguments.time));
    command.arg(format!("-seed={}", arguments.seed));
    command.arg(format!("-artifact_prefix={}", root().join(&found).display()));
    command.args(["-max_len=4096", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]);
    run(&mut command).with_context(|| {
        format!("{name}: what it found lies in {found}; cargo run -p fuzzing -- replay {name} FILE")
    })
}

fn targets() -> Result<Vec<String>> {
    let output = product().arg("list").output().context("cargo did not start")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).context("names of targets")?;
    Ok(text.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect())
}

/// The tests that Miri runs: those of `unsafe` code that maps no file and asks no system, and of words whose bytes are
/// shared by code of others that is `unsafe`. What draws many cases is left to ordinary tests.
const MIRI: &[&[&str]] = &[
    &["--package", "storage", "--lib", "pmem::persist"],
    &["--package", "storage", "--lib", "pmem::mapped"],
    &["--package", "storage", "--lib", "volatile::packed"],
    &["--package", "protocols", "--lib", "rmwpaxos::state"],
    &[
        "--package",
        "transport",
        "--lib",
        "frame::",
        "--",
        "--skip",
        "come_back",
        "--skip",
        "any_changed",
    ],
    &["--package", "resp", "--lib"],
];

/// Runs what Miri can.
///
/// # Errors
/// Undefined behaviour, or a test that fails.
pub fn miri() -> Result<()> {
    for arguments in MIRI {
        let mut command = nightly();
        command.args(["miri", "test", "--locked"]).args(*arguments);
        command
            .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-strict-provenance")
            .env("PROPTEST_CASES", "4");
        command.env("CARGO_TARGET_DIR", root().join(FOLDER).join("miri"));
        run(&mut command)?;
    }
    Ok(())
}

/// Tests that run under a sanitizer: those of `unsafe` code and of threads. What only computes for long is left out, and
/// what asks much of nodes under ThreadSanitizer: some ten times slower, they do not answer in time.
const SANITIZED: &[(&str, &str)] = &[
    ("address", "--package storage --lib"),
    ("address", "--package storage --test disk shell"),
    ("address", "--package storage --test pmem file"),
    ("address", "--package node --test nodes"),
    ("thread", "--package storage --lib disk::shell"),
    ("thread", "--package storage --test disk shell"),
    ("thread", "--package node --lib mailbox"),
    ("thread", "--package node --test nodes -- --skip bursts --skip pipelines --skip slow_peer"),
];

/// Runs the tests of what has `unsafe` code or threads under AddressSanitizer and ThreadSanitizer.
///
/// # Errors
/// What a sanitizer finds, or a test that fails.
pub fn sanitize() -> Result<()> {
    // Named, so that what runs while building is built without the sanitizer.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    for (sanitizer, arguments) in SANITIZED {
        let mut command = nightly();
        command.args(["test", "--locked", "--target", &host]);
        if *sanitizer == "thread" {
            // It must know what the standard library's own synchronisation orders.
            command.arg("-Zbuild-std");
        }
        command.args(arguments.split_whitespace());
        command.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
        command.env("CARGO_TARGET_DIR", root().join(FOLDER).join(sanitizer));
        run(&mut command)?;
    }
    Ok(())
}

/// Tries interleavings of what threads hand each other.
///
/// # Errors
/// The first that fails, with how to replay it.
pub fn shuttle() -> Result<()> {
    for package in ["node", "storage"] {
        let mut command = stable();
        command.args(["test", "--locked", "--package", package, "--features", "shuttle"]);
        command.args(["--lib", "interleavings", "--", "--nocapture"]);
        command.env("CARGO_TARGET_DIR", root().join(FOLDER).join("shuttle"));
        run(&mut command)?;
    }
    Ok(())
}

fn stable() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The program of `crates/fuzzing`.
fn product() -> Command {
    let mut command = stable();
    command.args(["run", "--quiet", "--locked", "--package", "fuzzing", "--"]);
    command
}

/// Cargo of the nightly toolchain, whatever this program was started with.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root());
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command
}

fn run(command: &mut Command) -> Result<()> {
    println!("==> {command:?}");
    crate::run(command)
}
