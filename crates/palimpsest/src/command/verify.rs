//! `palimpsest verify`: a data directory, checked offline.

use std::path::PathBuf;

use storage::data_dir::DataDir;

use crate::Failure;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  palimpsest verify palimpsest-data/1")]
pub(crate) struct Args {
    /// The data directory of a node that does not run
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let dir = &args.dir;
    if !dir.is_dir() {
        return Err(Failure::usage(format!(
            "{} is no directory: give a node's --data-dir",
            dir.display()
        )));
    }
    let node = storage::data_dir::owner(dir).map_err(|error| Failure::usage(error.to_string()))?;
    let Some(node) = node else {
        println!("{} is empty: nothing to check", dir.display());
        return Ok(());
    };
    // Holding the directory keeps its node from starting meanwhile.
    let held = DataDir::open(dir, node).map_err(|error| Failure::usage(error.to_string()))?;
    let mut faults = 0;
    if held.is_damaged() {
        faults += 1;
        println!(
            "node: one of the two copies of the identity is damaged; the next start repairs it"
        );
    }
    faults += media::check(dir, &held)?;
    match faults {
        0 => {
            println!("{}: node {}, everything is whole", dir.display(), node);
            Ok(())
        }
        count => Err(Failure::fault(format!(
            "{count} faults in {}: the node recovers what is damaged from the others when it starts",
            dir.display()
        ))),
    }
}

mod media {
    use std::path::Path;

    use storage::data_dir::DataDir;

    use crate::Failure;

    /// Checks every medium that has left something in `dir`; returns the number of faults, each already named.
    pub(super) fn check(dir: &Path, _held: &DataDir) -> Result<u64, Failure> {
        let mut faults = 0;
        if dir.join(storage::pmem::FILE).exists() {
            let report =
                storage::pmem::verify(dir).map_err(|error| Failure::fault(error.to_string()))?;
            println!("pmem: {} registers, {} shard records", report.registers, report.metas);
            for fault in &report.faults {
                println!("pmem: {fault}");
            }
            faults += report.faults_count;
        }
        Ok(faults)
    }
}
