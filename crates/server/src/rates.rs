//! Rates over the last seconds, and peaks, from samples taken several times a second.

use std::collections::VecDeque;
use std::sync::Mutex;

use base::Nanos;

/// Samples per second, about.
pub(crate) const HERTZ: u32 = 5;
/// Samples that a rate is taken over.
const SAMPLES: usize = 8;
/// Samples that are closer count as one.
const APART: Nanos = Nanos::from_millis(100);

/// Counters at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sample {
    pub at: Nanos,
    pub calls: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub used_memory: u64,
}

/// Per second.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Rates {
    pub calls: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
}

#[derive(Default)]
pub(crate) struct Samples(Mutex<Known>);

#[derive(Default)]
struct Known {
    last: VecDeque<Sample>,
    peak_memory: u64,
}

impl Samples {
    pub(crate) fn add(&self, sample: Sample) {
        let Ok(mut known) = self.0.lock() else { return };
        known.peak_memory = known.peak_memory.max(sample.used_memory);
        if known.last.back().is_some_and(|last| sample.at < last.at + APART) {
            return;
        }
        known.last.push_back(sample);
        if known.last.len() > SAMPLES {
            known.last.pop_front();
        }
    }

    /// The most memory that a sample saw, or `now`.
    pub(crate) fn peak_memory(&self, now: u64) -> u64 {
        self.0.lock().map_or(now, |known| known.peak_memory.max(now))
    }

    pub(crate) fn rates(&self) -> Rates {
        let Ok(known) = self.0.lock() else { return Rates::default() };
        let (Some(first), Some(last)) = (known.last.front(), known.last.back()) else {
            return Rates::default();
        };
        let seconds = last.at.since(first.at).0 as f64 / 1e9;
        let per_second = |from: u64, to: u64| match to.saturating_sub(from) {
            0 => 0.0,
            count => count as f64 / seconds,
        };
        Rates {
            calls: per_second(first.calls, last.calls),
            bytes_in: per_second(first.bytes_in, last.bytes_in),
            bytes_out: per_second(first.bytes_out, last.bytes_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let samples = Samples::default();
        assert_eq!(samples.rates(), Rates::default());
        let sample = |tenths: u64, calls: u64| Sample {
            at: Nanos::from_millis(1_000 + tenths * 200),
            calls,
            bytes_in: calls * 30,
            bytes_out: calls * 5,
            used_memory: 1_000 - calls,
        };
        samples.add(sample(0, 0));
        assert_eq!(samples.rates(), Rates::default());
        (1..=5).for_each(|at| samples.add(sample(at, at * 100)));
        assert_eq!(samples.rates(), Rates { calls: 500.0, bytes_in: 15_000.0, bytes_out: 2_500.0 });
        (6..=13).for_each(|at| samples.add(sample(at, 500)));
        assert_eq!(samples.rates(), Rates::default());
        assert_eq!((samples.peak_memory(3), samples.peak_memory(2_000)), (1_000, 2_000));
    }
}
