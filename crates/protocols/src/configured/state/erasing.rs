//! The removal of all registers in progress.

use std::collections::VecDeque;

use base::Nanos;
use types::{ImageId, Shard, Ticket};

#[derive(Debug, Default)]
pub(crate) struct Erasing {
    /// The image that begins when all is removed.
    pub(crate) image: Option<ImageId>,
    /// Shards that may have registers.
    pub(crate) shards: VecDeque<Shard>,
    pub(crate) step: Option<Step>,
    pub(crate) after: Ticket,
    pub(crate) due: Nanos,
}

/// The registers that a scan found.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) scan: u64,
    pub(crate) from_hash: u64,
    /// Registers to remove; `None` until the scan has ended.
    pub(crate) left: Option<usize>,
    pub(crate) next_hash: Option<u64>,
}

impl Erasing {
    pub(crate) fn is_idle(&self) -> bool {
        self.image.is_none()
    }

    pub(crate) fn due(&self) -> Option<Nanos> {
        self.image.map(|_| self.due)
    }
}
