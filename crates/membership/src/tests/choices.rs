//! Members of the next configuration.

use std::collections::{BTreeMap, BTreeSet};

use types::{Epoch, GroupMember, ImageId, Incarnation, NodeId, Role, Serial};

use super::rules::{self, active, full, shadow, wedging};
use super::world::GROUP;
use crate::choice::{Question, Seen, choose};
use crate::message::ImageReport;
use crate::{Content, Decree, GroupSettings, GroupValue};

/// Of a node that knows the last active epoch.
fn report(node: u16, content: Content) -> ImageReport {
    ImageReport { promised: Epoch(4), ..rules::report(node, content) }
}

fn seen(incarnation: u32, report: ImageReport) -> Seen {
    Seen { incarnation: Incarnation(incarnation), report }
}

fn whole(node: u16) -> (NodeId, Seen) {
    (NodeId(node), seen(1, report(node, Content::Whole)))
}

/// The choice among five servers, three of them wanted, if these are heard.
fn chosen(value: Option<&GroupValue>, reports: &[(NodeId, Seen)]) -> Option<Vec<GroupMember>> {
    let reports: BTreeMap<NodeId, Seen> = reports.iter().copied().collect();
    let usable: BTreeSet<NodeId> = reports.keys().copied().collect();
    let choice = choose(&Question {
        group: &GroupSettings::new(GROUP, 3),
        servers: &[1, 2, 3, 4, 5].map(NodeId),
        value,
        reports: &reports,
        usable: &usable,
        are_connected: &|one, other| (one, other) != (NodeId(5), NodeId(1)),
        is_urgent: false,
    });
    choice.map(|choice| choice.members)
}

fn named(node: u16, incarnation: u32, image: u64, serial: u32, role: Role) -> GroupMember {
    GroupMember {
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
        image: ImageId(image),
        serial: Serial(serial),
        role,
    }
}

// M3: the image decides, not the process.
#[test]
pub(super) fn restarted_full_member_keeps_role_and_place() {
    let value = active(4, &[full(2), full(1)]);
    let again = seen(7, report(2, Content::Partial));
    let members = chosen(Some(&value), &[(NodeId(2), again), whole(1)]);
    let renamed = named(2, 7, 102, 20, Role::Full);
    assert_eq!(members, Some(vec![renamed, full(1)]));
}

#[test]
fn full_member_with_another_image_is_left_out() {
    let value = active(4, &[full(2), full(1)]);
    let other = ImageReport { image: ImageId(9), ..report(2, Content::Stale) };
    let members = chosen(Some(&value), &[(NodeId(2), seen(2, other)), whole(1)]);
    assert_eq!(members, Some(vec![full(1)]));
}

#[test]
pub(super) fn shadow_is_full_once_it_copied_in_the_last_active_epoch() {
    let value = active(4, &[full(1), shadow(2), shadow(3)]);
    let copied = |node, epoch| {
        seen(1, ImageReport { copied: Epoch(epoch), ..report(node, Content::Partial) })
    };
    let reports = [whole(1), (NodeId(2), copied(2, 4)), (NodeId(3), copied(3, 3))];
    assert_eq!(chosen(Some(&value), &reports), Some(vec![full(1), full(2), shadow(3)]));
    // A restarted shadow is none, and a wedging configuration is no predecessor.
    let again = Seen { incarnation: Incarnation(2), ..copied(2, 4) };
    let reports = [whole(1), (NodeId(2), again)];
    assert_eq!(chosen(Some(&value), &reports), Some(vec![full(1)]));
    let next = wedging(&value, &[full(1), full(2)]);
    let reports = [whole(1), (NodeId(2), copied(2, 5))];
    assert_eq!(chosen(Some(&next), &reports), Some(vec![full(1), shadow(2)]));
}

#[test]
pub(super) fn only_empty_and_connected_nodes_join_at_the_end() {
    let value = active(4, &[full(1)]);
    let stale = (NodeId(2), seen(1, report(2, Content::Stale)));
    let blank = |node| (NodeId(node), seen(1, report(node, Content::Blank)));
    // A report of an earlier epoch may be out of date.
    let old = ImageReport { promised: Epoch(3), ..report(2, Content::Blank) };
    let reports = [whole(1), (NodeId(2), seen(1, old))];
    assert_eq!(chosen(Some(&value), &reports), Some(vec![full(1)]));
    let reports = [whole(1), stale, whole(3), blank(4), blank(5)];
    let joined = named(4, 1, 104, 20, Role::Shadow);
    assert_eq!(chosen(Some(&value), &reports), Some(vec![full(1), joined]));
}

#[test]
fn without_full_member_there_is_no_choice() {
    let value = active(4, &[full(1), shadow(2)]);
    let blank = (NodeId(3), seen(1, report(3, Content::Blank)));
    let partial = (NodeId(2), seen(1, report(2, Content::Partial)));
    assert_eq!(chosen(Some(&value), &[partial, blank]), None);
    let decree = Some(Decree::Image { node: NodeId(2), image: ImageId(102) });
    let decreed = GroupValue { decree, ..value };
    assert_eq!(chosen(Some(&decreed), &[partial]), Some(vec![full(2)]));
}

#[test]
fn group_begins_with_all_wanted_members_empty() {
    let blank = |node| (NodeId(node), seen(1, report(node, Content::Blank)));
    assert_eq!(chosen(None, &[blank(1), blank(2), whole(3)]), None);
    // The groups of a cluster begin at different nodes.
    let members = chosen(None, &[blank(1), blank(2), blank(3), blank(4)]);
    let nodes = members.map(|all| all.into_iter().map(|one| one.node.0).collect::<Vec<_>>());
    assert_eq!(nodes, Some(vec![2, 3, 4]));
    let value = GroupValue { decree: Some(Decree::Empty), ..active(4, &[full(1)]) };
    let members = chosen(Some(&value), &[blank(1), blank(2), blank(3)]);
    assert!(members.is_some_and(|all| all.iter().all(|one| one.role == Role::Full)));
}
