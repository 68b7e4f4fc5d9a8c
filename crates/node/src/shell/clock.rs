//! The only place where a node reads clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use base::{Millis, Nanos};
use rustix::time::{ClockId, clock_gettime};

/// A node's clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    started: Nanos,
}

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Nanos,
    pub(crate) unix: Millis,
}

impl Clocks {
    pub(crate) fn new() -> Clocks {
        Clocks { started: read(ClockId::Boottime) }
    }

    /// Monotonic, from a little above zero when the node started. It counts time in which the
    /// machine is suspended: leases run out meanwhile.
    pub(crate) fn now(&self) -> Nanos {
        Nanos(1 + read(ClockId::Boottime).since(self.started).0)
    }

    /// With the wall clock, which is zero where it stands before 1970.
    pub(crate) fn look(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { now: self.now(), unix: Millis(since.as_millis() as u64) }
    }

    /// A little later, by the monotonic clock alone: each clock costs as much as the search for a
    /// register.
    pub(crate) fn look_again(&self, before: Moment) -> Moment {
        let now = self.now();
        let since = now.since(before.now).as_millis();
        Moment { now, unix: Millis(before.unix.0 + since) }
    }
}

/// How much processor time this thread has used.
pub(crate) fn thread_cpu() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

/// Monotonic nanoseconds, for spans within one thread.
#[must_use]
pub fn monotonic() -> u64 {
    read(ClockId::Monotonic).0
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
