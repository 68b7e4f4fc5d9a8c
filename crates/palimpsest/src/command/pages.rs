//! `palimpsest completions` and `palimpsest man`: pages made from the command line's own
//! description.

use std::io::Write as _;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{Cli, Failure};

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  palimpsest completions bash > /etc/bash_completion.d/palimpsest"
)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the script
    shell: Shell,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "palimpsest", &mut script);
    match std::io::stdout().write_all(&script) {
        Ok(()) => Ok(()),
        Err(error) => crate::output::give_up(&error),
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  palimpsest man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The directory for palimpsest.1 and a page of each command; it is made if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let write = || {
        std::fs::create_dir_all(&args.dir)?;
        clap_mangen::generate_to(Cli::command(), &args.dir)
    };
    write().map_err(|error| {
        let dir = args.dir.display();
        Failure::usage(format!("{dir}: {error}: give a directory that can be written"))
    })
}
