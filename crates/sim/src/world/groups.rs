//! The control thread of a node as far as it runs the membership service: control links, registers
//! of groups, durable records, and orders to workers.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use membership::settings::Timing;
use membership::{GroupSettings, GroupValue, LocalRecord, Message, RegisterResult, Settings};
use node::groups::register;
use node::groups::{GroupEffect, Groups, LeaseWords};
use protocols::{GroupReport, Leases};
use types::wire::Wire as _;
use types::{Epoch, ImageId, Role};

use super::*;

/// The worker of a frame on a control link.
pub(super) const CONTROL: usize = usize::MAX;
/// Tags of requests of the service.
const OWN: u64 = 0xff << 56;

/// The leases of a node, by a clock that may be ahead of its turn.
#[derive(Debug)]
pub(super) struct SimLeases {
    words: Arc<LeaseWords>,
    /// The clock when a value has been read.
    clock: AtomicU64,
}

impl SimLeases {
    pub(super) fn set_clock(&self, now: Nanos) {
        self.clock.store(now.0, Ordering::SeqCst);
    }
}

impl Leases for SimLeases {
    fn holds(&self, database: Database, epoch: Epoch) -> bool {
        self.words.holds(database, epoch, || Nanos(self.clock.load(Ordering::SeqCst)))
    }
}

/// An input of the control thread.
pub(super) enum ControlInput {
    Up { node: NodeId, incarnation: Incarnation },
    Down { node: NodeId },
    Message { from: NodeId, bytes: Bytes },
    Register { group: Database, token: u64, result: RegisterResult },
    Report { worker: usize, group: Database, report: GroupReport },
    Suspect { group: Database, node: NodeId },
}

/// The control thread of a process.
pub(super) struct ControlThread {
    groups: Groups,
    pub(super) leases: Arc<SimLeases>,
    inbox: VecDeque<ControlInput>,
    /// Registers' operations under way, by their tags.
    asked: BTreeMap<Tag, (Database, u64)>,
    next_tag: u64,
    /// When it runs next; `u64::MAX`: not at all.
    due: u64,
}

/// Whether a node has all that was committed, as the whole world knows.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// The newest value that is known to be active.
    active: Option<GroupValue>,
    /// Values above it that may be active.
    attempted: Vec<GroupValue>,
    /// Images that faults have damaged or wiped.
    pub(super) taken: BTreeSet<ImageId>,
}

impl Images {
    fn attempt(&mut self, value: GroupValue) {
        let is_above = self.active.as_ref().is_none_or(|active| active.epoch() < value.epoch());
        if value.is_active() && is_above {
            self.attempted.push(value);
        }
    }

    fn learn(&mut self, value: &GroupValue) {
        let is_above = self.active.as_ref().is_none_or(|active| active.epoch() < value.epoch());
        if value.is_active() && is_above {
            self.active = Some(value.clone());
            self.attempted.retain(|attempted| attempted.epoch() > value.epoch());
        }
    }

    /// Faults took the image of every node that may be a full member.
    ///
    /// The injector spares the last whole image. But damage may be found after the others left.
    fn are_taken(&self) -> bool {
        let values = self.active.iter().chain(&self.attempted);
        let mut full = values.flat_map(|value| value.configuration.full()).peekable();
        full.peek().is_some() && full.all(|member| self.taken.contains(&member.image))
    }

    /// The node's image is one of a full member, in every value that may be active.
    fn has_all(&self, node: NodeId, record: Option<&LocalRecord>) -> bool {
        let values = self.active.iter().chain(&self.attempted);
        values.into_iter().all(|value| {
            let member = value.configuration.member(node);
            let image = record.map(|record| record.image);
            member.is_some_and(|it| it.role == Role::Full && Some(it.image) == image)
        })
    }
}

impl World {
    /// The service of a node that starts, if its protocol needs one.
    pub(super) fn control_thread(&mut self, node: usize) -> Option<ControlThread> {
        if !self.config.needs_config() {
            return None;
        }
        let it = &self.nodes[node];
        let group = GroupSettings {
            is_volatile: self.config.medium.durability == Durability::Volatile,
            ..GroupSettings::new(DATABASE, self.config.group_size)
        };
        let settings = Settings {
            me: it.id,
            incarnation: it.incarnation,
            servers: (0..self.config.nodes).map(node_id).collect(),
            groups: vec![group],
            timing: self.config.timing,
            random: self.rng.fork(),
        };
        let groups = Groups::new(settings, it.workers);
        let leases = Arc::new(SimLeases { words: groups.words(), clock: AtomicU64::new(0) });
        Some(ControlThread {
            groups,
            leases,
            inbox: VecDeque::new(),
            asked: BTreeMap::new(),
            next_tag: 0,
            due: u64::MAX,
        })
    }

