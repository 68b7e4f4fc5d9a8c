//! Buckets in memory, up to a bound: those that were touched lately, and those that may not leave.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;

use super::page::Bucket;

/// Builds [`Spread`]: maps whose keys are small numbers, such as buckets and requests.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ByNumber;

/// Spreads a number over all bits; tables look at the lowest and the highest.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 << 8 | u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32;
    }
}

impl BuildHasher for ByNumber {
    type Hasher = Spread;
    fn build_hasher(&self) -> Spread {
        Spread::default()
    }
}

#[derive(Debug)]
struct Cached {
    bucket: Bucket,
    pins: u32,
    was_touched: bool,
}

/// Buckets by number; replaced by a clock, so that a touch costs next to no time.
#[derive(Debug)]
pub(super) struct Cache {
    buckets: HashMap<u64, Cached, ByNumber>,
    clock: VecDeque<u64>,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Cache {
        Cache {
            buckets: HashMap::with_hasher(ByNumber),
            clock: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.buckets.contains_key(&number)
    }

    pub(super) fn touch(&mut self, number: u64) -> Option<&Bucket> {
        let cached = self.buckets.get_mut(&number)?;
        cached.was_touched = true;
        Some(&cached.bucket)
    }

    pub(super) fn peek(&self, number: u64) -> Option<&Bucket> {
        self.buckets.get(&number).map(|cached| &cached.bucket)
    }

    /// True for a bucket that may not leave.
    pub(super) fn is_pinned(&self, number: u64) -> bool {
        self.buckets.get(&number).is_some_and(|cached| cached.pins > 0)
    }

    /// Puts a bucket in, or in the place of its older version, and makes room if it must.
    pub(super) fn put(&mut self, number: u64, bucket: Bucket) {
        self.bytes += bucket.memory();
        match self.buckets.get_mut(&number) {
            Some(cached) => {
                self.bytes -= cached.bucket.memory();
                cached.bucket = bucket;
            }
            None => {
                self.buckets.insert(number, Cached { bucket, pins: 0, was_touched: false });
                self.clock.push_back(number);
            }
        }
    }

    /// Takes a bucket out to be rewritten; an empty one keeps its place until [`Cache::put`].
    ///
    /// # Panics
    /// If it is not in memory.
    pub(super) fn take(&mut self, number: u64) -> Bucket {
        let cached = self.buckets.get_mut(&number).expect("write-back has brought the bucket in");
        let bucket = std::mem::take(&mut cached.bucket);
        self.bytes = self.bytes - bucket.memory() + cached.bucket.memory();
        bucket
    }

    /// Keeps a bucket in memory until it is unpinned as often.
    ///
    /// # Panics
    /// If it is not in memory.
    pub(super) fn pin(&mut self, number: u64) {
        self.buckets.get_mut(&number).expect("a bucket is pinned when it is in memory").pins += 1;
    }

    pub(super) fn unpin(&mut self, number: u64) {
        let cached = self.buckets.get_mut(&number).expect("a pinned bucket stays in memory");
        assert!(cached.pins > 0, "bucket {number} is not pinned");
        cached.pins -= 1;
    }

    /// Drops buckets that were not touched lately while there are too many.
    pub(super) fn shrink(&mut self) {
        let mut tries = self.clock.len() * 2;
        while self.bytes > self.bytes_max && tries > 0 {
            tries -= 1;
            let Some(number) = self.clock.pop_front() else { return };
            let cached = self.buckets.get_mut(&number).expect("the clock names buckets in memory");
            if cached.pins > 0 || std::mem::take(&mut cached.was_touched) {
                self.clock.push_back(number);
                continue;
            }
            self.bytes -= cached.bucket.memory();
            self.buckets.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_and_touched_buckets_outlast_the_others() {
        let one = Bucket::default().memory();
        let mut cache = Cache::new(3 * one);
        for number in 0..3 {
            cache.put(number, Bucket::default());
        }
        cache.pin(0);
        for number in 3..40 {
            cache.put(number, Bucket::default());
            cache.touch(1);
            cache.shrink();
            assert!(cache.bytes <= 3 * one);
        }
        assert!(cache.has(0) && cache.has(1));
        cache.unpin(0);
        for number in 50..60 {
            cache.put(number, Bucket::default());
            cache.shrink();
        }
        assert!(!cache.has(0));
    }
}
