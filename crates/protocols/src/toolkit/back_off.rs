//! Pauses: before a message is sent again, and between attempts of proposers that hinder each
//! other.

use base::{Nanos, Prng};

/// The first pause between attempts is at most twice this.
const PAUSE_FIRST: Nanos = Nanos::from_micros(250);
/// Doublings of it.
const DOUBLINGS_MAX: u32 = 10;
/// How long to wait for an answer before asking again.
pub const RESEND_FIRST: Nanos = Nanos::from_millis(20);
pub const RESEND_MAX: Nanos = Nanos::from_millis(320);

/// A random pause after so many attempts in vain. Random, since two proposers that pause equally
/// long meet again.
#[must_use]
pub fn pause(rng: &mut Prng, attempts: u32) -> Nanos {
    let most = PAUSE_FIRST.0 << attempts.min(DOUBLINGS_MAX);
    Nanos(most + rng.below(most))
}

/// The time to wait for answers, doubled each time.
#[derive(Clone, Copy, Debug)]
pub struct Resend {
    after: Nanos,
}

impl Default for Resend {
    fn default() -> Resend {
        Resend { after: RESEND_FIRST }
    }
}

impl Resend {
    /// When to ask again. The next wait is longer.
    pub fn next(&mut self, now: Nanos) -> Nanos {
        let at = now + self.after;
        self.after = Nanos(self.after.0 * 2).min(RESEND_MAX);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut rng = Prng::new(1);
        let mut most = |attempts| (0..99).map(|_| pause(&mut rng, attempts)).max().expect("99");
        assert!(most(0) < Nanos(2 * PAUSE_FIRST.0));
        assert!(most(4) > most(0));
        assert!(most(u32::MAX) <= Nanos((2 * PAUSE_FIRST.0) << DOUBLINGS_MAX));
    }

    #[test]
    fn resends_become_rare() {
        let mut resend = Resend::default();
        let waits: Vec<u64> = (0..6).map(|_| resend.next(Nanos::ZERO).as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 320]);
    }
}
