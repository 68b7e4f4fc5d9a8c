//! Configured groups as a node shows them, and orders of operators about them.

use membership::{GroupStatus, GroupValue};
use types::{Database, Epoch, ImageId, NodeId, Role};

pub use membership::{Content, Decree};

/// The group of a database, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    pub database: Database,
    pub state: GroupState,
    /// Members that it wants.
    pub wanted: usize,
    /// Of the last configuration that was active; zero before the first one.
    pub epoch: Epoch,
    /// The members of that configuration, in their order.
    pub members: Vec<(NodeId, Role)>,
    /// This node's role in the epoch that it has installed.
    pub role: Option<Role>,
    /// This node may read locally.
    pub has_lease: bool,
    /// The stores of nodes that may hold data, as they were reported last. Sorted by node.
    pub images: Vec<ImageView>,
}

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// It has no configuration yet, or this node has not read it.
    Forming,
    /// This node has installed the newest configuration.
    Active,
    /// This node has stopped an epoch and waits for the next one.
    Wedged,
    /// No node with all that was committed is reachable.
    Lost,
}

/// The content of a node's stores for one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageView {
    pub node: NodeId,
    pub image: ImageId,
    pub content: Content,
    /// The last epoch in which the node was a full member with it.
    pub joined: Epoch,
}

/// An operator's order about a group without a full member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOrder {
    pub database: Database,
    /// The epoch that is given up: that of the last active configuration.
    pub epoch: Epoch,
    pub decree: Decree,
}

impl GroupState {
    pub const ALL: [GroupState; 4] =
        [GroupState::Forming, GroupState::Active, GroupState::Wedged, GroupState::Lost];

    /// As `status` and the API show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Forming => "forming",
            GroupState::Active => "active",
            GroupState::Wedged => "wedged",
            GroupState::Lost => "lost",
        }
    }
}

impl GroupView {
    #[must_use]
    pub fn of(database: Database, wanted: usize, status: &GroupStatus) -> GroupView {
        let last = status.value.as_ref().and_then(GroupValue::last_active);
        let members = last.map(|last| &last.members[..]).unwrap_or_default();
        let images = status.reports.iter().map(|&(node, report)| ImageView {
            node,
            image: report.image,
            content: report.content,
            joined: report.joined,
        });
        GroupView {
            database,
            state: state(status),
            wanted,
            epoch: last.map_or(Epoch(0), |last| last.epoch),
            members: members.iter().map(|member| (member.node, member.role)).collect(),
            role: status.installed.and_then(|(_, role)| role),
            has_lease: false,
            images: images.collect(),
        }
    }

    /// Members with this role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = NodeId> {
        self.members.iter().filter(move |(_, it)| *it == role).map(|&(node, _)| node)
    }

    /// The name of this node's role: `full`, `shadow` or `none`.
    #[must_use]
    pub fn role_name(&self) -> &'static str {
        self.role.map_or("none", role_name)
    }
}

#[must_use]
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Full => "full",
        Role::Shadow => "shadow",
    }
}

#[must_use]
pub fn content_name(content: Content) -> &'static str {
    match content {
        Content::Stale => "stale",
        Content::Blank => "blank",
        Content::Partial => "partial",
        Content::Whole => "whole",
    }
}

fn state(status: &GroupStatus) -> GroupState {
    match &status.value {
        _ if status.is_lost => GroupState::Lost,
        Some(value) if value.last_active().is_some() => {
            let is_installed = status.installed.is_some_and(|(epoch, _)| epoch == value.epoch());
            if is_installed { GroupState::Active } else { GroupState::Wedged }
        }
        Some(_) | None => GroupState::Forming,
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;
    use bytes::Bytes;
    use membership::{LocalRecord, Phase};
    use types::{Configuration, GroupMember, Incarnation, Serial};

    use super::*;

    fn configuration(epoch: u32) -> Configuration {
        let member = |node: u16, role| GroupMember {
            node: NodeId(node),
            incarnation: Incarnation(1),
            image: ImageId(u64::from(node)),
            serial: Serial(u32::from(node)),
            role,
        };
        let members = vec![member(2, Role::Full), member(1, Role::Shadow)];
        Configuration { epoch: Epoch(epoch), members, lease: Nanos(1), extra: Bytes::new() }
    }

    fn status(phase: Phase, installed: Option<u32>) -> GroupStatus {
        let value = GroupValue {
            configuration: configuration(5),
            phase,
            previous: Some(configuration(4)),
            decree: None,
            next_serial: 3,
            proposer: NodeId(1),
        };
        let (promised, joined) = (Epoch(5), Epoch(0));
        GroupStatus {
            value: Some(value),
            installed: installed.map(|epoch| (Epoch(epoch), Some(Role::Full))),
            record: LocalRecord { promised, image: ImageId(2), content: Content::Whole, joined },
            is_ready: true,
            is_sealed: true,
            is_lost: false,
            reports: Vec::new(),
        }
    }

    #[test]
    fn state_follows_register_and_installed_epoch() {
        let of = |status: &GroupStatus| GroupView::of(Database(1), 3, status);
        let view = of(&status(Phase::Active, Some(5)));
        assert_eq!((view.state, view.epoch), (GroupState::Active, Epoch(5)));
        assert_eq!(view.with_role(Role::Full).collect::<Vec<_>>(), [NodeId(2)]);
        assert_eq!(of(&status(Phase::Active, None)).state, GroupState::Wedged);
        let wedged = of(&status(Phase::Wedging, None));
        assert_eq!((wedged.state, wedged.epoch), (GroupState::Wedged, Epoch(4)));
        let lost = GroupStatus { is_lost: true, ..status(Phase::Wedging, None) };
        assert_eq!(of(&lost).state, GroupState::Lost);
        let new = GroupStatus { value: None, ..status(Phase::Active, None) };
        assert_eq!((of(&new).state, of(&new).epoch), (GroupState::Forming, Epoch(0)));
    }
}
