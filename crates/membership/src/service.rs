//! The service of one node: all its groups.

use std::collections::{BTreeMap, VecDeque};

use base::{Nanos, Prng};
use types::{Database, Incarnation, NodeId};

use crate::group::{Cx, Group, GroupStatus};
use crate::io::{Effect, Input};
use crate::leases::Verdict;
use crate::local::LocalRecord;
use crate::message::{Grants, Heartbeat, Message};
use crate::peers::Peers;
use crate::settings::Settings;

/// The membership service of a node.
///
/// The caller gives it [`Input::Start`] first, carries out effects in order, and sends
/// [`Input::Tick`] at [`Membership::deadline`]. The crate's first page says when clocks are read.
pub struct Membership {
    settings: Settings,
    random: Prng,
    tokens: u64,
    peers: Peers,
    groups: BTreeMap<Database, Group>,
    next_beat: Nanos,
    /// The clock of the last step.
    clock: Nanos,
    own: VecDeque<Message>,
}

impl Membership {
    /// # Panics
    /// If `settings` lacks this node among the servers.
    #[must_use]
    pub fn new(settings: Settings) -> Membership {
        assert!(settings.servers.contains(&settings.me), "a node that is no server");
        let peers = Peers::new(&settings);
        let random = settings.random.clone();
        let groups = settings.groups.iter();
        let groups = groups.map(|group| (group.group, Group::new(group.clone()))).collect();
        Membership {
            settings,
            random,
            tokens: 0,
            peers,
            groups,
            next_beat: Nanos::ZERO,
            clock: Nanos::ZERO,
            own: VecDeque::new(),
        }
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[must_use]
    pub fn status(&self, group: Database) -> Option<GroupStatus> {
        self.groups.get(&group).map(Group::status)
    }

    /// When [`Input::Tick`] is due. `None` without groups.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let waits = |group: &&Group| group.sealed.is_some() && !group.wanting.is_empty();
        let agreements = self.groups.values().filter(waits).map(Group::may_activate_at);
        let first = agreements.filter(|&at| at > self.clock).min();
        (!self.groups.is_empty()).then(|| first.unwrap_or(Nanos::MAX).min(self.next_beat))
    }

    /// Heartbeats that show only that this node lives: it is about to flush, which may take long.
    pub fn pulse(&self, now: Nanos, out: &mut Vec<Effect>) {
        let (sent, hears) = (now, self.peers.hears(now));
        for to in self.peers.others().into_iter().filter(|_| !self.groups.is_empty()) {
            let heartbeat = Heartbeat { sent, hears: hears.clone(), groups: Vec::new() };
            out.push(Effect::Send { to, message: Message::Heartbeat(heartbeat) });
        }
    }

    /// One step. `now` must have been read after the input came in.
    pub fn on(&mut self, now: Nanos, input: Input, out: &mut Vec<Effect>) {
        let before = std::mem::replace(&mut self.clock, now);
        let mut step = Step { now, before };
        if let Input::Start { .. } = input {
            self.peers.start(now);
            step.before = now;
        }
        // Peers have not been silent while this process stood still.
        if now.since(step.before) > Nanos(self.settings.timing.suspect.0 / 2) {
            self.peers.excuse(now);
        }
        self.handle(step, input, out);
        while let Some(message) = self.own.pop_front() {
            let (me, incarnation) = (self.settings.me, self.settings.incarnation);
            self.on_message(step, (me, incarnation), message, out);
        }
        self.each(step, out, Group::read_if_due);
    }

