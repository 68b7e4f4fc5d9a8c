//! `CLIENT PAUSE`: this node's clients wait. Other nodes go on serving theirs.
//!
//! Departure: `CLIENT PAUSE` and `CLIENT UNPAUSE` themselves are never held back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use base::Nanos;
use commands::{CommandSpec, Execution, SessionVerb};

#[derive(Default)]
pub(crate) struct Pause {
    until: AtomicU64,
    only_writes: AtomicBool,
}

impl Pause {
    /// Pauses until `until`. One that is under way is never shortened or weakened.
    pub(crate) fn begin(&self, now: Nanos, until: Nanos, only_writes: bool) {
        let known = self.until.load(Relaxed);
        let holds_all = known > now.0 && !self.only_writes.load(Relaxed);
        self.only_writes.store(only_writes && !holds_all, Relaxed);
        self.until.fetch_max(until.0, Relaxed);
    }

    pub(crate) fn end(&self) {
        self.until.store(0, Relaxed);
    }

    /// When the pause that is under way ends.
    pub(crate) fn until(&self) -> Nanos {
        Nanos(self.until.load(Relaxed))
    }

    pub(crate) fn holds(&self, spec: &CommandSpec, now: Nanos) -> bool {
        self.until.load(Relaxed) > now.0 && self.covers(spec)
    }

    fn covers(&self, spec: &CommandSpec) -> bool {
        let is_about_pauses = matches!(
            spec.execution,
            Execution::Session(SessionVerb::ClientPause | SessionVerb::ClientUnpause)
        );
        !is_about_pauses && (!self.only_writes.load(Relaxed) || spec.may_write())
    }
}
