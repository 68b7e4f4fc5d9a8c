//! `./x chaos`: builds the release, the attacker and the program that asks Porcupine, and lets them loose.
//!
//! What it does to whom is in `crates/chaos`; this only prepares and becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{porcupine, root, run, target};

/// Builds, then becomes the attacker, so that signals reach it and its exit code is the chore's.
///
/// # Errors
/// When something cannot be built or started.
pub fn attack(mut cargo: Command, arguments: &[OsString]) -> Result<()> {
    cargo.args(["build", "--release", "--locked", "--package", "palimpsest", "--package", "chaos"]);
    run(&mut cargo)?;
    let program = target().join("release/chaos");
    let mut command = match is_root() {
        true => Command::new(program),
        // Only the attacker itself needs to be root.
        false => {
            let mut command = Command::new("sudo");
            command.arg(program);
            command
        }
    };
    match porcupine::obstacle() {
        None => {
            command.arg("--porcupine").arg(porcupine::build()?);
        }
        Some(obstacle) => println!("{obstacle}: Porcupine does not see the histories"),
    }
    command.args(arguments).current_dir(root());
    Err(command.exec()).context("the attacker did not start (it needs root, or sudo)")
}

fn is_root() -> bool {
    let mut command = Command::new("id");
    command.arg("-u").stderr(Stdio::null());
    command.output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
