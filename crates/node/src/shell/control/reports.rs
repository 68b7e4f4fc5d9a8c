//! Reports: each node tells the others about itself once a second, so that any of them can show the
//! whole cluster.
//!
//! They travel on the control links and are read from published facts, so no worker is disturbed. A
//! node sends its report early when it is awake anyway for that of another; idle nodes so come to
//! wake at the same moment.

use std::collections::BTreeMap;

use base::Nanos;
use membership::Message;
use types::NodeId;
use types::wire::{Malformed, Wire};

use super::Control;
use super::command_window::CommandWindow;
use crate::formation::Status;
use crate::shell::cluster_view::{self, HeardPeer};
use crate::status::Facts as _;
use crate::summary::{Echo, NodeState, SummaryReport};

pub(super) const REPORT_EVERY: Nanos = Nanos::from_secs(1);
/// How much earlier a report may be sent.
const SLACK: Nanos = Nanos::from_millis(200);

/// The first byte of messages that are no [`Status`]; a status begins with a smaller one.
const LATER_KINDS: u8 = 0x80;
const REPORT: u8 = 0x80;
pub(super) const GROUP: u8 = 0x81;

/// A message on the control link of two nodes.
pub(super) enum ControlMessage {
    Status(Box<Status>),
    Report(Box<SummaryReport>),
    /// Between membership services.
    Group(Box<Message>),
    /// Of a later version.
    Unknown,
}

impl ControlMessage {
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<ControlMessage, Malformed> {
        match bytes.split_first() {
            Some((&REPORT, rest)) => {
                Ok(ControlMessage::Report(Box::new(SummaryReport::from_bytes(rest)?)))
            }
            Some((&GROUP, rest)) => Ok(ControlMessage::Group(Box::new(Message::from_bytes(rest)?))),
            Some((&kind, _)) if kind >= LATER_KINDS => Ok(ControlMessage::Unknown),
            _ => Ok(ControlMessage::Status(Box::new(Status::from_bytes(bytes)?))),
        }
    }
}

/// The times of the peers' reports, and the round trips that they show.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// `None` while a peer has not heard any.
    sent_at: Option<Nanos>,
    /// This node's state as it was sent last.
    sent_state: NodeState,
    /// Of each peer: when its last report was sent, by its clock, and when it was heard, by ours.
    heard: BTreeMap<NodeId, (Nanos, Nanos)>,
    round_trips: BTreeMap<NodeId, Nanos>,
    commands: CommandWindow,
}

impl Reports {
    /// A new state is sent at once: the peers show it.
    fn is_due(&self, now: Nanos, state: NodeState) -> bool {
        self.sent_at.is_none_or(|at| now + SLACK >= at + REPORT_EVERY) || state != self.sent_state
    }

    /// A control link to a peer stands: it waits for a report.
    pub(super) fn on_link(&mut self) {
        self.sent_at = None;
    }

    /// Notes a report and returns the round trip that its echo shows.
    fn note(&mut self, peer: NodeId, report: &SummaryReport, now: Nanos) -> Option<Nanos> {
        self.heard.insert(peer, (report.sent, now));
        let round_trip = report.echo?.round_trip(now)?;
        self.round_trips.insert(peer, round_trip);
        Some(round_trip)
    }

    fn echo(&self, peer: NodeId, now: Nanos) -> Option<Echo> {
        let (sent, heard_at) = *self.heard.get(&peer)?;
        Some(Echo { sent, held: now.since(heard_at) })
    }

    /// The clock of a peer that comes back may be another.
    fn forget(&mut self, peer: NodeId) {
        self.heard.remove(&peer);
        self.round_trips.remove(&peer);
    }
}

impl Control {
    /// Sends a report to every peer once it is due.
    pub(super) fn send_reports(&mut self, now: Nanos) -> Result<(), String> {
        let status = self.node_status.status();
        let state = cluster_view::state(&status);
        if !self.reports.is_due(now, state) {
            return Ok(());
        }
        (self.reports.sent_at, self.reports.sent_state) = (Some(now), state);
        let commands = self.commands.as_ref().map(|facts| facts.commands()).unwrap_or_default();
        let figures = self.reports.commands.add(&commands, now);
        let mut summary = self.node_status.summary(&status);
        summary.commands_per_second = figures.per_second;
        (summary.latency_p50, summary.latency_p99) = (figures.p50, figures.p99);
        summary.round_trips = self.reports.round_trips.clone();
        self.node_status.cluster_view().set_own(summary.clone());
        for (peer, at) in self.links.clone() {
            // The clock is read anew: writing to the others has taken time.
            let sent = self.node_status.clocks.now();
            let echo = self.reports.echo(peer, sent);
            let report = SummaryReport { sent, echo, summary: summary.clone() };
            let mut bytes = vec![REPORT];
            report.encode(&mut bytes);
            self.send(at, &bytes)?;
        }
        Ok(())
    }

    pub(super) fn on_report(&mut self, peer: NodeId, report: SummaryReport) {
        let now = self.node_status.clocks.now();
        self.reports.note(peer, &report, now);
        let round_trip = self.reports.round_trips.get(&peer).copied();
        let SummaryReport { summary, .. } = report;
        let seen = HeardPeer { summary, heard_at: now, round_trip, is_linked: true };
        self.node_status.cluster_view().set_seen(peer, seen);
    }

    pub(super) fn on_control_link_down(&mut self, peer: NodeId) {
        self.reports.forget(peer);
        self.node_status.cluster_view().set_unlinked(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    const PEER: NodeId = NodeId(2);

    #[test]
    fn reports_are_due_once_a_second_or_a_little_earlier() {
        let mut reports = Reports::default();
        let forming = NodeState::Forming;
        assert!(reports.is_due(Nanos::ZERO, forming));
        reports.sent_at = Some(Nanos::from_secs(1));
        assert!(!reports.is_due(Nanos::from_millis(1_799), forming));
        assert!(reports.is_due(Nanos::from_millis(1_800), forming));
    }

    #[test]
    fn new_link_or_state_makes_report_due() {
        let now = Nanos::from_secs(1);
        let mut reports = Reports { sent_at: Some(now), ..Reports::default() };
        assert!(!reports.is_due(now, NodeState::Forming));
        assert!(reports.is_due(now, NodeState::Ready));
        reports.on_link();
        assert!(reports.is_due(now, NodeState::Forming));
    }

    #[test]
    fn two_nodes_learn_their_round_trip_whatever_their_clocks_show() {
        let (mut mine, mut theirs) = (Reports::default(), Reports::default());
        let report = |sent, echo| SummaryReport { sent, echo, summary: Summary::default() };
        // Their clock is 1,000 ahead; each way takes 10.
        let there = report(Nanos(100), mine.echo(PEER, Nanos(100)));
        assert_eq!(theirs.note(PEER, &there, Nanos(1_110)), None);
        let back = report(Nanos(1_150), theirs.echo(PEER, Nanos(1_150)));
        assert_eq!(mine.note(PEER, &back, Nanos(160)), Some(Nanos(20)));
        mine.forget(PEER);
        assert_eq!(mine.echo(PEER, Nanos(200)), None);
    }

    #[test]
    fn messages_of_later_versions_are_told_from_malformed_ones() {
        let of = |bytes: &[u8]| ControlMessage::from_bytes(bytes);
        assert!(matches!(of(&[0xff, 1, 2]), Ok(ControlMessage::Unknown)));
        assert!(of(&[]).is_err());
        assert!(of(&[9]).is_err());
        assert!(of(&[REPORT, 1]).is_err());
        assert!(of(&[GROUP]).is_err());
    }
}
