//! Fences of a shard: incarnations whose messages about transactions it accepts no more.
//!
//! Absence of a fence costs one byte. [`crate::rmwpaxos::core::fencing`] has the rules.

use types::limits::MEMBERS_MAX;
use types::{Incarnation, Malformed, NodeId, Reader, Wire};

/// The lowest incarnation of each node that is not shut out; a node that is missing has none.
/// Fences only rise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fences(Vec<(NodeId, Incarnation)>);

impl Fences {
    /// Messages of this node count from this incarnation on.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Incarnation {
        let found = self.0.binary_search_by_key(&node, |fence| fence.0);
        found.map_or(Incarnation(0), |at| self.0[at].1)
    }

    /// Almost always true.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the fence was lower.
    ///
    /// # Panics
    /// If there are fences of [`MEMBERS_MAX`] other nodes.
    pub fn raise(&mut self, node: NodeId, to: Incarnation) -> bool {
        match self.0.binary_search_by_key(&node, |fence| fence.0) {
            Ok(at) if self.0[at].1 >= to => return false,
            Ok(at) => self.0[at].1 = to,
            Err(_) if to == Incarnation(0) => return false,
            Err(at) => {
                assert!(self.0.len() < MEMBERS_MAX, "fences of {MEMBERS_MAX} nodes and {node}");
                self.0.insert(at, (node, to));
            }
        }
        true
    }

    /// Takes the higher fence of each node. True if one was lower here.
    pub fn merge(&mut self, other: &Fences) -> bool {
        let raised = other.0.iter().map(|&(node, to)| self.raise(node, to));
        raised.fold(false, |any, one| any | one)
    }
}

/// `count u8 · (node u16, incarnation u32)*`, sorted by node.
impl Wire for Fences {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        for (node, incarnation) in &self.0 {
            out.extend_from_slice(&node.0.to_le_bytes());
            out.extend_from_slice(&incarnation.0.to_le_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Fences, Malformed> {
        let count = usize::from(reader.u8()?);
        if count > MEMBERS_MAX {
            return Err(Malformed);
        }
        let mut fences = Fences::default();
        for _ in 0..count {
            let (node, to) = (NodeId(reader.u16()?), Incarnation(reader.u32()?));
            let is_next = fences.0.last().is_none_or(|last| last.0 < node);
            if !is_next || to > Incarnation::MAX || !fences.raise(node, to) {
                return Err(Malformed);
            }
        }
        Ok(fences)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn fences() -> impl Strategy<Value = Fences> {
        let all = proptest::collection::vec((1..8_u16, 0..9_u32), 0..9);
        all.prop_map(|all| {
            let mut fences = Fences::default();
            all.into_iter().for_each(|(node, to)| {
                fences.raise(NodeId(node), Incarnation(to));
            });
            fences
        })
    }

    proptest! {
        #[test]
        fn bytes_come_back(fences in fences(), at in any::<prop::sample::Index>()) {
            let bytes = fences.to_bytes();
            prop_assert_eq!(Fences::from_bytes(&bytes), Ok(fences));
            prop_assert_eq!(Fences::from_bytes(&bytes[..at.index(bytes.len())]), Err(Malformed));
        }

        #[test]
        fn merged_fences_are_the_highest(one in fences(), other in fences()) {
            let mut merged = one.clone();
            let has_risen = merged.merge(&other);
            prop_assert_eq!(has_risen, merged != one);
            for node in (1..8).map(NodeId) {
                prop_assert_eq!(merged.of(node), one.of(node).max(other.of(node)));
            }
        }

        #[test]
        fn bytes_from_anywhere_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = Fences::from_bytes(&bytes);
        }
    }

    #[test]
    fn absence_costs_one_byte() {
        assert_eq!(Fences::default().to_bytes(), [0]);
        assert_eq!(Fences::default().of(NodeId(3)), Incarnation(0));
    }
}
