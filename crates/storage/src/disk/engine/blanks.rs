//! Sectors of the ring are made blank again where what is in them would look like part of a stripe, a lap later or at once.

use super::Engine;
use crate::disk::io::{Blocking, File, Files, Io, Write};
use crate::disk::stripe::{SECTOR, blank};

impl Engine {
    /// Makes sectors ahead of the head blank: left there, they would look like part of a stripe that does not get that far.
    pub(super) fn blank(&self, medium: &mut Blocking<'_>, positions: &[u64]) -> Result<(), String> {
        let ahead = positions.iter().filter(|&&position| position >= self.ring.head);
        let writes = self.blanks(ahead.map(|position| position - self.ring.sectors));
        if writes.is_empty() { Ok(()) } else { medium.store(writes, Files::of(File::Ring)) }
    }

    /// Makes blank what is damaged of a ring that has been read late. Until a superblock moves the tail past it, a blank of
    /// this lap is no better than what was there, so every start still finds the damage; a lap later it is old, where else
    /// it would look like a stripe that is lost. Nothing goes home before that is durable, so it does not matter where a
    /// process ends.
    pub(super) fn blank_damaged<'a>(&mut self, positions: impl Iterator<Item = &'a u64>) {
        let writes = self.blanks(positions.copied());
        if !writes.is_empty() {
            let id = self.take_io_id();
            self.ios.push(Io::Store { id, writes, flush: Files::of(File::Ring) });
            self.blanking = Some(id);
        }
    }

    /// Blanks of these positions, neighbours in one piece.
    fn blanks(&self, positions: impl Iterator<Item = u64>) -> Vec<Write> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for position in positions {
            let offset = position % self.ring.sectors * SECTOR as u64;
            let sector = blank(self.binding, position);
            match runs.last_mut().filter(|(first, run)| first + run.len() as u64 == offset) {
                Some((_, run)) => run.extend_from_slice(&sector),
                None => runs.push((offset, sector.to_vec())),
            }
        }
        let write =
            |(offset, run): (u64, Vec<u8>)| Write { file: File::Ring, offset, bytes: run.into() };
        runs.into_iter().map(write).collect()
    }
}
