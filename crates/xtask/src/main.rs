//! `cargo xtask`, which `./x` calls once a machine has what is needed.

use std::process::ExitCode;

use clap::Parser;
use xtask::chores::Chore;

/// The project's chores.
#[derive(Parser)]
#[command(name = "xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

fn main() -> ExitCode {
    match xtask::chores::run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
