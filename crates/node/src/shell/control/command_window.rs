//! Rate and latency of commands over the last seconds, from counters that only grow. Free of
//! clocks.

use std::collections::VecDeque;

use base::Nanos;

use crate::status::{COMMAND_TIME_BOUNDS, CommandReading};

const BUCKETS: usize = COMMAND_TIME_BOUNDS.len();

/// Readings that the window holds: one for each report.
const READINGS_MAX: usize = 10;

/// The counters of all commands together at one moment.
#[derive(Clone, Copy, Debug)]
struct WindowReading {
    at: Nanos,
    calls: u64,
    /// Cumulative, as in [`CommandReading::buckets`].
    buckets: [u64; BUCKETS],
}

/// The last readings, the newest at the back.
#[derive(Debug, Default)]
pub(super) struct CommandWindow {
    readings: VecDeque<WindowReading>,
}

/// Figures of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WindowFigures {
    /// Since the reading before.
    pub(super) per_second: u64,
    /// Over the whole window; `None` without a call in it.
    pub(super) p50: Option<Nanos>,
    pub(super) p99: Option<Nanos>,
}

impl CommandWindow {
    /// Takes the counters as they are at `now`.
    pub(super) fn add(&mut self, commands: &[CommandReading], now: Nanos) -> WindowFigures {
        let mut newest = WindowReading { at: now, calls: 0, buckets: [0; BUCKETS] };
        for command in commands {
            newest.calls += command.calls;
            for (sum, count) in newest.buckets.iter_mut().zip(command.buckets) {
                *sum += count;
            }
        }
        let start = WindowReading { at: Nanos::ZERO, calls: 0, buckets: [0; BUCKETS] };
        let before = self.readings.back().copied().unwrap_or(start);
        let oldest = self.readings.front().copied().unwrap_or(start);
        self.readings.push_back(newest);
        if self.readings.len() > READINGS_MAX {
            self.readings.pop_front();
        }
        let calls = u128::from(newest.calls.saturating_sub(before.calls));
        let rate = calls * 1_000_000_000 / u128::from(now.since(before.at).0.max(1));
        WindowFigures {
            per_second: u64::try_from(rate).unwrap_or(u64::MAX),
            p50: quantile(&oldest, &newest, 50),
            p99: quantile(&oldest, &newest, 99),
        }
    }
}

/// The time below which `percent` of the calls between two readings ended, linear within a bucket.
fn quantile(oldest: &WindowReading, newest: &WindowReading, percent: u64) -> Option<Nanos> {
    let calls = newest.calls.saturating_sub(oldest.calls);
    if calls == 0 {
        return None;
    }
    let rank = (calls * percent).div_ceil(100);
    let below = |at: usize| newest.buckets[at].saturating_sub(oldest.buckets[at]);
    let longest = COMMAND_TIME_BOUNDS[BUCKETS - 1];
    let Some(at) = (0..BUCKETS).find(|&at| below(at) >= rank) else { return Some(longest) };
    let (low, count_low) = match at.checked_sub(1) {
        Some(before) => (COMMAND_TIME_BOUNDS[before].0, below(before)),
        None => (0, 0),
    };
    let width = COMMAND_TIME_BOUNDS[at].0 - low;
    let inside = (below(at) - count_low).max(1);
    let part = u128::from(width) * u128::from(rank - count_low) / u128::from(inside);
    Some(Nanos(low + part as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(calls: u64, buckets: [u64; BUCKETS]) -> [CommandReading; 1] {
        let (failed, rejected, time) = (0, 0, Nanos::ZERO);
        [CommandReading { name: "get", calls, failed, rejected, time, buckets }]
    }

    /// `fast` calls of up to 1,024 ns and `slow` ones of up to 2 ms.
    fn mixed(fast: u64, slow: u64) -> [CommandReading; 1] {
        let mut buckets = [fast; BUCKETS];
        buckets[11..].fill(fast + slow);
        reading(fast + slow, buckets)
    }

    #[test]
    fn figures_are_those_of_the_window() {
        let mut window = CommandWindow::default();
        let first = window.add(&mixed(90, 10), Nanos::from_secs(1));
        assert_eq!(first.per_second, 100);
        assert_eq!(first.p50, Some(Nanos(1_024 * 50 / 90)));
        assert!(first.p99.is_some_and(|time| time > Nanos(1 << 20) && time < Nanos(1 << 21)));
        for second in 2..20 {
            window.add(&mixed(90, 10), Nanos::from_secs(second));
        }
        let quiet = window.add(&mixed(90, 10), Nanos::from_secs(20));
        assert_eq!(quiet, WindowFigures::default(), "calls before the window do not count");
        let again = window.add(&mixed(1_090, 10), Nanos::from_secs(22));
        assert_eq!(again.per_second, 500);
        assert!(again.p99.is_some_and(|time| time <= Nanos(1_024)));
    }

    #[test]
    fn calls_beyond_the_last_bound_count_as_the_longest() {
        let mut window = CommandWindow::default();
        let figures = window.add(&reading(1, [0; BUCKETS]), Nanos::from_secs(1));
        assert_eq!(figures.p50, Some(COMMAND_TIME_BOUNDS[BUCKETS - 1]));
        assert_eq!(
            CommandWindow::default().add(&[], Nanos::from_secs(1)),
            WindowFigures::default()
        );
    }
}
