//! `LATENCY`: samples of slow commands over time, and histograms of all times.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Nanos;
use commands::spec::Flag;
use commands::{CommandSpec, SessionVerb};
use types::Reply;

use crate::counts::{CommandTotal, Totals};
use crate::sparkline;

/// Samples of an event that are kept: the worst of each second.
const SAMPLES_MAX: usize = 160;
/// Bounds of a histogram: 1 microsecond and its doubles, up to 68 seconds.
const BOUNDS: u32 = 27;

#[derive(Default)]
pub(crate) struct LatencyMonitor {
    /// Milliseconds; zero turns the monitor off.
    threshold: AtomicU64,
    events: Mutex<BTreeMap<&'static str, Series>>,
}

#[derive(Clone, Default)]
struct Series {
    samples: VecDeque<Sample>,
    max_millis: u64,
}

#[derive(Clone, Copy)]
struct Sample {
    unix_secs: u64,
    millis: u64,
}

impl LatencyMonitor {
    pub(crate) fn threshold_millis(&self) -> u64 {
        self.threshold.load(Relaxed)
    }

    pub(crate) fn set_threshold_millis(&self, millis: u64) {
        self.threshold.store(millis, Relaxed);
    }

    /// The shortest time that is an event, if any is.
    pub(crate) fn threshold(&self) -> Option<Nanos> {
        match self.threshold_millis() {
            0 => None,
            millis => Some(Nanos(millis.saturating_mul(1_000_000))),
        }
    }

    /// A command has taken longer than the threshold.
    pub(crate) fn add(&self, spec: &CommandSpec, time: Nanos, unix_secs: u64) {
        let event = if spec.has(Flag::Fast) { "fast-command" } else { "command" };
        let sample = Sample { unix_secs, millis: time.as_millis() };
        if let Ok(mut events) = self.events.lock() {
            events.entry(event).or_default().add(sample);
        }
    }

    fn events(&self) -> BTreeMap<&'static str, Series> {
        self.events.lock().map(|events| events.clone()).unwrap_or_default()
    }

    fn series(&self, event: &[u8]) -> Option<Series> {
        let events = self.events();
        events.into_iter().find_map(|(name, series)| (name.as_bytes() == event).then_some(series))
    }

    /// Forgets these events, or all; returns how many there were.
    fn reset(&self, names: &[&[u8]]) -> usize {
        let Ok(mut events) = self.events.lock() else { return 0 };
        let before = events.len();
        let stays = |event: &str| !names.is_empty() && !names.contains(&event.as_bytes());
        events.retain(|event, _| stays(event));
        before - events.len()
    }

    /// The reply to a subcommand of `LATENCY`, or the text of an error.
    pub(crate) fn reply(
        &self,
        verb: SessionVerb,
        args: &[&[u8]],
        unix_secs: u64,
        totals: impl FnOnce() -> Totals,
    ) -> Result<Reply, String> {
        Ok(match verb {
            SessionVerb::LatencyHistogram => histograms(&totals(), &args[2..]),
            SessionVerb::LatencyReset => Reply::Integer(self.reset(&args[2..]) as i64),
            SessionVerb::LatencyHistory => {
                let samples = self.series(args[2]).unwrap_or_default().samples;
                let shown =
                    |sample: Sample| Reply::array([sample.unix_secs, sample.millis].map(number));
                Reply::array(samples.into_iter().map(shown))
            }
            SessionVerb::LatencyLatest => {
                let shown = |(event, series): (&'static str, Series)| {
                    let last = series.samples.back();
                    let last = last.map_or((0, 0), |sample| (sample.unix_secs, sample.millis));
                    let max = number(series.max_millis);
                    Reply::array([Reply::bulk(event), number(last.0), number(last.1), max])
                };
                Reply::array(self.events().into_iter().map(shown))
            }
            SessionVerb::LatencyGraph => {
                let event = args[2];
                let series = self.series(event).ok_or_else(|| {
                    let event = String::from_utf8_lossy(event);
                    format!("ERR No samples available for event '{event}'")
                })?;
                Reply::text(series.graph(&String::from_utf8_lossy(event), unix_secs))
            }
            _ => Reply::text(self.report(unix_secs)),
        })
    }

    /// `LATENCY DOCTOR`.
    fn report(&self, unix_secs: u64) -> String {
        let (events, threshold) = (self.events(), self.threshold_millis());
        if threshold == 0 {
            return "Latency monitoring is off. CONFIG SET latency-monitor-threshold <milliseconds> turns it on.\n"
                .into();
        }
        if events.is_empty() {
            return format!("No command has taken {threshold} ms or longer.\n");
        }
        let mut text = format!("Commands have taken {threshold} ms or longer:\n\n");
        for (number, (event, series)) in events.iter().enumerate() {
            let _ = writeln!(text, "{}. {event}: {}", number + 1, series.summary(unix_secs));
        }
        text.push_str(
            "\n- SLOWLOG GET shows the slowest requests, LATENCY HISTOGRAM all of them.\n",
        );
        text.push_str(
            "- A write waits for a quorum: INFO palimpsest names members that are down.\n",
        );
        text
    }
}

