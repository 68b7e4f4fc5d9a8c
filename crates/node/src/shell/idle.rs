//! How much of the machine nobody uses: proc(5), `/proc/stat`, Linux 2.6 and later.

use base::Nanos;

/// Time that cores have spent idle since the machine started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Idle {
    /// All of them together.
    pub(crate) time: Nanos,
    pub(crate) cores: u64,
}

impl Idle {
    /// `None` where the system does not tell.
    pub(crate) fn look() -> Option<Idle> {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        parse(&std::fs::read_to_string("/proc/stat").ok()?, ticks_per_second)
    }

    /// Hundredths of the machine that were idle since an earlier look, so long ago.
    pub(crate) fn percent_since(&self, before: Idle, elapsed: Nanos) -> u64 {
        let idle = self.time.since(before.time).0;
        idle.saturating_mul(100) / elapsed.0.saturating_mul(self.cores).max(1)
    }
}

/// Takes time in which a core waited for the disk as idle, as it is.
fn parse(stat: &str, ticks_per_second: u64) -> Option<Idle> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = all.split_ascii_whitespace().skip(3).map(str::parse::<u64>);
    let (idle, waiting) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    let time = Nanos((idle + waiting).checked_mul(1_000_000_000)? / ticks_per_second.max(1));
    let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    Some(Idle { time, cores: stat.lines().filter(is_core).count() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_idle_and_waiting_for_the_disk() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5 6\n";
        assert_eq!(parse(stat, 100), Some(Idle { time: Nanos::from_millis(900), cores: 1 }));
    }

    #[test]
    fn a_quarter_of_four_cores_is_one() {
        let at = |seconds: u64| Idle { time: Nanos::from_millis(seconds * 1_000), cores: 4 };
        assert_eq!(at(110).percent_since(at(100), Nanos::from_millis(10_000)), 25);
        assert_eq!(at(100).percent_since(at(100), Nanos::ZERO), 0);
    }

    #[test]
    fn what_is_not_such_a_file_tells_nothing() {
        assert_eq!(parse("", 100), None);
        assert_eq!(parse("cpu  1 2 3", 100), None);
        assert_eq!(parse("cpu  1 2 3 many 5", 100), None);
        assert_eq!(parse(&format!("cpu  1 2 3 {} 5", u64::MAX - 9), 100), None);
    }
}
