//! The only place where a node reads clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base::{Millis, Nanos};

/// A node's clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    started: Instant,
}

impl Clocks {
    pub(crate) fn new() -> Clocks {
        Clocks { started: Instant::now() }
    }

    /// Monotonic, from a little above zero when the node started.
    pub(crate) fn now(&self) -> Nanos {
        Nanos(1 + self.started.elapsed().as_nanos() as u64)
    }

    /// The wall clock; zero where it stands before 1970.
    pub(crate) fn unix(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(since.as_millis() as u64)
    }
}
