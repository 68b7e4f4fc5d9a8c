//! Space that nothing needs any more is given back to the file system, one group of extents at a time.

use super::Engine;
use crate::disk::io::{File, Io};
use crate::disk::place::UNIT;

/// What is to be given back.
#[derive(Debug, Default)]
pub(super) struct Surplus {
    /// A group may be looked at, though the store does not rest.
    is_due: bool,
    /// What is on its way, by units.
    giving: Option<(u64, Vec<(u64, u64)>)>,
}

impl Surplus {
    /// Something has become free, or is known to be.
    pub(super) fn call(&mut self) {
        self.is_due = true;
    }
}

impl Engine {
    /// Gives back what one group has too much of: all of them one after the other at rest, else one now and
    /// then.
    pub(super) fn step_surplus(&mut self) {
        let is_time = self.is_resting || self.surplus.is_due;
        if self.surplus.giving.is_some() || self.write_back.is_redone() || !is_time {
            return;
        }
        self.surplus.is_due = false;
        let runs = self.extents.give();
        if runs.is_empty() {
            return;
        }
        let id = self.take_io_id();
        let bytes = runs.iter().map(|&(unit, count)| (unit * UNIT, count * UNIT)).collect();
        self.ios.push(Io::Discard { id, file: File::Extents, runs: bytes });
        self.surplus.giving = Some((id, runs));
    }

    /// A request has ended: if it was the one that gave something back, that is free again.
    pub(super) fn given(&mut self, io: u64) {
        if let Some((_, runs)) = self.surplus.giving.take_if(|(id, _)| *id == io) {
            self.extents.end_giving(&runs);
        }
    }
}
