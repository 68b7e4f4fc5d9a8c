//! What `cargo metadata` knows of the workspace and of everything it depends on.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The answer of `cargo metadata`, as far as the checks need it.
#[derive(Deserialize)]
pub struct Metadata {
    /// Members of the workspace and, with dependencies, every package that can be built into them.
    pub packages: Vec<Package>,
}

/// One package.
#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub license: Option<String>,
    /// Where it was fetched from; `None` for a member of the workspace.
    pub source: Option<String>,
    pub dependencies: Vec<Dependency>,
}

/// One declared dependency of a package.
#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// The version requirement as written.
    pub req: String,
    /// `None` for an ordinary dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// Set for a crate of this workspace.
    pub path: Option<String>,
}

/// Which packages to list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Members,
    MembersAndDependencies,
}

/// Asks cargo about the workspace at `root`.
///
/// # Errors
/// When cargo fails, for example because a lock file has to change first.
pub fn read(root: &Path, scope: Scope) -> Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1"]).current_dir(root);
    if scope == Scope::Members {
        command.arg("--no-deps");
    }
    let output = command.output().context("cargo metadata did not start")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("cargo metadata answered something unexpected")
}
