//! How much of the machine nobody uses: proc(5), `/proc/stat`, Linux 2.6 and later.

use base::Nanos;

/// Time that all cores together have spent idle since the machine started; `None` where the system does not tell.
pub(crate) fn idle_time() -> Option<Nanos> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?, rustix::param::clock_ticks_per_second())
}

/// Takes time in which a core waited for the disk as idle, as it is.
fn parse(stat: &str, ticks_per_second: u64) -> Option<Nanos> {
    let cores = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = cores.split_ascii_whitespace().skip(3).map(str::parse::<u64>);
    let (idle, waiting) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some(Nanos((idle + waiting).checked_mul(1_000_000_000)? / ticks_per_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_idle_and_waiting_for_the_disk() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5 6\n";
        assert_eq!(parse(stat, 100), Some(Nanos::from_millis(900)));
    }

    #[test]
    fn what_is_not_such_a_file_tells_nothing() {
        assert_eq!(parse("", 100), None);
        assert_eq!(parse("cpu  1 2 3", 100), None);
        assert_eq!(parse("cpu  1 2 3 many 5", 100), None);
        assert_eq!(parse(&format!("cpu  1 2 3 {} 5", u64::MAX - 9), 100), None);
    }
}
