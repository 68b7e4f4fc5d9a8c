//! Changes of a configuration: when they are due, and the two swaps that make them.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use bytes::Bytes;
use types::wire::Wire as _;
use types::{Configuration, Epoch, GroupMember, Incarnation, NodeId, Role};

use crate::choice::{Choice, Question, Seen, choose, may_be_full};
use crate::group::{Cx, Group, Known};
use crate::io::Report;
use crate::message::{Message, Process, Wedged};
use crate::mutation::{self, Mutation};
use crate::value::{Decree, GroupValue, Phase};

/// A change that this node carries through. The register holds its wedging value.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) epoch: Epoch,
    seals: BTreeMap<NodeId, (Incarnation, Wedged)>,
    agreed: BTreeSet<NodeId>,
    since: Nanos,
    sent: Option<Nanos>,
}

/// How far a proposal has come.
enum Progress {
    Complete,
    /// A full member has restarted or lost its image.
    Void,
    /// Seals of these full members are missing.
    Missing(Vec<NodeId>),
    /// Agreements are missing.
    Waiting,
}

/// The next step for the register.
enum Draft {
    Fine,
    /// No full member can be reached.
    Lost,
    /// The wedging value is as good as any other.
    Continue(Epoch),
    Write(Box<GroupValue>),
    /// A change is due, and no epoch is left for it.
    UsedUp,
}

impl Group {
    pub(crate) fn propose(&mut self, cx: &Cx<'_>, epoch: Epoch) {
        let (seals, agreed) = (BTreeMap::new(), BTreeSet::new());
        self.proposal = Some(Proposal { epoch, seals, agreed, since: cx.now, sent: None });
    }

    pub(crate) fn on_wedged(
        &mut self,
        cx: &mut Cx<'_>,
        (node, incarnation): (NodeId, Incarnation),
        wedged: Wedged,
    ) {
        if !self.ready {
            return;
        }
        self.reports.insert(node, Seen { incarnation, report: wedged.report });
        let Some(proposal) = self.proposal.as_mut().filter(|one| one.epoch == wedged.epoch) else {
            return;
        };
        if wedged.may_activate {
            proposal.agreed.insert(node);
        }
        if proposal.seals.insert(node, (incarnation, wedged)).is_none() {
            // The others need not wait for leases of a process that has sealed.
            proposal.sent = None;
        }
        self.drive(cx);
    }

    /// Moves a change on, or begins one that is due.
    pub(crate) fn drive(&mut self, cx: &mut Cx<'_>) {
        if !self.ready || self.operation.is_some() {
            return;
        }
        let (node, incarnation) = (cx.settings.me, cx.settings.incarnation);
        self.reports.insert(node, Seen { incarnation, report: self.image_report() });
        if let Some(order) = self.ordered.take() {
            return self.obey(cx, order);
        }
        if self.proposal.is_some() {
            self.pursue(cx);
        }
        if self.proposal.is_none() && self.operation.is_none() {
            self.consider(cx);
        }
    }

    fn pursue(&mut self, cx: &mut Cx<'_>) {
        let Some(proposal) = &self.proposal else { return };
        let wedging = |value: &&GroupValue| !value.is_active() && value.epoch() == proposal.epoch;
        let Some(value) = self.known.value().filter(wedging).cloned() else {
            self.proposal = None;
            return;
        };
        match self.progress(cx, proposal, &value) {
            Progress::Complete => return self.activate(cx, value),
            Progress::Void => self.proposal = None,
            Progress::Missing(nodes) => {
                let is_late = cx.now.since(proposal.since) > cx.settings.timing.seal();
                let is_gone = nodes.iter().any(|&node| cx.peers.is_silent(node, cx.now));
                if is_late && !mutation::is(Mutation::MissingForgotten) {
                    nodes.into_iter().for_each(|node| self.distrust(cx, node));
                }
                if is_late || is_gone {
                    self.proposal = None;
                }
            }
            Progress::Waiting => {}
        }
        self.ask(cx);
    }

    fn progress(&self, cx: &Cx<'_>, proposal: &Proposal, value: &GroupValue) -> Progress {
        let mut missing = Vec::new();
        if !mutation::is(Mutation::NoSealAwaited) {
            for member in value.configuration.full() {
                let Some((incarnation, wedged)) = proposal.seals.get(&member.node) else {
                    missing.push(member.node);
                    continue;
                };
                let seen = Seen { incarnation: *incarnation, report: wedged.report };
                let same =
                    (*incarnation, wedged.report.image) == (member.incarnation, member.image);
                let fits = same && may_be_full(Some(value), member.node, &seen);
                if !fits && !mutation::is(Mutation::NoIncarnation) {
                    return Progress::Void;
                }
            }
        }
        if !missing.is_empty() {
            return Progress::Missing(missing);
        }
        let members = value.members();
        let agreed = if mutation::is(Mutation::QuorumOfMembers) {
            let inside = members.iter().filter(|one| proposal.agreed.contains(&one.node));
            inside.count() > members.len() / 2
        } else {
            proposal.agreed.len() >= cx.settings.majority()
        };
        if agreed && !members.is_empty() { Progress::Complete } else { Progress::Waiting }
    }

