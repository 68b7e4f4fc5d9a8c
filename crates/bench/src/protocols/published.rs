//! Figures that papers print, per processor core that they used.
//!
//! `published.csv` has a line per figure. [ODYSSEY]
//! The setting is five servers with 20 cores each, and a million keys of 8 bytes, drawn uniformly.
//! Values have 32 bytes; the servers' workers make the requests.
//! ZAB and Multi-Paxos reach their peak with 4 workers a server, so their cores are 20.
//! The percentage is that of writes for a throughput.
//! For a latency it is the load relative to the protocol's own peak, with writes only.

use std::sync::LazyLock;

const TABLE: &str = include_str!("published.csv");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    OperationsPerSecond,
    LatencyAvg,
    LatencyP99,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    protocol: &'static str,
    figure: Figure,
    percent: u32,
    value: f64,
    /// Where throughput is concerned.
    cores: Option<f64>,
    source: &'static str,
}

static LINES: LazyLock<Vec<Line>> = LazyLock::new(|| {
    let parsed = TABLE.lines().skip(1).map(parse);
    parsed.collect::<Option<_>>().expect("the table is a part of this program")
});

fn parse(line: &'static str) -> Option<Line> {
    let fields: Vec<&str> = line.split(',').collect();
    let [protocol, figure, percent, value, cores, source] = fields[..] else { return None };
    let figure = match figure {
        "operations_per_second" => Figure::OperationsPerSecond,
        "latency_avg_us" => Figure::LatencyAvg,
        "latency_p99_us" => Figure::LatencyP99,
        _ => return None,
    };
    let cores = match cores {
        "" => None,
        cores => Some(cores.parse().ok()?),
    };
    let (percent, value) = (percent.parse().ok()?, value.parse().ok()?);
    Some(Line { protocol, figure, percent, value, cores, source })
}

fn find(protocol: &str, figure: Figure, percent: u32) -> Option<&'static Line> {
    LINES
        .iter()
        .find(|line| (line.protocol, line.figure, line.percent) == (protocol, figure, percent))
}

/// Operations per second and used core at this percentage of writes, and the source.
pub(super) fn per_core(protocol: &str, writes: u32) -> Option<(f64, &'static str)> {
    let line = find(protocol, Figure::OperationsPerSecond, writes)?;
    Some((line.value / line.cores?, line.source))
}

/// Average and 99th percentile in microseconds at this load, with writes only.
pub(super) fn latency(protocol: &str, load: u32) -> Option<(f64, f64)> {
    let avg = find(protocol, Figure::LatencyAvg, load)?;
    Some((avg.value, find(protocol, Figure::LatencyP99, load)?.value))
}

/// Points of latency in microseconds over the load: averages, or 99th percentiles.
pub(super) fn latencies(protocol: &str, is_p99: bool) -> Vec<(f64, f64)> {
    let figure = if is_p99 { Figure::LatencyP99 } else { Figure::LatencyAvg };
    let is_it = |line: &&Line| line.protocol == protocol && line.figure == figure;
    LINES.iter().filter(is_it).map(|line| (f64::from(line.percent), line.value)).collect()
}

/// Points of throughput per core over the percentage of writes.
pub(super) fn curve(protocol: &str) -> Vec<(f64, f64)> {
    let is_it =
        |line: &&Line| line.protocol == protocol && line.figure == Figure::OperationsPerSecond;
    let point = |line: &Line| Some((f64::from(line.percent), line.value / line.cores?));
    LINES.iter().filter(is_it).filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_fields() {
        assert_eq!(LINES.len(), TABLE.lines().count() - 1);
        for line in LINES.iter() {
            assert!(line.value > 0.0 && line.percent <= 100 && !line.source.is_empty(), "{line:?}");
            let is_throughput = line.figure == Figure::OperationsPerSecond;
            assert_eq!(line.cores.is_some(), is_throughput, "{line:?}");
        }
        for protocol in ["abd", "classic-paxos", "craq", "hermes", "zab"] {
            assert_eq!(curve(protocol).len(), 7, "{protocol}");
            for is_p99 in [false, true] {
                assert_eq!(latencies(protocol, is_p99).len(), 4, "{protocol}");
            }
        }
    }

    #[test]
    fn figures_are_divided_by_the_cores_that_were_used() {
        assert_eq!(per_core("hermes", 100), Some((890_000.0, "Odyssey table 3")));
        assert_eq!(per_core("zab", 100).map(|(value, _)| value), Some(700_000.0));
        assert_eq!(per_core("hermes", 99), None);
        assert_eq!(latency("craq", 50), Some((30.0, 48.0)));
        assert_eq!(latency("rmwpaxos", 50), None);
    }
}
