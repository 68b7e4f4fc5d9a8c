//! One group on one node: promise, seal, install, and the fate of the image.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Nanos, Prng};
use bytes::Bytes;
use types::group::EXTRA_MAX;
use types::{Epoch, ImageId, Incarnation, NodeId, Role};

use crate::choice::Seen;
use crate::io::{Effect, Report};
use crate::leases::{Distrust, Grant, Held};
use crate::local::{Content, LocalRecord};
use crate::message::{ImageReport, Message, Process, Wedged};
use crate::mutation::{self, Mutation};
use crate::orders::Order;
use crate::peers::Peers;
use crate::proposer::Proposal;
use crate::register::Operation;
use crate::settings::{GroupSettings, Settings};
use crate::value::{Decree, GroupValue};

/// The surroundings of a step.
pub(crate) struct Cx<'a> {
    pub(crate) now: Nanos,
    /// The clock of the step before.
    pub(crate) before: Nanos,
    pub(crate) settings: &'a Settings,
    pub(crate) random: &'a mut Prng,
    pub(crate) tokens: &'a mut u64,
    pub(crate) peers: &'a Peers,
    pub(crate) out: &'a mut Vec<Effect>,
    /// Messages to this node itself.
    pub(crate) own: &'a mut VecDeque<Message>,
}

impl Cx<'_> {
    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        if to == self.settings.me {
            self.own.push_back(message);
        } else {
            self.out.push(Effect::Send { to, message });
        }
    }

    pub(crate) fn report(&mut self, report: Report) {
        self.out.push(Effect::Report(report));
    }
}

/// The register's value as this node knows it.
#[derive(Debug)]
pub(crate) enum Known {
    Unread,
    Absent,
    /// `raw` as the register holds it: swaps compare these bytes.
    Value {
        raw: Bytes,
        value: Box<GroupValue>,
    },
}

impl Known {
    pub(crate) fn value(&self) -> Option<&GroupValue> {
        match self {
            Known::Value { value, .. } => Some(value),
            Known::Unread | Known::Absent => None,
        }
    }
}

/// The state of a group, for people and tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// The register's newest known value; `None` if it is absent or was not read.
    pub value: Option<GroupValue>,
    /// The installed epoch, and the role of this process in it.
    pub installed: Option<(Epoch, Option<Role>)>,
    pub record: LocalRecord,
    /// False until the register was read after the start.
    pub is_ready: bool,
    /// The workers have sealed all epochs below the promised one.
    pub is_sealed: bool,
    /// No node that could be full is reachable.
    pub is_lost: bool,
    /// The newest reports of images, for an operator's choice after a loss.
    pub reports: Vec<(NodeId, ImageReport)>,
}

pub(crate) struct Group {
    pub(crate) settings: GroupSettings,
    pub(crate) record: LocalRecord,
    pub(crate) started: Nanos,
    pub(crate) ready: bool,
    /// Until then grants from before the start may hold.
    pub(crate) quarantine: Nanos,
    pub(crate) known: Known,
    pub(crate) known_since: Nanos,
    /// When the last active value became known.
    pub(crate) changed: Option<Nanos>,
    /// The workers' summary: they have sealed all epochs below the promise.
    pub(crate) sealed: Option<Bytes>,
    /// `None` while wedged.
    pub(crate) installed: Option<(Epoch, Option<Role>)>,
    pub(crate) copied: Epoch,
    pub(crate) grants: BTreeMap<(NodeId, Incarnation), Grant>,
    pub(crate) held: Vec<Held>,
    pub(crate) acked: BTreeMap<NodeId, Nanos>,
    pub(crate) lease: Nanos,
    /// Processes that have sealed for exactly the promised epoch.
    pub(crate) shown: BTreeMap<NodeId, Process>,
    /// Proposers that wait for this node. True once they have its seal.
    pub(crate) wanting: BTreeMap<NodeId, bool>,
    pub(crate) reports: BTreeMap<NodeId, Seen>,
    /// Members whose acknowledgements this node misses, and until when it says so.
    pub(crate) complaints: BTreeMap<NodeId, Nanos>,
    /// Complaints by accuser and accused.
    pub(crate) accusations: BTreeMap<(NodeId, NodeId), Nanos>,
    pub(crate) distrusted: BTreeMap<NodeId, Distrust>,
    pub(crate) operation: Option<Operation>,
    pub(crate) wants_read: bool,
    pub(crate) read_at: Nanos,
    pub(crate) proposal: Option<Proposal>,
    /// Since when a change has been due.
    pub(crate) trigger: Option<Nanos>,
    pub(crate) lost: bool,
    pub(crate) unreadable: bool,
    pub(crate) used_up: bool,
    pub(crate) ordered: Option<Order>,
}

