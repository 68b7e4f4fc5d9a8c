//! How long to wait before the next attempt to connect.

use base::{Nanos, Prng};

const FIRST: Nanos = Nanos::from_millis(20);
const LAST: Nanos = Nanos::from_secs(1);

/// Doubles from 20 ms to 1 s, with jitter so that nodes that failed together do not try together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after one more failure: half of it fixed, half drawn.
    pub fn failed(&mut self, rng: &mut Prng) -> Nanos {
        let full = FIRST.0.saturating_mul(1 << self.failures.min(16)).min(LAST.0);
        self.failures = self.failures.saturating_add(1);
        Nanos(full / 2 + rng.below(full / 2 + 1))
    }

    /// An attempt succeeded: the next failure waits briefly again.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_second_and_start_anew_after_a_success() {
        let mut rng = Prng::new(1);
        let mut backoff = Backoff::default();
        let waits: Vec<Nanos> = (0..40).map(|_| backoff.failed(&mut rng)).collect();
        assert!(waits[0] >= Nanos(FIRST.0 / 2) && waits[0] <= FIRST);
        assert!(waits[10..].iter().all(|&wait| wait >= Nanos(LAST.0 / 2) && wait <= LAST));
        backoff.succeeded();
        assert!(backoff.failed(&mut rng) <= FIRST);
    }
}
