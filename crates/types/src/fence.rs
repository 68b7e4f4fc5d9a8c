//! Fences, and the ballots under which a command may be proposed.

use crate::id::{Incarnation, NodeId};
use crate::wire::{Malformed, Reader, Wire, put_varint};

/// Shuts out a node's earlier processes. An acceptor that raised it promises none of their ballots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    pub node: NodeId,
    /// The lowest incarnation that is not shut out.
    pub below: Incarnation,
}

impl Fence {
    /// Shuts out this incarnation of the node, and all before it. `None` for the last one that a
    /// node can have.
    #[must_use]
    pub fn against(node: NodeId, incarnation: Incarnation) -> Option<Fence> {
        let below = Incarnation(incarnation.0 + 1);
        (below <= Incarnation::MAX).then_some(Fence { node, below })
    }

    /// True if a proposal under the one fence is one under the other.
    #[must_use]
    pub fn covers(self, other: Fence) -> bool {
        self.node == other.node && self.below >= other.below
    }
}

/// The ballots under which a command may be proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Under {
    #[default]
    Any,
    /// Those of this incarnation of the node. One that has a later one by now refuses the command.
    Incarnation(Incarnation),
    /// Those whose promises raised this fence.
    Fence(Fence),
}

impl Wire for Fence {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.node.0.to_le_bytes());
        put_varint(out, u64::from(self.below.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Fence, Malformed> {
        let node = NodeId(reader.u16()?);
        let below = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let is_sound = (1..=Incarnation::MAX.0).contains(&below);
        is_sound.then_some(Fence { node, below: Incarnation(below) }).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let fence = Fence { node: NodeId(7), below: Incarnation::MAX };
        assert_eq!(Fence::from_bytes(&fence.to_bytes()), Ok(fence));
        for below in [0, Incarnation::MAX.0 + 1] {
            let fence = Fence { node: NodeId(7), below: Incarnation(below) };
            assert_eq!(Fence::from_bytes(&fence.to_bytes()), Err(Malformed));
        }
    }

    #[test]
    fn higher_fence_covers_lower_one() {
        let fence = |node, below| Fence { node: NodeId(node), below: Incarnation(below) };
        assert!(fence(1, 3).covers(fence(1, 3)) && fence(1, 3).covers(fence(1, 2)));
        assert!(!fence(1, 3).covers(fence(1, 4)) && !fence(1, 3).covers(fence(2, 1)));
        assert_eq!(Fence::against(NodeId(1), Incarnation(2)), Some(fence(1, 3)));
        assert_eq!(Fence::against(NodeId(1), Incarnation::MAX), None);
    }
}
