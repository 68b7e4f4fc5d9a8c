//! A start mends sectors of the ring. It makes those blank that would look like part of a batch, at
//! once or a lap later, and writes those that parity has given back.

use crate::disk::io::{Blocking, File, Files, Write};
use crate::disk::recovery::Restored;
use crate::disk::ring::Ring;
use crate::disk::stripe::{SECTOR, blank};

/// Bytes of blanks in one write.
const PART_LEN_MAX: usize = 256 << 10;

/// Makes sectors ahead of the head blank: left there, they would look like part of a batch that
/// does not get that far.
pub(super) fn blank_ahead(
    medium: &mut Blocking<'_>,
    binding: u64,
    ring: &Ring,
    positions: &[u64],
) -> Result<(), String> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for position in positions.iter().filter(|&&position| position >= ring.head) {
        let position = position - ring.sectors;
        let (offset, sector) = (offset_of(position, ring), blank(binding, position));
        let is_next = |(first, run): &&mut (u64, Vec<u8>)| {
            first + run.len() as u64 == offset && run.len() < PART_LEN_MAX
        };
        match runs.last_mut().filter(is_next) {
            Some((_, run)) => run.extend_from_slice(&sector),
            None => runs.push((offset, sector.to_vec())),
        }
    }
    let write =
        |(offset, run): (u64, Vec<u8>)| Write { file: File::Ring, offset, bytes: run.into() };
    store(medium, runs.into_iter().map(write).collect())
}

/// Writes the sectors that parity has given back. Whatever such a sector may show when it is read
/// another time, its batch stays whole, and may lose another one.
pub(super) fn restore(
    medium: &mut Blocking<'_>,
    ring: &Ring,
    restored: &[Restored],
) -> Result<(), String> {
    // If batches gave way to a mark it may stand in their place.
    let kept = restored.iter().filter(|it| it.position + ring.sectors >= ring.head);
    let write = |Restored { position, sector }: &Restored| Write {
        file: File::Ring,
        offset: offset_of(*position, ring),
        bytes: sector.clone(),
    };
    store(medium, kept.map(write).collect())
}

fn offset_of(position: u64, ring: &Ring) -> u64 {
    position % ring.sectors * SECTOR as u64
}

fn store(medium: &mut Blocking<'_>, writes: Vec<Write>) -> Result<(), String> {
    if writes.is_empty() { Ok(()) } else { medium.store(writes, Files::of(File::Ring)) }
}
