//! What room the file system has for what grows with the store.
//!
//! What goes home without finding room waits, and before long all commits wait behind it: those of large records at once,
//! for they need room before they are acknowledged, all others when the ring is full. So a store that grows says early
//! that there is little left. One of short records that does not grow needs none; large ones get new room before the old
//! is given up, so after a start the first overwrites of them count as growth.

use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use crate::Room;
use crate::disk::files::FileMedium;

/// Bytes that are to be left for what has been taken in: what a default ring holds, and large records that may wait, for
/// more than one node. Of a small file system this part of it.
const KEPT: u64 = 256 << 20;
const KEPT_PART: u64 = 16;
/// How often it is looked at whether they are there again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) struct RoomWatch {
    /// Helpers whose writes find none.
    waiting: AtomicUsize,
    is_little: AtomicBool,
    looked_at: Mutex<Option<Instant>>,
    /// The most that the store has taken so far.
    taken: AtomicU64,
}

impl RoomWatch {
    pub(super) fn new(medium: &FileMedium) -> RoomWatch {
        RoomWatch {
            waiting: AtomicUsize::new(0),
            is_little: AtomicBool::new(false),
            looked_at: Mutex::new(None),
            taken: AtomicU64::new(medium.taken()),
        }
    }

    pub(super) fn wait_begins(&self) {
        self.waiting.fetch_add(1, SeqCst);
    }

    pub(super) fn wait_ends(&self) {
        self.waiting.fetch_sub(1, SeqCst);
    }

    /// To be called when something was written that may have made the store larger than it ever was.
    pub(super) fn look_if_grown(&self, medium: &FileMedium) {
        let taken = medium.taken();
        if self.taken.fetch_max(taken, Relaxed) < taken {
            self.look(medium);
        }
    }

    fn look(&self, medium: &FileMedium) {
        let was_little = self.is_little.load(Relaxed);
        let is_little = medium.room().is_some_and(|(left, all)| {
            let kept = KEPT.min(all / KEPT_PART);
            left < if was_little { kept + kept / 8 } else { kept }
        });
        self.is_little.store(is_little, Relaxed);
    }

    /// What there is. Where it was little it is looked at again now and then.
    pub(super) fn look_at(&self, medium: &FileMedium) -> Room {
        if self.is_little.load(Relaxed)
            && let Ok(mut looked_at) = self.looked_at.try_lock()
            && looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY)
        {
            *looked_at = Some(Instant::now());
            self.look(medium);
        }
        match (self.waiting.load(Relaxed), self.is_little.load(Relaxed)) {
            (0, false) => Room::Enough,
            (0, true) => Room::Little,
            _ => Room::Missing,
        }
    }
}
