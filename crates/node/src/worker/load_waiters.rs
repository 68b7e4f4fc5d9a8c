//! Load waiters: events that wait until storage has loaded a register or a shard's fields.
//!
//! Only misses come here. Events that wait for one key keep their order. Events that wait for a
//! shard keep the order of the whole shard, and then wait for their keys.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use types::key::ByHash;
use types::{Key, Shard};

/// An event whose memory is bounded while it waits.
pub(crate) trait Waiter {
    /// Bytes of the peer's message, if it is one.
    fn len(&self) -> usize;
}

#[derive(Debug)]
struct KeyWaiters<T> {
    queue: VecDeque<T>,
    /// The register was written while it was being read: the answer may be older than that.
    is_superseded: bool,
}

#[derive(Debug)]
pub(crate) struct LoadWaiters<T> {
    keys: HashMap<Key, KeyWaiters<T>, ByHash>,
    shards: BTreeMap<Shard, VecDeque<T>>,
    len: usize,
    bytes: usize,
}

impl<T> Default for LoadWaiters<T> {
    fn default() -> LoadWaiters<T> {
        LoadWaiters {
            keys: HashMap::with_hasher(ByHash),
            shards: BTreeMap::new(),
            len: 0,
            bytes: 0,
        }
    }
}

impl<T: Waiter> LoadWaiters<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of peers' messages among them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.shards.is_empty()
    }

    pub(crate) fn has_key(&self, key: &Key) -> bool {
        !self.keys.is_empty() && self.keys.contains_key(key)
    }

    pub(crate) fn has_shard(&self, shard: Shard) -> bool {
        self.shards.contains_key(&shard)
    }

    pub(crate) fn push_key(&mut self, key: Key, item: T) {
        self.count(&item);
        match self.keys.entry(key) {
            Entry::Occupied(mut entry) => entry.get_mut().queue.push_back(item),
            Entry::Vacant(entry) => {
                entry.insert(KeyWaiters { queue: VecDeque::from([item]), is_superseded: false });
            }
        }
    }

    pub(crate) fn push_shard(&mut self, shard: Shard, item: T) {
        self.count(&item);
        self.shards.entry(shard).or_default().push_back(item);
    }

    /// Notes a write of a register that is being loaded.
    pub(crate) fn supersede(&mut self, key: &Key) {
        if !self.keys.is_empty()
            && let Some(waiting) = self.keys.get_mut(key)
        {
            waiting.is_superseded = true;
        }
    }

    /// True once if the load of `key` may return an older record.
    pub(crate) fn take_superseded(&mut self, key: &Key) -> bool {
        self.keys.get_mut(key).is_some_and(|waiting| std::mem::take(&mut waiting.is_superseded))
    }

    pub(crate) fn take_key(&mut self, key: &Key) -> VecDeque<T> {
        let queue = self.keys.remove(key).map(|waiting| waiting.queue).unwrap_or_default();
        self.discount(&queue);
        queue
    }

    pub(crate) fn take_shard(&mut self, shard: Shard) -> VecDeque<T> {
        let queue = self.shards.remove(&shard).unwrap_or_default();
        self.discount(&queue);
        queue
    }

    fn count(&mut self, item: &T) {
        self.len += 1;
        self.bytes += item.len();
    }

    fn discount(&mut self, queue: &VecDeque<T>) {
        self.len -= queue.len();
        self.bytes -= queue.iter().map(Waiter::len).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waiter for usize {
        fn len(&self) -> usize {
            *self
        }
    }

    #[test]
    fn queues_keep_their_order_and_leave_together() {
        let (a, b) = (Key::new(b"a"), Key::new(b"b"));
        let mut waiters = LoadWaiters::default();
        waiters.push_key(a.clone(), 1);
        waiters.push_key(b.clone(), 2);
        waiters.push_key(a.clone(), 3);
        waiters.push_shard(Shard(0), 4);
        assert_eq!((waiters.len(), waiters.bytes()), (4, 10));
        assert!(waiters.has_key(&a) && waiters.has_shard(Shard(0)) && !waiters.has_shard(Shard(1)));
        assert_eq!(waiters.take_key(&a), [1, 3]);
        assert_eq!((waiters.len(), waiters.bytes()), (2, 6));
        assert!(!waiters.has_key(&a));
        assert_eq!(waiters.take_shard(Shard(0)), [4]);
        assert_eq!(waiters.take_key(&b), [2]);
        assert!(waiters.is_empty());
        assert_eq!((waiters.len(), waiters.bytes()), (0, 0));
    }

    #[test]
    fn a_write_during_a_read_is_noticed_once() {
        let key = Key::new(b"a");
        let mut waiters = LoadWaiters::default();
        waiters.supersede(&key);
        waiters.push_key(key.clone(), 0);
        assert!(!waiters.take_superseded(&key));
        waiters.supersede(&key);
        assert!(waiters.take_superseded(&key));
        assert!(!waiters.take_superseded(&key));
    }
}
