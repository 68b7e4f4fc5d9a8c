//! Which members the next configuration has. Pure: reports in, members out.

use std::collections::{BTreeMap, BTreeSet};

use types::{Configuration, Epoch, GroupMember, Incarnation, NodeId, Role, Serial};

use crate::local::Content;
use crate::message::ImageReport;
use crate::mutation::{self, Mutation};
use crate::settings::GroupSettings;
use crate::value::{Decree, GroupValue};

/// The newest report of a node's image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) incarnation: Incarnation,
    pub(crate) report: ImageReport,
}

pub(crate) struct Question<'a> {
    pub(crate) group: &'a GroupSettings,
    pub(crate) servers: &'a [NodeId],
    /// `None` while the register is absent.
    pub(crate) value: Option<&'a GroupValue>,
    pub(crate) reports: &'a BTreeMap<NodeId, Seen>,
    /// Nodes that are not suspected.
    pub(crate) usable: &'a BTreeSet<NodeId>,
    /// True if the two nodes hear each other.
    pub(crate) are_connected: &'a dyn Fn(NodeId, NodeId) -> bool,
    /// A first configuration may begin with a majority of the wanted members.
    pub(crate) is_urgent: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) members: Vec<GroupMember>,
    pub(crate) next_serial: u32,
}

/// True if the node may be full in the configuration after the last active one: it has all that was
/// committed.
pub(crate) fn may_be_full(value: Option<&GroupValue>, node: NodeId, seen: &Seen) -> bool {
    if mutation::is(Mutation::NoFullKept) {
        return true;
    }
    let report = &seen.report;
    let last = value.and_then(last_active);
    match (value.and_then(|value| value.decree), last) {
        (Some(Decree::Image { node: named, image }), _) => node == named && report.image == image,
        (Some(Decree::Empty), _) | (None, None) => report.content == Content::Blank,
        (None, Some(last)) => {
            last.member(node).map_or_else(|| removed(report), |member| kept(last, member, seen))
        }
    }
}

fn last_active(value: &GroupValue) -> Option<&Configuration> {
    let wrong = mutation::is(Mutation::PreviousFromWedging);
    if wrong { Some(&value.configuration) } else { value.last_active() }
}

/// A former member has missed writes.
fn removed(report: &ImageReport) -> bool {
    mutation::is(Mutation::RemovedIsFull) && report.content == Content::Whole
}

fn kept(last: &Configuration, member: &GroupMember, seen: &Seen) -> bool {
    let report = &seen.report;
    let same_process = member.incarnation == seen.incarnation;
    if member.role == Role::Full {
        let joined = same_process || report.joined == last.epoch;
        return (report.image == member.image || mutation::is(Mutation::RestartedIsFull))
            && (joined || !mutation::is(Mutation::RestartedNeedsJoined));
    }
    let copied = report.copied == last.epoch
        || mutation::is(Mutation::CopiedAnyEpoch) && report.copied.0 > 0;
    let joined = mutation::is(Mutation::JoinedShadowIsFull) && report.joined == last.epoch;
    report.image == member.image && same_process && copied || joined
}

/// The best members now. `None` if no node could be full.
pub(crate) fn choose(question: &Question<'_>) -> Option<Choice> {
    let value = question.value;
    let begins = match value.and_then(|value| value.decree) {
        Some(Decree::Empty) => true,
        Some(Decree::Image { .. }) => false,
        None => value.is_none_or(|value| last_active(value).is_none()),
    };
    let mut members = if begins { first(question)? } else { survivors(question) };
    if !members.iter().any(|&(_, role)| role == Role::Full) {
        return None;
    }
    if !begins {
        add_spares(question, &mut members);
    }
    Some(number(question, &members))
}

