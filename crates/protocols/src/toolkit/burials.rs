//! Deleted keys whose registers are to be removed, in batches of one shard.
//!
//! A tombstone is noted when it is stored or found. When it is due and still held, it waits for the
//! next round of its shard. A protocol runs the rounds: `R` is the state of one.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Key, Shard};

use super::due::Due;
use super::looks::PAUSE;
use crate::effects::{Effects, TimerId};
use crate::replicas::ReplicaSet;

/// Deleted keys noted at a time, and again as many that wait.
const NOTED_MAX: usize = 65_536;
/// Registers of a round.
const BATCH_MAX: usize = 1_024;
/// Rounds in progress.
const ROUNDS_MAX: usize = 16;
/// A deleted key is often written again.
pub const GRACE: Nanos = Nanos::from_secs(1);
/// How long a replica waits for each one that comes before it.
const TURN: Nanos = Nanos::from_secs(5);
/// Tombstones that come in this time share a round.
const GATHER: Nanos = Nanos::from_millis(100);
/// The time before another attempt.
pub const AGAIN: Nanos = Nanos::from_secs(10);

#[derive(Debug)]
pub struct Burials<V, R> {
    noted: Due<Key>,
    /// Some keys found no room: a sweep has to find them.
    is_short: bool,
    waiting: BTreeMap<Shard, BTreeMap<Key, V>>,
    waiting_count: usize,
    shards: Due<Shard>,
    rounds: BTreeMap<Shard, R>,
}

impl<V: Copy, R> Burials<V, R> {
    /// The timers are those of keys and of shards.
    #[must_use]
    pub fn new(keys: TimerId, shards: TimerId) -> Burials<V, R> {
        Burials {
            noted: Due::new(keys),
            is_short: false,
            waiting: BTreeMap::new(),
            waiting_count: 0,
            shards: Due::new(shards),
            rounds: BTreeMap::new(),
        }
    }

    /// Notes a tombstone. The replicas of a shard take turns, beginning with another one in each.
    pub fn note(&mut self, key: &Key, set: &ReplicaSet, now: Nanos) {
        let count = set.nodes().len();
        let Some(me) = set.me() else { return };
        let turn = (me + count - usize::from(key.shard().0) % count) % count;
        self.look(key, now + GRACE + Nanos(TURN.0 * turn as u64));
    }

    /// Looks at the key at this time. While so many wait for a round, it would look in vain.
    pub fn look(&mut self, key: &Key, at: Nanos) {
        let waits = self.waiting.get(&key.shard()).is_some_and(|keys| keys.contains_key(key));
        if waits {
            return;
        }
        let has_place = self.noted.has(key) || self.noted.len() < NOTED_MAX;
        if !has_place || self.waiting_count >= NOTED_MAX {
            self.is_short = true;
            return;
        }
        self.noted.set(key.clone(), at);
    }

    /// The key is no tombstone any more.
    pub fn forget(&mut self, key: &Key) {
        self.noted.clear(key);
        let shard = key.shard();
        let Some(keys) = self.waiting.get_mut(&shard) else { return };
        if keys.remove(key).is_some() {
            self.waiting_count -= 1;
        }
        if keys.is_empty() {
            self.waiting.remove(&shard);
        }
    }

    /// The tombstone of a key that was looked at waits for a round.
    pub fn wait(&mut self, key: Key, version: V, now: Nanos) {
        self.noted.clear(&key);
        if self.waiting_count >= NOTED_MAX {
            self.is_short = true;
            return;
        }
        let shard = key.shard();
        if self.waiting.entry(shard).or_default().insert(key, version).is_none() {
            self.waiting_count += 1;
        }
        if !self.shards.has(&shard) && !self.rounds.contains_key(&shard) {
            self.shards.set(shard, now + GATHER);
        }
    }

    /// Takes so many keys to look at now. Call it for the event of their timer.
    pub fn take_keys(&mut self, now: Nanos, most: usize) -> Vec<Key> {
        self.noted.take_some(now, most, PAUSE)
    }

    /// Takes the shards that are due. Call it for the event of their timer.
    pub fn take_shards(&mut self, now: Nanos) -> Vec<Shard> {
        self.shards.take(now)
    }

    /// Comes to the shard again at this time.
    pub fn resume(&mut self, shard: Shard, at: Nanos) {
        self.shards.set(shard, at);
    }

