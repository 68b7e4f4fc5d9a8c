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
    /// Say on stderr how far it is, also where that is no terminal
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
    let node = storage::data_dir::owner(dir).map_err(|error| Failure::usage(error.to_string()))?;
    let Some(node) = node else {
        println!("{} is empty: nothing to check", dir.display());
        return Ok(());
    };
    // Holding the directory keeps its node from starting meanwhile.
    let held = DataDir::look(dir, node).map_err(|error| Failure::usage(error.to_string()))?;
    let mut faults = 0;
    if held.is_damaged() {
        faults += 1;
        println!(
            "node: one of the two copies of the identity is damaged; the next start repairs it"
        );
    }
    if let Some(identity) = held.identity() {
        faults += media::check(dir, identity, args.progress)?;
    }
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
    use std::time::{Duration, Instant};

    use storage::disk::OpenError;
    use storage::identity::{Durability, Identity, Standing};
    use storage::{Note, Progress};

    use crate::Failure;

    /// Between two words on how far it is.
    const TOLD_EVERY: Duration = Duration::from_millis(200);
    /// The same where each is a line of its own.
    const LINE_EVERY: Duration = Duration::from_secs(5);

    /// Checks every medium that has left something in `dir`; returns the number of faults, each already named.
    pub(super) fn check(dir: &Path, identity: &Identity, has_asked: bool) -> Result<u64, Failure> {
        Ok(check_pmem(dir, identity, has_asked)? + check_disk(dir, identity, has_asked)?)
    }

    /// There is nothing of a medium: as it should be, unless the node kept its registers there.
    fn missing(identity: &Identity, durability: Durability, medium: &str) -> u64 {
        let is_expected =
            identity.durability == durability && identity.standing == Standing::Formed;
        if is_expected {
            println!("{medium}: there is no store");
        }
        u64::from(is_expected)
    }

    fn check_pmem(dir: &Path, identity: &Identity, has_asked: bool) -> Result<u64, Failure> {
        let path = dir.join(storage::pmem::FILE);
        let failed = |error| Failure::fault(format!("{}: {error}", path.display()));
        if !storage::data_dir::is_there(&path).map_err(failed)? {
            return Ok(missing(identity, Durability::Pmem, "pmem"));
        }
        let mut teller = Teller::new("pmem", "shards", has_asked);
        let report =
            storage::pmem::verify(dir, identity.binding, &mut |note| teller.on_note(&note))
                .map_err(|error| Failure::fault(error.to_string()))?;
        teller.end();
        println!("pmem: {} registers, {} shard records", report.registers, report.metas);
        if !report.forgotten.is_empty() {
            println!("pmem: {} shards are marked as forgotten", report.forgotten.len());
        }
        Ok(report.faults_count)
    }

    fn check_disk(dir: &Path, identity: &Identity, has_asked: bool) -> Result<u64, Failure> {
        let mut teller = Teller::new("disk", "buckets", has_asked);
        let mut say = |note: Note<'_, storage::disk::Bad>| teller.on_note(&note);
        let report = match storage::disk::verify_at(dir, identity.binding, &mut say) {
            Err(OpenError::Missing) => return Ok(missing(identity, Durability::Disk, "disk")),
            Err(error) => return Err(Failure::fault(format!("{}: {error}", dir.display()))),
            Ok(report) => report,
        };
        teller.end();
        println!(
            "disk: {} records in {} buckets, {} of them large, {} more in the ring",
            report.records, report.buckets, report.large_records, report.staged_records
        );
        if report.forgotten_shards > 0 {
            println!("disk: {} shards are marked as forgotten", report.forgotten_shards);
        }
        Ok(report.bad_count)
    }

    /// Names bad places on stdout as they are found, and says on stderr how far it is, now and then.
    struct Teller {
        medium: &'static str,
        unit: &'static str,
        shows: bool,
        is_terminal: bool,
        told_at: Instant,
    }

    impl Teller {
        fn new(medium: &'static str, unit: &'static str, has_asked: bool) -> Teller {
            let is_terminal = std::io::stderr().is_terminal();
            let shows = is_terminal || has_asked;
            Teller { medium, unit, shows, is_terminal, told_at: Instant::now() }
        }

        fn on_note<B: std::fmt::Display>(&mut self, note: &Note<'_, B>) {
            match note {
                Note::Bad(bad) => println!("{}: {bad}", self.medium),
                Note::Progress(progress) => self.on_progress(*progress),
            }
        }

        fn on_progress(&mut self, Progress { done, total }: Progress) {
            let every = if self.is_terminal { TOLD_EVERY } else { LINE_EVERY };
            let is_due = done == total || self.told_at.elapsed() >= every;
            if !self.shows || !is_due {
                return;
            }
            self.told_at = Instant::now();
            let percent = (done * 100).checked_div(total).unwrap_or(100);
            let text = format!("{}: {percent} % of {total} {}", self.medium, self.unit);
            match self.is_terminal {
                true => eprint!("\r{text}"),
                false => eprintln!("{text}"),
            }
        }

        fn end(&self) {
            if self.shows && self.is_terminal {
                eprintln!();
            }
        }
    }
}
