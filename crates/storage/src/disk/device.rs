//! Requests to the device that wait to be taken.

use super::io::{File, Files, Io, Write};
use super::place::PagePlace;

/// Numbers requests and keeps them in order.
#[derive(Debug)]
pub(super) struct Device {
    ios: Vec<Io>,
    next: u64,
}

impl Device {
    pub(super) fn new() -> Device {
        // Far above the numbers used while opening: a late answer to those is ignored.
        Device { ios: Vec::new(), next: 1 << 32 }
    }

    /// Asks for bytes from `place` on; returns the number of the request, as all of these do.
    pub(super) fn read(&mut self, place: PagePlace, len: usize) -> u64 {
        let PagePlace { file, offset } = place;
        self.push(|id| Io::Read { id, file, offset, len })
    }

    /// The same, past every cache.
    pub(super) fn verify(&mut self, place: PagePlace, len: usize) -> u64 {
        let PagePlace { file, offset } = place;
        self.push(|id| Io::Verify { id, file, offset, len })
    }

    pub(super) fn store(&mut self, writes: Vec<Write>, flush: Files) -> u64 {
        self.push(|id| Io::Store { id, writes, flush })
    }

    pub(super) fn discard(&mut self, file: File, runs: Vec<(u64, u64)>) -> u64 {
        self.push(|id| Io::Discard { id, file, runs })
    }

    pub(super) fn cut(&mut self, file: File, len: u64) -> u64 {
        self.push(|id| Io::Cut { id, file, len })
    }

    pub(super) fn has_some(&self) -> bool {
        !self.ios.is_empty()
    }

    pub(super) fn take(&mut self) -> std::vec::Drain<'_, Io> {
        self.ios.drain(..)
    }

    fn push(&mut self, io: impl FnOnce(u64) -> Io) -> u64 {
        self.next += 1;
        self.ios.push(io(self.next));
        self.next
    }
}
