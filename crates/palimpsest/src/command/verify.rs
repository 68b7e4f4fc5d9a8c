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
    faults += media::check(dir)?;
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
    use std::io::IsTerminal;
    use std::path::Path;

    use storage::disk::{OpenError, Progress};

    use crate::Failure;

    /// Checks every medium that has left something in `dir`; returns the number of faults, each already named.
    pub(super) fn check(dir: &Path) -> Result<u64, Failure> {
        Ok(check_pmem(dir)? + check_disk(dir)?)
    }

    fn check_pmem(dir: &Path) -> Result<u64, Failure> {
        if !dir.join(storage::pmem::FILE).exists() {
            return Ok(0);
        }
        let report =
            storage::pmem::verify(dir).map_err(|error| Failure::fault(error.to_string()))?;
        println!("pmem: {} registers, {} shard records", report.registers, report.metas);
        for fault in &report.faults {
            println!("pmem: {fault}");
        }
        Ok(report.faults_count)
    }

    fn check_disk(dir: &Path) -> Result<u64, Failure> {
        let shows = std::io::stderr().is_terminal();
        let mut told = 0;
        let mut progress = |Progress { done, total }: Progress| {
            let percent = (done * 100).checked_div(total).unwrap_or(100);
            if shows && percent != told {
                told = percent;
                eprint!("\r{percent} % of {total} buckets");
            }
        };
        let report = match storage::disk::verify_at(dir, &mut progress) {
            Err(OpenError::Missing) => return Ok(0),
            Err(error) => return Err(Failure::fault(error.to_string())),
            Ok(report) => report,
        };
        if shows {
            eprintln!();
        }
        println!(
            "disk: {} records in {} buckets, {} of them large, {} more in the ring",
            report.records, report.buckets, report.large_records, report.staged_records
        );
        if report.forgotten_shards > 0 {
            println!("disk: {} shards are marked as forgotten", report.forgotten_shards);
        }
        for bad in &report.bad {
            println!("disk: {bad}");
        }
        Ok(report.bad_count)
    }
}
