//! How long answers take, and so when messages are sent again.

use base::Nanos;

/// Before the first answer: a local network.
const FIRST: Nanos = Nanos::from_micros(300);
const MIN: Nanos = Nanos::from_micros(50);
const MAX: Nanos = Nanos::from_secs(2);

/// Links are reliable while they stand, so a resend is rarely needed.
const RESEND_FIRST: Nanos = Nanos::from_millis(40);
const RESEND_FIRST_MAX: Nanos = Nanos::from_secs(1);
const RESEND_MAX: Nanos = Nanos::from_millis(640);

/// The smoothed time from a proposal to its choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip(Nanos);

impl Default for RoundTrip {
    fn default() -> RoundTrip {
        RoundTrip(FIRST)
    }
}

impl RoundTrip {
    pub(crate) fn observe(&mut self, sample: Nanos) {
        // A sample that waited for a partition to end is no evidence.
        let sample = sample.min(MAX);
        self.0 = Nanos((self.0.0 * 7 + sample.0) / 8).clamp(MIN, MAX);
    }

    pub(crate) fn times(self, count: u64) -> Nanos {
        Nanos(self.0.0 * count)
    }

    /// The interval before the next resend after `resends` of them. It leaves time for an answer in
    /// flight from far away.
    pub(crate) fn resend_after(self, resends: u32) -> Nanos {
        let first = self.times(4).clamp(RESEND_FIRST, RESEND_FIRST_MAX);
        Nanos(first.0 << resends.min(4)).min(RESEND_MAX.max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resends_wait_for_the_round_trip() {
        let mut round_trip = RoundTrip::default();
        let resends = |round_trip: RoundTrip| [0, 1, 4, 40].map(|it| round_trip.resend_after(it));
        let millis = |list: [u64; 4]| list.map(Nanos::from_millis);
        assert_eq!(resends(round_trip), millis([40, 80, 640, 640]));
        (0..200).for_each(|_| round_trip.observe(Nanos::from_millis(100)));
        assert!(round_trip.resend_after(0) > Nanos::from_millis(390));
        assert!(round_trip.resend_after(1) <= Nanos::from_millis(640));
    }

    #[test]
    fn one_late_answer_is_soon_forgotten() {
        let mut round_trip = RoundTrip::default();
        round_trip.observe(Nanos::from_secs(30));
        assert!(round_trip.resend_after(0) <= RESEND_FIRST_MAX);
        (0..30).for_each(|_| round_trip.observe(Nanos::from_micros(200)));
        assert_eq!(round_trip.resend_after(0), RESEND_FIRST);
    }
}
