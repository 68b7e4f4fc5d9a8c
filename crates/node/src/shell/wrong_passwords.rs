//! Which wrong passwords become log lines: a few per second in all, and one per second and address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use base::Nanos;

/// Lines per second, over all addresses.
const LINES_MAX: usize = 4;
const SECOND: Nanos = Nanos::from_secs(1);

/// Wrong passwords lately.
#[derive(Debug, Default)]
pub(super) struct WrongPasswords {
    /// Addresses that had a line in this second; at most [`LINES_MAX`].
    lines: BTreeSet<IpAddr>,
    since: Option<Nanos>,
    /// Without a line since the last one that gave a count.
    suppressed: u64,
    total: u64,
}

/// The log entry for one wrong password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogDecision {
    /// A line. So many before it had none.
    Line {
        suppressed: u64,
    },
    Silence,
}

impl WrongPasswords {
    pub(super) fn note(&mut self, now: Nanos, from: IpAddr) -> LogDecision {
        self.total += 1;
        if self.since.is_none_or(|since| now >= since + SECOND) {
            self.since = Some(now);
            self.lines.clear();
        }
        if self.lines.len() >= LINES_MAX || !self.lines.insert(from) {
            self.suppressed += 1;
            return LogDecision::Silence;
        }
        LogDecision::Line { suppressed: std::mem::take(&mut self.suppressed) }
    }

    /// How many had no line, once the second that they came in is over.
    pub(super) fn take_suppressed(&mut self, now: Nanos) -> Option<u64> {
        let is_over = self.since.is_some_and(|since| now >= since + SECOND);
        (is_over && self.suppressed > 0).then(|| std::mem::take(&mut self.suppressed))
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_address_has_one_line_per_second() {
        let mut wrong = WrongPasswords::default();
        let at = |millis: u64| Nanos::from_millis(1 + millis);
        assert_eq!(wrong.note(at(0), address(1)), LogDecision::Line { suppressed: 0 });
        assert_eq!(wrong.note(at(1), address(1)), LogDecision::Silence);
        assert_eq!(wrong.note(at(2), address(2)), LogDecision::Line { suppressed: 1 });
        assert_eq!(wrong.note(at(1_000), address(1)), LogDecision::Line { suppressed: 0 });
        assert_eq!(wrong.total(), 4);
    }

    #[test]
    fn all_addresses_share_a_few_lines() {
        let mut wrong = WrongPasswords::default();
        let lines = (0..100).filter(|&last| {
            wrong.note(Nanos::from_millis(1), address(last)) != LogDecision::Silence
        });
        assert_eq!(lines.count(), LINES_MAX);
        assert_eq!(wrong.take_suppressed(Nanos::from_millis(500)), None, "the second lasts");
        assert_eq!(wrong.take_suppressed(Nanos::from_millis(1_001)), Some(96));
        assert_eq!(wrong.take_suppressed(Nanos::from_millis(2_002)), None);
    }
}
