//! The control of programs that run on a thread of their own, because they would hold up a worker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use base::Millis;

/// As long as redis-server lets a script run before it answers others.
pub const LIMIT_DEFAULT: Millis = Millis(5_000);

/// Shared by sessions, which set the limit and kill, and by the thread.
#[derive(Debug)]
pub struct LongRuns {
    limit: AtomicU64,
    /// The switch of the run in progress.
    running: Mutex<Option<Arc<AtomicBool>>>,
}

impl Default for LongRuns {
    fn default() -> LongRuns {
        LongRuns { limit: AtomicU64::new(LIMIT_DEFAULT.0), running: Mutex::new(None) }
    }
}

impl LongRuns {
    /// How long one may run; zero until the deadline of its request.
    #[must_use]
    pub fn limit(&self) -> Millis {
        Millis(self.limit.load(Relaxed))
    }

    pub fn set_limit(&self, limit: Millis) {
        self.limit.store(limit.0, Relaxed);
    }

    /// Ends the run in progress; false without one. It has no effect then.
    pub fn kill(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(|switch| switch.store(true, Relaxed)).is_some()
    }

    /// A run begins. It ends once the switch is on.
    pub(crate) fn begin(&self) -> Arc<AtomicBool> {
        let switch = Arc::new(AtomicBool::new(false));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = Some(Arc::clone(&switch));
        switch
    }

    pub(crate) fn end(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_in_progress_is_killed() {
        let runs = LongRuns::default();
        assert!(!runs.kill());
        let switch = runs.begin();
        assert!(runs.kill() && switch.load(Relaxed));
        runs.end();
        assert!(!runs.kill());
        assert!(!runs.begin().load(Relaxed), "the next run has a switch of its own");
    }
}
