//! Requests without effect so far, in order per key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Nanos;
use types::{Key, Tag};

use crate::protocol::Request;

/// Requests without effect so far.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    pub(crate) requests: VecDeque<Request>,
    pub(crate) by_key: BTreeMap<Key, Waiting>,
    /// Those that were released and come again soon.
    pub(crate) released: BTreeSet<Tag>,
    /// When to try the parked ones again or to give them up.
    pub(crate) due: Option<Nanos>,
}

/// Numbers of requests on one key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) parked: u32,
    pub(crate) released: u32,
}

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.released.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// True for a request that comes again.
    pub(crate) fn is_released(&self, tag: Tag) -> bool {
        self.released.contains(&tag)
    }

    /// Takes note of a request that comes, be it for the first time or again.
    pub(crate) fn admit(&mut self, request: &Request) -> Turn {
        if self.released.remove(&request.tag) {
            self.change(&request.key, |waiting| waiting.released -= 1);
            return Turn::Now;
        }
        match self.by_key.get(&request.key) {
            None => Turn::Now,
            // Released ones may be parked again, and came before.
            Some(waiting) if waiting.released > 0 => Turn::Again,
            Some(_) => Turn::Park,
        }
    }

    pub(crate) fn change(&mut self, key: &Key, change: impl FnOnce(&mut Waiting)) {
        let waiting = self.by_key.entry(key.clone()).or_default();
        change(waiting);
        if waiting.parked == 0 && waiting.released == 0 {
            self.by_key.remove(key);
        }
    }
}

/// The fate of a request that comes.
pub(crate) enum Turn {
    Now,
    /// Behind a parked one on its key.
    Park,
    /// Behind a released one on its key.
    Again,
}
