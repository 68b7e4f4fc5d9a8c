//! A start makes sectors of the ring what they should be: blank where they would look like part of a stripe, a lap later or at
//! once, and whole where parity has given them back.

use std::vec::IntoIter;

use super::Engine;
use crate::disk::io::{Blocking, File, Files, Io, Write};
use crate::disk::recovery::{Recovered, Restored};
use crate::disk::stripe::{SECTOR, blank};

/// Bytes that are written at once beside commits, which wait for them.
const PART_LEN_MAX: usize = 256 << 10;
/// What a device takes for a write, however short, in bytes that it writes in the same time.
const WRITE_LEN_MIN: usize = 16 << 10;

/// Writes of this kind beside commits.
#[derive(Debug)]
pub(super) struct Mending {
    /// Of those that are under way.
    io: u64,
    rest: IntoIter<Write>,
}

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

    /// Both, in a ring that has been read late. Until a superblock moves the tail past what is damaged, a blank of this lap is
    /// no better than what was there, so every start still finds the damage; a lap later it is old, where else it would look
    /// like a stripe that is lost. Nothing goes home before all is durable, so it does not matter where a process ends.
    pub(super) fn mend_ring(&mut self, recovered: &Recovered) {
        let mut writes = self.blanks(recovered.lost.iter().copied());
        writes.extend(self.restored(&recovered.restored));
        self.mend_on(writes.into_iter());
    }

    /// True for a request that was one of these; then the next ones follow.
    pub(super) fn is_mended(&mut self, io: u64) -> bool {
        let mending = self.mending.take_if(|mending| mending.io == io);
        mending.map(|mending| self.mend_on(mending.rest)).is_some()
    }

    fn mend_on(&mut self, mut rest: IntoIter<Write>) {
        let (mut writes, mut len) = (Vec::new(), 0);
        while len < PART_LEN_MAX
            && let Some(write) = rest.next()
        {
            len += write.bytes.len().max(WRITE_LEN_MIN);
            writes.push(write);
        }
        if !writes.is_empty() {
            let io = self.take_io_id();
            self.ios.push(Io::Store { id: io, writes, flush: Files::of(File::Ring) });
            self.mending = Some(Mending { io, rest });
        }
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
