//! When the next commit begins where many changes are under way.
//!
//! A commit costs the cores as much as several turns of a worker, however much is in it. Where no core has time to spare,
//! a later one with more in it leaves more time for requests: it begins when most of what is under way is in it, or
//! when the last one has begun long enough ago.

use std::time::{Duration, Instant};

/// Changes under way that are many.
const MANY: usize = 24;
/// Of a hundred changes under way, how many make a commit that need not wait.
const ENOUGH_PERCENT: usize = 60;
/// Two commits begin as far apart as so many of them take, at most.
const DISTANCE: u32 = 6;
/// The same, however long they take.
const DISTANCE_MAX: Duration = Duration::from_micros(800);
/// What was under way counts for an eighth less with each commit, until as much is seen again.
const FADE: usize = 8;
/// More under way makes no difference: one large batch is not waited for again.
const UNDER_WAY_MAX: usize = 256;

/// What is known of the commits before.
#[derive(Default)]
pub(super) struct Spacing {
    began: Option<Instant>,
    took: Duration,
    /// Changes that were under way at once lately.
    under_way: usize,
}

impl Spacing {
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// A commit ends, with so many changes in it or waiting for the next one.
    pub(super) fn end(&mut self, under_way: usize, now: Instant) {
        self.took = self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        self.under_way = under_way.min(UNDER_WAY_MAX).max(self.under_way - self.under_way / FADE);
    }

    /// When a commit of so many changes may begin; `None` for at once.
    pub(super) fn not_before(&self, changes: usize, now: Instant) -> Option<Instant> {
        if self.under_way < MANY || changes * 100 >= self.under_way * ENOUGH_PERCENT {
            return None;
        }
        let at = self.began? + (DISTANCE * self.took).min(DISTANCE_MAX);
        (now < at).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    /// After commits that took so long and had so many changes under way, the last of which began just now.
    fn after(under_way: &[usize], took: Duration) -> (Spacing, Instant) {
        let (mut spacing, mut now) = (Spacing::default(), Instant::now());
        for &under_way in under_way {
            now += took;
            spacing.begin(now);
            spacing.end(under_way, now + took);
        }
        (spacing, now)
    }

    #[test]
    fn a_commit_waits_for_most_of_what_is_under_way() {
        let (spacing, began) = after(&[64], 100 * MICRO);
        let now = began + 100 * MICRO;
        assert_eq!(spacing.not_before(38, now), Some(began + 600 * MICRO));
        assert_eq!(spacing.not_before(39, now), None);
    }

    #[test]
    fn a_commit_waits_no_longer_than_its_distance() {
        let (spacing, began) = after(&[64], 100 * MICRO);
        assert_eq!(spacing.not_before(1, began + 599 * MICRO), Some(began + 600 * MICRO));
        assert_eq!(spacing.not_before(1, began + 600 * MICRO), None);
        let (spacing, began) = after(&[64], 700 * MICRO);
        assert_eq!(spacing.not_before(1, began + 799 * MICRO), Some(began + DISTANCE_MAX));
        assert_eq!(spacing.not_before(1, began + DISTANCE_MAX), None);
    }

    #[test]
    fn few_changes_wait_for_nothing() {
        let (spacing, began) = after(&[MANY - 1; 3], 100 * MICRO);
        assert_eq!(spacing.not_before(1, began + 100 * MICRO), None);
        assert_eq!(Spacing::default().not_before(1, began), None);
    }

    #[test]
    fn what_was_under_way_is_forgotten() {
        let (spacing, began) = after(&[[64].as_slice(), &[8; 4]].concat(), 100 * MICRO);
        assert_eq!(spacing.not_before(25, began), None);
        assert!(spacing.not_before(8, began).is_some());
        let (spacing, began) = after(&[[5_000].as_slice(), &[8; 25]].concat(), 100 * MICRO);
        assert_eq!(spacing.not_before(1, began), None);
    }
}
