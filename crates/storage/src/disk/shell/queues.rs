//! Queues of requests for the helpers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::io::Io;

/// Requests that a helper takes at once.
const TAKE_MAX: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain queues: whole after a panic too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests for the helpers.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) reads: Queue,
    pub(super) commits: Queue,
    /// Reads of homes for the helper that builds write-backs.
    pub(super) gathers: Queue,
    pub(super) homes: Queue,
    /// For the helper that drops the page cache of the process before.
    pub(super) cache: Stop,
    /// For helpers that wait for room: only ever to stop.
    pub(super) room: Stop,
    /// The engine has a write-back to begin, or to go on with.
    pub(super) is_reminded: AtomicBool,
}

/// Ends the pause of a helper when the store stops.
#[derive(Default)]
pub(super) struct Stop {
    is_called: Mutex<bool>,
    has_news: Condvar,
}

impl Stop {
    pub(super) fn call(&self) {
        *lock(&self.is_called) = true;
        self.has_news.notify_all();
    }

    /// Waits for so long; returns false if the store stops meanwhile.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let is_called = lock(&self.is_called);
        let waited = self.has_news.wait_timeout_while(is_called, time, |is_called| !*is_called);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Requests for helper threads; bounded by the loads and listings of the workers.
#[derive(Default)]
pub(super) struct Queue {
    ios: Mutex<VecDeque<Io>>,
    has_news: Condvar,
    stops: AtomicBool,
}

impl Queue {
    pub(super) fn push(&self, ios: Vec<Io>) {
        if !ios.is_empty() {
            lock(&self.ios).extend(ios);
            self.has_news.notify_one();
        }
    }

    /// Waits until there is something, no longer than `most`, or until `is_reminded`; `None` when
    /// all is to end.
    pub(super) fn take(&self, most: Option<Duration>, is_reminded: &AtomicBool) -> Option<Vec<Io>> {
        let mut ios = lock(&self.ios);
        while ios.is_empty() && !is_reminded.load(SeqCst) {
            if self.stops.load(SeqCst) {
                return None;
            }
            match most {
                Some(most) => {
                    let waited = self.has_news.wait_timeout(ios, most);
                    ios = waited.unwrap_or_else(PoisonError::into_inner).0;
                    break;
                }
                None => ios = self.has_news.wait(ios).unwrap_or_else(PoisonError::into_inner),
            }
        }
        is_reminded.store(false, SeqCst);
        let count = ios.len().min(TAKE_MAX);
        let taken = ios.drain(..count).collect();
        if !ios.is_empty() {
            self.has_news.notify_one();
        }
        Some(taken)
    }

    fn wake(&self) {
        drop(lock(&self.ios));
        self.has_news.notify_all();
    }
}

impl Queues {
    /// Makes the helper that writes back look at the engine.
    pub(super) fn remind(&self) {
        if !self.is_reminded.swap(true, SeqCst) {
            self.gathers.wake();
        }
    }

    /// Ends the helpers when their queues are empty.
    pub(super) fn stop(&self) {
        [&self.cache, &self.room].into_iter().for_each(Stop::call);
        for queue in [&self.reads, &self.commits, &self.gathers, &self.homes] {
            queue.stops.store(true, SeqCst);
            queue.wake();
        }
    }
}
