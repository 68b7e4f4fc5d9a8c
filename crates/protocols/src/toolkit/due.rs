//! Deadlines in order, behind one timer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use base::Nanos;

use crate::effects::{Effects, TimerId};

/// Names taken at a time: other events come between those that are due together.
const TAKEN_MAX: usize = 1_024;

/// At most one deadline per name.
#[derive(Debug)]
pub struct Due<K> {
    timer: TimerId,
    order: BTreeSet<(Nanos, K)>,
    at: BTreeMap<K, Nanos>,
    /// No timer is asked for before.
    paused_until: Nanos,
    /// The timers that are still to come. Each was the earliest when it was set.
    armed: BTreeSet<Nanos>,
}

impl<K: Ord + Clone + Debug> Due<K> {
    #[must_use]
    pub fn new(timer: TimerId) -> Due<K> {
        Due {
            timer,
            order: BTreeSet::new(),
            at: BTreeMap::new(),
            paused_until: Nanos::ZERO,
            armed: BTreeSet::new(),
        }
    }

    /// Sets the deadline of a name, and replaces an older one.
    pub fn set(&mut self, name: K, at: Nanos) {
        if let Some(old) = self.at.insert(name.clone(), at) {
            self.order.remove(&(old, name.clone()));
        }
        self.order.insert((at, name));
    }

    pub fn clear(&mut self, name: &K) {
        if let Some(old) = self.at.remove(name) {
            self.order.remove(&(old, name.clone()));
        }
    }

    #[must_use]
    pub fn has(&self, name: &K) -> bool {
        self.at.contains_key(name)
    }

    /// The deadline of a name.
    #[must_use]
    pub fn at(&self, name: &K) -> Option<Nanos> {
        self.at.get(name).copied()
    }

    /// The farthest deadline.
    #[must_use]
    pub fn last(&self) -> Option<(Nanos, &K)> {
        self.order.last().map(|(at, name)| (*at, name))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.at.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Asks for a timer at the first deadline, unless one comes that early.
    pub fn arm<M>(&mut self, fx: &mut Effects<M>) {
        let Some(&(at, _)) = self.order.first() else { return };
        let at = at.max(self.paused_until);
        if self.armed.first().is_none_or(|&armed| at < armed) {
            self.armed.insert(at);
            fx.timer(self.timer, at);
        }
    }

    /// Timers that were set may never come.
    pub fn lose_timers(&mut self) {
        self.armed.clear();
    }

    /// Takes names whose deadlines are over, the first 1,024 of them: [`Self::arm`] asks for the
    /// others. Call it for the event of the timer.
    pub fn take(&mut self, now: Nanos) -> Vec<K> {
        self.take_first(now, TAKEN_MAX)
    }

    /// Takes so many of them. The others are due after a pause.
    pub fn take_some(&mut self, now: Nanos, most: usize, pause: Nanos) -> Vec<K> {
        let taken = self.take_first(now, most.min(TAKEN_MAX));
        if self.order.first().is_some_and(|(at, _)| *at <= now) {
            self.paused_until = now + pause;
        }
        taken
    }

    fn take_first(&mut self, now: Nanos, most: usize) -> Vec<K> {
        while self.armed.first().is_some_and(|&at| at <= now) {
            self.armed.pop_first();
        }
        let mut taken = Vec::new();
        while taken.len() < most && self.order.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, name)) = self.order.pop_first() {
                self.at.remove(&name);
                taken.push(name);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_deadline_of_a_name_counts() {
        let mut due = Due::new(TimerId(3));
        let mut fx = Effects::<()>::default();
        due.set("a", Nanos(5));
        due.set("b", Nanos(7));
        due.set("a", Nanos(9));
        due.arm(&mut fx);
        due.arm(&mut fx);
        assert_eq!(fx.timers, [(TimerId(3), Nanos(7))]);
        assert_eq!(due.take(Nanos(8)), ["b"]);
        due.arm(&mut fx);
        assert_eq!(fx.timers.len(), 2, "the next one is armed");
        due.clear(&"a");
        assert!(due.take(Nanos(10)).is_empty() && due.is_empty());
    }

    /// A time to live of a day must not gather a timer with every request.
    #[test]
    fn far_deadline_keeps_its_one_timer() {
        let mut due = Due::new(TimerId(0));
        let mut fx = Effects::<()>::default();
        due.set("far", Nanos(1_000));
        due.arm(&mut fx);
        for near in 1..9 {
            due.set("near", Nanos(near));
            due.arm(&mut fx);
            assert_eq!(due.take(Nanos(near)), ["near"]);
            due.arm(&mut fx);
        }
        let far = fx.timers.iter().filter(|(_, at)| *at == Nanos(1_000));
        assert_eq!(far.count(), 1);
    }

    #[test]
    fn names_due_together_are_taken_in_parts() {
        let mut due = Due::new(TimerId(0));
        let mut fx = Effects::<()>::default();
        (0..=TAKEN_MAX).for_each(|name| due.set(name, Nanos(5)));
        due.arm(&mut fx);
        assert_eq!(due.take(Nanos(6)).len(), TAKEN_MAX);
        due.arm(&mut fx);
        assert_eq!(fx.timers.len(), 2, "the rest is due at once");
        assert_eq!(due.take(Nanos(6)), [TAKEN_MAX]);
    }

    #[test]
    fn names_beyond_the_room_wait_for_a_pause() {
        let mut due = Due::new(TimerId(0));
        let mut fx = Effects::<()>::default();
        (0..3).for_each(|name| due.set(name, Nanos(5)));
        assert_eq!(due.take_some(Nanos(6), 2, Nanos(20)), [0, 1]);
        due.set(3, Nanos(7));
        due.arm(&mut fx);
        assert_eq!(fx.timers, [(TimerId(0), Nanos(26))]);
        assert_eq!(due.take_some(Nanos(26), 2, Nanos(20)), [2, 3]);
        due.set(4, Nanos(30));
        due.arm(&mut fx);
        assert_eq!(fx.timers[1..], [(TimerId(0), Nanos(30))], "all were taken");
    }

    #[test]
    fn earlier_deadline_arms_again() {
        let mut due = Due::new(TimerId(0));
        let mut fx = Effects::<()>::default();
        due.set(1, Nanos(50));
        due.arm(&mut fx);
        due.set(2, Nanos(20));
        due.arm(&mut fx);
        assert_eq!(fx.timers, [(TimerId(0), Nanos(50)), (TimerId(0), Nanos(20))]);
    }
}
