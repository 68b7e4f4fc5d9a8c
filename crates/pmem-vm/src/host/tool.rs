//! Programs of the host, run to their end.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a program and returns its output.
///
/// # Errors
/// When it cannot be started or fails; with its error output.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} cannot be started"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
