//! The project's chores: what `./x` hands over to.
//!
//! Checks of the repository itself live here as functions that return what is wrong, so that the tests
//! and `cargo xtask tidy` say the same. Nothing here is part of the product.

pub mod chaos;
pub mod chores;
pub mod edges;
pub mod fuzz;
pub mod licences;
pub mod metadata;
pub mod modules;
pub mod pgo;
pub mod pmem_vm;
pub mod porcupine;
pub mod programs;
pub mod release;
pub mod report;
pub mod source;
pub mod suites;
pub mod tidy;
pub mod tla;
pub mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/xtask lies two folders below the root").to_path_buf()
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    root().join(folder)
}

/// A program of the workspace as `cargo test --workspace` has left it: `cargo run` would build it once more, with fewer
/// features of what it depends on.
fn tested(program: &str) -> Command {
    let mut command = Command::new(target().join("debug").join(program));
    command.current_dir(root());
    command
}

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("did not start: {command:?}"))?;
    ensure!(status.success(), "{status}: {command:?}");
    Ok(())
}
