//! Byte strings that are looked up: a few are compared one by one, many are hashed.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

/// Comparing as many costs less than hashing one.
const FEW_MAX: usize = 8;

/// Values by byte strings, hashed.
pub type Index<'a, T> = HashMap<&'a [u8], T, FixedState>;

/// An empty index. A seed that clients cannot guess keeps them from choosing strings whose hashes
/// collide.
#[must_use]
pub fn index<'a, T>(seed: u64) -> Index<'a, T> {
    HashMap::with_hasher(FixedState::with_seed(seed))
}

/// A set of byte strings in memory.
#[derive(Clone, Debug)]
pub struct Lookup<'a> {
    few: Vec<&'a [u8]>,
    /// All of them once they are many.
    many: HashSet<&'a [u8], FixedState>,
}

impl<'a> Lookup<'a> {
    /// A seed that clients cannot guess keeps them from choosing strings whose hashes collide.
    #[must_use]
    pub fn new(seed: u64) -> Lookup<'a> {
        Lookup { few: Vec::new(), many: HashSet::with_hasher(FixedState::with_seed(seed)) }
    }

    #[must_use]
    pub fn of(blobs: impl IntoIterator<Item = &'a [u8]>, seed: u64) -> Lookup<'a> {
        let (blobs, mut lookup) = (blobs.into_iter(), Lookup::new(seed));
        let len = blobs.size_hint().0;
        if len > FEW_MAX {
            lookup.many.reserve(len);
        }
        for blob in blobs {
            lookup.insert(blob);
        }
        lookup
    }

    #[must_use]
    pub fn contains(&self, blob: &[u8]) -> bool {
        if self.many.is_empty() { self.few.contains(&blob) } else { self.many.contains(blob) }
    }

    /// False if it was there.
    pub fn insert(&mut self, blob: &'a [u8]) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(blob);
        }
        if self.few.contains(&blob) {
            return false;
        }
        if self.few.len() == FEW_MAX {
            self.many.extend(self.few.drain(..));
            return self.many.insert(blob);
        }
        self.few.push(blob);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holds_each_inserted_blob(all in prop::collection::vec(prop::collection::vec(0..3_u8, 0..4), 0..40), seed: u64) {
            let (mut lookup, mut model) = (Lookup::new(seed), BTreeSet::new());
            for blob in &all {
                prop_assert_eq!(lookup.insert(blob), model.insert(blob.as_slice()));
            }
            prop_assert!(all.iter().all(|blob| lookup.contains(blob)));
            prop_assert!(!lookup.contains(b"another"));
        }
    }
}
