//! Histograms of command times. A power of two has 32 buckets: a percentile is at most 3 % too
//! high.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Nanos;

/// Buckets per power of two, as a power of two.
const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;
/// Longer times count as this.
const LONGEST: u64 = (1 << 36) - 1;
const BUCKETS: usize = bucket_of(LONGEST) + 1;

/// The bucket of a time in nanoseconds.
const fn bucket_of(nanos: u64) -> usize {
    if nanos < 2 * FINE {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - FINE_BITS;
    ((shift as u64) * FINE + (nanos >> shift)) as usize
}

/// The longest time of a bucket.
const fn longest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * FINE {
        return bucket;
    }
    let shift = bucket / FINE - 1;
    ((bucket % FINE + FINE + 1) << shift) - 1
}

/// A number that one thread at a time adds to and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    /// Needs no locked instruction: there is one writer.
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Written by one worker.
#[derive(Debug)]
pub(crate) struct Histogram(Box<[Tally; BUCKETS]>);

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram(Box::new([const { Tally(AtomicU64::new(0)) }; BUCKETS]))
    }

    pub(crate) fn add(&self, time: Nanos) {
        self.add_all(time, 1);
    }

    /// Counts calls of one time.
    pub(crate) fn add_all(&self, time: Nanos, calls: u64) {
        self.0[bucket_of(time.0.min(LONGEST))].add(calls);
    }
}

/// Times of one command over all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Times(Vec<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(vec![0; BUCKETS])
    }
}

impl Times {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.0.iter_mut().zip(histogram.0.iter()) {
            *sum += count.get();
        }
    }

    /// Without the times of an `earlier` reading.
    pub(crate) fn since(&mut self, earlier: &Times) {
        for (count, before) in self.0.iter_mut().zip(&earlier.0) {
            *count = count.saturating_sub(*before);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time that so many per cent of all calls did not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> Nanos {
        let total = self.count();
        let wanted = ((percent / 100.0 * total as f64).round() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Nanos(longest_of(bucket));
            }
        }
        Nanos::ZERO
    }

    /// How many took less than each of `bounds`, which ascend and are whole buckets.
    pub(crate) fn below(&self, bounds: impl Iterator<Item = Nanos>) -> impl Iterator<Item = u64> {
        let (mut bucket, mut below) = (0, 0);
        bounds.map(move |bound| {
            while bucket < BUCKETS && longest_of(bucket) < bound.0 {
                below += self.0[bucket];
                bucket += 1;
            }
            below
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_times_in_order() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let longest = longest_of(bucket);
            assert_eq!((bucket_of(next), bucket_of(longest)), (bucket, bucket));
            assert!(longest - next <= next / 32, "{bucket}: from {next} to {longest}");
            next = longest + 1;
        }
        assert_eq!(next, LONGEST + 1);
    }

    #[test]
    fn percentiles_name_the_time_that_most_kept() {
        let histogram = Histogram::new();
        (1..=1_000).for_each(|micros| histogram.add(Nanos::from_micros(micros)));
        histogram.add(Nanos::MAX);
        let mut times = Times::default();
        times.add(&histogram);
        assert_eq!(times.count(), 1_001);
        for (percent, micros) in [(50.0, 500.0), (99.0, 990.0), (99.9, 1_000.0)] {
            let found = times.percentile(percent).0 as f64 / 1_000.0;
            assert!((0.99..1.04).contains(&(found / micros)), "p{percent}: {found}");
        }
        assert_eq!(times.percentile(100.0), Nanos(LONGEST));
        assert_eq!(Times::default().percentile(50.0), Nanos::ZERO);
    }

    #[test]
    fn counts_below_bounds_are_cumulative() {
        let histogram = Histogram::new();
        [1_023, 1_024, 3_000, 5_000].iter().for_each(|&nanos| histogram.add(Nanos(nanos)));
        let mut times = Times::default();
        times.add(&histogram);
        let bounds = (0..4).map(|power| Nanos(1_024 << power));
        assert_eq!(times.below(bounds).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