    /// The first step of a node's service.
    pub(super) fn start_groups(&mut self, node: usize) {
        let records = self.nodes[node].records.clone().into_iter().collect();
        self.with_groups(node, |groups, now, out| groups.start(now, records, out));
        self.plan_control(node);
    }

    pub(super) fn tell_control(&mut self, node: usize, input: ControlInput) {
        if let Some(control) = self.control(node) {
            control.inbox.push_back(input);
            self.plan_control(node);
        }
    }

    fn control(&mut self, node: usize) -> Option<&mut ControlThread> {
        self.nodes[node].process.as_mut()?.control.as_mut()
    }

    /// Plans the next step of a node's control thread.
    pub(super) fn plan_control(&mut self, node: usize) {
        let now = self.now;
        let it = &mut self.nodes[node];
        let Some(process) = &mut it.process else { return };
        let (start, paused_until) = (process.start, process.paused_until);
        let Some(control) = &mut process.control else { return };
        let at = match control.groups.next_timer() {
            _ if !control.inbox.is_empty() => now,
            Some(timer) => it.clock.true_time(timer),
            None => return,
        };
        let at = at.max(paused_until).max(now);
        if at < control.due {
            control.due = at;
            self.schedule(at, PlannedEvent::Control { node, start });
        }
    }

    pub(super) fn on_control(&mut self, node: usize) {
        let now = self.now;
        let Some(process) = &mut self.nodes[node].process else { return };
        let is_paused = process.paused_until > now;
        let Some(control) = &mut process.control else { return };
        if control.due != now {
            return;
        }
        control.due = u64::MAX;
        if !is_paused {
            while let Some(input) = self.control(node).and_then(|it| it.inbox.pop_front()) {
                self.on_control_input(node, input);
            }
            self.with_groups(node, |groups, now, out| {
                if groups.next_timer().is_some_and(|at| at <= now) {
                    groups.on_time(now, out);
                }
            });
        }
        self.plan_control(node);
    }

    fn on_control_input(&mut self, node: usize, input: ControlInput) {
        let is_loss = matches!(input, ControlInput::Report { report: GroupReport::Lost, .. });
        if is_loss && self.nodes[node].medium.has_forgotten_anything() {
            self.take_image(node);
        }
        self.with_groups(node, |groups, now, out| match input {
            ControlInput::Up { node, incarnation } => {
                groups.on_peer_up(now, (node, incarnation), out);
            }
            ControlInput::Down { node } => groups.on_peer_down(now, node, out),
            ControlInput::Message { from, bytes } => {
                let (incarnation, message) = bytes.split_at(4);
                let incarnation = u32::from_le_bytes(incarnation.try_into().expect("four bytes"));
                let message = Message::from_bytes(message).expect("it was encoded here");
                groups.on_message(now, (from, Incarnation(incarnation)), message, out);
            }
            ControlInput::Register { group, token, result } => {
                groups.on_register(now, (group, token), result, out);
            }
            ControlInput::Report { worker, group, report } => {
                groups.on_report(now, worker, (group, report), out);
            }
            ControlInput::Suspect { group, node } => groups.on_suspect(now, group, node, out),
        });
    }

    fn with_groups(
        &mut self,
        node: usize,
        run: impl FnOnce(&mut Groups, Nanos, &mut Vec<GroupEffect>),
    ) {
        let local = self.nodes[node].clock.local(self.now);
        let Some(control) = self.control(node) else { return };
        let mut effects = Vec::new();
        run(&mut control.groups, local, &mut effects);
        if let Some(value) = control.groups.status(DATABASE).and_then(|status| status.value) {
            self.images.learn(&value);
        }
        for effect in effects {
            self.carry_out_group(node, effect);
        }
    }

    fn carry_out_group(&mut self, node: usize, effect: GroupEffect) {
        match effect {
            GroupEffect::Send { to, message } => {
                let mut bytes = self.nodes[node].incarnation.0.to_le_bytes().to_vec();
                message.encode(&mut bytes);
                if !matches!(message, Message::Heartbeat(_) | Message::Grants(_)) {
                    self.note(|| format!("n{} to {to}: {message:?}", node + 1));
                }
                self.send(node, usize::from(to.0) - 1, CONTROL, Bytes::from(bytes));
            }
            GroupEffect::Register { group, token, command } => {
                if let Some(value) = register::proposed(&command) {
                    self.images.attempt(value);
                }
                self.ask_register(node, (group, token), command);
            }
            GroupEffect::Persist { group, record } => {
                self.nodes[node].records.insert(group, record);
            }
            GroupEffect::Workers { database, event } => {
                self.note(|| format!("n{} order {event:?}", node + 1));
                self.input_all(node, &Input::Group { database, event });
            }
            GroupEffect::Report(report) => self.note(|| format!("n{} reports {report}", node + 1)),
        }
    }

