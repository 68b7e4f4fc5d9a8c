//! The longest span without an acknowledged write, by fault. Pure arithmetic on times.

/// A span of time in nanoseconds since the recording began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

/// The longest time between two successive acknowledgements that overlaps `window`.
///
/// `times` are moments of acknowledgement in order.
/// A window's end stands in for a missing acknowledgement, so the observed silence is never
/// shortened.
pub fn longest(times: &[u64], window: Window) -> u64 {
    let first = times.partition_point(|&at| at <= window.from);
    let last = times.partition_point(|&at| at < window.to);
    let before = first.checked_sub(1).map_or(window.from, |index| times[index]);
    let after = times.get(last).copied().unwrap_or(window.to).max(window.to);
    let within = times.get(first..last).unwrap_or_default();
    let mut longest = 0;
    let mut previous = before;
    for &at in within.iter().chain([&after]) {
        longest = longest.max(at - previous);
        previous = at;
    }
    longest
}

/// How long after `from` the first acknowledgement came; `None` if none came.
pub fn first_after(times: &[u64], from: u64) -> Option<u64> {
    times.get(times.partition_point(|&at| at < from)).map(|at| at - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(times: &[u64], (from, to): (u64, u64), expected: u64) {
        assert_eq!(longest(times, Window { from, to }), expected, "{times:?} in {from}..{to}");
    }

    #[test]
    fn gap_is_longest_silence_overlapping_the_window() {
        check(&[1, 2, 9, 11, 12], (5, 10), 7);
        check(&[1, 4, 6, 8, 20], (5, 10), 12);
        check(&[4, 6, 7, 12], (5, 10), 5);
        check(&[0, 100, 101, 102, 103], (101, 103), 1);
    }

    #[test]
    fn silence_extends_to_ends_of_window() {
        check(&[], (5, 10), 5);
        check(&[6], (5, 10), 4);
        check(&[1], (5, 10), 9);
        check(&[10], (5, 10), 5);
        check(&[5, 10], (5, 10), 5);
    }

    #[test]
    fn first_acknowledgement_after_a_moment_is_found() {
        assert_eq!(first_after(&[1, 5, 9], 4), Some(1));
        assert_eq!(first_after(&[1, 5, 9], 5), Some(0));
        assert_eq!(first_after(&[1, 5, 9], 10), None);
    }
}
