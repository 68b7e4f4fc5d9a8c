//! The lease of one group, shared by the threads of a node.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;
use types::Epoch;

/// Epochs have 20 bits. The rest holds the end of the lease in steps of 65.536 µs: 36 years.
const END_BITS: u32 = 44;
const STEP_BITS: u32 = 16;
const END_MAX: u64 = (1 << END_BITS) - 1;

/// Epoch and end of a lease in one word, so that one load reads both.
///
/// The service's thread sets and clears it; workers read it. A local read is answered in this
/// order: take the value, its state and the epoch of the register's owner, then call
/// [`LeaseWord::holds`]. The read takes effect when the value was taken.
#[derive(Debug, Default)]
pub struct LeaseWord(AtomicU64);

impl LeaseWord {
    #[must_use]
    pub const fn new() -> LeaseWord {
        LeaseWord(AtomicU64::new(0))
    }

    /// Ends the lease. To be called before workers are told to wedge.
    pub fn clear(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Grants the lease of `epoch` until `until`, rounded down to a step.
    pub fn set(&self, epoch: Epoch, until: Nanos) {
        debug_assert!(epoch <= Epoch::MAX);
        let end = (until.0 >> STEP_BITS).min(END_MAX);
        self.0.store(u64::from(epoch.0) << END_BITS | end, Ordering::SeqCst);
    }

    /// Epoch and end as they stand; epoch 0 means that there is no lease.
    #[must_use]
    pub fn get(&self) -> (Epoch, Nanos) {
        let word = self.0.load(Ordering::SeqCst);
        (Epoch((word >> END_BITS) as u32), Nanos((word & END_MAX) << STEP_BITS))
    }

    /// True while the lease of `epoch` lasts. `now` must be read after the value was taken.
    #[must_use]
    pub fn is_valid(&self, epoch: Epoch, now: Nanos) -> bool {
        let (held, until) = self.get();
        held == epoch && epoch != Epoch(0) && now < until
    }

    /// The same, with the clock read in the right order: after the word.
    #[must_use]
    pub fn holds(&self, epoch: Epoch, clock: impl FnOnce() -> Nanos) -> bool {
        let (held, until) = self.get();
        held == epoch && epoch != Epoch(0) && clock() < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_valid_until_its_end() {
        let word = LeaseWord::new();
        assert!(!word.is_valid(Epoch(0), Nanos::ZERO));
        let until = Nanos::from_millis(1_000);
        word.set(Epoch::MAX, until);
        let (epoch, end) = word.get();
        assert_eq!(epoch, Epoch::MAX);
        assert!(end <= until && until.since(end) < Nanos(1 << STEP_BITS));
        assert!(word.is_valid(Epoch::MAX, Nanos(end.0 - 1)) && !word.is_valid(Epoch::MAX, end));
        assert!(word.holds(Epoch::MAX, || Nanos(end.0 - 1)) && !word.holds(Epoch::MAX, || end));
        assert!(!word.is_valid(Epoch(7), Nanos::ZERO));
        word.clear();
        assert!(!word.is_valid(Epoch::MAX, Nanos::ZERO) && !word.holds(Epoch(0), || Nanos::ZERO));
    }

    #[test]
    fn end_beyond_the_word_is_cut() {
        let word = LeaseWord::new();
        word.set(Epoch(3), Nanos::MAX);
        assert_eq!(word.get(), (Epoch(3), Nanos(END_MAX << STEP_BITS)));
    }
}
