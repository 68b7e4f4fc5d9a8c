//! What each chore runs, in order. A chore is a list of commands; the first that fails ends it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use crate::metadata::{self, Scope};
use crate::report::{Report, announce};
use crate::{
    chaos, edges, fuzz, licences, modules, pmem_vm, porcupine, programs, release, root, suites,
    target, tested, tidy, tla, words,
};

/// The short simulation of `test`. `./x sim` runs campaigns of any length.
const SIMULATIONS: &[Simulation] = &[
    Simulation { protocol: "rmwpaxos", faults: "all", seeds: "400", ops: "200" },
    Simulation { protocol: "rmwpaxos", faults: "none", seeds: "60", ops: "500" },
    Simulation { protocol: "abd", faults: "all", seeds: "250", ops: "200" },
    Simulation { protocol: "hermes", faults: "all", seeds: "200", ops: "100" },
    Simulation { protocol: "zab", faults: "all", seeds: "200", ops: "100" },
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
    /// Every check there is.
    Test,
    /// Every check there is, and cargo-deny where it is installed.
    Ci,
    /// Format the code and apply the lints' suggestions.
    Fix,
    /// Style, edges, licences.
    Tidy,
    /// Print which file of a crate uses which: CRATE [MODULE].
    Modules { crate_name: String, module: Option<String> },
    /// Lower the budgets of `tidy` for words to the present counts.
    Words,
    /// Build in release mode and measure.
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Build all that ships into dist/: packages, pages, completions, chart, checksums.
    Release(release::Arguments),
    /// Run client suites and other tests of the binary from outside.
    Suites(suites::Arguments),
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
        Chore::Bench { arguments } => product("bench", &["--features", "etcd"], &arguments),
        Chore::Chaos { arguments } => chaos::attack(cargo_command(), &arguments),
        Chore::PmemVm { arguments } => pmem_vm::cut_power(cargo_command, &arguments),
        Chore::Release(arguments) => release::build(cargo_command, &arguments),
        Chore::Suites(arguments) => suites::suites(cargo_command(), &arguments),
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
            cargo(&["fmt", "--all"])?;
            format_listed(&[])
        }
        Chore::Tidy => check_repository(),
        Chore::Modules { crate_name, module } => {
            let graph = modules::Graph::of(&root().join("crates").join(crate_name).join("src"))?;
            for line in graph.lines(module.as_deref().unwrap_or_default()) {
                println!("{line}");
            }
            for circle in graph.circles() {
                println!("circle: {}", circle.join(" "));
            }
            Ok(())
        }
        Chore::Words => words::lower(&root(), &tidy::files(&root())?),
    }
}

fn explore(arguments: &[OsString]) -> Result<()> {
    const EXAMPLE: [&str; 8] =
        ["run", "--release", "--locked", "--package", "sim", "--example", "explore", "--"];
    announce("cargo run --example explore");
    finish(cargo_command().args(EXAMPLE).args(arguments))
}

/// Runs every check and closes with the report.
fn test() -> Result<()> {
    let mut report = Report::default();
    let outcome = checks(&mut report);
    report.close(outcome)
}

/// Cheap checks come first: a slip costs seconds. A failed test does not stop the others.
fn checks(report: &mut Report) -> Result<()> {
    report.step("cargo fmt --check", |_| {
        finish(cargo_command().args(["fmt", "--all", "--check"]))?;
        format_listed(&["--check"])
    })?;
    report.step("tidy, edges, licences", |_| check_repository())?;
    report.step("cargo clippy", |_| finish(&mut clippy(&["--all-targets", MISTAKES])))?;
    report.step("cargo clippy, the product", |_| finish(&mut clippy(&["--lib", "--bins"])))?;
    let mut programs = report.step("build tests", |_| programs::build(cargo_test()))?;
    programs.extend(suites::short(&target().join("debug/palimpsest"))?);
    report.step("tests, suites", |report| report.tests(programs))?;
    report.step("porcupine", |_| compare_with_porcupine())?;
    report.step("random commands, compared with redis-server", |_| compare_with_redis())?;
    for Simulation { protocol, faults, seeds, ops } in SIMULATIONS {
        let how = ["--protocol", protocol, "--faults", faults, "--seeds", seeds, "--ops", ops];
        report.check(&format!("palimpsest sim --seed 1 {}", how.join(" ")), || {
            finish(tested("palimpsest").args(["sim", "--seed", "1"]).args(how))
        });
    }
    Ok(())
}

/// Formats the files that `modules!` declares: cargo fmt follows plain `mod` lines only.
fn format_listed(options: &[&str]) -> Result<()> {
    let root = root();
    let is_listed = |path: &String| {
        let folder = path.strip_prefix("crates/commands/src/");
        folder.is_some_and(|path| path.contains('/') && path.ends_with(".rs"))
            && root.join(path).exists()
    };
    let files = tidy::files(&root)?.into_iter().filter(is_listed);
    let mut rustfmt = Command::new("rustfmt");
    finish(rustfmt.current_dir(&root).args(["--edition", "2024"]).args(options).args(files))
}

fn check_repository() -> Result<()> {
    let root = root();
    let mut wrong = tidy::violations(&root)?;
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let members = metadata::read(&root, Scope::Members)?;
    wrong.extend(edges::violations(&edges::parse_floors(&page)?, &members));
    wrong.extend(modules::violations(&root)?);
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
        None => porcupine::compare(cargo_command(), &porcupine::Arguments::short()),
    }
}

/// redis-server is wanted for this alone; `./x test` installs it where it can.
fn compare_with_redis() -> Result<()> {
    match fuzz::obstacle() {
        Some(obstacle) => {
            println!("{obstacle}: random commands are not compared with it (./x fuzz redis)");
            Ok(())
        }
        None => fuzz::redis_short(),
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

/// Tests have the deliberate mistakes compiled in, all switched off but where a test names one.
/// One build is enough for all of them.
const MISTAKES: &str = "--features=mutations";

/// Every test program. Clippy compiles examples and benches; there are no documentation tests.
fn cargo_test() -> Command {
    let mut command = cargo_command();
    command.args(["test", "--locked", "--workspace", MISTAKES, "--lib", "--bins", "--tests"]);
    command
}

fn clippy(which: &[&str]) -> Command {
    let mut command = cargo_command();
    command.args(["clippy", "--locked", "--workspace"]).args(which).args(["--", "-D", "warnings"]);
    command
}

fn cargo(arguments: &[&str]) -> Result<()> {
    announce(&format!("cargo {}", arguments.join(" ")));
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
