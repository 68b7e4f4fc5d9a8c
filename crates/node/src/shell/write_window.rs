//! Limits client writes in flight while the peers that a majority needs are slow.
//!
//! A backlog at a slow peer is known only once it exists. By then the node may have accepted so
//! many writes that all of them come too late. So the window halves each time these peers turn
//! slow, and doubles after each period in which they were fast.

use base::Nanos;

const DOUBLED_AFTER: Nanos = Nanos::from_millis(500);

/// So few short writes never make a peer slow.
const SMALLEST: usize = 8;
/// Beyond this it is no bound.
const LARGEST: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct WriteWindow {
    max: usize,
    /// The peers were slow when it was looked at last.
    was_slow: bool,
    /// When it was changed, or the peers were slow for the last time.
    since: Nanos,
}

impl WriteWindow {
    pub(super) fn new() -> WriteWindow {
        WriteWindow { max: usize::MAX, was_slow: false, since: Nanos::ZERO }
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Updates the window. `is_slow`: too few peers for a majority are fast. `writes`: the weight
    /// in flight.
    pub(super) fn look(&mut self, now: Nanos, is_slow: bool, writes: usize) {
        if is_slow {
            if !self.was_slow {
                self.max = (self.max.min(writes) / 2).max(SMALLEST);
            }
            self.since = now;
        }
        while !is_slow && self.max != usize::MAX && now >= self.since + DOUBLED_AFTER {
            self.max = if self.max >= LARGEST { usize::MAX } else { self.max * 2 };
            self.since += DOUBLED_AFTER;
        }
        self.was_slow = is_slow;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_each_time_and_doubles_until_it_is_no_bound() {
        let mut window = WriteWindow::new();
        let at = |second: u64| Nanos::from_secs(second);
        window.look(at(1), false, 1_000);
        assert_eq!(window.max(), usize::MAX);
        window.look(at(2), true, 1_000);
        window.look(at(3), true, 1_000);
        assert_eq!(window.max(), 500, "once as long as they are slow");
        window.look(at(3), false, 500);
        assert_eq!(window.max(), 500);
        window.look(at(3), true, 3);
        assert_eq!(window.max(), SMALLEST, "however few there are");
        window.look(at(9), false, 1);
        assert_eq!(window.max(), SMALLEST << 12, "twice as many every half second");
        window.look(at(11), false, 1);
        assert_eq!(window.max(), usize::MAX);
    }
}
