//! Deadlines in order, behind one timer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use base::Nanos;

use crate::effects::{Effects, TimerId};

/// At most one deadline per name.
#[derive(Debug)]
pub struct Due<K> {
    timer: TimerId,
    order: BTreeSet<(Nanos, K)>,
    at: BTreeMap<K, Nanos>,
    armed_at: Option<Nanos>,
}

impl<K: Ord + Clone + Debug> Due<K> {
    #[must_use]
    pub fn new(timer: TimerId) -> Due<K> {
        Due { timer, order: BTreeSet::new(), at: BTreeMap::new(), armed_at: None }
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

    #[must_use]
    pub fn len(&self) -> usize {
        self.at.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Asks for a timer at the first deadline, unless one is set that early.
    pub fn arm<M>(&mut self, fx: &mut Effects<M>) {
        let Some(&(at, _)) = self.order.first() else { return };
        if self.armed_at.is_none_or(|armed_at| at < armed_at) {
            self.armed_at = Some(at);
            fx.timer(self.timer, at);
        }
    }

    /// Takes the names whose deadlines are over. Call it for the event of the timer.
    pub fn take(&mut self, now: Nanos) -> Vec<K> {
        // An earlier timer may have replaced this one. Only the newest arms another.
        if self.armed_at.is_some_and(|at| at <= now) {
            self.armed_at = None;
        }
        let mut taken = Vec::new();
        while self.order.first().is_some_and(|(at, _)| *at <= now) {
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
