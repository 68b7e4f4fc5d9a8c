//! A set of small numbers with a fixed capacity.
//!
//! Up to 64 members cost no allocation. Sets of one capacity compare and hash by content; sets of
//! different capacities are never compared.

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BitSet {
    low: u64,
    // Members from 64 upwards.
    high: Box<[u64]>,
}

impl BitSet {
    /// An empty set for members below `capacity`.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let high_words = capacity.div_ceil(64).saturating_sub(1);
        BitSet { low: 0, high: vec![0; high_words].into_boxed_slice() }
    }

    pub(crate) fn insert(&mut self, member: usize) {
        *self.word_mut(member / 64) |= 1 << (member % 64);
    }

    pub(crate) fn remove(&mut self, member: usize) {
        *self.word_mut(member / 64) &= !(1 << (member % 64));
    }

    pub(crate) fn contains(&self, member: usize) -> bool {
        let word = if member < 64 { self.low } else { self.high[member / 64 - 1] };
        word >> (member % 64) & 1 == 1
    }

    pub(crate) fn is_subset_of(&self, other: &BitSet) -> bool {
        self.low & !other.low == 0
            && self.high.iter().zip(&*other.high).all(|(mine, theirs)| mine & !theirs == 0)
    }

    fn word_mut(&mut self, index: usize) -> &mut u64 {
        if index == 0 { &mut self.low } else { &mut self.high[index - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_an_ordered_set() {
        let mut bits = BitSet::with_capacity(200);
        let mut model = BTreeSet::new();
        for step in 0..2_000_usize {
            let member = step * 67 % 200;
            if step * 31 % 7 < 4 {
                bits.insert(member);
                model.insert(member);
            } else {
                bits.remove(member);
                model.remove(&member);
            }
            assert!((0..200).all(|at| bits.contains(at) == model.contains(&at)));
        }
    }

    #[test]
    fn subset_looks_at_every_word() {
        let set = |members: &[usize]| {
            let mut bits = BitSet::with_capacity(130);
            members.iter().for_each(|member| bits.insert(*member));
            bits
        };
        assert!(set(&[1, 70]).is_subset_of(&set(&[1, 70, 129])));
        assert!(!set(&[1, 129]).is_subset_of(&set(&[1, 70])));
        assert!(!set(&[0]).is_subset_of(&set(&[1])));
    }
}