    /// Takes the tombstones of a round, if one may begin. Otherwise the shard is due later.
    pub fn batch(&mut self, shard: Shard, may_begin: bool, now: Nanos) -> BTreeMap<Key, V> {
        if !may_begin {
            if self.waiting.contains_key(&shard) {
                self.shards.set(shard, now + AGAIN);
            }
            return BTreeMap::new();
        }
        if self.rounds.len() >= ROUNDS_MAX {
            self.shards.set(shard, now + GATHER);
            return BTreeMap::new();
        }
        let Some(mut batch) = self.waiting.remove(&shard) else { return BTreeMap::new() };
        let rest = batch.keys().nth(BATCH_MAX).cloned();
        if let Some(rest) = rest.map(|first| batch.split_off(&first)) {
            self.waiting.insert(shard, rest);
        }
        self.waiting_count -= batch.len();
        batch
    }

    pub fn begin(&mut self, shard: Shard, round: R) {
        self.rounds.insert(shard, round);
    }

    pub fn round(&mut self, shard: Shard) -> Option<&mut R> {
        self.rounds.get_mut(&shard)
    }

    /// Ends the round of a shard. The next one may begin.
    pub fn end(&mut self, shard: Shard, now: Nanos) -> Option<R> {
        let round = self.rounds.remove(&shard)?;
        self.shards.clear(&shard);
        if self.waiting.contains_key(&shard) {
            self.shards.set(shard, now + GATHER);
        }
        Some(round)
    }

    /// Tombstones known here, but those of rounds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.noted.len() + self.waiting_count
    }

    pub fn rounds(&self) -> impl Iterator<Item = &R> {
        self.rounds.values()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.rounds.is_empty()
    }

    /// Keys that were noted may be forgotten.
    pub fn set_short(&mut self) {
        self.is_short = true;
    }

    /// Takes the note that some tombstones are not known, once there is room for them.
    pub fn take_short(&mut self) -> bool {
        self.waiting_count < NOTED_MAX && std::mem::take(&mut self.is_short)
    }

    pub fn arm<M>(&mut self, fx: &mut Effects<M>) {
        self.noted.arm(fx);
        self.shards.arm(fx);
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, NodeId};

    use super::*;

    fn keys(count: usize) -> Vec<Key> {
        (0..count).map(|n| Key::at(n as u64, b"key")).collect()
    }

    #[test]
    fn rounds_take_bounded_batches() {
        let mut burials = Burials::<u8, ()>::new(TimerId(0), TimerId(1));
        for key in keys(BATCH_MAX + 2) {
            burials.wait(key, 1, Nanos(0));
        }
        assert!(burials.batch(Shard(0), false, Nanos(0)).is_empty());
        assert_eq!(burials.batch(Shard(0), true, Nanos(0)).len(), BATCH_MAX);
        burials.begin(Shard(0), ());
        assert_eq!((burials.len(), burials.is_empty()), (2, false));
        assert_eq!(burials.end(Shard(0), Nanos(0)), Some(()));
        assert_eq!(burials.take_shards(GATHER), [Shard(0)]);
        assert_eq!(burials.batch(Shard(0), true, GATHER).len(), 2);
        assert!(burials.is_empty());
    }

    /// A replica is away: all others wait for it.
    #[test]
    fn full_wait_ends_the_looks() {
        let mut burials = Burials::<u8, ()>::new(TimerId(0), TimerId(1));
        let mut keys = keys(NOTED_MAX + 2);
        let (late, noted) = (keys.pop().expect("many"), keys.pop().expect("many"));
        burials.look(&noted, AGAIN);
        keys.into_iter().for_each(|key| burials.wait(key, 1, Nanos(0)));
        assert_eq!(burials.take_keys(AGAIN, 1), std::slice::from_ref(&noted));
        burials.wait(noted, 1, AGAIN);
        burials.look(&late, AGAIN);
        assert!(burials.noted.is_empty() && !burials.take_short());
        assert_eq!(burials.batch(Shard(0), true, AGAIN).len(), BATCH_MAX);
        assert!(burials.take_short() && !burials.take_short());
    }

    #[test]
    fn replicas_take_turns() {
        let nodes = [NodeId(1), NodeId(2)];
        let due = |me| {
            let mut burials = Burials::<u8, ()>::new(TimerId(0), TimerId(1));
            burials.note(&keys(1)[0], &ReplicaSet::new(Epoch(1), me, &nodes), Nanos(0));
            (burials.take_keys(GRACE, 1).len(), burials.take_keys(GRACE + TURN, 1).len())
        };
        assert_eq!((due(nodes[0]), due(nodes[1])), ((1, 0), (0, 1)));
    }

    #[test]
    fn forgotten_key_waits_no_more() {
        let mut burials = Burials::<u8, ()>::new(TimerId(0), TimerId(1));
        let key = keys(1).remove(0);
        burials.look(&key, Nanos(5));
        burials.wait(key.clone(), 1, Nanos(0));
        assert_eq!(burials.len(), 1);
        burials.forget(&key);
        assert!(burials.is_empty());
    }
}