    fn activate(&mut self, cx: &mut Cx<'_>, mut value: GroupValue) {
        let Some(proposal) = &self.proposal else { return };
        let summaries: Vec<(NodeId, Bytes)> = value
            .configuration
            .full()
            .filter_map(|member| proposal.seals.get(&member.node).map(|seal| (member.node, seal)))
            .map(|(node, (_, wedged))| (node, wedged.summary.clone()))
            .collect();
        value.configuration.extra = (self.settings.combine)(&summaries);
        (value.phase, value.decree) = (Phase::Active, None);
        if mutation::is(Mutation::InstallBeforeActive) {
            let raw = Bytes::from(value.to_bytes());
            self.tell_all(cx, &raw);
        }
        self.swap(cx, value, false);
    }

    /// Sends the wedge to all servers that have not agreed, at once and then with each heartbeat.
    fn ask(&mut self, cx: &mut Cx<'_>) {
        let Known::Value { raw, .. } = &self.known else { return };
        let Some(proposal) = &mut self.proposal else { return };
        let due = |sent: Nanos| cx.now.since(sent) >= cx.settings.timing.heartbeat;
        if !proposal.sent.is_none_or(due) {
            return;
        }
        proposal.sent = Some(cx.now);
        let shown: Vec<Process> = proposal
            .seals
            .iter()
            .map(|(&node, (incarnation, wedged))| Process {
                node,
                incarnation: *incarnation,
                image: wedged.report.image,
            })
            .collect();
        let open: Vec<NodeId> = cx
            .settings
            .servers
            .iter()
            .copied()
            .filter(|node| !proposal.agreed.contains(node))
            .collect();
        for node in open {
            let (group, value, shown) = (self.settings.group, raw.clone(), shown.clone());
            cx.send(node, Message::Wedge { group, value, shown });
        }
    }

