//! Orders of an operator about a group that has lost its full members.

use base::Nanos;
use types::{Epoch, GroupMember, NodeId};

use crate::choice::{Choice, Seen, may_be_full};
use crate::group::{Cx, Group};
use crate::local::Content;
use crate::mutation::{self, Mutation};
use crate::value::{Decree, GroupValue};

/// An order waits this long for an operation on the register to end.
const DROPPED_AFTER: Nanos = Nanos::from_secs(10);
/// After this long an operation on the register is taken for one that may never end.
const IS_SLOW_AFTER: Nanos = Nanos::from_secs(2);

/// An order that waits for the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    epoch: Epoch,
    decree: Decree,
    since: Nanos,
}

impl Group {
    pub(crate) fn on_order(&mut self, cx: &mut Cx<'_>, epoch: Epoch, decree: Decree) {
        if !self.ready {
            return self.refuse(cx, "this node has not read the configuration since its start");
        }
        let operation = self.operation.as_ref();
        if operation.is_some_and(|it| it.is_ordered || it.age(cx.now) > IS_SLOW_AFTER)
            || self.ordered.is_some()
        {
            return self.refuse(cx, "the register of the configuration does not answer");
        }
        self.ordered = Some(Order { epoch, decree, since: cx.now });
        self.drive(cx);
    }

    /// An order without an answer must not take effect long after it was given.
    pub(crate) fn drop_old_order(&mut self, cx: &mut Cx<'_>) {
        let is_old = |order: &mut Order| cx.now.since(order.since) > DROPPED_AFTER;
        if self.ordered.take_if(is_old).is_some() {
            self.refuse(cx, "the register of the configuration has not answered");
        }
    }

    /// Carries out an operator's act, if the group has no full member that could be reached.
    pub(crate) fn obey(&mut self, cx: &mut Cx<'_>, order: Order) {
        let Order { epoch, decree, .. } = order;
        let Some(value) = self.known.value() else {
            return self.refuse(cx, "the group has no configuration yet");
        };
        if value.last_active().is_none_or(|last| last.epoch != epoch) {
            return self.refuse(cx, "the epoch is not that of the last active configuration");
        }
        if let Err(reason) = self.check_loss(cx, value) {
            return self.refuse(cx, reason);
        }
        let usable = self.usable(cx);
        if let Decree::Image { node, image } = decree {
            let holds = |seen: &&Seen| {
                let content = seen.report.content;
                seen.report.image == image && matches!(content, Content::Partial | Content::Whole)
            };
            let seen = self.reports.get(&node).filter(holds);
            if seen.is_none() || !usable.contains(&node) {
                return self.refuse(cx, "that node is not reachable with that image");
            }
        }
        self.decree(cx, decree, true);
    }

    /// Whether the group is lost as far as this node can tell, and it can tell much.
    fn check_loss(&self, cx: &Cx<'_>, value: &GroupValue) -> Result<(), &'static str> {
        let audible = self.audible(cx);
        let plain = GroupValue { decree: None, ..value.clone() };
        let is_full = |node: &NodeId| {
            let seen = self.reports.get(node);
            seen.is_some_and(|seen| may_be_full(Some(&plain), *node, seen))
        };
        if audible.iter().any(is_full) {
            return Err("a full member is reachable: no data are lost");
        }
        if mutation::is(Mutation::OrderCutOff) {
            return Ok(());
        }
        if !cx.peers.hears_majority(cx.now) {
            return Err("this node does not hear a majority: ask another one, or start more");
        }
        let members = || value.last_active().into_iter().flat_map(|last| &last.members);
        let starts = |member: &GroupMember| {
            audible.contains(&member.node) && !self.reports.contains_key(&member.node)
        };
        if members().any(starts) {
            return Err("a member may be starting, and has not told its state yet");
        }
        let elsewhere = |member: &GroupMember| {
            !audible.contains(&member.node) && cx.peers.is_heard_by_others(member.node, cx.now)
        };
        if members().any(elsewhere) {
            return Err("another node hears a member that this one does not hear");
        }
        Ok(())
    }

    pub(crate) fn decree(&mut self, cx: &mut Cx<'_>, decree: Decree, is_ordered: bool) {
        let usable = self.usable(cx);
        let Some(value) = self.known.value() else { return };
        let decreed = GroupValue { decree: Some(decree), ..value.clone() };
        let choice = match decree {
            // Nodes are to become empty first. A later value names members.
            Decree::Empty => Some(Choice { members: Vec::new(), next_serial: value.next_serial }),
            Decree::Image { .. } => self.choice(cx, Some(&decreed), &usable),
        };
        let value = choice.and_then(|choice| self.next(cx, choice, Some(decree)));
        match value {
            Some(value) => {
                self.proposal = None;
                self.swap(cx, value, is_ordered);
            }
            None => self.refuse(cx, "no configuration can follow"),
        }
    }
}
