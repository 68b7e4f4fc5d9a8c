//! Requests in the order of their sessions, and work in progress by key.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use base::Nanos;
use types::{Key, SessionId, Shard};

use super::due::Due;
use crate::effects::{Effects, TimerId};
use crate::register_cache::RegisterCache;

/// The work in progress on one key.
pub trait Lane {
    /// True once no work is in progress.
    fn is_idle(&self) -> bool;

    /// The time of its next action; [`Nanos::MAX`] if there is none.
    fn next_at(&self) -> Nanos;
}

/// Keys with work in progress. Their registers are pinned.
#[derive(Debug)]
pub struct Lanes<L> {
    by_key: BTreeMap<Key, L>,
    timer: TimerId,
    due: Due<Key>,
}

impl<L: Lane> Lanes<L> {
    #[must_use]
    pub fn new(timer: TimerId) -> Lanes<L> {
        Lanes { by_key: BTreeMap::new(), timer, due: Due::new(timer) }
    }

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&L> {
        self.by_key.get(key)
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut L> {
        self.by_key.get_mut(key)
    }

    #[must_use]
    pub fn has(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &L)> {
        self.by_key.iter()
    }

    /// The lanes of one shard.
    pub fn of_shard(&self, shard: Shard) -> impl Iterator<Item = (&Key, &L)> {
        let lanes = self.by_key.range(Key::at(shard.first_hash(), &[])..);
        lanes.take_while(move |(key, _)| key.shard() == shard)
    }

    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.by_key.keys().cloned().collect()
    }

    /// The lane of a key; a new one if there is none.
    pub fn open<R>(
        &mut self,
        cache: &mut RegisterCache<R>,
        key: &Key,
        new: impl FnOnce() -> L,
    ) -> &mut L {
        match self.by_key.entry(key.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                cache.pin(key);
                entry.insert(new())
            }
        }
    }

    /// Schedules the next action of a lane, or ends it.
    pub fn plan<R>(&mut self, cache: &mut RegisterCache<R>, key: &Key) {
        let Some(lane) = self.by_key.get(key) else { return };
        if lane.is_idle() {
            self.by_key.remove(key);
            self.due.clear(key);
            cache.unpin(key);
            return;
        }
        match lane.next_at() {
            Nanos::MAX => self.due.clear(key),
            at => self.due.set(key.clone(), at),
        }
    }

    /// The keys whose time has come.
    pub fn take_due(&mut self, now: Nanos) -> Vec<Key> {
        self.due.take(now)
    }

    pub fn arm<M>(&mut self, fx: &mut Effects<M>) {
        self.due.arm(fx);
    }

    /// Timers that were set may never come.
    pub fn lose_timers(&mut self) {
        self.due.lose_timers();
    }

    /// Ends all lanes.
    pub fn take_all<R>(&mut self, cache: &mut RegisterCache<R>) -> BTreeMap<Key, L> {
        self.due = Due::new(self.timer);
        let taken = std::mem::take(&mut self.by_key);
        taken.keys().for_each(|key| cache.unpin(key));
        taken
    }
}

/// A session and a key: requests of one session on one key run in order.
pub type Place = (SessionId, Key);

/// Requests behind an earlier one of their session on the same key.
#[derive(Debug)]
pub struct Behind<T> {
    /// An entry exists while a request is under way.
    by_place: BTreeMap<Place, VecDeque<T>>,
    waiting: usize,
}

impl<T> Default for Behind<T> {
    fn default() -> Behind<T> {
        Behind { by_place: BTreeMap::new(), waiting: 0 }
    }
}

impl<T> Behind<T> {
    /// True while no request is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A request is under way.
    pub fn begin(&mut self, place: Place) {
        self.by_place.entry(place).or_default();
    }

    /// Keeps a request behind one that is under way; returns it if there is none.
    pub fn wait(&mut self, place: &Place, request: T) -> Option<T> {
        let Some(waiting) = self.by_place.get_mut(place) else { return Some(request) };
        waiting.push_back(request);
        self.waiting += 1;
        None
    }

    /// The one under way has ended: the next one is under way now.
    pub fn next(&mut self, place: &Place) -> Option<T> {
        let next = self.by_place.get_mut(place)?.pop_front();
        match next {
            Some(_) => self.waiting -= 1,
            None => _ = self.by_place.remove(place),
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register_cache::Absence;

    #[derive(Debug)]
    struct Work(Nanos);

    impl Lane for Work {
        fn is_idle(&self) -> bool {
            self.0 == Nanos::ZERO
        }

        fn next_at(&self) -> Nanos {
            self.0
        }
    }

    #[test]
    fn register_is_pinned_while_its_lane_exists() {
        let (key, mut cache) = (Key::new(b"k"), RegisterCache::<Work>::new(Absence::Certain));
        let mut lanes = Lanes::new(TimerId(3));
        lanes.open(&mut cache, &key, || Work(Nanos(7)));
        lanes.plan(&mut cache, &key);
        lanes.open(&mut cache, &key, || Work(Nanos(9)));
        assert_eq!((lanes.len(), cache.pinned()), (1, 1));
        assert_eq!(lanes.take_due(Nanos(7)), std::slice::from_ref(&key));
        *lanes.get_mut(&key).expect("it is open") = Work(Nanos::MAX);
        lanes.plan(&mut cache, &key);
        assert!(lanes.take_due(Nanos::MAX).is_empty() && lanes.has(&key));
        *lanes.get_mut(&key).expect("it is open") = Work(Nanos::ZERO);
        lanes.plan(&mut cache, &key);
        assert!(lanes.is_empty() && cache.pinned() == 0);
        lanes.open(&mut cache, &key, || Work(Nanos(9)));
        assert_eq!(lanes.take_all(&mut cache).len(), 1);
        assert_eq!(cache.pinned(), 0);
    }

    #[test]
    fn requests_of_a_session_on_a_key_keep_their_order() {
        let place = |session, key: &[u8]| (SessionId(session), Key::new(key));
        let mut behind = Behind::default();
        assert_eq!(behind.wait(&place(1, b"k"), 1), Some(1));
        behind.begin(place(1, b"k"));
        assert_eq!(behind.wait(&place(2, b"k"), 2), Some(2), "another session");
        assert_eq!(behind.wait(&place(1, b"l"), 3), Some(3), "another key");
        assert_eq!([4, 5].map(|it| behind.wait(&place(1, b"k"), it)), [None; 2]);
        assert_eq!((behind.next(&place(1, b"k")), behind.waiting()), (Some(4), 1));
        assert_eq!(behind.next(&place(1, b"k")), Some(5));
        assert!(!behind.is_empty(), "it is under way");
        assert_eq!(behind.next(&place(1, b"k")), None);
        assert!(behind.is_empty());
    }
}
