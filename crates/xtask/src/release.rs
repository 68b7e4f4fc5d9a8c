//! `./x release`: everything that ships, in `dist/`.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::pgo;

/// How the binary is built.
#[derive(Args)]
pub struct Arguments {
    /// Build without profile-guided optimisation: three times faster.
    #[arg(long)]
    plain: bool,
}

/// Builds the binary.
///
/// # Errors
/// When a build fails.
pub fn build(cargo: impl Fn() -> Command, arguments: &Arguments) -> Result<()> {
    let program = pgo::build(cargo, !arguments.plain)?;
    println!("{}", program.display());
    Ok(())
}