impl Group {
    pub(crate) fn new(settings: GroupSettings) -> Group {
        let record = LocalRecord {
            promised: Epoch(0),
            image: ImageId(0),
            content: Content::Stale,
            joined: Epoch(0),
        };
        Group {
            settings,
            record,
            started: Nanos::ZERO,
            ready: false,
            quarantine: Nanos::ZERO,
            known: Known::Unread,
            known_since: Nanos::ZERO,
            changed: None,
            sealed: None,
            installed: None,
            copied: Epoch(0),
            grants: BTreeMap::new(),
            held: Vec::new(),
            acked: BTreeMap::new(),
            lease: Nanos::ZERO,
            shown: BTreeMap::new(),
            wanting: BTreeMap::new(),
            reports: BTreeMap::new(),
            complaints: BTreeMap::new(),
            accusations: BTreeMap::new(),
            distrusted: BTreeMap::new(),
            operation: None,
            wants_read: true,
            read_at: Nanos::ZERO,
            proposal: None,
            trigger: None,
            lost: false,
            unreadable: false,
            used_up: false,
            ordered: None,
        }
    }

    pub(crate) fn status(&self) -> GroupStatus {
        GroupStatus {
            value: self.known.value().cloned(),
            installed: self.installed,
            record: self.record,
            is_ready: self.ready,
            is_sealed: self.sealed.is_some(),
            is_lost: self.lost,
            reports: self.reports.iter().map(|(&node, seen)| (node, seen.report)).collect(),
        }
    }

    pub(crate) fn start(&mut self, cx: &mut Cx<'_>, record: Option<LocalRecord>) {
        (self.started, self.known_since) = (cx.now, cx.now);
        match record {
            Some(record) => self.record = record,
            None => self.renew(cx),
        }
        if record.is_some() && self.settings.is_volatile {
            self.renew(cx);
        } else if record.is_some_and(|record| record.content == Content::Stale) {
            self.erase(cx);
        }
        if mutation::is(Mutation::VolatilePromise) {
            self.record.promised = Epoch(0);
        }
        let careless = mutation::is(Mutation::VolatilePromise)
            || mutation::is(Mutation::AnswersBeforeRead) && record.is_none();
        if careless {
            self.ready = true;
            self.quarantine = cx.now + cx.settings.timing.stretched(cx.settings.timing.lease);
        }
    }

    pub(crate) fn image_report(&self) -> ImageReport {
        let LocalRecord { promised, image, content, joined } = self.record;
        ImageReport { promised, image, content, copied: self.copied, joined }
    }

    fn persist(&self, cx: &mut Cx<'_>) {
        cx.out.push(Effect::Persist { group: self.settings.group, record: self.record });
    }

    /// Takes in a value that the register holds or held.
    pub(crate) fn learn(&mut self, cx: &mut Cx<'_>, raw: Bytes, value: GroupValue) {
        if value.epoch() < self.record.promised {
            return;
        }
        if value.epoch() > self.record.promised {
            self.raise(cx, value.epoch());
        }
        if self.known.value().is_none_or(|old| value.order() > old.order()) {
            self.replace(cx, raw, value);
        }
        self.settle(cx);
    }

    fn replace(&mut self, cx: &mut Cx<'_>, raw: Bytes, value: GroupValue) {
        (self.known_since, self.trigger) = (cx.now, None);
        if value.is_active() {
            self.changed = Some(cx.now);
            self.announce(cx, &value);
        }
        if let Some(proposal) = &self.proposal
            && (value.epoch() > proposal.epoch || value.is_active())
        {
            if value.epoch() == proposal.epoch {
                self.tell_all(cx, &raw);
            }
            self.proposal = None;
        }
        self.known = Known::Value { raw, value: Box::new(value) };
    }

    fn announce(&self, cx: &mut Cx<'_>, value: &GroupValue) {
        let nodes = |members: &[types::GroupMember]| -> BTreeSet<NodeId> {
            members.iter().map(|member| member.node).collect()
        };
        let now = nodes(value.members());
        let before = value.previous.as_ref().map(|one| nodes(&one.members)).unwrap_or_default();
        cx.report(Report::Configured {
            group: self.settings.group,
            epoch: value.epoch(),
            joined: now.difference(&before).copied().collect(),
            removed: before.difference(&now).copied().collect(),
        });
    }

    /// Sends an active value to all servers: those that are no members pass requests on.
    pub(crate) fn tell_all(&self, cx: &mut Cx<'_>, raw: &Bytes) {
        for node in cx.settings.servers.clone() {
            if node != cx.settings.me {
                let (group, value) = (self.settings.group, raw.clone());
                cx.send(node, Message::Install { group, value });
            }
        }
    }

