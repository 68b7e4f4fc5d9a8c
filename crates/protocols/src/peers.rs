//! The state of each node of the cluster as this node knows it now, with its amnesia count.

use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Incarnation, NodeId};

/// How a node keeps up with the messages for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    #[default]
    Steady,
    /// Many messages wait in front of its link. A resend would wait there, too.
    Slow,
    /// It was slow for long, beside others that make a majority. It gets only messages that these
    /// cannot stand in for, which resends are. It gets the missed ones once it is steady.
    Spared,
}

/// A node as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: NodeId,
    /// Highest amnesia count known: acknowledgements with a lower one are void.
    pub amnesia: AmnesiaCount,
    /// Highest incarnation known.
    pub incarnation: Incarnation,
    /// A connection stands and the peer is not suspected. A hint, never an argument.
    pub up: bool,
    /// A hint, too.
    pub pace: Pace,
}

impl Member {
    /// True if messages that are not urgent may be sent to it.
    #[must_use]
    pub fn is_in_reach(&self) -> bool {
        self.up && self.pace != Pace::Slow
    }

    /// True if a message reaches it soon.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.up && self.pace == Pace::Steady
    }
}

/// Every node of the cluster as this node knows it now, sorted by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    me: NodeId,
    nodes: Vec<Member>,
}

impl Peers {
    /// # Panics
    /// If `nodes` does not hold `me`, holds a node twice, or more than [`MEMBERS_MAX`].
    #[must_use]
    pub fn new(
        me: NodeId,
        incarnation: Incarnation,
        amnesia: AmnesiaCount,
        nodes: &[NodeId],
    ) -> Peers {
        let unknown = |node| Member {
            node,
            amnesia: AmnesiaCount(0),
            incarnation: Incarnation(0),
            up: false,
            pace: Pace::Steady,
        };
        let mut nodes: Vec<Member> = nodes.iter().copied().map(unknown).collect();
        nodes.sort_by_key(|member| member.node);
        assert!(nodes.len() <= MEMBERS_MAX, "{} nodes, at most {MEMBERS_MAX}", nodes.len());
        assert!(nodes.windows(2).all(|pair| pair[0].node != pair[1].node), "a node twice");
        let own = nodes.iter_mut().find(|member| member.node == me);
        let own = own.expect("a node knows itself");
        *own = Member { node: me, amnesia, incarnation, up: true, pace: Pace::Steady };
        Peers { me, nodes }
    }

    /// This node.
    #[must_use]
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// This node as it knows itself.
    ///
    /// # Panics
    /// Never: construction holds it.
    #[must_use]
    pub fn own(&self) -> &Member {
        self.get(self.me).expect("a node knows itself")
    }

    /// The place of a node among all.
    #[must_use]
    pub fn index(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|member| member.node == node)
    }

    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.nodes.iter().find(|member| member.node == node)
    }

    /// All nodes of the cluster in the order of their ids.
    #[must_use]
    pub fn nodes(&self) -> &[Member] {
        &self.nodes
    }

    /// All nodes of the cluster but this one.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.nodes.iter().map(|member| member.node).filter(|&node| node != self.me)
    }

    /// The node at a place of a replica set. The place is where it lies if the set is the cluster.
    pub(crate) fn at(&self, place: usize, node: NodeId) -> &Member {
        let near = self.nodes.get(place).filter(|member| member.node == node);
        near.or_else(|| self.get(node)).expect("a replica is a node of the cluster")
    }

    /// Merges the facts of a frame. True if an amnesia count grew: acknowledgements count anew.
    pub fn learn(&mut self, node: NodeId, incarnation: Incarnation, amnesia: AmnesiaCount) -> bool {
        let Some(member) = self.get_mut(node) else { return false };
        member.incarnation = member.incarnation.max(incarnation);
        let grew = amnesia > member.amnesia;
        member.amnesia = member.amnesia.max(amnesia);
        grew
    }

    pub fn set_up(&mut self, node: NodeId, up: bool) {
        if let Some(member) = self.get_mut(node) {
            member.up = up;
        }
    }

    /// True if the pace is another than before.
    pub fn set_pace(&mut self, node: NodeId, pace: Pace) -> bool {
        let Some(member) = self.get_mut(node) else { return false };
        std::mem::replace(&mut member.pace, pace) != pace
    }

    fn get_mut(&mut self, node: NodeId) -> Option<&mut Member> {
        self.nodes.iter_mut().find(|member| member.node == node)
    }
}
