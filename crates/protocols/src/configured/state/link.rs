//! The link over which copies come, shared by the workers of a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;

/// How often a worker looks whether another one has left the link.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// The right to have a page on its way: one worker has it at a time.
#[derive(Debug)]
pub(crate) struct Link {
    /// Until then a page is on its way, or the link rests after one.
    free_at: Arc<AtomicU64>,
    /// The time that this worker has set while its page is on its way.
    taken: Option<Nanos>,
}

impl Link {
    pub(crate) fn new(free_at: Arc<AtomicU64>) -> Link {
        Link { free_at, taken: None }
    }

    /// Takes the link until then. False if it is not free.
    pub(crate) fn take(&mut self, now: Nanos, until: Nanos) -> bool {
        let free_at = self.free_at.load(Ordering::SeqCst);
        let is_free = free_at <= now.0 && self.swap(free_at, until.0);
        if is_free {
            self.taken = Some(until);
        }
        is_free
    }

    /// The page of this worker is here, or given up. The link rests until then.
    pub(crate) fn leave(&mut self, rests_until: Nanos) {
        if let Some(until) = self.taken.take() {
            // Another worker may have taken a link that was not left in time.
            self.swap(until.0, rests_until.0);
        }
    }

    /// When to look at the link again; `None` while this worker has it. Other workers leave it
    /// without a word.
    pub(crate) fn look_at(&self, now: Nanos) -> Option<Nanos> {
        let free_at = Nanos(self.free_at.load(Ordering::SeqCst));
        self.taken.is_none().then(|| free_at.clamp(now + Nanos(1), now + LOOK_EVERY))
    }

    fn swap(&self, old: u64, new: u64) -> bool {
        self.free_at.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn two() -> (Link, Link) {
        let word = Arc::default();
        (Link::new(Arc::clone(&word)), Link::new(word))
    }

    #[test]
    fn one_worker_has_the_link_at_a_time() {
        let (mut one, mut other) = two();
        assert!(one.take(ms(10), ms(1_010)));
        assert!(!other.take(ms(11), ms(1_011)));
        assert_eq!((one.look_at(ms(11)), other.look_at(ms(11))), (None, Some(ms(16))));
        one.leave(ms(14));
        assert!(!other.take(ms(13), ms(1_013)), "the link rests");
        assert_eq!(other.look_at(ms(13)), Some(ms(14)));
        assert!(other.take(ms(14), ms(1_014)));
        assert!(!one.take(ms(15), ms(1_015)));
    }

    #[test]
    fn link_that_is_not_left_in_time_goes_to_another() {
        let (mut one, mut other) = two();
        assert!(one.take(ms(10), ms(1_010)));
        assert!(other.take(ms(1_010), ms(2_010)));
        one.leave(ms(1_011));
        assert!(!one.take(ms(1_500), ms(2_500)), "the other has it");
        other.leave(ms(1_600));
        other.leave(ms(9_000));
        assert!(one.take(ms(1_600), ms(2_600)), "a link is left once");
    }
}
