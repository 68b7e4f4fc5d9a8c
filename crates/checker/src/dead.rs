//! Configurations that the search has proven dead.
//!
//! A configuration is the set of placed calls, the state reached, and the optional calls spent on
//! it. Of two that differ only in spent calls, the one that spent fewer has all options of the
//! other. So a configuration is dead when one that spent a subset is dead.
//!
//! Only abandoned configurations are kept. A search that never backtracks stores none.

use std::hash::Hash;

use hashbrown::HashMap;

use crate::bitset::BitSet;

/// Most spendings remembered per (placed, state); further ones are searched again when met.
const SPENDINGS_MAX: usize = 256;

pub(crate) struct DeadConfigurations<K, S> {
    spendings: HashMap<(K, S), Spendings>,
}

struct Spendings {
    first: BitSet,
    others: Vec<BitSet>,
}

impl<K: Eq + Hash, S: Eq + Hash> DeadConfigurations<K, S> {
    pub(crate) fn new() -> Self {
        DeadConfigurations { spendings: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spendings.is_empty()
    }

    /// Whether a configuration that can do whatever this one can is known to be dead.
    pub(crate) fn covers(&self, placed: K, state: S, spent: &BitSet) -> bool {
        self.spendings.get(&(placed, state)).is_some_and(|known| known.covers(spent))
    }

    pub(crate) fn insert(&mut self, placed: K, state: S, spent: &BitSet) {
        self.spendings
            .entry((placed, state))
            .and_modify(|known| known.insert(spent))
            .or_insert_with(|| Spendings { first: spent.clone(), others: Vec::new() });
    }
}

impl Spendings {
    fn covers(&self, spent: &BitSet) -> bool {
        self.first.is_subset_of(spent) || self.others.iter().any(|known| known.is_subset_of(spent))
    }

    fn insert(&mut self, spent: &BitSet) {
        if self.covers(spent) {
            return;
        }
        self.others.retain(|known| !spent.is_subset_of(known));
        if spent.is_subset_of(&self.first) {
            self.first = spent.clone();
        } else if self.others.len() < SPENDINGS_MAX {
            self.others.push(spent.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(members: &[usize]) -> BitSet {
        let mut bits = BitSet::with_capacity(8);
        members.iter().for_each(|member| bits.insert(*member));
        bits
    }

    #[test]
    fn smaller_spending_covers_larger_and_not_the_reverse() {
        let mut dead = DeadConfigurations::new();
        dead.insert(1, 'a', &spent(&[1, 2]));
        assert!(dead.covers(1, 'a', &spent(&[1, 2, 3])));
        assert!(!dead.covers(1, 'a', &spent(&[1])));
        dead.insert(1, 'a', &spent(&[4]));
        dead.insert(1, 'a', &spent(&[1]));
        assert!(dead.covers(1, 'a', &spent(&[1])));
        assert!(dead.covers(1, 'a', &spent(&[4, 5])));
        assert!(!dead.covers(1, 'a', &spent(&[2])));
    }

    #[test]
    fn other_state_or_placement_is_not_covered() {
        let mut dead = DeadConfigurations::new();
        dead.insert(1, 'a', &spent(&[]));
        assert!(!dead.covers(1, 'b', &spent(&[])));
        assert!(!dead.covers(2, 'a', &spent(&[])));
    }
}
