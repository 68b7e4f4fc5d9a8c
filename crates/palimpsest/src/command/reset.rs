//! `palimpsest reset`: makes a node forget its data.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use base::Millis;
use types::NodeId;

use crate::Failure;

#[derive(clap::Args)]
#[command(
    after_help = "Example, on every node of a volatile cluster that lost its majority:\n  palimpsest reset --id 1 --yes"
)]
pub(crate) struct Args {
    /// This node's id
    #[arg(long, env = "PALIMPSEST_ID", value_parser = clap::value_parser!(u16).range(1..))]
    id: u16,
    /// Directory of this node's data [default: ./palimpsest-data/<id>]
    #[arg(long, value_name = "DIR", env = "PALIMPSEST_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Confirm: this node's data is gone for good
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let dir = args
        .data_dir
        .clone()
        .unwrap_or_else(|| PathBuf::from("palimpsest-data").join(args.id.to_string()));
    if !args.yes {
        return Err(Failure::usage(format!(
            "this makes node {} forget everything in {}: add --yes",
            args.id,
            dir.display()
        )));
    }
    if !dir.is_dir() {
        return Err(Failure::usage(format!(
            "{} is no directory, so there is nothing to forget: give the node's --data-dir",
            dir.display()
        )));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    storage::data_dir::reset(&dir, NodeId(args.id), Millis(since.as_millis() as u64))
        .map_err(|error| Failure::usage(error.to_string()))?;
    println!("node {} has forgotten what was in {}", args.id, dir.display());
    Ok(())
}
