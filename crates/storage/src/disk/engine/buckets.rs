//! Buckets: the directory of them, their pages in memory, and how many there should be.

use crate::disk::cache::Cache;
use crate::disk::directory::Directory;
use crate::disk::page::{Bucket, PAGE_ROOM, Packed};
use crate::disk::place::primary_place;

#[derive(Debug)]
pub(super) struct Buckets {
    directory: Directory,
    cache: Cache,
    /// Bytes that records take in pages; steers growth only.
    used: u64,
    /// Pages of older write-backs are void.
    floor: u64,
    fill_percent: u64,
    /// The store never has fewer buckets.
    least: u64,
}

impl Buckets {
    pub(super) fn new(
        directory: Directory,
        cache: Cache,
        (used, floor): (u64, u64),
        (fill_percent, least): (u64, u64),
    ) -> Buckets {
        Buckets { directory, cache, used, floor, fill_percent, least }
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(super) fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }

    pub(super) fn count(&self) -> u64 {
        self.directory.buckets()
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn least(&self) -> u64 {
        self.least
    }

    /// A bucket that is pinned.
    ///
    /// # Panics
    /// If it is not in memory.
    pub(super) fn pinned(&self, number: u64) -> &Bucket {
        self.cache.peek(number).expect("a pinned bucket stays in memory")
    }

    /// How many buckets hold so many bytes of records.
    pub(super) fn count_for(&self, bytes: u64) -> u64 {
        bytes * 100 / (self.fill_percent * PAGE_ROOM as u64)
    }

    /// No page counts from now on but those that `floor` and later write-backs write.
    pub(super) fn void(&mut self, floor: u64) {
        (self.floor, self.used) = (floor, 0);
    }

    /// Divides the next bucket; returns its halves.
    pub(super) fn split(&mut self) -> (u64, u64) {
        self.directory.grow()
    }

    /// Takes back the last division; returns the halves.
    pub(super) fn join(&mut self) -> (u64, u64) {
        self.directory.shrink()
    }

    /// Takes a bucket out to be rewritten.
    pub(super) fn take(&mut self, number: u64) -> Bucket {
        let bucket = self.cache.take(number);
        self.replaced(&bucket);
        bucket
    }

    /// The records of a bucket are about to be replaced by [`Buckets::place`].
    pub(super) fn replaced(&mut self, old: &Bucket) {
        self.used = self.used.saturating_sub(old.used());
    }

    /// Puts a rewritten bucket into memory, sealed for its place.
    pub(super) fn place(
        &mut self,
        number: u64,
        packed: Packed,
        overflow: Vec<u64>,
        (batch, binding): (u64, u64),
    ) {
        let head = (number, self.directory.local_level(number), batch);
        let bucket = packed.finish(head, primary_place(number), overflow, binding);
        self.used += bucket.used();
        self.cache.put(number, bucket);
    }
}
