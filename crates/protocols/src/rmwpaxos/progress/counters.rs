//! Figures of one instance. They are no protocol state, so `Debug` omits them.

use std::fmt;

/// One figure of a part around the core.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figure(u64);

impl Figure {
    pub(crate) fn add(&mut self, count: u64) {
        self.0 += count;
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figure")
    }
}

/// Figures of the core.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: u64,
    pub(crate) proposals: u64,
    pub(crate) phase_ones: u64,
    pub(crate) conflicts: u64,
    pub(crate) unknowns: u64,
    pub(crate) collected: u64,
    pub(crate) expired: u64,
    /// Accepts sent once more to members that may have missed them.
    pub(crate) repairs: u64,
    /// Accepts of that kind that changed the register here.
    pub(crate) repaired: u64,
    /// Proposals that a slow member was not sent.
    pub(crate) spared: u64,
    /// Proposals sent to a member as a delta.
    pub(crate) deltas: u64,
    /// States that this acceptor took and of which it counts an age in uptime.
    pub(crate) expiring_states: u64,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}
