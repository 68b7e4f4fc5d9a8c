//! Room in the file system for a growing store.
//!
//! A write-back that finds no room waits. Before long all commits wait behind it: those of large
//! records at once, because they need room before they are acknowledged, all others when the ring
//! is full. So a store that grows announces a shortage early. A store of short records that does
//! not grow needs no room. A large record gets new room before its old room is given up, so the
//! first overwrites after a start count as growth.

use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use crate::disk::files::FileMedium;
use crate::{Lack, Room};

/// Bytes that stay free for accepted writes: the content of a default ring and waiting large
/// records, for more than one node. On a small file system this part of it.
const KEPT: u64 = 256 << 20;
const KEPT_PART: u64 = 16;
/// How often the file system is asked whether there is room again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) struct RoomWatch {
    /// Helpers whose writes find no room.
    waiting: AtomicUsize,
    /// Those of them whose file may not grow longer.
    waiting_for_length: AtomicUsize,
    is_little: AtomicBool,
    looked_at: Mutex<Option<Instant>>,
    /// The most that the store has taken so far.
    taken: AtomicU64,
}

impl RoomWatch {
    pub(super) fn new(medium: &FileMedium) -> RoomWatch {
        RoomWatch {
            waiting: AtomicUsize::new(0),
            waiting_for_length: AtomicUsize::new(0),
            is_little: AtomicBool::new(false),
            looked_at: Mutex::new(None),
            taken: AtomicU64::new(medium.taken()),
        }
    }

    pub(super) fn wait_begins(&self, lack: Lack) {
        self.waiting.fetch_add(1, SeqCst);
        if lack == Lack::FileSizeLimit {
            self.waiting_for_length.fetch_add(1, SeqCst);
        }
    }

    pub(super) fn wait_ends(&self, lack: Lack) {
        self.waiting.fetch_sub(1, SeqCst);
        if lack == Lack::FileSizeLimit {
            self.waiting_for_length.fetch_sub(1, SeqCst);
        }
    }

    /// Call this after a write that may have made the store larger than it ever was.
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

    /// The room that there is. Asks the file system again now and then while there was little.
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

    /// Why room is short, if it is.
    pub(super) fn lack(&self, medium: &FileMedium) -> Option<Lack> {
        match self.look_at(medium) {
            Room::Enough => None,
            Room::Missing if self.waiting_for_length.load(Relaxed) > 0 => Some(Lack::FileSizeLimit),
            Room::Little | Room::Missing => Some(Lack::DiskFull),
        }
    }
}