    /// The one way to promise an epoch: all below are sealed, and the promise is durable, before
    /// any answer.
    fn raise(&mut self, cx: &mut Cx<'_>, epoch: Epoch) {
        assert!(epoch > self.record.promised, "the promise of a group would fall");
        self.record.promised = epoch;
        self.wanting.clear();
        if !mutation::is(Mutation::SealOfAnyEpoch) {
            self.shown.clear();
        }
        self.seal(cx);
        self.persist(cx);
    }

    /// Raises the promise and leaves the workers as they are.
    pub(crate) fn raise_without_seal(&mut self, cx: &mut Cx<'_>, raw: Bytes, value: GroupValue) {
        self.record.promised = value.epoch();
        self.wanting.clear();
        self.shown.clear();
        self.sealed = Some(Bytes::new());
        self.persist(cx);
        self.replace(cx, raw, value);
    }

    pub(crate) fn seal(&mut self, cx: &mut Cx<'_>) {
        (self.installed, self.lease, self.sealed) = (None, Nanos::ZERO, None);
        if !mutation::is(Mutation::GrantsKept) {
            self.acked.clear();
        }
        let (group, epoch) = (self.settings.group, self.record.promised);
        cx.out.push(Effect::ClearLease { group });
        cx.out.push(Effect::Wedge { group, epoch });
        if mutation::is(Mutation::SealedEarly) {
            self.sealed = Some(Bytes::new());
        }
    }

    pub(crate) fn on_sealed(&mut self, cx: &mut Cx<'_>, epoch: Epoch, summary: Bytes) {
        assert!(summary.len() <= EXTRA_MAX, "a summary of {} bytes", summary.len());
        if epoch == self.record.promised && self.installed.is_none() {
            self.sealed = Some(summary);
            self.settle(cx);
        }
    }

    /// Takes the steps that the newest value and the seal permit.
    pub(crate) fn settle(&mut self, cx: &mut Cx<'_>) {
        if self.ready {
            self.settle_image(cx);
            self.install(cx);
            self.answer(cx);
        }
    }

    /// The role that a configuration gives to this process with this image.
    fn role(&self, cx: &Cx<'_>, value: &GroupValue) -> Option<Role> {
        let member = value.configuration.member(cx.settings.me)?;
        let same =
            member.incarnation == cx.settings.incarnation && member.image == self.record.image;
        (same || mutation::is(Mutation::NoIncarnation)).then_some(member.role)
    }

    fn install(&mut self, cx: &mut Cx<'_>) {
        let Some(value) = self.known.value() else { return };
        let epoch = value.epoch();
        let is_new = self.installed.is_none_or(|(installed, _)| installed < epoch);
        if value.is_active() && epoch == self.record.promised && self.sealed.is_some() && is_new {
            let value = value.clone();
            self.begin(cx, &value);
        }
    }

    fn begin(&mut self, cx: &mut Cx<'_>, value: &GroupValue) {
        let (epoch, before) = (value.epoch(), self.record);
        let role = self.role(cx, value);
        let last = value.previous.as_ref().map_or(Epoch(0), |previous| previous.epoch);
        match role {
            Some(Role::Full) => (self.record.content, self.record.joined) = (Content::Whole, epoch),
            Some(Role::Shadow) => {
                self.record.content = Content::Partial;
                if mutation::is(Mutation::JoinedShadowIsFull) {
                    self.record.joined = epoch;
                }
                // It acknowledged in both epochs, so its copy is still complete.
                if self.copied == last && last > Epoch(0) {
                    self.copied = epoch;
                }
            }
            None => {}
        }
        if self.record != before {
            self.persist(cx);
        }
        if !mutation::is(Mutation::GrantsKept) {
            self.acked.clear();
        }
        self.complaints.clear();
        (self.lease, self.installed) = (Nanos::ZERO, Some((epoch, role)));
        let (group, configuration) = (self.settings.group, value.configuration.clone());
        cx.out.push(Effect::Install { group, configuration, role });
    }

    pub(crate) fn on_copied(&mut self, epoch: Epoch) {
        if self.installed == Some((epoch, Some(Role::Shadow))) {
            self.copied = epoch;
        }
    }

    /// Decides whether the image is still of use. Only an active configuration ends it, or the
    /// operator's order to start empty.
    fn settle_image(&mut self, cx: &mut Cx<'_>) {
        let used = matches!(self.record.content, Content::Partial | Content::Whole);
        let Some(value) = self.known.value().filter(|_| used) else { return };
        if !value.is_active() {
            // A group that never began has no copy to save.
            if value.decree == Some(Decree::Empty) || value.last_active().is_none() {
                self.renew(cx);
            }
            return;
        }
        let keeps = value.configuration.member(cx.settings.me).is_some_and(|member| {
            let same_process = member.incarnation == cx.settings.incarnation;
            member.image == self.record.image && (member.role == Role::Full || same_process)
        });
        // An old copy may be the last one that an operator could save.
        if !keeps && self.hears_full_member(cx, value) && !mutation::is(Mutation::RemovedIsFull) {
            self.renew(cx);
        }
    }

