//! The places of members: full members in their order, then shadows in theirs.
//!
//! A shadow may stand before full members in the configuration, if those were faster to copy.

use types::{NodeId, Role};

use crate::configured::{Inside, Member};

/// All members, from the head to the end.
fn nodes<P: Member>(cx: &Inside<'_, '_, P>) -> Vec<NodeId> {
    let members = &cx.configuration.members;
    let shadows = members.iter().filter(|member| member.role == Role::Shadow);
    cx.configuration.full().chain(shadows).map(|member| member.node).collect()
}

fn place<P: Member>(cx: &Inside<'_, '_, P>, node: NodeId) -> Option<usize> {
    nodes(cx).iter().position(|&it| it == node)
}

/// The member that orders all writes.
pub(super) fn head<P: Member>(cx: &Inside<'_, '_, P>) -> Option<NodeId> {
    cx.configuration.full().next().map(|member| member.node)
}

pub(super) fn is_head<P: Member>(cx: &Inside<'_, '_, P>) -> bool {
    head(cx) == Some(cx.replicas.me())
}

/// The last member that answers reads.
pub(super) fn tail<P: Member>(cx: &Inside<'_, '_, P>) -> Option<NodeId> {
    cx.configuration.full().next_back().map(|member| member.node)
}

pub(super) fn is_tail<P: Member>(cx: &Inside<'_, '_, P>) -> bool {
    tail(cx) == Some(cx.replicas.me())
}

/// The member behind this one, be it a shadow. `None` at the end.
pub(super) fn next<P: Member>(cx: &Inside<'_, '_, P>) -> Option<NodeId> {
    let place = place(cx, cx.replicas.me())?;
    nodes(cx).get(place + 1).copied()
}

/// The member before this one. `None` at the head.
pub(super) fn previous<P: Member>(cx: &Inside<'_, '_, P>) -> Option<NodeId> {
    let place = place(cx, cx.replicas.me())?;
    nodes(cx).get(place.checked_sub(1)?).copied()
}

/// True for a member before this one.
pub(super) fn is_before<P: Member>(cx: &Inside<'_, '_, P>, node: NodeId) -> bool {
    place(cx, node) < place(cx, cx.replicas.me())
}
