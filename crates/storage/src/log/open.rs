//! Making a log, and opening one: the superblock, the stripes from its tail on, and the end put in order.

use bytes::Bytes;

use super::device::{Device, RING_AT, SECTORS_MAX, SECTORS_MIN, Store, Write, offset_of};
use super::engine::Engine;
use super::scan::{Found, Next, Scan};
use super::superblock::{COPIES, Copy, FORMAT, Superblock};
use crate::disk::stripe::{SECTOR, blank};

/// Blanks that are written at once while a log is made.
const CHUNK: u64 = 2048;

/// Why a log is not opened. It is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no log")]
    Missing,
    #[error("{0}")]
    Io(String),
    #[error("the log was made for another node: put back the one that belongs here")]
    Foreign,
    #[error("the log has format {0}, this version knows {FORMAT}: run the version that wrote it")]
    UnknownFormat(u16),
    #[error("the log is damaged in both superblocks: the node must be reset and rejoin")]
    Superblocks,
    /// A batch behind `next`, the end of the readable log, cannot be read: it may have cut off
    /// earlier records.
    #[error(
        "the log is damaged behind a batch that ended before {next}: the node must be reset and rejoin"
    )]
    Damaged { next: u64 },
}

/// The value that the ring's checksums depend on; no sector of the `disk` medium's ring verifies in
/// a log.
pub(super) fn ring_binding(binding: u64) -> u64 {
    base::checksum::checksum(binding, b"log")
}

/// Makes a device an empty log of so many sectors, whose first index is 1. Until it has returned
/// there is none.
///
/// # Errors
/// The device's reason.
///
/// # Panics
/// If a ring cannot have so many sectors.
pub fn create<D: Device>(device: &mut D, binding: u64, sectors: u64) -> Result<(), String> {
    assert!((SECTORS_MIN..=SECTORS_MAX).contains(&sectors), "a ring of {sectors} sectors");
    for first in (0..sectors).step_by(CHUNK as usize) {
        let mut bytes = Vec::new();
        for position in first..sectors.min(first + CHUNK) {
            bytes.extend_from_slice(&blank(ring_binding(binding), position));
        }
        device.store(&one(offset_of(first, sectors), bytes))?;
    }
    let superblock = Superblock { binding, ring: sectors, tail: sectors, first: 1 };
    (0..COPIES)
        .try_for_each(|copy| device.store(&one(Superblock::offset(copy), superblock.encode(copy))))
}

fn one(offset: u64, bytes: Vec<u8>) -> Store {
    Store { writes: vec![Write { offset, bytes: bytes.into() }] }
}

/// The newer superblock, and the copies that do not say the same.
pub(super) fn superblock<D: Device>(device: &mut D) -> Result<(Superblock, Vec<u64>), OpenError> {
    let mut found = Vec::new();
    let mut unknown = None;
    let len = device.size().map_err(OpenError::Io)?;
    for copy in 0..COPIES {
        let mut bytes = vec![0; SECTOR];
        if Superblock::offset(copy) + SECTOR as u64 <= len {
            device.read(Superblock::offset(copy), &mut bytes).map_err(OpenError::Io)?;
        }
        match Superblock::decode(&bytes, copy) {
            Copy::Whole(superblock) => found.push(superblock),
            Copy::Unknown(format) => unknown = Some(format),
            Copy::Damaged => {}
        }
    }
    if let Some(format) = unknown {
        return Err(OpenError::UnknownFormat(format));
    }
    let newest = found.iter().max_by_key(|superblock| (superblock.tail, superblock.first));
    let newest = *newest.ok_or(OpenError::Superblocks)?;
    let has_room = newest.ring >= SECTORS_MIN
        && newest.ring <= SECTORS_MAX
        && len >= RING_AT + newest.ring * SECTOR as u64;
    if !has_room || newest.tail < newest.ring {
        return Err(OpenError::Superblocks);
    }
    let differs = found.len() < COPIES as usize || found.iter().any(|one| *one != newest);
    let stale = if differs { (0..COPIES).collect() } else { Vec::new() };
    Ok((newest, stale))
}

/// Opens the log on a device: reads the needed part of the ring, restores sectors by parity, and
/// clears away the rest of an interrupted store behind the end.
///
/// # Errors
/// Any [`OpenError`].
pub fn open<D: Device>(device: &mut D, binding: u64) -> Result<Engine, OpenError> {
    let (superblock, stale) = superblock(device)?;
    if superblock.binding != binding {
        return Err(OpenError::Foreign);
    }
    let mut store = Store::default();
    for copy in stale {
        let bytes = superblock.encode(copy).into();
        store.writes.push(Write { offset: Superblock::offset(copy), bytes });
    }
    let mut engine = Engine::new(binding, ring_binding(binding), superblock);
    let mut scan = Scan::new(device, ring_binding(binding), &superblock);
    loop {
        let next = engine.next_index();
        match scan.next(engine.head()).map_err(OpenError::Io)? {
            Next::Damaged => return Err(OpenError::Damaged { next }),
            Next::Stripe(Found { position, sectors, first, batches, restored }) => {
                if let Some((bytes, bad)) = restored {
                    store.writes.extend(sectors_of(&bytes, position, &bad, superblock.ring));
                }
                if !engine.found(position, sectors, first, batches) {
                    return Err(OpenError::Damaged { next });
                }
            }
            Next::End { stale } => {
                for position in stale {
                    let offset = offset_of(position, superblock.ring);
                    store.writes.push(Write { offset, bytes: scan.blank(position).into() });
                }
                break;
            }
        }
    }
    if !store.writes.is_empty() {
        device.store(&store).map_err(OpenError::Io)?;
    }
    Ok(engine)
}

/// Writes for some sectors of a stripe.
fn sectors_of(bytes: &[u8], position: u64, which: &[u64], ring: u64) -> Vec<Write> {
    let write = |&at: &u64| {
        let sector = &bytes[(at - position) as usize * SECTOR..][..SECTOR];
        Write { offset: offset_of(at, ring), bytes: Bytes::copy_from_slice(sector) }
    };
    which.iter().map(write).collect()
}
