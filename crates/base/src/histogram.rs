//! Durations counted in fixed buckets.

use crate::Nanos;

/// Upper bounds of the buckets, inclusive; one more bucket takes longer durations.
pub const BOUNDS: [Nanos; 16] = [
    Nanos::from_micros(50),
    Nanos::from_micros(100),
    Nanos::from_micros(250),
    Nanos::from_micros(500),
    Nanos::from_millis(1),
    Nanos::from_micros(2_500),
    Nanos::from_millis(5),
    Nanos::from_millis(10),
    Nanos::from_millis(25),
    Nanos::from_millis(50),
    Nanos::from_millis(100),
    Nanos::from_millis(250),
    Nanos::from_millis(500),
    Nanos::from_secs(1),
    Nanos::from_millis(2_500),
    Nanos::from_secs(10),
];

/// How many durations fell into each bucket, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    /// Nanoseconds; enough for 584 years.
    sum: u64,
}

impl Histogram {
    pub fn record(&mut self, duration: Nanos) {
        let bucket = BOUNDS.partition_point(|&bound| bound < duration);
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(duration.0);
    }

    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Durations per bucket, in the order of [`BOUNDS`]; the last one is unbounded.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    #[must_use]
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_ascend() {
        assert!(BOUNDS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut histogram = Histogram::default();
        for duration in [Nanos::ZERO, BOUNDS[0], Nanos(BOUNDS[0].0 + 1), Nanos::MAX] {
            histogram.record(duration);
        }
        assert_eq!(histogram.counts()[..2], [2, 1]);
        assert_eq!(histogram.counts()[BOUNDS.len()], 1);
        assert_eq!(histogram.count(), 4);
        assert_eq!(histogram.sum(), Nanos::MAX, "the sum stays at its maximum");
    }

    #[test]
    fn histograms_add_up() {
        let (mut left, mut right) = (Histogram::default(), Histogram::default());
        left.record(Nanos::from_millis(1));
        right.record(Nanos::from_millis(3));
        left.add(&right);
        assert_eq!((left.count(), left.sum()), (2, Nanos::from_millis(4)));
    }
}