/// Members of the last active configuration that stay, in their order.
fn survivors(question: &Question<'_>) -> Vec<(NodeId, Role)> {
    let Some(value) = question.value else { return Vec::new() };
    let Some(last) = last_active(value) else { return Vec::new() };
    let mut members = Vec::new();
    for (node, seen) in usable(question, last.members.iter().map(|member| member.node)) {
        let stays = |member: &GroupMember| is_same(member, seen);
        if may_be_full(Some(value), node, seen) {
            members.push((node, Role::Full));
        } else if value.decree.is_none() && last.member(node).is_some_and(stays) {
            members.push((node, Role::Shadow));
        }
    }
    // An operator may name an image of a node that is no member any more.
    let named = match value.decree {
        Some(Decree::Image { node, .. }) => Some(node),
        _ => None,
    };
    let outside = |node: &NodeId| members.iter().all(|(member, _)| member != node);
    let wrong = mutation::is(Mutation::RemovedIsFull) || mutation::is(Mutation::NoFullKept);
    let more: Vec<NodeId> = question.servers.iter().copied().filter(outside).collect();
    for (node, seen) in usable(question, more.into_iter()) {
        if (named == Some(node) || wrong) && may_be_full(Some(value), node, seen) {
            members.push((node, Role::Full));
        }
    }
    members
}

/// The members of a first configuration: all of them full, all of them empty.
fn first(question: &Question<'_>) -> Option<Vec<(NodeId, Role)>> {
    let wanted = wanted(question);
    let blank = blank(question, &[]);
    let enough = if question.is_urgent { wanted / 2 + 1 } else { wanted };
    if blank.len() < enough {
        return None;
    }
    Some(blank.into_iter().take(wanted).map(|node| (node, Role::Full)).collect())
}

/// Fills the group up with empty nodes that every full member hears.
fn add_spares(question: &Question<'_>, members: &mut Vec<(NodeId, Role)>) {
    let full: Vec<NodeId> =
        members.iter().filter(|(_, role)| *role == Role::Full).map(|&(node, _)| node).collect();
    for node in blank(question, members) {
        if members.len() >= wanted(question) {
            return;
        }
        if full.iter().all(|&other| (question.are_connected)(node, other)) {
            members.push((node, Role::Shadow));
        }
    }
}

fn wanted(question: &Question<'_>) -> usize {
    question.group.replicas.clamp(1, question.servers.len().max(1))
}

/// Usable nodes with empty stores. Each group begins at another one, so that groups spread.
fn blank(question: &Question<'_>, members: &[(NodeId, Role)]) -> Vec<NodeId> {
    let mut servers = question.servers.to_vec();
    servers.sort_unstable();
    let turn = usize::from(question.group.group.0) % servers.len().max(1);
    servers.rotate_left(turn);
    let last = question.value.and_then(last_active).map_or(Epoch(0), |last| last.epoch);
    usable(question, servers.into_iter())
        .filter(|(node, seen)| {
            let erased = seen.report.content == Content::Blank;
            let stale = mutation::is(Mutation::StaleJoins);
            // A report from before that epoch may be of a shadow that has been removed since.
            let knows = seen.report.promised >= last || mutation::is(Mutation::OldReportJoins);
            (erased || stale) && knows && members.iter().all(|(member, _)| member != node)
        })
        .map(|(node, _)| node)
        .collect()
}

fn usable<'a>(
    question: &'a Question<'_>,
    nodes: impl Iterator<Item = NodeId> + 'a,
) -> impl Iterator<Item = (NodeId, &'a Seen)> + 'a {
    nodes
        .filter(|node| question.usable.contains(node))
        .filter_map(|node| question.reports.get(&node).map(|seen| (node, seen)))
}

fn is_same(member: &GroupMember, seen: &Seen) -> bool {
    member.incarnation == seen.incarnation && member.image == seen.report.image
}

/// Gives each member its serial: a known process and image keeps the one that it has.
fn number(question: &Question<'_>, chosen: &[(NodeId, Role)]) -> Choice {
    let mut next_serial = question.value.map_or(1, |value| value.next_serial);
    let known: Vec<&GroupMember> = question
        .value
        .into_iter()
        .flat_map(|value| value.members().iter().chain(previous_members(value)))
        .collect();
    let mut members = Vec::new();
    for &(node, role) in chosen {
        let Some(seen) = question.reports.get(&node) else { continue };
        let same = known.iter().find(|member| member.node == node && is_same(member, seen));
        let serial = same.map_or(Serial(next_serial), |member| member.serial);
        if same.is_none() {
            next_serial = next_serial.saturating_add(1);
        }
        let (incarnation, image) = (seen.incarnation, seen.report.image);
        members.push(GroupMember { node, incarnation, image, serial, role });
    }
    Choice { members, next_serial }
}

fn previous_members(value: &GroupValue) -> impl Iterator<Item = &GroupMember> {
    value.previous.iter().flat_map(|previous| &previous.members)
}
