//! What a node believes of the membership now, and the crash vector.

use types::limits::MEMBERS_MAX;
use types::{Epoch, Incarnation, Loss, NodeId};

/// How a member takes what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    #[default]
    Steady,
    /// Much of what it was told waits in front of its link. What is told again would wait there, too.
    Slow,
    /// It was slow for long, beside others that make a majority: it is told only what these cannot stand in for, which
    /// resends are. What it misses it is told once it is steady.
    Spared,
}

/// A member as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: NodeId,
    /// Highest loss known: acknowledgements from before it are void.
    pub loss: Loss,
    /// Highest incarnation known.
    pub incarnation: Incarnation,
    /// A connection stands and the peer is not suspected. A hint, never an argument.
    pub up: bool,
    /// A hint, too.
    pub pace: Pace,
}

impl Member {
    /// True where what is not urgent may be said to it.
    #[must_use]
    pub fn is_in_reach(&self) -> bool {
        self.up && self.pace != Pace::Slow
    }

    /// True where it soon hears what it is told.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.up && self.pace == Pace::Steady
    }
}

/// One epoch's members, sorted by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub epoch: Epoch,
    pub me: NodeId,
    members: Vec<Member>,
}

impl View {
    /// # Panics
    /// If `nodes` does not hold `me`, holds a node twice, or more than [`MEMBERS_MAX`].
    #[must_use]
    pub fn new(
        epoch: Epoch,
        me: NodeId,
        incarnation: Incarnation,
        loss: Loss,
        nodes: &[NodeId],
    ) -> View {
        let mut members: Vec<Member> = nodes
            .iter()
            .map(|&node| Member {
                node,
                loss: Loss(0),
                incarnation: Incarnation(0),
                up: false,
                pace: Pace::Steady,
            })
            .collect();
        members.sort_by_key(|member| member.node);
        assert!(members.len() <= MEMBERS_MAX, "{} members, at most {MEMBERS_MAX}", members.len());
        assert!(
            members.windows(2).all(|pair| pair[0].node != pair[1].node),
            "a member twice: {nodes:?}"
        );
        let mut view = View { epoch, me, members };
        let index = view.index(me).expect("a node is a member of its own view");
        view.members[index] = Member { node: me, loss, incarnation, up: true, pace: Pace::Steady };
        view
    }

    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    #[must_use]
    pub fn index(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// Members needed for a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Everybody but this node.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node).filter(|&node| node != self.me)
    }

    /// Everybody, this node included.
    pub fn all(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }

    /// Merges what a frame says of a member. True when a loss grew: held acknowledgements must be counted anew.
    pub fn learn(&mut self, node: NodeId, incarnation: Incarnation, loss: Loss) -> bool {
        let Some(index) = self.index(node) else { return false };
        let member = &mut self.members[index];
        member.incarnation = member.incarnation.max(incarnation);
        let grew = loss > member.loss;
        member.loss = member.loss.max(loss);
        grew
    }

    pub fn set_up(&mut self, node: NodeId, up: bool) {
        if let Some(index) = self.index(node) {
            self.members[index].up = up;
        }
    }

    /// True when that is news.
    pub fn set_pace(&mut self, node: NodeId, pace: Pace) -> bool {
        let Some(index) = self.index(node) else { return false };
        std::mem::replace(&mut self.members[index].pace, pace) != pace
    }
}
