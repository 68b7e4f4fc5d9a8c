//! Schedules the background verification of a worker's stores.
//!
//! A medium is read at a set rate, in steps too small to delay a request. After a pass there is a
//! pause, so that a small medium is not read all the time. The store chooses the data of each step.

use base::Nanos;
use protocols::Stats;
use storage::{ScrubScope, Scrubbed, Share};

use super::WorkerConfig;
use super::worker_state::WorkerState;

/// Bytes of one step.
const STEP: u64 = 64 << 10;
/// Steps are no further apart, however low the rate: then they are shorter.
const PERIOD_MAX: Nanos = Nanos::from_secs(60);

/// Settings of the background verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubConfig {
    /// Read from each medium; zero: no medium is scrubbed.
    pub bytes_per_second: u64,
    /// From the beginning of a pass to that of the next, at least.
    pub pass_min: Nanos,
    /// Within this time every shard is compared with the other replicas; zero: only after writes
    /// and restarts.
    pub compare_every: Nanos,
}

impl ScrubConfig {
    /// No background verification.
    pub const OFF: ScrubConfig =
        ScrubConfig { bytes_per_second: 0, pass_min: Nanos::ZERO, compare_every: Nanos::ZERO };
    /// A mebibyte a second, a pass an hour at most, a comparison a day.
    pub const DEFAULT: ScrubConfig = ScrubConfig {
        bytes_per_second: 1 << 20,
        pass_min: Nanos::from_secs(3_600),
        compare_every: Nanos::from_secs(86_400),
    };
}

/// One store that this worker scrubs.
#[derive(Debug)]
struct ScrubPace {
    store: usize,
    bytes: u64,
    period: Nanos,
    /// The next step; `None` while one is under way.
    at: Option<Nanos>,
    stepped_at: Nanos,
    began: Option<Nanos>,
}

#[derive(Debug)]
pub(super) struct Scrubber {
    share: Share,
    pass_min: Nanos,
    paces: Vec<ScrubPace>,
    sum: Scrubbed,
    passes: u64,
    /// Seconds of the wall clock, when the last pass ended.
    passed_unix: u64,
}

impl Scrubber {
    pub(super) fn new(config: &WorkerConfig, shared: &WorkerState, now: Nanos) -> Scrubber {
        let ScrubConfig { bytes_per_second, pass_min, .. } = config.scrub;
        let share = Share { worker: config.index, workers: config.workers };
        let pace = |store: usize| {
            let rate = match shared.stores[store].store.scrub_scope() {
                ScrubScope::Nothing => 0,
                ScrubScope::Shards => bytes_per_second.div_ceil(config.workers as u64),
                ScrubScope::Medium if config.index == 0 => bytes_per_second,
                ScrubScope::Medium => 0,
            };
            (rate > 0).then(|| ScrubPace::new(store, rate, now))
        };
        let paces = (0..shared.stores.len()).filter_map(pace).collect();
        let sum = Scrubbed::default();
        Scrubber { share, pass_min, paces, sum, passes: 0, passed_unix: 0 }
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.paces.iter().filter_map(|pace| pace.at).min()
    }

    /// Begins the steps that are due.
    pub(super) fn step(&mut self, shared: &mut WorkerState) {
        for pace in &mut self.paces {
            if pace.at.is_some_and(|at| at <= shared.now) {
                (pace.at, pace.stepped_at) = (None, shared.now);
                pace.began.get_or_insert(shared.now);
                shared.stores[pace.store].store.scrub(self.share, pace.bytes);
            }
        }
    }

    pub(super) fn on_scrubbed(
        &mut self,
        shared: &mut WorkerState,
        store: usize,
        scrubbed: Scrubbed,
    ) {
        let Some(pace) = self.paces.iter_mut().find(|pace| pace.store == store) else { return };
        self.sum.bytes += scrubbed.bytes;
        self.sum.registers += scrubbed.registers;
        self.sum.damaged += scrubbed.damaged;
        let mut at = pace.stepped_at + pace.period;
        if scrubbed.has_ended {
            self.passes += 1;
            self.passed_unix = shared.unix.0 / 1_000;
            let began = pace.began.take().unwrap_or(shared.now);
            at = at.max(began + self.pass_min);
        }
        // Never within the same turn: a store that answers at once would be asked for ever.
        pace.at = Some(at.max(shared.now + Nanos(1)));
    }

    pub(super) fn stats(&self, stats: &mut Stats) {
        stats.add("scrub_bytes", self.sum.bytes);
        stats.add("scrub_registers", self.sum.registers);
        stats.add("scrub_damaged", self.sum.damaged);
        stats.add("scrub_passes", self.passes);
        if !self.paces.is_empty() {
            stats.add("scrub_passed_unix", self.passed_unix);
        }
    }
}

impl ScrubPace {
    fn new(store: usize, rate: u64, now: Nanos) -> ScrubPace {
        let second = Nanos::from_secs(1).0;
        let period = Nanos((STEP * second / rate).clamp(1, PERIOD_MAX.0));
        let bytes = (u128::from(rate) * u128::from(period.0) / u128::from(second)).max(1) as u64;
        ScrubPace { store, bytes, period, at: Some(now + period), stepped_at: now, began: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_small_and_make_the_rate() {
        for rate in [1, 500, 4_096, 1 << 20, 1 << 30, 1 << 40] {
            let pace = ScrubPace::new(0, rate, Nanos::ZERO);
            assert!(pace.bytes <= STEP.max(rate / 1_000_000_000), "{rate}: {pace:?}");
            let a_day = 86_400_000_000_000 / pace.period.0 * pace.bytes;
            assert!(a_day >= rate * 86_400 / 100 * 95, "{rate}: {pace:?}");
        }
    }
}
