//! Worker assignment: event loops give workers to each other.

use std::sync::Arc;

use mio::Waker;

use super::sync::{AtomicU32, AtomicUsize, Mutex, Ordering, PoisonError, Wake};

/// One driver as the others see it.
pub(super) struct Seat<T, W = Arc<Waker>> {
    waker: W,
    /// Workers on their way to this driver; no more than the node has.
    given: Mutex<Vec<T>>,
    /// Workers that it drives or is about to.
    pub(super) count: AtomicUsize,
    /// Thousandths of a core in the last look.
    pub(super) load: AtomicU32,
}

impl<T, W: Wake> Seat<T, W> {
    pub(super) fn new(waker: W) -> Seat<T, W> {
        Seat {
            waker,
            given: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            load: AtomicU32::new(0),
        }
    }

    pub(super) fn waker(&self) -> &W {
        &self.waker
    }

    /// Hands workers over: they are this driver's from now on, and it is woken to take them.
    pub(super) fn give(&self, mut workers: Vec<T>) {
        self.count.fetch_add(workers.len(), Ordering::Relaxed);
        self.given.lock().unwrap_or_else(PoisonError::into_inner).append(&mut workers);
        self.waker.wake();
    }

    pub(super) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
