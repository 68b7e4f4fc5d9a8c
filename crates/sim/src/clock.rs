//! A node's clocks: a monotonic one that may run fast or slow, and a wall clock that may also jump.

use base::{Millis, Nanos};

/// Rates are in parts per million of true time.
pub const NOMINAL_PPM: u64 = 1_000_000;
const EPOCH_MILLIS: u64 = 1_700_000_000_000;

/// The clocks of one node as functions of true time. They go on while its process is down.
#[derive(Clone, Debug)]
pub struct Clock {
    // `local` was shown at `since` (true nanoseconds); from there it runs at `rate_ppm`.
    since: u64,
    local: u64,
    rate_ppm: u64,
    wall_ahead_millis: i64,
}

impl Clock {
    #[must_use]
    pub fn new(local: u64, rate_ppm: u64, wall_ahead_millis: i64) -> Clock {
        Clock { since: 0, local, rate_ppm, wall_ahead_millis }
    }

    /// The monotonic clock at true time `now`.
    #[must_use]
    pub fn local(&self, now: u64) -> Nanos {
        if self.rate_ppm == NOMINAL_PPM {
            return Nanos(self.local + (now - self.since));
        }
        let elapsed = u128::from(now - self.since) * u128::from(self.rate_ppm);
        Nanos(self.local + (elapsed / u128::from(NOMINAL_PPM)) as u64)
    }

    /// The earliest true time at which the monotonic clock shows at least `local`.
    #[must_use]
    pub fn true_time(&self, local: Nanos) -> u64 {
        let ahead = u128::from(local.0.saturating_sub(self.local)) * u128::from(NOMINAL_PPM);
        let elapsed = ahead.div_ceil(u128::from(self.rate_ppm));
        self.since.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// The wall clock.
    #[must_use]
    pub fn unix(&self, now: u64) -> Millis {
        let millis = EPOCH_MILLIS + self.local(now).as_millis();
        Millis(millis.saturating_add_signed(self.wall_ahead_millis))
    }

    /// The same clock, had it run at this rate from the start.
    #[must_use]
    pub fn at_rate(&self, rate_ppm: u64) -> Clock {
        Clock { rate_ppm, ..self.clone() }
    }

    /// Changes the clock's rate from `now` on.
    pub fn set_rate(&mut self, now: u64, rate_ppm: u64) {
        self.local = self.local(now).0;
        self.since = now;
        self.rate_ppm = rate_ppm;
    }

    /// The wall clock jumps.
    pub fn jump(&mut self, millis: i64) {
        self.wall_ahead_millis = self.wall_ahead_millis.saturating_add(millis);
    }

    /// Sets the wall clock right again.
    pub fn set_wall_right(&mut self) {
        self.wall_ahead_millis = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_never_early_at_any_rate() {
        for rate_ppm in [1, 333_333, 999_999, NOMINAL_PPM, 1_000_001, 3_000_000] {
            let clock = Clock::new(17, rate_ppm, 0);
            for at in [17, 18, 1_000, 123_456_789] {
                let true_time = clock.true_time(Nanos(at));
                assert!(clock.local(true_time) >= Nanos(at), "rate {rate_ppm} at {at}");
            }
        }
    }

    #[test]
    fn rate_change_never_turns_clock_back() {
        let mut clock = Clock::new(0, 2_000_000, 5);
        assert_eq!(clock.local(1_000), Nanos(2_000));
        clock.set_rate(1_000, 500_000);
        assert_eq!(clock.local(1_000), Nanos(2_000));
        assert_eq!(clock.local(3_000), Nanos(3_000));
    }
}