    fn ask_register(&mut self, node: usize, (group, token): (Database, u64), command: Command) {
        let key = Key::new(&register::key(group));
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(control) = &mut process.control else { return };
        control.next_tag += 1;
        let tag = Tag(OWN | control.next_tag);
        control.asked.insert(tag, (group, token));
        let worker = usize::from(key.shard().0) % process.workers_state.len();
        process.workers_state[worker].inbox.push(Input::Request {
            tag,
            session: SessionId(OWN),
            database: Database::SYSTEM,
            key,
            command,
        });
        self.plan_turn(node, worker, self.now);
    }

    /// Takes the outcome of a request of the node's service. False if it was another's.
    pub(super) fn on_own_outcome(&mut self, node: usize, tag: Tag, outcome: &Outcome) -> bool {
        let Some(control) = self.control(node) else { return false };
        let Some((group, token)) = control.asked.remove(&tag) else { return false };
        let result = register::result(outcome.clone());
        self.tell_control(node, ControlInput::Register { group, token, result });
        true
    }

    /// The node has all that was committed, and no fault may take it from all such nodes.
    #[must_use]
    pub fn has_all(&self, node: usize) -> bool {
        let it = &self.nodes[node];
        !self.config.needs_config() || self.images.has_all(it.id, it.records.get(&DATABASE))
    }

    /// Enough other members of the group have all that was committed, and `remember` it.
    #[must_use]
    pub fn group_survives(&self, node: usize, remember: impl Fn(usize) -> bool) -> bool {
        let others = (0..self.nodes.len()).filter(|&other| other != node);
        let whole = others.filter(|&other| self.has_all(other) && remember(other)).count();
        !self.config.needs_config() || whole > self.config.group_size / 2
    }

    /// A fault has damaged the node's image, or is about to wipe it.
    pub(super) fn take_image(&mut self, node: usize) {
        let record = self.nodes[node].records.get(&DATABASE);
        self.images.taken.extend(record.map(|record| record.image));
    }

    /// Faults took the last image with all that was committed.
    #[must_use]
    pub fn has_lost_its_group(&self) -> bool {
        self.config.needs_config() && self.images.are_taken()
    }

    /// Some node says that no full member is reachable.
    #[must_use]
    pub fn is_loss_known(&self) -> bool {
        let mut processes = self.nodes.iter().filter_map(|it| it.process.as_ref());
        processes.any(|process| {
            let control = process.control.as_ref();
            let status = control.and_then(|control| control.groups.status(DATABASE));
            status.is_some_and(|status| status.is_lost)
        })
    }

    /// The services of all nodes, for messages.
    #[must_use]
    pub fn groups_text(&self) -> String {
        let mut text = String::new();
        for it in &self.nodes {
            let control = it.process.as_ref().and_then(|process| process.control.as_ref());
            if let Some(control) = control {
                let status = control.groups.status(DATABASE);
                let asked = control.asked.len();
                let _ = write!(text, "\nn{}: {status:?}, {asked} register operations", it.id.0);
            }
        }
        text
    }

    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.config.needs_config()
    }

    /// The group is complete. Each full member has its lease, and each other node knows that it is
    /// no member.
    #[must_use]
    pub fn groups_serve(&self) -> bool {
        if !self.config.needs_config() {
            return true;
        }
        let mut full = 0;
        for it in &self.nodes {
            let control = it.process.as_ref().and_then(|process| process.control.as_ref());
            let Some(control) = control else { return false };
            let status = control.groups.status(DATABASE);
            let is_leased = control.groups.words().get(DATABASE).0 != Epoch(0);
            match status.and_then(|status| status.installed) {
                Some((_, Some(Role::Full))) if is_leased => full += 1,
                Some((_, None)) => {}
                _ => return false,
            }
        }
        full == self.config.group_size
    }
}

/// The times of the service in one run, by the length of its lease.
#[must_use]
pub fn timing(lease: Nanos) -> Timing {
    Timing {
        heartbeat: Nanos(lease.0 / 8),
        lease,
        suspect: Nanos(lease.0 * 3 / 4),
        stall: Nanos(lease.0 * 5 / 4),
        ..Timing::default()
    }
}
