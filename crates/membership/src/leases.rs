//! Heartbeats of a group: grants, the holder's lease, and suspicion.

use std::collections::BTreeSet;

use base::Nanos;
use types::{Epoch, ImageId, Incarnation, NodeId, Role};

use crate::choice::Seen;
use crate::group::{Cx, Group};
use crate::io::Effect;
use crate::message::{Grants, GroupBeat, Message};
use crate::mutation::{self, Mutation};

/// A lease that this node has granted to one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) until: Nanos,
    /// The process's image then.
    pub(crate) image: ImageId,
}

/// Distrust of a node that looks alive but holds changes or writes up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distrust {
    pub(crate) until: Nanos,
    span: Nanos,
}

/// A grant that is sent late, which is a mistake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    holder: (NodeId, Incarnation),
    epoch: Epoch,
    sent: Nanos,
    grant: Grant,
}

/// The answer to one group's part of a heartbeat.
pub(crate) enum Verdict {
    Granted(Epoch),
    /// With the epoch promised here.
    Refused(Epoch),
    Silent,
}

/// Distrust that follows soon after another lasts twice as long, up to 32 times.
const FORGIVEN_AFTER: Nanos = Nanos::from_secs(60);
const LONGEST: u64 = 32;

impl Group {
    /// This node's part of its heartbeat.
    pub(crate) fn beat(&mut self, cx: &Cx<'_>) -> Option<GroupBeat> {
        if !self.ready {
            return None;
        }
        self.complaints.retain(|_, until| *until > cx.now);
        let lease = match self.installed {
            Some((epoch, Some(Role::Full))) => epoch,
            None if mutation::is(Mutation::BeatsWhileWedging) => self.record.promised,
            _ => Epoch(0),
        };
        Some(GroupBeat {
            group: self.settings.group,
            lease,
            report: self.image_report(),
            stalled: self.complaints.keys().copied().collect(),
        })
    }

    pub(crate) fn on_beat(
        &mut self,
        cx: &mut Cx<'_>,
        from: (NodeId, Incarnation),
        sent: Nanos,
        beat: &GroupBeat,
    ) -> Verdict {
        if !self.ready {
            return Verdict::Silent;
        }
        let (node, incarnation) = from;
        self.reports.insert(node, Seen { incarnation, report: beat.report });
        // Evidence of an earlier configuration does not count for this one.
        if beat.lease > Epoch(0) && beat.lease == self.record.promised {
            self.accuse(cx, node, &beat.stalled);
        }
        if beat.report.promised > self.record.promised {
            self.wants_read = true;
        }
        if beat.lease == Epoch(0) { Verdict::Silent } else { self.grant(cx, from, sent, beat) }
    }

    /// Compares with the promise and counts from `cx.now`, which is later than the sending.
    fn grant(
        &mut self,
        cx: &mut Cx<'_>,
        from: (NodeId, Incarnation),
        sent: Nanos,
        beat: &GroupBeat,
    ) -> Verdict {
        let promised = self.record.promised;
        if beat.lease < promised {
            return Verdict::Refused(promised);
        }
        if mutation::is(Mutation::VolatilePromise) && self.known.value().is_none() {
            let until = cx.now + cx.settings.timing.stretched(cx.settings.timing.lease);
            self.note_grant(cx.now, from, Grant { until, image: beat.report.image });
            return Verdict::Granted(beat.lease);
        }
        let known = self.known.value().filter(|value| value.epoch() == promised);
        let Some(value) = known.filter(|_| beat.lease == promised) else {
            self.wants_read = true;
            return Verdict::Silent;
        };
        if self.sealed.is_none() {
            return Verdict::Silent;
        }
        let is_listed = value.configuration.member(from.0).is_some_and(|member| {
            (member.incarnation, member.image) == (from.1, beat.report.image)
                || mutation::is(Mutation::NoIncarnation)
        });
        if !is_listed {
            return Verdict::Refused(promised);
        }
        let clock = if mutation::is(Mutation::StaleGranterClock) { cx.before } else { cx.now };
        let lease = value.configuration.lease;
        let until = if mutation::is(Mutation::NoDrift) {
            clock + lease
        } else {
            clock + cx.settings.timing.stretched(lease)
        };
        let grant = Grant { until, image: beat.report.image };
        if mutation::is(Mutation::GrantHeld) && cx.random.chance_ppm(300_000) {
            self.held.push(Held { holder: from, epoch: promised, sent, grant });
            return Verdict::Silent;
        }
        self.note_grant(cx.now, from, grant);
        Verdict::Granted(promised)
    }

    fn note_grant(&mut self, now: Nanos, holder: (NodeId, Incarnation), grant: Grant) {
        self.grants.retain(|_, grant| grant.until > now);
        let noted = self.grants.entry(holder).or_insert(grant);
        *noted = Grant { until: noted.until.max(grant.until), image: grant.image };
    }

    /// Sends the grants that a mutation held back.
    pub(crate) fn release_held(&mut self, cx: &mut Cx<'_>) {
        for Held { holder, epoch, sent, grant } in std::mem::take(&mut self.held) {
            self.note_grant(cx.now, holder, grant);
            let granted = vec![(self.settings.group, epoch)];
            let grants = Grants { to: holder.1, sent, granted, refused: Vec::new() };
            cx.send(holder.0, Message::Grants(grants));
        }
    }

    /// When this node may agree to the promised epoch, as far as it knows now.
    pub(crate) fn may_activate_at(&self) -> Nanos {
        if mutation::is(Mutation::NoGrantWait) {
            return Nanos::ZERO;
        }
        let open = self.grants.iter().filter(|(holder, grant)| !self.is_over(**holder, grant));
        open.map(|(_, grant)| grant.until).fold(self.quarantine, Nanos::max)
    }

