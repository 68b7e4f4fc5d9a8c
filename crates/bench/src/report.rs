//! Results of a measurement, for people and for machines.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::process::Cpu;

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Counts latencies up to a minute, to three digits.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("the bounds are in order")
}

pub(crate) fn record(histogram: &mut Histogram<u64>, latency: Duration, count: u32) {
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    histogram.saturating_record_n(nanos, u64::from(count));
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// The longest time without a success.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// The server that the connections went to.
    pub address: SocketAddr,
    /// The longest over one connection, in milliseconds.
    pub connection_ms: f64,
    /// Over all connections to this server together, in milliseconds.
    pub together_ms: f64,
}

/// The clients' results and their price.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Length of the measured window.
    pub seconds: f64,
    /// Commands that succeeded.
    pub operations: u64,
    pub per_second: f64,
    pub latency: Latency,
    /// Commands that failed, by the first word of the error, or `timeout`, or `disconnected`.
    pub errors: BTreeMap<String, u64>,
    /// Longest time in which no connection had a success, in milliseconds.
    pub gap_ms: f64,
    /// By server.
    pub gaps: Vec<Gap>,
    /// Commands that succeeded, by server and slice of time.
    #[serde(skip)]
    pub timelines: Vec<Vec<u64>>,
    /// CPU time of the servers in the window; zero where their process ids were not given.
    pub server_cpu: Cpu,
    /// CPU seconds of the servers per million commands that succeeded.
    pub server_cpu_s_per_million: f64,
    /// CPU time of this process in the window.
    pub client_cpu: Cpu,
}

impl LoadReport {
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Seconds per million operations; zero when there were none.
pub(crate) fn per_million(seconds: f64, operations: u64) -> f64 {
    if operations == 0 { 0.0 } else { seconds * 1e6 / operations as f64 }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { p50_us, p99_us, p999_us, max_us } = self.latency;
        writeln!(f, "{:>12.0} commands/s over {:.1} s", self.per_second, self.seconds)?;
        writeln!(
            f,
            "{p50_us:>12.0} µs p50   {p99_us:.0} p99   {p999_us:.0} p99.9   {max_us:.0} max"
        )?;
        if self.server_cpu.total_s() > 0.0 {
            writeln!(
                f,
                "{:>12.2} CPU-s of the servers per million ({:.2} s user, {:.2} s system)",
                self.server_cpu_s_per_million, self.server_cpu.user_s, self.server_cpu.system_s
            )?;
        }
        writeln!(f, "{:>12.2} CPU-s of this client", self.client_cpu.total_s())?;
        writeln!(f, "{:>12.1} ms longest time without a success", self.gap_ms)?;
        for (kind, count) in &self.errors {
            writeln!(f, "{count:>12} failed: {kind}")?;
        }
        Ok(())
    }
}

/// The middle of some numbers; the mean of the two middle ones for an even count.
///
/// # Panics
/// If there are none.
pub fn median(numbers: &[f64]) -> f64 {
    assert!(!numbers.is_empty(), "no numbers have no middle");
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn latencies_come_back_in_microseconds() {
        let mut histogram = new_histogram();
        record(&mut histogram, Duration::from_micros(250), 99);
        record(&mut histogram, Duration::from_millis(3), 1);
        let latency = Latency::of(&histogram);
        assert!((249.0..252.0).contains(&latency.p50_us), "{latency:?}");
        assert!((2_990.0..3_010.0).contains(&latency.max_us), "{latency:?}");
    }
}
