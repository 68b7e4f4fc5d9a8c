//! A copy in progress, and the pages that this node reads for shadows.

use std::collections::{BTreeMap, VecDeque};

use base::Nanos;
use types::{Epoch, NodeId, Ticket};

use crate::configured::envelope::Copy;

#[derive(Debug, Default)]
pub(crate) struct Copying {
    /// The epoch whose copy is in progress.
    pub(crate) epoch: Option<Epoch>,
    /// Shards of which no page was asked for, each with where to begin.
    pub(crate) to_do: VecDeque<u64>,
    pub(crate) pages: BTreeMap<u64, AskedPage>,
    /// Pages to be asked for at this time.
    pub(crate) later: BTreeMap<(Nanos, u64), ()>,
    /// The last of the adopted registers is durable then.
    pub(crate) after: Ticket,
    /// How long to wait for a page.
    pub(crate) patience: Nanos,
    pub(crate) settles_at: Nanos,
    pub(crate) due: Option<Nanos>,
    /// At a full member: scans for shadows.
    pub(crate) served: BTreeMap<u64, (NodeId, Copy)>,
}

/// A page on its way.
#[derive(Debug)]
pub(crate) struct AskedPage {
    pub(crate) from_hash: u64,
    pub(crate) donor: NodeId,
    pub(crate) asked_at: Nanos,
    /// It is asked for again then.
    pub(crate) due: Nanos,
    /// Registers to adopt; `None` until the page is here.
    pub(crate) left: Option<usize>,
    pub(crate) next_hash: Option<u64>,
}

impl Copying {
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_on() && self.served.is_empty()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.epoch.is_some()
    }

    pub(crate) fn served_len(&self) -> usize {
        self.served.len()
    }
}
