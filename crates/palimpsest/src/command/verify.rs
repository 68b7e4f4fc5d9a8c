//! `palimpsest verify`: a data directory, checked offline.

mod findings;
mod media;

use std::path::PathBuf;

use storage::data_dir::DataDir;

use crate::Failure;
use findings::Findings;

#[derive(clap::Args)]
#[command(
    after_help = "Exit code 0: everything is whole. 1: faults were found. 2: wrong usage.\n\n\
    --json prints one object: dir, node, result (whole, damaged or empty), faults_count, faults (medium and fault, the \
    first 1000) and media (medium, and counts of what was read).\n\n\
    Example:\n  palimpsest verify palimpsest-data/1"
)]
pub(crate) struct Args {
    /// The data directory of a node that does not run
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Report progress on stderr even if it is no terminal
    #[arg(long)]
    progress: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let dir = &args.dir;
    if !dir.is_dir() {
        return Err(Failure::usage(format!(
            "{} is no directory: give a node's --data-dir",
            dir.display()
        )));
    }
    let mut findings = Findings::new(args.json);
    let node = storage::data_dir::owner(dir).map_err(|error| Failure::usage(error.to_string()))?;
    let Some(node) = node else {
        match args.json {
            true => findings.print_json(dir, None),
            false => println!("{} is empty: there is no data to check", dir.display()),
        }
        return Ok(());
    };
    // Holding the directory keeps its node from starting meanwhile.
    let held = DataDir::look(dir, node).map_err(|error| Failure::usage(error.to_string()))?;
    if held.is_damaged() {
        let text = "one of the two copies of the identity is damaged; the next start repairs it";
        findings.fault("node", text);
    }
    if let Some(identity) = held.identity() {
        media::check(dir, identity, args.progress, &mut findings)?;
    }
    if args.json {
        findings.print_json(dir, Some(node));
    } else if findings.count == 0 {
        println!("{}: node {node}, everything is whole", dir.display());
    }
    match findings.count {
        0 => Ok(()),
        count => Err(Failure::fault(format!(
            "{count} faults in {}: the node recovers what is damaged from the others when it starts",
            dir.display()
        ))),
    }
}
