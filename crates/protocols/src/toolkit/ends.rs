//! The ends of times to live that a member waits for.
//!
//! A member watches the nearest ends. The [sweep](super::sweep) finds the others, and those of
//! registers from before its start.
//!
//! A key that is due is looked at, which may take messages. The look ends when the key is noted
//! anew or forgotten. Until then it is one of few, and it is repeated if it never ends.

use std::collections::BTreeSet;

use base::{Millis, Nanos};
use types::Key;

use super::content::Content;
use super::countdown::Countdown;
use super::due::Due;
use crate::effects::{Effects, TimerId};
use crate::protocol::Scope;

/// Ends that a member watches at a time.
const WATCHED_MAX: usize = 65_536;
/// Let clients that wait for the end come first.
const SLACK: Nanos = Nanos::from_millis(20);
/// When to look at a key again that is in use.
const AGAIN: Nanos = Nanos::from_millis(100);
/// Looks in progress: each may hold the values of all replicas.
const LOOKS_MAX: usize = 256;
/// When a look without an end is repeated.
const LAPSE: Nanos = Nanos::from_secs(10);
/// How long the others wait while so many are in progress.
const PAUSE: Nanos = Nanos::from_millis(20);

/// Keys by the time at which to look at them.
#[derive(Debug)]
pub struct Ends {
    due: Due<Key>,
    /// Keys that were taken, and are due again when the look lapses.
    looking: BTreeSet<Key>,
    /// The nearest end that found no room: a sweep has to find it before.
    missed: Option<Nanos>,
}

impl Ends {
    #[must_use]
    pub fn new(timer: TimerId) -> Ends {
        Ends { due: Due::new(timer), looking: BTreeSet::new(), missed: None }
    }

    /// Notes when the time to live of a key is over here, or that it has none.
    pub fn watch<R, S, M, V: Copy + Eq>(
        &mut self,
        cx: &Scope<'_, R, S, M>,
        key: &Key,
        content: &Content<V>,
    ) {
        self.watch_after(cx, key, content, Nanos::ZERO);
    }

    /// The same, this much later.
    pub fn watch_after<R, S, M, V: Copy + Eq>(
        &mut self,
        cx: &Scope<'_, R, S, M>,
        key: &Key,
        content: &Content<V>,
        later: Nanos,
    ) {
        let rest = match content.countdown(cx.uptime, cx.unix) {
            Countdown::None => return self.forget(key),
            Countdown::Running(rest) => rest,
            Countdown::Over => Millis(0),
        };
        self.watch_for(key, cx.now, rest, later);
    }

    /// The same for a time to live of which so much is left.
    pub fn watch_for(&mut self, key: &Key, now: Nanos, rest: Millis, later: Nanos) {
        // An end that is centuries away comes on access.
        let Some(rest) = rest.0.checked_mul(1_000_000) else { return self.forget(key) };
        self.look(key, Nanos(now.0.saturating_add(rest)) + SLACK + later);
    }

    /// Looks at the key again a little later.
    pub fn look_again(&mut self, key: &Key, now: Nanos) {
        self.look(key, now + AGAIN);
    }

    /// Looks at the key at this time, unless the memory is full of nearer ones.
    pub fn look(&mut self, key: &Key, at: Nanos) {
        self.looking.remove(key);
        if self.due.len() >= WATCHED_MAX && !self.due.has(key) {
            let evicted = self.due.last().filter(|(last, _)| at < *last);
            let evicted = evicted.map(|(last, farthest)| (last, farthest.clone()));
            let missed = evicted.as_ref().map_or(at, |(last, _)| *last);
            self.missed = Some(self.missed.map_or(missed, |before| before.min(missed)));
            match evicted {
                Some((_, farthest)) => self.due.clear(&farthest),
                None => return,
            }
        }
        self.due.set(key.clone(), at);
    }

    /// True if the time to live of the key is over. Otherwise its end is watched.
    pub fn is_over<R, S, M, V: Copy + Eq>(
        &mut self,
        cx: &Scope<'_, R, S, M>,
        key: &Key,
        content: &Content<V>,
    ) -> bool {
        let is_over = content.is_over(cx.uptime, cx.unix);
        if !is_over {
            self.watch(cx, key, content);
        }
        is_over
    }

