//! What each chore runs, in order. A chore is a list of commands; the first that fails ends it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use crate::metadata::{self, Scope};
use crate::{chaos, edges, fuzz, licences, pgo, pmem_vm, porcupine, root, tested, tidy, tla};

/// How much the short simulation of `test` does: one line per protocol that must hold.
const SIMULATIONS: &[Simulation] = &[
    Simulation { protocol: "rmwpaxos", faults: "all", seeds: "5500", ops: "200" },
    Simulation { protocol: "rmwpaxos", faults: "none", seeds: "500", ops: "500" },
    Simulation { protocol: "abd", faults: "all", seeds: "2000", ops: "200" },
    Simulation { protocol: "hermes", faults: "all", seeds: "1000", ops: "100" },
    Simulation { protocol: "zab", faults: "all", seeds: "1000", ops: "100" },
];

/// Seeds that every change must pass.
struct Simulation {
    protocol: &'static str,
    faults: &'static str,
    seeds: &'static str,
    ops: &'static str,
}

/// One chore.
#[derive(Subcommand)]
pub enum Chore {
    /// Build in release mode and start three nodes on this machine.
    Run {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Every check there is.
    Test,
    /// Every check there is, and cargo-deny where it is installed.
    Ci,
    /// Format the code and apply the lints' suggestions.
    Fix,
    /// Style, edges, licences.
    Tidy,
    /// Build in release mode and measure.
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Renew the profile that release builds are built by.
    Pgo,
    /// Hold the linearizability checker against Porcupine.
    Porcupine(porcupine::Arguments),
    /// Build in release mode and attack real processes in network namespaces.
    Chaos {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Build in release mode and cut the power of guests with emulated persistent memory.
    PmemVm {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Build in release mode and explore small worlds to their end: [PROTOCOL [STATES_MAX [SECONDS_MAX [WORLD]]]].
    Explore {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Fuzz: all targets, one of them, or `redis`.
    Fuzz(fuzz::Arguments),
    /// Run what Miri can of the crates with `unsafe` code.
    Miri,
    /// Run the tests of what has `unsafe` code or threads under sanitizers.
    Sanitize,
    /// Try interleavings of what threads hand each other.
    Shuttle,
    /// Check the TLA+ models in docs/tla by TLC: [MODEL].
    Tla(tla::Arguments),
    /// Build in release mode and run the simulator.
    Sim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run deliberate mistakes until the simulator catches each.
    Mutants {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Runs a chore to its end.
///
/// # Errors
/// When a command fails; its own output has said why.
pub fn run(chore: Chore) -> Result<()> {
    match chore {
        Chore::Run { arguments } => product("dev", &[], &arguments),
        Chore::Bench { arguments } => product("bench", &["--features", "etcd"], &arguments),
        Chore::Chaos { arguments } => chaos::attack(cargo_command(), &arguments),
        Chore::PmemVm { arguments } => pmem_vm::cut_power(cargo_command, &arguments),
        Chore::Pgo => pgo::renew(cargo_command),
        Chore::Explore { arguments } => explore(&arguments),
        Chore::Sim { arguments } => product("sim", &[], &arguments),
        Chore::Porcupine(arguments) => porcupine::compare(cargo_command(), &arguments),
        Chore::Mutants { arguments } => mutants(&arguments),
        Chore::Fuzz(arguments) => fuzz::fuzz(&arguments),
        Chore::Miri => fuzz::miri(),
        Chore::Sanitize => fuzz::sanitize(),
        Chore::Shuttle => fuzz::shuttle(),
        Chore::Tla(arguments) => tla::check(&arguments),
        Chore::Test => test(),
        Chore::Ci => {
            deny()?;
            test()
        }
        Chore::Fix => {
            cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--fix",
                "--allow-dirty",
                "--allow-staged",
            ])?;
            cargo(&["fmt", "--all"])
        }
        Chore::Tidy => check_repository(),
    }
}

fn explore(arguments: &[OsString]) -> Result<()> {
    const EXAMPLE: [&str; 8] =
        ["run", "--release", "--locked", "--package", "sim", "--example", "explore", "--"];
    step("cargo run --example explore");
    finish(cargo_command().args(EXAMPLE).args(arguments))
}

/// Cheap checks first, so that a slip costs seconds.
fn test() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    check_repository()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    let mut counts = cargo_test(&["--workspace"])?;
    counts.add(cargo_test(MISTAKES)?);
    compare_with_porcupine()?;
    compare_with_redis()?;
    for simulation in SIMULATIONS {
        let Simulation { protocol, faults, seeds, ops } = simulation;
        let how = ["--protocol", protocol, "--faults", faults, "--seeds", seeds, "--ops", ops];
        step(&format!("palimpsest sim --seed 1 {}", how.join(" ")));
        finish(tested("palimpsest").args(["sim", "--seed", "1"]).args(how))?;
    }
    let passed = counts.passed + SIMULATIONS.len();
    println!("{passed} passed, 0 failed");
    Ok(())
}

fn check_repository() -> Result<()> {
    step("tidy, edges, licences");
    let root = root();
    let mut wrong = tidy::violations(&root)?;
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let members = metadata::read(&root, Scope::Members)?;
    wrong.extend(edges::violations(&edges::parse_floors(&page)?, &members));
    let rules = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let packages = metadata::read(&root, Scope::MembersAndDependencies)?;
    wrong.extend(licences::violations(&licences::parse_rules(&rules)?, &packages));
    if !wrong.is_empty() {
        bail!("the repository breaks its own rules:\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// Go and its module are wanted for this alone.
fn compare_with_porcupine() -> Result<()> {
    match porcupine::obstacle() {
        Some(obstacle) => {
            println!("{obstacle}: the checker is not compared with Porcupine (./x porcupine)");
            Ok(())
        }
        None => {
            step("porcupine");
            porcupine::compare(cargo_command(), &porcupine::Arguments::short())
        }
    }
}

/// redis-server is wanted for this alone; `./x test` installs it where it can.
fn compare_with_redis() -> Result<()> {
    match fuzz::obstacle() {
        Some(obstacle) => {
            println!("{obstacle}: random commands are not compared with it (./x fuzz redis)");
            Ok(())
        }
        None => {
            step("random commands, compared with redis-server");
            fuzz::redis_short()
        }
    }
}

/// Advisories and yanked versions need a network and a tool of their own.
fn deny() -> Result<()> {
    let there =
        Command::new("cargo-deny").arg("--version").output().is_ok_and(|o| o.status.success());
    if there {
        return cargo(&["deny", "check"]);
    }
    println!("cargo-deny is not installed: advisories are not checked (cargo install cargo-deny)");
    Ok(())
}

/// Becomes the product, so that signals reach it and its exit code is the chore's.
fn product(subcommand: &str, features: &[&str], arguments: &[OsString]) -> Result<()> {
    let mut command = cargo_command();
    command.args(["run", "--quiet", "--release", "--locked", "--package", "palimpsest"]);
    command.args(features).arg("--").arg(subcommand).args(arguments);
    Err(command.exec()).context("cargo did not start")
}

/// Becomes the example that runs them: the product is never built with mistakes in it.
fn mutants(arguments: &[OsString]) -> Result<()> {
    let mut command = cargo_command();
    command.args(["run", "--quiet", "--release", "--locked", "--package", "sim"]);
    command.args(["--features", "mutations", "--example", "mutants", "--"]).args(arguments);
    Err(command.exec()).context("cargo did not start")
}

/// Tests that deliberate mistakes are caught, by name: the rest of these crates has been tested without them.
const MISTAKES: &[&str] =
    &["--package", "storage", "--package", "sim", "--features", "sim/mutations", "mistakes::"];

/// What cargo's test runner counted, over all its binaries.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        self.passed += more.passed;
        self.failed += more.failed;
    }
}

/// Runs tests, passes their output on and adds up the runners' own counts.
fn cargo_test(which: &[&str]) -> Result<Counts> {
    step(&format!("cargo test --no-fail-fast --locked {}", which.join(" ")));
    let mut command = cargo_command();
    command.args(["test", "--no-fail-fast", "--locked"]).args(which).stdout(Stdio::piped());
    let mut child = command.spawn().context("cargo test did not start")?;
    let output = child.stdout.take().expect("standard output was asked for");
    let mut counts = Counts::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("cargo test's output ended early")?;
        println!("{line}");
        if let Some((passed, failed)) = parse_result(&line) {
            counts.passed += passed;
            counts.failed += failed;
        }
    }
    let status = child.wait().context("cargo test")?;
    if !status.success() || counts.failed > 0 {
        println!("{} passed, {} failed", counts.passed, counts.failed);
        bail!("cargo test failed");
    }
    if counts.passed == 0 {
        bail!("cargo test ran no test");
    }
    Ok(counts)
}

/// `test result: ok. 12 passed; 0 failed; …`
fn parse_result(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = counts.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

fn cargo(arguments: &[&str]) -> Result<()> {
    step(&format!("cargo {}", arguments.join(" ")));
    finish(cargo_command().args(arguments))
}

fn cargo_command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

fn finish(command: &mut Command) -> Result<()> {
    let start = Instant::now();
    let status = command.status().context("cargo did not start")?;
    if !status.success() {
        bail!("failed after {:.0} s: {command:?}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn step(what: &str) {
    println!("==> {what}");
    // Commands that follow write to the same place; a failure to flush shows there too.
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_runners_closing_line() {
        let line = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out";
        assert_eq!(parse_result(line), Some((12, 0)));
        assert_eq!(
            parse_result("test result: FAILED. 1 passed; 2 failed; 0 ignored"),
            Some((1, 2))
        );
        assert_eq!(parse_result("test a::b ... ok"), None);
    }
}