    /// True if the process has sealed for the promised epoch or is gone. A later process proves
    /// that only with the same image, since data directories have one user at a time.
    fn is_over(&self, (node, incarnation): (NodeId, Incarnation), grant: &Grant) -> bool {
        let sealed = self.shown.get(&node).is_some_and(|shown| {
            shown.incarnation == incarnation
                || shown.incarnation > incarnation && shown.image == grant.image
        });
        let replaced = self.reports.get(&node).is_some_and(|seen| {
            let same = seen.report.image == grant.image || mutation::is(Mutation::SeenAnyImage);
            seen.incarnation > incarnation && same
        });
        sealed || replaced
    }

    pub(crate) fn on_granted(&mut self, cx: &mut Cx<'_>, from: NodeId, epoch: Epoch, sent: Nanos) {
        if self.installed != Some((epoch, Some(Role::Full))) {
            return;
        }
        let Some(value) = self.known.value().filter(|value| value.epoch() == epoch) else { return };
        let sent = if mutation::is(Mutation::LeaseFromReceipt) { cx.now } else { sent };
        let latest = self.acked.entry(from).or_insert(sent);
        *latest = sent.max(*latest);
        let mut times: Vec<Nanos> = self.acked.values().copied().collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        let quorum = if mutation::is(Mutation::QuorumOfMembers) {
            value.members().len() / 2 + 1
        } else {
            cx.settings.majority()
        };
        let Some(&since) = times.get(quorum - 1) else { return };
        let until = since + value.configuration.lease;
        if until > self.lease {
            self.lease = until;
            let group = self.settings.group;
            cx.out.push(Effect::SetLease { group, epoch, until });
        }
    }

    pub(crate) fn on_refused(&mut self, promised: Epoch) {
        if promised > self.record.promised {
            self.wants_read = true;
        }
    }

    pub(crate) fn on_suspect(&mut self, cx: &Cx<'_>, node: NodeId) {
        let serves = matches!(self.installed, Some((_, Some(Role::Full))));
        let value = self.known.value().filter(|_| serves);
        if value.is_some_and(|value| value.configuration.member(node).is_some()) {
            self.complaints.insert(node, cx.now + cx.settings.timing.suspect);
            self.accuse(cx, cx.settings.me, &[node]);
        }
    }

    fn accuse(&mut self, cx: &Cx<'_>, accuser: NodeId, accused: &[NodeId]) {
        if mutation::is(Mutation::NoStallEvidence) {
            return;
        }
        let until = cx.now + cx.settings.timing.distrust();
        for &node in accused {
            if node != accuser && cx.settings.servers.contains(&node) {
                self.accusations.insert((accuser, node), until);
            }
        }
    }

    /// Notes that a node held a change up, or was found guilty of stalled writes.
    pub(crate) fn distrust(&mut self, cx: &Cx<'_>, node: NodeId) {
        let base = cx.settings.timing.distrust();
        let new = Distrust { until: cx.now + base, span: base };
        let entry = self.distrusted.entry(node).or_insert(new);
        if entry.until >= cx.now {
            entry.until = entry.until.max(cx.now + base);
        } else if cx.now.since(entry.until) < FORGIVEN_AFTER {
            entry.span = Nanos((2 * entry.span.0).min(LONGEST * base.0));
            entry.until = cx.now + entry.span;
        } else {
            *entry = new;
        }
    }

    /// Servers that were heard lately.
    pub(crate) fn audible(&self, cx: &Cx<'_>) -> BTreeSet<NodeId> {
        let servers = cx.settings.servers.iter().copied();
        servers.filter(|&node| !cx.peers.is_silent(node, cx.now)).collect()
    }

    /// Servers without a suspicion.
    pub(crate) fn usable(&mut self, cx: &Cx<'_>) -> BTreeSet<NodeId> {
        let now = cx.now;
        self.accusations.retain(|_, until| *until > now);
        let trusted = |node: &NodeId| self.distrusted.get(node).is_none_or(|one| one.until <= now);
        let usable: BTreeSet<NodeId> = self.audible(cx).into_iter().filter(trusted).collect();
        let guilty = self.guilty(cx, &usable);
        &usable - &guilty
    }

    /// Accused nodes. An accusation by a guilty node does not count. Of two nodes that accuse each
    /// other, the guilty one is accused by more nodes, or hears fewer.
    pub(crate) fn guilty(&self, cx: &Cx<'_>, usable: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let mut open: BTreeSet<(NodeId, NodeId)> = self
            .accusations
            .keys()
            .copied()
            .filter(|(accuser, accused)| usable.contains(accuser) && usable.contains(accused))
            .collect();
        let mut guilty = BTreeSet::new();
        // A node that is left out already comes before the one that accuses it.
        let place = |node: NodeId| {
            let place = self.known.value().and_then(|value| value.configuration.place(node));
            place.unwrap_or(usize::MAX)
        };
        while !open.is_empty() {
            let weight = |node: NodeId| {
                let accusers = open.iter().filter(|(_, accused)| *accused == node).count();
                (accusers, usize::MAX - cx.peers.hearing(node, cx.now), place(node))
            };
            let accused = open.iter().map(|&(_, accused)| accused);
            let Some(worst) = accused.max_by_key(|&node| weight(node)) else { break };
            guilty.insert(worst);
            open.retain(|&(accuser, accused)| accuser != worst && accused != worst);
        }
        guilty
    }
}
