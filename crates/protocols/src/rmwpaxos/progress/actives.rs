//! The keys that a node works on, and the memory of proposers that have finished.

use std::fmt;

use hashbrown::HashMap;
use types::Key;
use types::key::ByHash;

use crate::rmwpaxos::progress::active::Active;

/// Finished proposers kept for their memory.
const SPARE_MAX: usize = 256;
/// A longer queue is not worth its memory.
const SPARE_QUEUE_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Actives {
    /// `None` while it is taken out.
    by_key: HashMap<Key, Option<Box<Active>>, ByHash>,
    #[expect(clippy::vec_box, reason = "handed-out proposers are boxed and big")]
    spare: Vec<Box<Active>>,
}

/// Proposers at work, in order of their keys. Spare ones are omitted.
impl fmt::Debug for Actives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys_of(|_| true);
        f.debug_list().entries(keys.iter().map(|key| self.get(key))).finish()
    }
}

impl Actives {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Active> {
        self.by_key.values().flatten().map(|active| &**active)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Active> {
        self.by_key.get(key)?.as_deref()
    }

    /// Keys of those that `is_wanted`, in order.
    pub(crate) fn keys_of(&self, is_wanted: impl Fn(&Active) -> bool) -> Vec<Key> {
        let wanted = self.iter().filter(|active| is_wanted(active));
        let mut keys: Vec<Key> = wanted.map(|active| active.key.clone()).collect();
        keys.sort();
        keys
    }

    /// Takes a key's proposer out to work on it. It is put back, or ended.
    pub(crate) fn take(&mut self, key: &Key) -> Option<Box<Active>> {
        self.by_key.get_mut(key)?.take()
    }

    /// Begins to work on a key.
    pub(crate) fn start(&mut self, key: &Key) -> Box<Active> {
        let former = self.by_key.insert(key.clone(), None);
        assert!(former.is_none(), "{key:?} is worked on already");
        match self.spare.pop() {
            Some(mut active) => {
                active.renew(key.clone());
                active
            }
            None => Box::new(Active::new(key.clone())),
        }
    }

    /// # Panics
    /// If the key was not taken out.
    pub(crate) fn put_back(&mut self, active: Box<Active>) {
        let place = self.by_key.get_mut(&active.key).expect("its place is kept");
        assert!(place.is_none(), "{:?} has two proposers", active.key);
        *place = Some(active);
    }

    /// No state of the key stays in memory.
    pub(crate) fn end(&mut self, mut active: Box<Active>) {
        self.by_key.remove(&active.key);
        if self.spare.len() < SPARE_MAX && active.queue.capacity() <= SPARE_QUEUE_MAX {
            active.leave();
            self.spare.push(active);
        }
    }
}
