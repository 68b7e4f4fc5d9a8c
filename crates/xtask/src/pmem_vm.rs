//! `./x pmem-vm`: builds the release, the storage crate's tests and the harness, and lets it cut power.
//!
//! What it does is in `crates/pmem-vm`; this only prepares and becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{root, run, target};

/// Builds, then becomes the harness, so that signals reach it and its exit code is the chore's.
///
/// # Errors
/// When something cannot be built or started.
pub fn cut_power(cargo: impl Fn() -> Command, arguments: &[OsString]) -> Result<()> {
    let mut build = cargo();
    build.args([
        "build",
        "--release",
        "--locked",
        "--package",
        "palimpsest",
        "--package",
        "pmem-vm",
    ]);
    run(&mut build)?;
    let tests = storage_tests(cargo())?;
    let mut command = Command::new(target().join("release/pmem-vm"));
    command.arg("host").arg("--storage-tests").arg(tests).args(arguments).current_dir(root());
    Err(command.exec()).context("the harness did not start")
}

/// Builds the storage crate's tests of `pmem`; where the program is.
fn storage_tests(mut cargo: Command) -> Result<PathBuf> {
    cargo.args(["test", "--no-run", "--locked", "--package", "storage", "--test", "pmem"]);
    let output = cargo.arg("--message-format=json").stderr(Stdio::inherit()).output();
    let output = output.context("cargo did not start")?;
    ensure!(output.status.success(), "{}: {cargo:?}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let program = text.lines().rev().find_map(executable);
    program.context("cargo built no tests")
}

/// The program that a message of cargo's speaks of.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_among_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","executable":"target/debug/deps/pmem-1"}"#;
        assert_eq!(executable(line), Some("target/debug/deps/pmem-1".into()));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable("no message"), None);
    }
}