    /// Begins a change if one is due. The lowest node that is not suspected goes first.
    fn consider(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.known, Known::Unread) || !cx.peers.hears_majority(cx.now) {
            return;
        }
        let draft = self.draft(cx);
        self.note_loss(cx, matches!(draft, Draft::Lost));
        if matches!(draft, Draft::UsedUp) && !std::mem::replace(&mut self.used_up, true) {
            cx.report(Report::UsedUp { group: self.settings.group });
        }
        if matches!(draft, Draft::Fine | Draft::Lost | Draft::UsedUp) {
            self.trigger = None;
            if matches!(draft, Draft::Lost) && mutation::is(Mutation::ProposerDeclaresLost) {
                self.decree(cx, Decree::Empty, false);
            }
            return;
        }
        let trigger = *self.trigger.get_or_insert(cx.now);
        let audible = self.audible(cx);
        let rank = audible.iter().filter(|&&node| node < cx.settings.me).count() as u64;
        let wait = Nanos(rank * cx.settings.timing.suspect.0);
        if cx.now < trigger.max(self.not_before(cx)) + wait {
            return;
        }
        self.trigger = None;
        match draft {
            Draft::Continue(epoch) => {
                self.propose(cx, epoch);
                self.ask(cx);
            }
            Draft::Write(value) => {
                self.note_left_out(cx, &value.configuration);
                self.swap(cx, *value, false);
            }
            Draft::Fine | Draft::Lost | Draft::UsedUp => {}
        }
    }

    /// Nodes stay out for a while that this change leaves out for missing acknowledgements, or
    /// because they fell silent as shadows. Each return of a shadow begins the copies of all anew.
    fn note_left_out(&mut self, cx: &Cx<'_>, next: &Configuration) {
        let audible = self.audible(cx);
        let mut out = self.guilty(cx, &audible);
        let is_silent_shadow =
            |member: &&GroupMember| member.role == Role::Shadow && !audible.contains(&member.node);
        let members = self.known.value().map_or(&[][..], GroupValue::members);
        out.extend(members.iter().filter(is_silent_shadow).map(|member| member.node));
        for node in out.into_iter().filter(|&node| next.member(node).is_none()) {
            self.distrust(cx, node);
        }
    }

    /// Slow heartbeats alone change a configuration at most once per `suspect`. A change that is
    /// under way elsewhere gets the time that it may need.
    fn not_before(&self, cx: &Cx<'_>) -> Nanos {
        let Some(value) = self.known.value() else { return Nanos::ZERO };
        let timing = &cx.settings.timing;
        if value.is_active() {
            let restarted = value.members().iter().any(|member| {
                self.reports.get(&member.node).is_some_and(|seen| {
                    (seen.incarnation, seen.report.image) != (member.incarnation, member.image)
                })
            });
            let changed = self.changed.filter(|_| !restarted);
            return changed.map_or(Nanos::ZERO, |at| at + timing.suspect);
        }
        let mine = value.proposer == cx.settings.me;
        if mine || cx.peers.is_silent(value.proposer, cx.now) {
            return self.known_since;
        }
        let lease = value.previous.as_ref().map_or(Nanos::ZERO, |previous| previous.lease);
        self.known_since + timing.suspect + timing.stretched(lease)
    }

    fn note_loss(&mut self, cx: &mut Cx<'_>, is_lost: bool) {
        if is_lost == self.lost {
            return;
        }
        self.lost = is_lost;
        let group = self.settings.group;
        let last = self.known.value().and_then(GroupValue::last_active);
        let epoch = last.map_or(Epoch(0), |last| last.epoch);
        cx.report(if is_lost { Report::Lost { group, epoch } } else { Report::Found { group } });
    }

    fn draft(&mut self, cx: &Cx<'_>) -> Draft {
        let usable = self.usable(cx);
        let value = self.known.value();
        if value.is_none() {
            // A register that is absent here may be there by now.
            let promised = |seen: &Seen| seen.report.promised > Epoch(0);
            if self.reports.values().any(promised) {
                self.wants_read = true;
                return Draft::Fine;
            }
        }
        // Members that may still be starting are waited for.
        let last = value.and_then(GroupValue::last_active);
        let starts = |member: &GroupMember| !self.reports.contains_key(&member.node);
        let any_starts = last.is_some_and(|last| last.members.iter().any(starts));
        if any_starts && cx.peers.may_start(cx.now) {
            return Draft::Fine;
        }
        // A distrusted full member is better than none.
        let choice = self.choice(cx, value, &usable);
        let choice = choice.or_else(|| self.choice(cx, value, &self.audible(cx)));
        // A kept image may be lost before its epoch begins, and a full member may come back.
        let is_kept = value.is_some_and(|it| matches!(it.decree, Some(Decree::Image { .. })));
        if choice.is_none() && is_kept {
            let plain = value.map(|value| GroupValue { decree: None, ..value.clone() });
            if let Some(choice) = self.choice(cx, plain.as_ref(), &usable) {
                return self.write(cx, choice, None);
            }
        }
        let Some(choice) = choice else {
            let begins = value.is_none_or(|value| {
                value.last_active().is_none() || value.decree == Some(Decree::Empty)
            });
            return if begins { Draft::Fine } else { Draft::Lost };
        };
        let Some(value) = value else { return self.write(cx, choice, None) };
        let stays = |member: &GroupMember| choice.members.contains(member);
        let mut out = value.members().iter().filter(|one| !stays(one)).peekable();
        let is_due = out.peek().is_none() || out.any(|one| !self.is_elsewhere(cx, one.node));
        if value.is_active() && !is_due {
            return Draft::Fine;
        }
        match (choice.members == value.members(), value.phase) {
            (true, Phase::Active) => Draft::Fine,
            (true, Phase::Wedging) => Draft::Continue(value.epoch()),
            (false, _) => self.write(cx, choice, value.decree),
        }
    }

    pub(crate) fn choice(
        &self,
        cx: &Cx<'_>,
        value: Option<&GroupValue>,
        usable: &BTreeSet<NodeId>,
    ) -> Option<Choice> {
        // A first configuration begins with a majority of its members after a while.
        let patience = Nanos(2 * cx.settings.timing.patience().0);
        choose(&Question {
            group: &self.settings,
            servers: &cx.settings.servers,
            value,
            reports: &self.reports,
            usable,
            are_connected: &|one, other| cx.peers.are_connected(one, other, cx.now),
            is_urgent: cx.now.since(self.known_since) >= patience,
        })
    }

    /// True for a node that others hear, and this one does not. They decide about it, unless others
    /// have to leave: two members that do not hear each other would leave each other out in turns.
    /// If writes stall, one of them is accused.
    fn is_elsewhere(&self, cx: &Cx<'_>, node: NodeId) -> bool {
        let is_accused = || self.accusations.keys().any(|&(_, accused)| accused == node);
        cx.peers.is_silent(node, cx.now)
            && cx.peers.is_heard_by_others(node, cx.now)
            && !is_accused()
            && !mutation::is(Mutation::LeavesOutUnheard)
    }

    fn write(&self, cx: &Cx<'_>, choice: Choice, decree: Option<Decree>) -> Draft {
        self.next(cx, choice, decree).map_or(Draft::UsedUp, |value| Draft::Write(Box::new(value)))
    }

    /// The wedging value after the known one. `None` if epochs are used up.
    pub(crate) fn next(
        &self,
        cx: &Cx<'_>,
        choice: Choice,
        decree: Option<Decree>,
    ) -> Option<GroupValue> {
        let value = self.known.value();
        let epoch = Epoch(value.map_or(0, |value| value.epoch().0) + 1);
        let previous = match value {
            Some(value) if mutation::is(Mutation::PreviousFromWedging) => {
                Some(value.configuration.clone())
            }
            _ => value.and_then(|value| value.last_active().cloned()),
        };
        let (members, lease) = (choice.members, cx.settings.timing.lease);
        let configuration = Configuration { epoch, members, lease, extra: Bytes::new() };
        (epoch <= Epoch::MAX).then_some(GroupValue {
            configuration,
            phase: Phase::Wedging,
            previous,
            decree,
            next_serial: choice.next_serial,
            proposer: cx.settings.me,
        })
    }
}
