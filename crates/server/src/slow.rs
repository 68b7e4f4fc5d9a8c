//! Slow commands: the slow log and the latency monitor, and the parameters of both.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use base::Nanos;
use base::decimal::parse_i64;

use crate::latency::LatencyMonitor;
use crate::slowlog::{LEN_MAX, SlowLog};

const NOT_AN_INTEGER: &str = "argument couldn't be parsed into an integer";
/// Percentiles that `INFO latencystats` may show.
const PERCENTILES_MAX: usize = 32;

pub(crate) struct Slow {
    pub log: SlowLog,
    pub monitor: LatencyMonitor,
    /// Nanoseconds: shorter commands concern neither of them.
    from: AtomicU64,
    /// `INFO latencystats` and `LATENCY HISTOGRAM` answer. Times are measured in any case.
    tracks: AtomicBool,
    percentiles: Mutex<Vec<f64>>,
}

/// A checked value of a parameter.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SlowChange {
    SlowerThan(i64),
    LenMax(usize),
    Threshold(u64),
    Tracking(bool),
    Percentiles(Vec<f64>),
}

impl Default for Slow {
    fn default() -> Slow {
        let slow = Slow {
            log: SlowLog::default(),
            monitor: LatencyMonitor::default(),
            from: AtomicU64::new(u64::MAX),
            tracks: AtomicBool::new(true),
            percentiles: Mutex::new(vec![50.0, 99.0, 99.9]),
        };
        slow.note_thresholds();
        slow
    }
}

impl Slow {
    pub(crate) fn concerns(&self, time: Nanos) -> bool {
        time.0 >= self.from.load(Relaxed)
    }

    fn note_thresholds(&self) {
        let thresholds = self.log.threshold().into_iter().chain(self.monitor.threshold());
        self.from.store(thresholds.min().map_or(u64::MAX, |from| from.0), Relaxed);
    }

    pub(crate) fn tracks(&self) -> bool {
        self.tracks.load(Relaxed)
    }

    pub(crate) fn percentiles(&self) -> Vec<f64> {
        self.percentiles.lock().map(|all| all.clone()).unwrap_or_default()
    }

    /// Names and values for `CONFIG GET`.
    pub(crate) fn parameters(&self) -> [(&'static str, String); 5] {
        let percentiles: Vec<String> = self.percentiles().iter().map(f64::to_string).collect();
        [
            ("slowlog-log-slower-than", self.log.slower_than().to_string()),
            ("slowlog-max-len", self.log.len_max().to_string()),
            ("latency-monitor-threshold", self.monitor.threshold_millis().to_string()),
            ("latency-tracking", if self.tracks() { "yes" } else { "no" }.into()),
            ("latency-tracking-info-percentiles", percentiles.join(" ")),
        ]
    }

    pub(crate) fn apply(&self, change: SlowChange) {
        match change {
            SlowChange::SlowerThan(micros) => self.log.set_slower_than(micros),
            SlowChange::LenMax(len) => self.log.set_len_max(len),
            SlowChange::Threshold(millis) => self.monitor.set_threshold_millis(millis),
            SlowChange::Tracking(tracks) => self.tracks.store(tracks, Relaxed),
            SlowChange::Percentiles(percentiles) => {
                if let Ok(mut all) = self.percentiles.lock() {
                    *all = percentiles;
                }
            }
        }
        self.note_thresholds();
    }
}

/// Checks a value for `CONFIG SET`; `None` for other parameters. An error is the end of the reply.
pub(crate) fn check(name: &str, value: &str) -> Option<Result<SlowChange, Cow<'static, str>>> {
    let change = match name {
        "slowlog-log-slower-than" => number(value, -1, i64::MAX).map(SlowChange::SlowerThan),
        "slowlog-max-len" => {
            number(value, 0, LEN_MAX as i64).map(|len| SlowChange::LenMax(len as usize))
        }
        "latency-monitor-threshold" => {
            number(value, 0, i64::MAX).map(|millis| SlowChange::Threshold(millis as u64))
        }
        "latency-tracking" => match value.to_ascii_lowercase().as_str() {
            "yes" => Ok(SlowChange::Tracking(true)),
            "no" => Ok(SlowChange::Tracking(false)),
            _ => Err("argument must be 'yes' or 'no'".into()),
        },
        "latency-tracking-info-percentiles" => percentiles(value).map(SlowChange::Percentiles),
        _ => return None,
    };
    Some(change)
}

fn number(value: &str, least: i64, most: i64) -> Result<i64, Cow<'static, str>> {
    let number = parse_i64(value.as_bytes()).ok_or(NOT_AN_INTEGER)?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("argument must be between {least} and {most} inclusive").into())
    }
}

fn percentiles(value: &str) -> Result<Vec<f64>, Cow<'static, str>> {
    let all: Result<Vec<f64>, _> = value.split_whitespace().map(str::parse).collect();
    match all {
        Ok(all) if all.iter().any(|one| !(0.0..=100.0).contains(one)) => {
            Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                .into())
        }
        Ok(all) if all.len() <= PERCENTILES_MAX => Ok(all),
        _ => Err("Invalid latency-tracking-info-percentiles parameters".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(slow: &Slow, name: &str, value: &str) {
        slow.apply(check(name, value).expect("it is one of these").expect("it is valid"));
    }

    #[test]
    fn the_lower_threshold_counts_and_both_can_be_off() {
        let slow = Slow::default();
        assert!(slow.concerns(Nanos::from_millis(10)) && !slow.concerns(Nanos(9_999_999)));
        set(&slow, "slowlog-log-slower-than", "-1");
        assert!(!slow.concerns(Nanos(u64::MAX - 1)));
        set(&slow, "latency-monitor-threshold", "3");
        assert!(slow.concerns(Nanos::from_millis(3)) && !slow.concerns(Nanos(2_999_999)));
        set(&slow, "slowlog-log-slower-than", "0");
        assert!(slow.concerns(Nanos::ZERO));
        set(&slow, "slowlog-max-len", "0");
        assert!(!slow.concerns(Nanos(2_999_999)));
    }

    /// Texts of redis-server 7.0.15, but for the greatest length.
    #[test]
    fn bad_values_are_refused_with_their_range() {
        let fault = |name: &str, value: &str| check(name, value).unwrap().unwrap_err().into_owned();
        assert_eq!(fault("slowlog-log-slower-than", "abc"), NOT_AN_INTEGER);
        assert_eq!(
            fault("slowlog-log-slower-than", "-2"),
            "argument must be between -1 and 9223372036854775807 inclusive"
        );
        assert_eq!(
            fault("slowlog-max-len", "-1"),
            "argument must be between 0 and 1000000 inclusive"
        );
        assert_eq!(fault("latency-tracking", "x"), "argument must be 'yes' or 'no'");
        assert!(fault("latency-tracking-info-percentiles", "50 101").contains("sit between"));
        assert!(fault("latency-tracking-info-percentiles", "x").starts_with("Invalid"));
        assert_eq!(check("maxmemory", "1"), None);
    }
}
