//! Locks and flags that threads share. The feature `shuttle` replaces them with those of that
//! crate, whose tests (`interleavings`) explore thread schedules.

#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

/// Ends a thread's wait, or the next one if it does not wait.
pub(crate) trait Wake {
    fn wake(&self);
}

impl Wake for mio::Waker {
    fn wake(&self) {
        // Fails only when the system is out of memory; the owner's own timers wake it then.
        let _ = mio::Waker::wake(self);
    }
}

impl<W: Wake> Wake for std::sync::Arc<W> {
    fn wake(&self) {
        W::wake(self);
    }
}