    /// There is no such key any more.
    pub fn forget(&mut self, key: &Key) {
        self.looking.remove(key);
        self.due.clear(key);
    }

    /// Takes keys to look at now, as far as looks in progress leave room. Call it for the event of
    /// the timer.
    pub fn take(&mut self, now: Nanos) -> Vec<Key> {
        self.looking.retain(|key| self.due.at(key).is_some_and(|at| now < at));
        let room = LOOKS_MAX - self.looking.len();
        let pause = if room == 0 { PAUSE } else { Nanos::ZERO };
        let taken = self.due.take_some(now, room, pause);
        for key in &taken {
            self.due.set(key.clone(), now + LAPSE);
            self.looking.insert(key.clone());
        }
        taken
    }

    /// Takes so many of them. The others are looked at after a pause.
    pub fn take_some(&mut self, now: Nanos, most: usize, pause: Nanos) -> Vec<Key> {
        self.due.take_some(now, most, pause)
    }

    /// Takes the nearest end that is not watched.
    pub fn take_missed(&mut self) -> Option<Nanos> {
        self.missed.take()
    }

    pub fn arm<M>(&mut self, fx: &mut Effects<M>) {
        self.due.arm(fx);
    }

    /// Timers that were set may never come.
    pub fn lose_timers(&mut self) {
        self.due.lose_timers();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearer_end_takes_the_farthest_place() {
        let key = |n: usize| Key::new(&n.to_le_bytes());
        let mut ends = Ends::new(TimerId(0));
        for n in 0..WATCHED_MAX {
            ends.look(&key(n), Nanos(1_000 + n as u64));
        }
        assert_eq!(ends.take_missed(), None);
        ends.look(&key(WATCHED_MAX), Nanos(1));
        ends.look(&key(WATCHED_MAX + 1), Nanos(1_000_000));
        let farthest = Nanos(1_000 + WATCHED_MAX as u64 - 1);
        assert_eq!((ends.take_missed(), ends.take_missed()), (Some(farthest), None));
        assert_eq!(ends.take(Nanos(1)), [key(WATCHED_MAX)]);
        ends.forget(&key(WATCHED_MAX));
        let mut count = 0;
        loop {
            let taken = ends.take(Nanos(1_000_000));
            count += taken.len();
            taken.iter().for_each(|key| ends.forget(key));
            if taken.is_empty() {
                break;
            }
        }
        assert_eq!(count, WATCHED_MAX - 1);
    }

    #[test]
    fn looks_in_progress_are_few() {
        let key = |n: usize| Key::new(&n.to_le_bytes());
        let mut ends = Ends::new(TimerId(0));
        (0..LOOKS_MAX + 2).for_each(|n| ends.look(&key(n), Nanos(n as u64)));
        let now = Nanos(1_000);
        assert_eq!(ends.take(now).len(), LOOKS_MAX);
        assert!(ends.take(now).is_empty());
        let mut fx = Effects::<()>::default();
        ends.arm(&mut fx);
        assert_eq!(fx.timers, [(TimerId(0), now + PAUSE)], "no timer comes at once");
        ends.forget(&key(0));
        ends.look_again(&key(1), now);
        assert_eq!(ends.take(now + PAUSE), [key(LOOKS_MAX), key(LOOKS_MAX + 1)]);
    }

    #[test]
    fn look_without_an_end_is_repeated() {
        let (lost, ended) = (Key::new(b"lost"), Key::new(b"ended"));
        let mut ends = Ends::new(TimerId(0));
        ends.look(&lost, Nanos(5));
        ends.look(&ended, Nanos(5));
        assert_eq!(ends.take(Nanos(5)).len(), 2);
        ends.forget(&ended);
        assert!(ends.take(LAPSE).is_empty());
        for _ in 0..2 {
            let mut fx = Effects::<()>::default();
            ends.arm(&mut fx);
            let (_, at) = fx.timers[0];
            assert_eq!(ends.take(at), std::slice::from_ref(&lost));
        }
    }
}
