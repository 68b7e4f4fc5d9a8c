//! A start makes sectors of the ring what they should be: blank where they would look like part of a stripe, a lap later or at
//! once, and whole where parity has given them back.

use super::Engine;
use crate::disk::io::{Blocking, File, Files, Write};
use crate::disk::recovery::Restored;
use crate::disk::stripe::{SECTOR, blank};

/// Bytes of blanks in one write.
const PART_LEN_MAX: usize = 256 << 10;

impl Engine {
    /// Makes sectors ahead of the head blank: left there, they would look like part of a stripe that does not get that far.
    pub(super) fn blank(&self, medium: &mut Blocking<'_>, positions: &[u64]) -> Result<(), String> {
        let ahead = positions.iter().filter(|&&position| position >= self.ring.head);
        store(medium, self.blanks(ahead.map(|position| position - self.ring.sectors)))
    }

    /// Writes what parity has given back: whatever such a sector may show when it is read another time, its stripe stays as
    /// whole as it was found, and may lose another one.
    pub(super) fn restore(
        &self,
        medium: &mut Blocking<'_>,
        restored: &[Restored],
    ) -> Result<(), String> {
        store(medium, self.restored(restored))
    }

    /// Blanks of these positions, neighbours in one piece.
    fn blanks(&self, positions: impl Iterator<Item = u64>) -> Vec<Write> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for position in positions {
            let offset = self.offset_of(position);
            let sector = blank(self.binding, position);
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
        runs.into_iter().map(write).collect()
    }

    fn restored(&self, restored: &[Restored]) -> Vec<Write> {
        // Where stripes gave way to a mark it may stand in their place.
        let kept = restored.iter().filter(|it| it.position + self.ring.sectors >= self.ring.head);
        let write = |Restored { position, sector }: &Restored| Write {
            file: File::Ring,
            offset: self.offset_of(*position),
            bytes: sector.clone(),
        };
        kept.map(write).collect()
    }

    fn offset_of(&self, position: u64) -> u64 {
        position % self.ring.sectors * SECTOR as u64
    }
}

fn store(medium: &mut Blocking<'_>, writes: Vec<Write>) -> Result<(), String> {
    if writes.is_empty() { Ok(()) } else { medium.store(writes, Files::of(File::Ring)) }
}