    fn hears_full_member(&self, cx: &Cx<'_>, value: &GroupValue) -> bool {
        value.configuration.full().any(|member| {
            let seen = self.reports.get(&member.node);
            seen.is_some_and(|seen| seen.report.image == member.image)
                && member.node != cx.settings.me
                && !cx.peers.is_silent(member.node, cx.now)
        })
    }

    /// Gives the image up: it is empty under a new id once all workers have erased it.
    pub(crate) fn renew(&mut self, cx: &mut Cx<'_>) {
        if self.installed.is_some_and(|(_, role)| role.is_some()) {
            self.seal(cx);
        }
        if matches!(self.record.content, Content::Partial | Content::Whole) {
            cx.report(Report::Erasing { group: self.settings.group });
        }
        self.draw_image(cx);
        (self.record.content, self.record.joined) = (Content::Stale, Epoch(0));
        self.copied = Epoch(0);
        self.persist(cx);
        self.erase(cx);
    }

    /// The group has never begun: there is no image that could be kept.
    pub(crate) fn settle_absent(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.record.content, Content::Partial | Content::Whole) {
            self.renew(cx);
        }
    }

    /// The rest after a loss is an image of its own, and not whole.
    fn keep_rest(&mut self, cx: &mut Cx<'_>) {
        if self.installed.is_some_and(|(_, role)| role.is_some()) {
            self.seal(cx);
        }
        self.draw_image(cx);
        (self.record.content, self.record.joined) = (Content::Partial, Epoch(0));
        self.copied = Epoch(0);
        self.persist(cx);
        let group = self.settings.group;
        cx.out.push(Effect::Keep { group });
        cx.report(Report::Damaged { group });
    }

    fn draw_image(&mut self, cx: &mut Cx<'_>) {
        if !mutation::is(Mutation::SameImage) || self.record.image == ImageId(0) {
            self.record.image = ImageId(cx.random.next_u64().max(1));
        }
    }

    fn erase(&self, cx: &mut Cx<'_>) {
        let (group, image) = (self.settings.group, self.record.image);
        cx.out.push(Effect::Erase { group, image });
    }

    pub(crate) fn on_erased(&mut self, cx: &mut Cx<'_>, image: ImageId) {
        if image == self.record.image && self.record.content == Content::Stale {
            self.record.content = Content::Blank;
            self.persist(cx);
        }
    }

    pub(crate) fn on_wedge(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        raw: Bytes,
        shown: Vec<Process>,
    ) {
        let Ok(value) = GroupValue::read(&raw) else { return };
        if !self.ready || value.epoch() < self.record.promised || value.is_active() {
            return;
        }
        let is_repeated = value.epoch() == self.record.promised;
        if is_repeated && mutation::is(Mutation::RepeatedWedgeIgnored) {
            return;
        }
        let epoch = value.epoch();
        self.learn(cx, raw, value);
        if epoch == self.record.promised {
            self.shown.extend(shown.into_iter().map(|process| (process.node, process)));
            self.wanting.insert(from, false);
            self.answer(cx);
        }
    }

    /// Answers proposers: the seal at once, the agreement once no grant is in its way.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>) {
        let Some(value) = self.known.value() else { return };
        let Some(summary) = &self.sealed else { return };
        if value.is_active() || value.epoch() != self.record.promised {
            return;
        }
        let may_activate = cx.now >= self.may_activate_at();
        for (node, told) in std::mem::take(&mut self.wanting) {
            if may_activate || !told {
                let wedged = Wedged {
                    group: self.settings.group,
                    epoch: self.record.promised,
                    report: self.image_report(),
                    summary: summary.clone(),
                    may_activate,
                };
                cx.send(node, Message::Wedged(wedged));
            }
            if !may_activate {
                self.wanting.insert(node, true);
            }
        }
    }

    pub(crate) fn on_install(&mut self, cx: &mut Cx<'_>, raw: Bytes) {
        let Ok(value) = GroupValue::read(&raw) else { return };
        if !self.ready || !value.is_active() {
            return;
        }
        let late = value.epoch() < self.record.promised && value.epoch() > self.record.joined;
        if late && mutation::is(Mutation::InstallBelowPromise) {
            self.begin(cx, &value);
            return;
        }
        self.learn(cx, raw, value);
    }

    /// A damaged image counts as none: the node stops to be a member until it was let in anew. Its
    /// rest may be all that an operator has left.
    pub(crate) fn on_lost(&mut self, cx: &mut Cx<'_>) {
        let erases = mutation::is(Mutation::LossErases);
        if matches!(self.record.content, Content::Partial | Content::Whole) && !erases {
            self.keep_rest(cx);
            self.settle(cx);
        } else {
            // A worker may have erased the lost part before it was lost.
            self.renew(cx);
        }
    }
}