    fn handle(&mut self, step: Step, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start { records } => self.start(step, &records, out),
            Input::PeerUp { node, incarnation } => {
                if self.peers.note(node, incarnation) && !self.groups.is_empty() {
                    let heartbeat = self.heartbeat(step, out);
                    out.push(Effect::Send { to: node, message: Message::Heartbeat(heartbeat) });
                }
            }
            // Its heartbeats are missing from now on; no other evidence is needed.
            Input::PeerDown { .. } => {}
            Input::Message { from, incarnation, message } => {
                if self.peers.note(from, incarnation) {
                    self.on_message(step, (from, incarnation), message, out);
                }
            }
            Input::Tick => self.tick(step, out),
            Input::Register { group, token, result } => {
                self.with(step, group, out, |one, cx| one.on_register(cx, token, result));
            }
            Input::Sealed { group, epoch, summary } => {
                self.with(step, group, out, |one, cx| one.on_sealed(cx, epoch, summary));
            }
            Input::Copied { group, epoch } => {
                self.with(step, group, out, |one, _| one.on_copied(epoch));
            }
            Input::Erased { group, image } => {
                self.with(step, group, out, |one, cx| one.on_erased(cx, image));
            }
            Input::Lost { group } => self.with(step, group, out, Group::on_lost),
            Input::Suspect { group, node } => {
                self.with(step, group, out, |one, cx| one.on_suspect(cx, node));
            }
            Input::Operator { group, epoch, decree } => {
                self.with(step, group, out, |one, cx| one.on_order(cx, epoch, decree));
            }
        }
    }

    fn start(&mut self, step: Step, records: &[(Database, LocalRecord)], out: &mut Vec<Effect>) {
        self.each(step, out, |group, cx| {
            let record = records.iter().find(|(one, _)| *one == group.settings.group);
            group.start(cx, record.map(|(_, record)| *record));
        });
        self.tick(step, out);
    }

    fn tick(&mut self, step: Step, out: &mut Vec<Effect>) {
        if self.groups.is_empty() {
            return;
        }
        if step.now >= self.next_beat {
            self.next_beat = step.now + self.settings.timing.heartbeat;
            let heartbeat = self.heartbeat(step, out);
            for to in self.peers.others() {
                let message = Message::Heartbeat(heartbeat.clone());
                out.push(Effect::Send { to, message });
            }
            self.own.push_back(Message::Heartbeat(heartbeat));
        }
        self.each(step, out, |group, cx| {
            group.release_held(cx);
            group.settle(cx);
            group.drive(cx);
            group.drop_old_order(cx);
        });
    }

    fn heartbeat(&mut self, step: Step, out: &mut Vec<Effect>) -> Heartbeat {
        let mut groups = Vec::new();
        self.each(step, out, |group, cx| groups.extend(group.beat(cx)));
        Heartbeat { sent: step.now, hears: self.peers.hears(step.now), groups }
    }

    fn on_message(
        &mut self,
        step: Step,
        from: (NodeId, Incarnation),
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        match message {
            Message::Heartbeat(heartbeat) => self.on_heartbeat(step, from, &heartbeat, out),
            Message::Grants(grants) => self.on_grants(step, from.0, &grants, out),
            Message::Wedge { group, value, shown } => {
                self.with(step, group, out, |one, cx| one.on_wedge(cx, from.0, value, shown));
            }
            Message::Wedged(wedged) => {
                self.with(step, wedged.group, out, |one, cx| one.on_wedged(cx, from, wedged));
            }
            Message::Install { group, value } => {
                self.with(step, group, out, |one, cx| one.on_install(cx, value));
            }
            Message::Unknown => {}
        }
    }

    fn on_heartbeat(
        &mut self,
        step: Step,
        from: (NodeId, Incarnation),
        heartbeat: &Heartbeat,
        out: &mut Vec<Effect>,
    ) {
        self.peers.heard(from.0, step.now, heartbeat.hears.clone());
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        for beat in &heartbeat.groups {
            self.with(step, beat.group, out, |one, cx| {
                match one.on_beat(cx, from, heartbeat.sent, beat) {
                    Verdict::Granted(epoch) => granted.push((beat.group, epoch)),
                    Verdict::Refused(promised) => refused.push((beat.group, promised)),
                    Verdict::Silent => {}
                }
            });
        }
        if granted.is_empty() && refused.is_empty() {
            return;
        }
        let grants = Grants { to: from.1, sent: heartbeat.sent, granted, refused };
        if from.0 == self.settings.me {
            self.on_grants(step, from.0, &grants, out);
        } else {
            out.push(Effect::Send { to: from.0, message: Message::Grants(grants) });
        }
    }

    fn on_grants(&mut self, step: Step, from: NodeId, grants: &Grants, out: &mut Vec<Effect>) {
        if grants.to != self.settings.incarnation {
            return;
        }
        for &(group, epoch) in &grants.granted {
            self.with(step, group, out, |one, cx| one.on_granted(cx, from, epoch, grants.sent));
        }
        for &(group, promised) in &grants.refused {
            self.with(step, group, out, |one, _| one.on_refused(promised));
        }
    }

    fn with(
        &mut self,
        step: Step,
        group: Database,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Group, &mut Cx<'_>),
    ) {
        let Some(one) = self.groups.get_mut(&group) else { return };
        let mut cx = Cx {
            now: step.now,
            before: step.before,
            settings: &self.settings,
            random: &mut self.random,
            tokens: &mut self.tokens,
            peers: &self.peers,
            out,
            own: &mut self.own,
        };
        act(one, &mut cx);
    }

    fn each(
        &mut self,
        step: Step,
        out: &mut Vec<Effect>,
        mut act: impl FnMut(&mut Group, &mut Cx<'_>),
    ) {
        let groups: Vec<Database> = self.groups.keys().copied().collect();
        for group in groups {
            self.with(step, group, out, &mut act);
        }
    }
}

/// The clock readings of a step.
#[derive(Clone, Copy)]
struct Step {
    now: Nanos,
    before: Nanos,
}
