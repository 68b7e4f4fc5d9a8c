//! The length of the slots file: it is cut after its last buckets were joined with others.
//!
//! A bucket that is added must find no page at its place. If its write-back is torn and the images
//! are lost, an old page would be taken for the new one. So no bucket is added before the file has
//! been cut.

use crate::disk::device::Device;
use crate::disk::io::File;
use crate::disk::place::primary_place;

#[derive(Debug)]
pub(super) struct Slots {
    /// No page stands at the place of this bucket, nor behind it.
    end: u64,
    /// The number of buckets in the superblock in place, as far as this process knows.
    counted: u64,
    /// The cut under way, and the bucket at which it cuts.
    cut: Option<(u64, u64)>,
}

impl Slots {
    /// Of a store that was just opened: the process before may have ended between a join and its
    /// cut.
    pub(super) fn unknown() -> Slots {
        Slots { end: u64::MAX, counted: u64::MAX, cut: None }
    }

    /// True if no page stands where bucket `buckets` would.
    pub(super) fn may_add(&self, buckets: u64) -> bool {
        self.cut.is_none() && self.end <= buckets
    }

    /// A bucket was added.
    pub(super) fn note_added(&mut self, bucket: u64) {
        assert!(self.end <= bucket, "an old page may stand at the place of bucket {bucket}");
        self.end = bucket + 1;
    }

    /// A superblock that counts so many buckets is in place.
    pub(super) fn note_counted(&mut self, buckets: u64) {
        self.counted = buckets;
    }

    /// Cuts off the pages behind all buckets that any superblock counts, or that were added since.
    /// `written` is the count of the superblock that is being written.
    pub(super) fn step(&mut self, buckets: u64, written: Option<u64>, device: &mut Device) {
        let end = self.counted.max(written.unwrap_or(0)).max(buckets);
        if self.end > end && self.cut.is_none() {
            self.cut = Some((device.cut(File::Slots, primary_place(end).offset), end));
        }
    }

    /// A request is done; false if it is not the cut.
    pub(super) fn done(&mut self, io: u64) -> bool {
        let cut = self.cut.take_if(|(of, _)| *of == io);
        self.end = cut.map_or(self.end, |(_, end)| end);
        cut.is_some()
    }
}
