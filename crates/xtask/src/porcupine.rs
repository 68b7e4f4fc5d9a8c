//! `./x porcupine`: our linearizability checker against Porcupine, on random histories.
//!
//! A Go program in `tools/porcupine` compares; what it is given stays in `target/porcupine/`.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::{root, run};

/// How many histories, and which.
#[derive(Args)]
pub struct Arguments {
    /// Histories of each model.
    #[arg(long, default_value_t = 1_000)]
    histories: u64,
    /// Seed of the first.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    /// What `./x test` has time for.
    #[must_use]
    pub fn short() -> Arguments {
        Arguments { histories: 100, seed: 1 }
    }
}

/// Why the comparison cannot be made on this machine; `None` if it can.
#[must_use]
pub fn obstacle() -> Option<&'static str> {
    let succeeds = |arguments: &[&str]| {
        let output = go().args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    match () {
        () if !succeeds(&["version"]) => Some("Go is not installed"),
        () if !succeeds(&["mod", "download"]) => Some("its Go module cannot be had"),
        () => None,
    }
}

/// Writes histories, builds the program that compares, runs it.
///
/// # Errors
/// When the checkers disagree, or anything could not be built or run.
pub fn compare(cargo: Command, arguments: &Arguments) -> Result<()> {
    let folder = root().join("target/porcupine");
    std::fs::create_dir_all(&folder).context("target/porcupine")?;
    let histories = folder.join("histories.jsonl");
    write_histories(cargo, arguments, File::create(&histories).context("histories.jsonl")?)?;
    run(go().args(["test", "."]))?;
    let program = build()?;
    run(Command::new(program).stdin(File::open(&histories).context("histories.jsonl")?))
}

/// Builds the program that compares; where it is.
///
/// # Errors
/// When it cannot be built.
pub fn build() -> Result<PathBuf> {
    let program = root().join("target/porcupine/compare");
    run(go().args(["build", "-buildvcs=false", "-o"]).arg(&program).arg("."))?;
    Ok(program)
}

fn write_histories(mut cargo: Command, arguments: &Arguments, into: File) -> Result<()> {
    cargo.args(["run", "--quiet", "--locked", "--package", "checker", "--example", "histories"]);
    cargo.arg("--").arg(arguments.histories.to_string()).arg(arguments.seed.to_string());
    run(cargo.stdout(into))
}

fn go() -> Command {
    let mut command = Command::new("go");
    command.current_dir(root().join("tools/porcupine"));
    command
}
