//! Worker assignment: event loops give workers to each other.

use std::sync::Arc;

use mio::Waker;

use super::sync::{AtomicU32, AtomicUsize, Mutex, Ordering, PoisonError, Wake};

/// The workers of one event loop, as the others see it.
pub(super) struct WorkerAssignment<T, W = Arc<Waker>> {
    waker: W,
    /// Workers on their way to this event loop; no more than the node has.
    given: Mutex<Vec<T>>,
    /// Workers that it runs or is about to.
    pub(super) count: AtomicUsize,
    /// Thousandths of a core in the last look.
    pub(super) load: AtomicU32,
}

impl<T, W: Wake> WorkerAssignment<T, W> {
    pub(super) fn new(waker: W) -> WorkerAssignment<T, W> {
        WorkerAssignment {
            waker,
            given: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            load: AtomicU32::new(0),
        }
    }

    pub(super) fn waker(&self) -> &W {
        &self.waker
    }

    /// Gives workers to this event loop and wakes it to take them.
    pub(super) fn give(&self, mut workers: Vec<T>) {
        self.count.fetch_add(workers.len(), Ordering::Relaxed);
        self.given.lock().unwrap_or_else(PoisonError::into_inner).append(&mut workers);
        self.waker.wake();
    }

    pub(super) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
