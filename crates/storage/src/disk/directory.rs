//! Linear hashing over intervals of the hash space: which bucket holds a hash.
//!
//! A bucket is named by the *reversed* top bits of its hashes (Litwin, "Linear Hashing", VLDB 1980,
//! with the bits taken from the top). So a bucket is an interval, and a shard is a run of whole
//! buckets as soon as there are 256. The directory is arithmetic: a start reads none of it.

/// Largest level: 2^40 buckets of 4 KiB are 4 PiB.
pub(super) const LEVEL_MAX: u32 = 40;

/// The number of buckets, as a level and a split pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Directory {
    level: u32,
    split: u64, // < 1 << level
}

impl Directory {
    /// `None` unless `1 <= level <= LEVEL_MAX` and `split` is below `1 << level`.
    pub(super) fn new(level: u32, split: u64) -> Option<Directory> {
        let fits = (1..=LEVEL_MAX).contains(&level) && split < 1 << level;
        fits.then_some(Directory { level, split })
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    /// The bucket that is split next.
    pub(super) fn split(&self) -> u64 {
        self.split
    }

    pub(super) fn buckets(&self) -> u64 {
        (1 << self.level) + self.split
    }

    pub(super) fn bucket_of(&self, hash: u64) -> u64 {
        let bits = hash.reverse_bits();
        let wide = bits & ((2 << self.level) - 1);
        if wide < self.buckets() { wide } else { bits & ((1 << self.level) - 1) }
    }

    /// How many top bits the hashes of a bucket share.
    pub(super) fn local_level(&self, bucket: u64) -> u32 {
        let is_split = bucket < self.split || bucket >= 1 << self.level;
        self.level + u32::from(is_split)
    }

    /// The first and the last hash of a bucket.
    pub(super) fn interval(&self, bucket: u64) -> (u64, u64) {
        let first = bucket.reverse_bits();
        (first, first | u64::MAX >> self.local_level(bucket))
    }

    /// Splits the next bucket; returns it and the bucket that takes the upper half of its interval.
    pub(super) fn grow(&mut self) -> (u64, u64) {
        let halves = (self.split, self.buckets());
        self.split += 1;
        if self.split == 1 << self.level {
            self.level += 1;
            self.split = 0;
        }
        halves
    }

    /// The bucket that would take both halves of an interval, and the one that would be gone, if the last bucket went: the
    /// pair of the last bucket where `before` is 0, else that of one before it. `None` behind the last pair of a round, within which no bucket
    /// takes another twice.
    pub(super) fn halves(&self, before: u64) -> Option<(u64, u64)> {
        let (level, split) = self.round();
        let low = split.checked_sub(1 + before).filter(|_| level > 0)?;
        Some((low, (1 << level) + low))
    }

    /// Takes the last split back; returns its halves.
    ///
    /// # Panics
    /// If there are no more than two buckets.
    pub(super) fn shrink(&mut self) -> (u64, u64) {
        let halves = self.halves(0).expect("there are more than two buckets");
        (self.level, self.split) = (self.round().0, halves.0);
        halves
    }

    /// Level and splits of the last round in which a bucket was split.
    fn round(&self) -> (u32, u64) {
        match (self.split, self.level) {
            (0, 1) => (0, 0),
            (0, level) => (level - 1, 1 << (level - 1)),
            (split, level) => (level, split),
        }
    }

    /// Splits left before the level changes; within them no bucket is split twice.
    pub(super) fn splits_of_round(&self) -> u64 {
        if self.level == LEVEL_MAX { 0 } else { (1 << self.level) - self.split }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_partition_the_hash_space_at_every_size() {
        let mut directory = Directory::new(1, 0).expect("a level of one is allowed");
        for _ in 0..200 {
            let mut next = 0_u64;
            for _ in 0..directory.buckets() {
                let bucket = directory.bucket_of(next);
                let (first, last) = directory.interval(bucket);
                assert_eq!(first, next, "intervals follow each other without a gap");
                assert_eq!(directory.bucket_of(last), bucket);
                next = last.wrapping_add(1);
            }
            assert_eq!(next, 0, "the last interval ends with the hash space");
            directory.grow();
        }
    }

    #[test]
    fn a_directory_shrinks_the_way_it_grew() {
        let mut directory = Directory::new(1, 0).expect("a level of one is allowed");
        assert_eq!(directory.halves(0), None, "there are two buckets at least");
        let mut grown = Vec::new();
        for _ in 0..200 {
            grown.push((directory, directory.clone().grow()));
            directory.grow();
        }
        while let Some((before, halves)) = grown.pop() {
            let next = grown.last().map(|(_, halves)| *halves);
            let is_same_round = directory.halves(1).is_some();
            assert!(!is_same_round || directory.halves(1) == next);
            assert_eq!(directory.shrink(), halves);
            assert_eq!(directory, before);
        }
    }

    #[test]
    fn a_split_halves_one_interval_and_leaves_the_rest() {
        let mut directory = Directory::new(3, 5).expect("in range");
        let (first, last) = directory.interval(5);
        let (low, high) = directory.grow();
        assert_eq!((low, high), (5, 13));
        assert_eq!(directory.interval(low).0, first);
        assert_eq!(directory.interval(high).1, last);
        assert_eq!(directory.interval(low).1 + 1, directory.interval(high).0);
    }

    #[test]
    fn with_256_buckets_a_bucket_lies_in_one_shard() {
        let directory = Directory::new(8, 17).expect("in range");
        for bucket in 0..directory.buckets() {
            let (first, last) = directory.interval(bucket);
            assert_eq!(first >> 56, last >> 56);
        }
    }
}
