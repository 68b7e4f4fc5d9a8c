//! There are too many buckets: the last ones are joined with those that they were divided from, and the file is cut.
//!
//! A bucket that is added again must find nothing at its place. Where its write-back is torn and the images of that are
//! lost, an old page would be taken for the new one there; so none is added before the file has been cut.

use super::Engine;
use crate::disk::io::{File, Io};
use crate::disk::page::PAGE_ROOM;
use crate::disk::place::primary_place;

/// Buckets are joined while there are so many times as many as there should be.
const TOO_MANY: u64 = 2;

/// How far pages stand in their file.
#[derive(Debug)]
pub(super) struct Slots {
    /// Nothing stands at the place of this bucket, nor behind it.
    end: u64,
    /// How many buckets the superblock in place counts, as far as this process knows.
    counted: u64,
    /// The request that is to make it so, and from which bucket on.
    cut: Option<(u64, u64)>,
}

impl Slots {
    /// Of a store that has just been opened: a process before may have ended between a join and its cut.
    pub(super) fn unknown() -> Slots {
        Slots { end: u64::MAX, counted: u64::MAX, cut: None }
    }
}

impl Engine {
    /// How many buckets it takes to hold so many bytes of records.
    pub(super) fn buckets_for(&self, bytes: u64) -> u64 {
        bytes * 100 / (self.fill_percent * PAGE_ROOM as u64)
    }

    /// How many joins the next write-back is to make, the last buckets first.
    pub(super) fn joins_wanted(&self) -> u64 {
        let all = self.used + self.index.sizes().at_home as u64;
        let least = (self.buckets_for(all) * TOO_MANY).max(self.buckets_min);
        let wanted = self.directory.buckets().saturating_sub(least);
        wanted.min(if self.is_resting { self.spare / 4 } else { self.spare / 16 })
    }

    /// The joins of the next write-back.
    pub(super) fn choose_joins(&self) -> Vec<(u64, u64)> {
        let is_free =
            |bucket: u64| !self.is_being_written(bucket) && !self.repairs.contains_key(&bucket);
        let halves = (0..self.joins_wanted()).map_while(|before| self.directory.halves(before));
        halves.take_while(|&(low, high)| is_free(low) && is_free(high)).collect()
    }

    /// True if there is nothing where the next bucket would stand.
    pub(super) fn may_split(&self) -> bool {
        self.slots.cut.is_none() && self.slots.end <= self.directory.buckets()
    }

    /// A bucket was added.
    pub(super) fn note_split(&mut self, high: u64) {
        assert!(self.slots.end <= high, "there may be an old page where bucket {high} is to stand");
        self.slots.end = high + 1;
    }

    /// A superblock that counts so many buckets is in place.
    pub(super) fn note_counted(&mut self, buckets: u64) {
        self.slots.counted = buckets;
    }

    /// What stands behind the buckets that the superblock in place counts goes, but for those that were added since.
    pub(super) fn step_cut(&mut self) {
        let written = self.buckets_written().unwrap_or(0);
        let end = self.slots.counted.max(written).max(self.directory.buckets());
        if self.slots.end > end && self.slots.cut.is_none() {
            let id = self.take_io_id();
            self.ios.push(Io::Cut { id, file: File::Slots, len: primary_place(end).offset });
            self.slots.cut = Some((id, end));
        }
    }

    /// True, once, for the request that has cut the file.
    pub(super) fn is_cut(&mut self, io: u64) -> bool {
        let cut = self.slots.cut.take_if(|(id, _)| *id == io);
        self.slots.end = cut.map_or(self.slots.end, |(_, end)| end);
        cut.is_some()
    }
}
