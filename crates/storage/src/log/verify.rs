//! The offline check of a log: every sector of the ring and both superblocks, without changing a byte.

use super::device::{Device, offset_of};
use super::engine::Engine;
use super::open::{OpenError, ring_binding, superblock};
use super::scan::{Found, Next, Scan};
use super::superblock::{COPIES, Superblock};
use crate::disk::stripe::Seen;

/// Faults that a report lists; further ones are only counted.
pub const FAULTS_MAX: usize = 10_000;

/// The outcome of an offline check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Records that are kept.
    pub records: u64,
    /// Stripes from the superblock's tail on.
    pub stripes: u64,
    /// Sectors of a store that was interrupted; opening clears them away.
    pub unfinished: u64,
    /// At most [`FAULTS_MAX`].
    pub faults: Vec<Fault>,
    pub faults_count: u64,
}

/// Something damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// One of the superblocks, at this offset of the file, is damaged or of another time than the other.
    Superblock { offset: u64 },
    /// A sector at this offset that parity restores, or that belongs to no stripe.
    Sector { offset: u64 },
    /// A batch behind `next`, the end of the readable log, cannot be read: it may have cut off
    /// earlier records.
    Lost { next: u64 },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Superblock { offset } => write!(f, "the superblock at byte {offset}"),
            Fault::Sector { offset } => write!(f, "the sector at byte {offset}; nothing is lost"),
            Fault::Lost { next } => {
                write!(f, "what came behind a batch that ended before {next} is lost")
            }
        }
    }
}

impl Report {
    fn add(&mut self, fault: Fault) {
        self.faults_count += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// Checks the log on a device that no node uses.
///
/// # Errors
/// Any [`OpenError`] but `Damaged`: then there is no log to check.
pub fn verify<D: Device>(device: &mut D) -> Result<Report, OpenError> {
    let (superblock, stale) = superblock(device)?;
    let mut report = Report::default();
    if !stale.is_empty() {
        report.add(Fault::Superblock { offset: Superblock::offset(COPIES - 1) });
    }
    let binding = ring_binding(superblock.binding);
    let mut engine = Engine::new(superblock.binding, binding, superblock);
    let mut scan = Scan::new(device, binding, &superblock);
    let is_whole = loop {
        match scan.next(engine.head()).map_err(OpenError::Io)? {
            Next::Damaged => break false,
            Next::End { .. } => break true,
            Next::Stripe(Found { position, sectors, first, batches, restored }) => {
                for position in restored.into_iter().flat_map(|(_, bad)| bad) {
                    report.add(Fault::Sector { offset: offset_of(position, superblock.ring) });
                }
                report.stripes += 1;
                if !engine.found(position, sectors, first, batches) {
                    break false;
                }
            }
        }
    };
    report.records = engine.next_index() - engine.first();
    if !is_whole {
        report.add(Fault::Lost { next: engine.next_index() });
        return Ok(report);
    }
    for position in engine.head()..superblock.tail + superblock.ring {
        match scan.see(position).map_err(OpenError::Io)? {
            Seen::Old => {}
            Seen::Current { .. } => report.unfinished += 1,
            Seen::Bad => {
                report.add(Fault::Sector { offset: offset_of(position, superblock.ring) });
            }
        }
    }
    Ok(report)
}
