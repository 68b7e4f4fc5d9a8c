//! Checks every medium that has left files in a directory.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use storage::disk::OpenError;
use storage::identity::{Durability, Identity, Standing};
use storage::log::{self, FileDevice};
use storage::{Note, Progress};

use types::positions::PUBLIC;
use types::{Database, Positions};

use super::findings::Findings;
use crate::Failure;

/// Between two reports of progress on a terminal.
const TOLD_EVERY: Duration = Duration::from_millis(200);
/// The same if each is a line of its own.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(super) fn check(
    dir: &Path,
    identity: &Identity,
    has_asked: bool,
    findings: &mut Findings,
) -> Result<(), Failure> {
    check_pmem(dir, identity, has_asked, findings)?;
    check_disk(dir, identity, has_asked, findings)?;
    let logs = identity.databases.iter().filter(|one| one.has_log_area);
    logs.map(|one| one.index).try_for_each(|index| check_log(dir, identity, index, findings))
}

/// The log of one database.
fn check_log(
    dir: &Path,
    identity: &Identity,
    index: u8,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let name = format!("log-{index}");
    let path = log::file_of(dir, Database(index));
    let failed = |error: String| Failure::fault(format!("{}: {error}", path.display()));
    let before = findings.count;
    let report = match FileDevice::open(&path).map_err(failed)? {
        None if identity.standing != Standing::Formed => return Ok(()),
        None => {
            findings.fault(&name, "there is no log");
            return Ok(());
        }
        Some(mut device) => match log::verify(&mut device) {
            Ok(report) => report,
            Err(error) => {
                findings.fault(&name, error);
                return Ok(());
            }
        },
    };
    report.faults.iter().for_each(|fault| findings.fault(&name, fault));
    let lines = [format!("{} records in {} ring batches", report.records, report.stripes)];
    let counts = json!({ "records": report.records, "ring_batches": report.stripes });
    findings.medium(&name, counts, &lines);
    findings.set_count(before, report.faults_count);
    Ok(())
}

/// A missing store is a fault only if the node kept its registers there.
fn note_missing(
    identity: &Identity,
    durability: Durability,
    medium: &str,
    findings: &mut Findings,
) {
    if identity.durability == durability && identity.standing == Standing::Formed {
        findings.fault(medium, "there is no store");
    }
}

fn check_pmem(
    dir: &Path,
    identity: &Identity,
    has_asked: bool,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let path = dir.join(storage::pmem::FILE);
    let failed = |error| Failure::fault(format!("{}: {error}", path.display()));
    if !storage::data_dir::is_there(&path).map_err(failed)? {
        note_missing(identity, Durability::Pmem, "pmem", findings);
        return Ok(());
    }
    let before = findings.count;
    let mut teller = Teller::new("pmem", "shards", has_asked);
    let mut say = |note: Note<'_, _>| teller.on_note(&note, findings);
    let report = storage::pmem::verify(dir, identity.binding, &positions(identity), &mut say)
        .map_err(|error| Failure::fault(error.to_string()))?;
    teller.end();
    let mut lines = vec![format!("{} registers, {} shard records", report.registers, report.metas)];
    if !report.forgotten.is_empty() {
        lines.push(format!("{} shards are marked as forgotten", report.forgotten.len()));
    }
    let counts = json!({
        "registers": report.registers,
        "shard_records": report.metas,
        "forgotten_shards": report.forgotten.len(),
    });
    findings.medium("pmem", counts, &lines);
    findings.set_count(before, report.faults_count);
    Ok(())
}

fn positions(identity: &Identity) -> Positions {
    match &identity.cluster {
        Some(cluster) => Positions::new(&cluster.secret),
        None => PUBLIC.clone(),
    }
}

fn check_disk(
    dir: &Path,
    identity: &Identity,
    has_asked: bool,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let before = findings.count;
    let mut teller = Teller::new("disk", "buckets", has_asked);
    let mut say = |note: Note<'_, storage::disk::Bad>| teller.on_note(&note, findings);
    let report = match storage::disk::verify_at(dir, identity.binding, &mut say) {
        Err(OpenError::Missing) => {
            note_missing(identity, Durability::Disk, "disk", findings);
            return Ok(());
        }
        Err(error) => return Err(Failure::fault(format!("{}: {error}", dir.display()))),
        Ok(report) => report,
    };
    teller.end();
    let mut lines = vec![format!(
        "{} records in {} buckets, {} of them large, {} more in the ring",
        report.records, report.buckets, report.large_records, report.staged_records
    )];
    if report.forgotten_shards > 0 {
        lines.push(format!("{} shards are marked as forgotten", report.forgotten_shards));
    }
    let counts = json!({
        "records": report.records,
        "buckets": report.buckets,
        "large_records": report.large_records,
        "ring_records": report.staged_records,
        "forgotten_shards": report.forgotten_shards,
    });
    findings.medium("disk", counts, &lines);
    findings.set_count(before, report.bad_count);
    Ok(())
}

/// Passes faults on as they are found, and reports progress on stderr.
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

    fn on_note<B: std::fmt::Display>(&mut self, note: &Note<'_, B>, findings: &mut Findings) {
        match note {
            Note::Bad(bad) => findings.fault(self.medium, bad),
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
