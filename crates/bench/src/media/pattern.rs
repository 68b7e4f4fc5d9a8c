//! One interface for all measurements: prepare, run for a while, check.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::ClockId;

use crate::Result;

/// A way of writing values.
pub(super) trait Pattern {
    fn name(&self) -> Name;

    /// Writes per unit; a unit shares a fence or a flush.
    fn unit(&self) -> u64 {
        1
    }

    /// True when a unit waits for a device: then wall-clock time counts.
    fn is_slow(&self) -> bool {
        false
    }

    /// Prepares a slice; other patterns may have used the same memory since the last one.
    fn prepare(&mut self) -> Result<()>;

    fn write(&mut self, units: u64) -> Result<()>;

    /// Checks that the written values are there.
    fn check(&mut self) -> Result<()>;
}

/// The name of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub struct Name {
    /// `log`, `single`, `multi`, `raw`, `append`.
    pub pattern: &'static str,
    /// The variant, or the origin of the code.
    pub how: &'static str,
}

/// Results of one pattern over all slices.
pub(super) struct Measured {
    /// Writes per second, by slice.
    pub rates: Vec<f64>,
    /// Nanoseconds per unit.
    pub latencies: Histogram<u64>,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub slice: Duration,
    pub rounds: usize,
}

/// Units between two looks at the clock.
const BATCH: u64 = 1024;
/// Latency samples, by slice.
const SAMPLES_MAX: u64 = 20_000;

/// Measures patterns alternately, so that a slow moment of the machine meets all of them.
pub(super) fn measure(patterns: &mut [Box<dyn Pattern>], pace: Pace) -> Result<Vec<Measured>> {
    let new = || Measured {
        rates: Vec::with_capacity(pace.rounds),
        latencies: Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds are in order"),
    };
    let mut measured: Vec<Measured> = patterns.iter().map(|_| new()).collect();
    for _ in 0..pace.rounds {
        for (pattern, measured) in patterns.iter_mut().zip(&mut measured) {
            pattern.prepare()?;
            match pattern.is_slow() {
                true => run_timed(&mut **pattern, pace.slice, measured)?,
                false => {
                    run(&mut **pattern, pace.slice / 2)?;
                    measured.rates.push(run(&mut **pattern, pace.slice)?);
                    sample(&mut **pattern, pace.slice / 5, &mut measured.latencies)?;
                }
            }
            pattern.check()?;
        }
    }
    Ok(measured)
}

/// CPU time of this thread.
///
/// Excludes time taken by other programs. These patterns never wait, so it equals wall-clock time
/// on an idle machine.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a thread has not run since before it began");
    Duration::from_secs(seconds) + Duration::from_nanos(time.tv_nsec as u64)
}

/// Writes per second.
fn run(pattern: &mut dyn Pattern, slice: Duration) -> Result<f64> {
    let batch = (BATCH / pattern.unit()).max(1);
    let begun = cpu_time();
    let mut writes = 0;
    loop {
        pattern.write(batch)?;
        writes += batch * pattern.unit();
        let elapsed = cpu_time() - begun;
        if elapsed >= slice {
            return Ok(writes as f64 / elapsed.as_secs_f64());
        }
    }
}

fn sample(pattern: &mut dyn Pattern, limit: Duration, into: &mut Histogram<u64>) -> Result<()> {
    let begun = Instant::now();
    let mut last = begun;
    for _ in 0..SAMPLES_MAX {
        pattern.write(1)?;
        let now = Instant::now();
        into.saturating_record((now - last).as_nanos() as u64);
        last = now;
        if now - begun >= limit {
            break;
        }
    }
    Ok(())
}

fn run_timed(pattern: &mut dyn Pattern, slice: Duration, measured: &mut Measured) -> Result<()> {
    let begun = Instant::now();
    let (mut last, mut units) = (begun, 0);
    while last - begun < slice {
        pattern.write(1)?;
        units += 1;
        let now = Instant::now();
        measured.latencies.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
    let writes = units * pattern.unit();
    measured.rates.push(writes as f64 / (last - begun).as_secs_f64());
    Ok(())
}