impl Series {
    fn add(&mut self, sample: Sample) {
        self.max_millis = self.max_millis.max(sample.millis);
        match self.samples.back_mut() {
            Some(last) if last.unix_secs == sample.unix_secs => {
                last.millis = last.millis.max(sample.millis);
            }
            _ => self.samples.push_back(sample),
        }
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    fn graph(&self, event: &str, unix_secs: u64) -> String {
        let millis = self.samples.iter().map(|sample| sample.millis);
        let (high, low) = (millis.clone().max().unwrap_or(0), millis.min().unwrap_or(0));
        let samples: Vec<(u64, String)> = self
            .samples
            .iter()
            .map(|sample| (sample.millis, age(unix_secs.saturating_sub(sample.unix_secs))))
            .collect();
        let all = self.max_millis;
        let line = "-".repeat(80);
        let graph = sparkline::render(&samples);
        format!("{event} - high {high} ms, low {low} ms (all time high {all} ms)\n{line}\n{graph}")
    }

    fn summary(&self, unix_secs: u64) -> String {
        let count = self.samples.len().max(1) as u64;
        let millis = self.samples.iter().map(|sample| sample.millis);
        let average = millis.clone().sum::<u64>() / count;
        let deviation = millis.map(|millis| millis.abs_diff(average)).sum::<u64>() / count;
        let first = self.samples.front().map_or(unix_secs, |sample| sample.unix_secs);
        let period = unix_secs.saturating_sub(first) as f64 / count as f64;
        format!(
            "{count} latency spikes (average {average}ms, mean deviation {deviation}ms, period {period:.2} sec). \
             Worst all time event {}ms.",
            self.max_millis
        )
    }
}

/// A span in the largest unit.
fn age(secs: u64) -> String {
    match secs {
        0..60 => format!("{secs}s"),
        60..3_600 => format!("{}m", secs / 60),
        3_600..86_400 => format!("{}h", secs / 3_600),
        _ => format!("{}d", secs / 86_400),
    }
}

fn number(value: u64) -> Reply {
    Reply::Integer(value as i64)
}

/// `LATENCY HISTOGRAM [command …]`. A container stands for its subcommands.
fn histograms(totals: &Totals, names: &[&[u8]]) -> Reply {
    let is_named = |total: &CommandTotal| {
        let container = total.name.split('|').next().unwrap_or_default();
        let fits = |name: &&[u8]| {
            [total.name, container].iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
        };
        names.is_empty() || names.iter().any(fits)
    };
    let shown = |total: &CommandTotal| {
        let steps = steps(total).into_iter();
        let steps = steps.map(|(micros, count)| (number(micros), number(count))).collect();
        Reply::map([("calls", number(total.calls)), ("histogram_usec", Reply::Map(steps))])
    };
    let sent = totals.sent().into_iter();
    let wanted = sent.filter(|total| total.calls > 0 && is_named(total));
    Reply::map(wanted.map(|total| (total.name, shown(total))))
}

/// Cumulative counts by bounds in microseconds, in Redis' roundings. Bounds without calls are left
/// out.
fn steps(total: &CommandTotal) -> Vec<(u64, u64)> {
    let Some(times) = &total.times else { return Vec::new() };
    let bound = |power: u32| (1_024_u64 << power) + (8 << power) - 1;
    let below = times.below((0..BOUNDS).map(|power| Nanos(1_024 << power)));
    let mut steps: Vec<(u64, u64)> =
        (0..BOUNDS).map(|power| bound(power) / 1_000).zip(below).collect();
    let mut before = 0;
    steps.retain(|(_, count)| *count > std::mem::replace(&mut before, *count));
    steps
}
