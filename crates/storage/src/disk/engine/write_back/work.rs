//! The outcome of a write-back, as it is built and until it is in place.

use crate::disk::index::At;
use crate::disk::io::Write;
use crate::disk::place::COPIES;
use crate::disk::ring::Marked;

/// How a bucket is rewritten.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) shape: Shape,
    /// It takes in the entries that the ring holds for it.
    pub(super) merge: bool,
}

impl How {
    /// The bucket stays as it is but for the entries that the ring holds for it.
    pub(super) const MERGE: How = How { shape: Shape::Same, merge: true };

    pub(super) fn is_merge(self) -> bool {
        self.merge && self.shape == Shape::Same
    }
}

/// The shape of a bucket afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Same,
    Split,
    /// It has taken in the last bucket, which is this one.
    Joined(u64),
}

/// A write-back of rewritten buckets.
#[derive(Debug)]
pub(super) struct Work {
    /// Its number.
    pub(super) batch: u64,
    pub(super) marked: Marked,
    pub(super) buckets: Vec<u64>,
    /// Entries that are home, and the batch of the ring that had each.
    pub(super) home: Vec<(At, u64)>,
    /// Units that no page refers to any more.
    pub(super) freed: Vec<(u64, u64)>,
    /// Records that must be in their extents before pages refer to them.
    pub(super) contents: Vec<Write>,
    /// Images so far, but for maps.
    pub(super) pages: usize,
    /// There are more buckets now, or fewer.
    pub(super) has_reshaped: bool,
    /// The number of buckets in its superblock.
    pub(super) bucket_count: u64,
}

impl Work {
    pub(super) fn new(batch: u64, marked: Marked) -> Work {
        Work {
            batch,
            marked,
            buckets: Vec::new(),
            home: Vec::new(),
            freed: Vec::new(),
            contents: Vec::new(),
            pages: COPIES as usize,
            has_reshaped: false,
            bucket_count: 0,
        }
    }

    /// False if it leaves the ring and the directory as they were.
    pub(super) fn is_fruitful(&self) -> bool {
        !self.home.is_empty() || self.has_reshaped
    }
}
