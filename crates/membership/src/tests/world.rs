//! Nodes with one group, in virtual time. Each node runs the real service; its two workers hold a
//! write-all register each, with local reads under the lease.

use std::collections::{BTreeSet, VecDeque};

use base::{Nanos, Prng};
use bytes::Bytes;
use types::wire::Wire as _;
use types::{Configuration, Database, Epoch, ImageId, Incarnation, NodeId, Role};

use super::data::{Cell, Data, Operation, Read, Worker};
use crate::invariants::{Violation, Watch};
use crate::mutation::{self, Mutation};
use crate::{
    Effect, GroupSettings, GroupValue, Input, LeaseWord, LocalRecord, Membership, Message,
    RegisterResult, Settings, Timing,
};

pub(super) const GROUP: Database = Database(1);
pub(super) const MS: u64 = 1_000_000;
pub(super) const TIMING: Timing = Timing {
    heartbeat: Nanos::from_millis(20),
    lease: Nanos::from_millis(100),
    suspect: Nanos::from_millis(75),
    stall: Nanos::from_millis(100),
    // Clock rates are wrong by up to 5 %.
    drift_ppm: 105_264,
};
/// In thousandths.
const RATE_ERROR: u64 = 50;

pub(super) type Check<T = ()> = Result<T, Violation>;

pub(super) fn fail<T>(text: String) -> Check<T> {
    Err(Violation(text))
}

pub(super) enum Body {
    Control(Vec<u8>),
    Data(Data),
}

pub(super) struct Packet {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) incarnation: Incarnation,
    pub(super) body: Body,
}

/// An operation on the register, which outlives the process that asked.
pub(super) struct RegisterOperation {
    pub(super) node: usize,
    incarnation: Incarnation,
    token: u64,
    swap: Option<(Option<Bytes>, Bytes)>,
    result: Option<RegisterResult>,
    told: bool,
}

pub(super) enum Order {
    Wedge(Epoch),
    Install(Box<Configuration>, Option<Role>),
    Erase(ImageId),
    Keep,
}

pub(super) struct Disk {
    pub(super) record: Option<LocalRecord>,
    pub(super) cells: [Cell; 2],
    /// The content is not that of the recorded image any more.
    pub(super) is_lost: bool,
}

pub(super) struct Node {
    pub(super) service: Option<Membership>,
    pub(super) incarnation: Incarnation,
    pub(super) disk: Disk,
    pub(super) workers: [Worker; 2],
    pub(super) word: LeaseWord,
    /// Effects of the last step that are still to be carried out.
    pub(super) effects: VecDeque<Effect>,
    /// Inputs from the workers.
    pub(super) inputs: VecDeque<Input>,
    pub(super) paused_until: u64,
    /// The clock at the end of the last step.
    pub(super) last_clock: Nanos,
    offset: u64,
    /// In thousandths.
    rate: u64,
    lease: Nanos,
}

#[derive(Default, Debug)]
pub(super) struct Counts {
    pub(super) changes: u64,
    pub(super) reads: u64,
    pub(super) refused_reads: u64,
    pub(super) writes: u64,
    pub(super) healed: u64,
    pub(super) lost: u64,
    pub(super) stories: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.changes += other.changes;
        self.reads += other.reads;
        self.refused_reads += other.refused_reads;
        self.writes += other.writes;
        self.healed += other.healed;
        self.lost += other.lost;
        self.stories += other.stories;
    }
}

pub(super) struct World {
    pub(super) random: Prng,
    pub(super) now: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) net: Vec<Packet>,
    pub(super) operations: Vec<RegisterOperation>,
    pub(super) register: Option<Bytes>,
    pub(super) watch: Watch,
    pub(super) reads: Vec<Read>,
    /// Writes by key, and the highest version that a finished operation has shown.
    pub(super) history: [Vec<Operation>; 2],
    pub(super) shown: [(u64, u32); 2],
    /// The highest version that all members have acknowledged.
    pub(super) committed: [(u64, u32); 2],
    pub(super) values: u64,
    pub(super) cuts: BTreeSet<(usize, usize)>,
    /// Nodes whose messages travel rarely.
    pub(super) apart: BTreeSet<usize>,
    /// A node that others hear, and that hears none.
    pub(super) deaf: Option<usize>,
    /// In parts per million.
    loss: u32,
    /// Steps may stop between two effects, and orders wait in queues.
    pub(super) is_rough: bool,
    pub(super) replicas: usize,
    pub(super) is_volatile: bool,
    /// Active configurations that the register has held.
    active: Vec<Configuration>,
    /// Seals that nodes have reported: epoch, node, incarnation and image.
    seals: BTreeSet<(Epoch, NodeId, Incarnation, ImageId)>,
    pub(super) counts: Counts,
    pub(super) log: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut random = Prng::new(seed);
        let count = *random.pick(&[1_usize, 2, 3, 3, 3, 3, 4, 4, 5, 5]);
        let replicas = (*random.pick(&[1_usize, 2, 2, 3, 3, 5])).min(count);
        let error =
            if mutation::is(Mutation::RatesBeyondBound) { 3 * RATE_ERROR } else { RATE_ERROR };
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(Node {
                service: None,
                incarnation: Incarnation(0),
                disk: Disk { record: None, cells: Default::default(), is_lost: false },
                workers: [Worker::new(0), Worker::new(1)],
                word: LeaseWord::new(),
                effects: VecDeque::new(),
                inputs: VecDeque::new(),
                paused_until: 0,
                last_clock: Nanos::ZERO,
                offset: random.below(50 * MS),
                rate: *random.pick(&[1000 - error, 1000, 1000 + error]),
                lease: TIMING.lease,
            });
        }
        let is_volatile = random.chance(0.12);
        let loss = *random.pick(&[0, 30_000, 150_000]);
        let log = std::env::var("MEMBERSHIP_LOG").is_ok().then(Vec::new);
        let mut world = World {
            random,
            now: 1000 * MS,
            nodes,
            net: Vec::new(),
            operations: Vec::new(),
            register: None,
            watch: Watch::default(),
            reads: Vec::new(),
            history: Default::default(),
            shown: [(0, 0); 2],
            committed: [(0, 0); 2],
            values: 0,
            cuts: BTreeSet::new(),
            apart: BTreeSet::new(),
            deaf: None,
            loss,
            is_rough: false,
            replicas,
            is_volatile,
            active: Vec::new(),
            seals: BTreeSet::new(),
            counts: Counts::default(),
            log,
        };
        (0..count).for_each(|node| world.start(node));
        world
    }

    pub(super) fn all(&self) -> BTreeSet<usize> {
        (0..self.nodes.len()).collect()
    }

    pub(super) fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    pub(super) fn say(&mut self, text: impl FnOnce(&World) -> String) {
        if self.log.is_some() {
            let line = format!("{:.1} {}", self.now as f64 / MS as f64, text(self));
            if std::env::var("MEMBERSHIP_LOG").is_ok_and(|how| how == "now") {
                println!("{line}");
            }
            self.log.iter_mut().for_each(|log| log.push(line.clone()));
        }
    }

    pub(super) fn clock(&self, node: usize) -> Nanos {
        let node = &self.nodes[node];
        Nanos(node.offset + self.now / 1000 * node.rate)
    }

    /// The time at which the node's clock shows `at`.
    pub(super) fn when(&self, node: usize, at: Nanos) -> u64 {
        let node = &self.nodes[node];
        at.0.saturating_sub(node.offset).div_ceil(node.rate) * 1000
    }

    pub(super) fn is_up(&self, node: usize) -> bool {
        self.nodes[node].service.is_some()
    }

    pub(super) fn runs(&self, node: usize) -> bool {
        self.is_up(node) && self.nodes[node].paused_until <= self.now
    }

    pub(super) fn value(&self) -> Option<GroupValue> {
        self.register.as_ref().and_then(|raw| GroupValue::read(raw).ok())
    }

    // Processes.

    pub(super) fn start(&mut self, i: usize) {
        let clock = self.clock(i);
        let servers = (1..=self.nodes.len() as u16).map(NodeId).collect();
        let (random, is_volatile) = (self.random.fork(), self.is_volatile);
        let node = &mut self.nodes[i];
        node.incarnation = Incarnation(node.incarnation.0 + 1);
        let settings = Settings {
            me: NodeId(i as u16 + 1),
            incarnation: node.incarnation,
            servers,
            groups: vec![GroupSettings { is_volatile, ..GroupSettings::new(GROUP, self.replicas) }],
            timing: Timing { lease: node.lease, ..TIMING },
            random,
        };
        node.service = Some(Membership::new(settings));
        node.last_clock = clock;
        let records = node.disk.record.map(|record| (GROUP, record)).into_iter().collect();
        self.say(|world| format!("start {i} as {:?}", world.nodes[i].incarnation));
        // A fresh process has no checks to fail yet.
        drop(self.input(i, Input::Start { records }));
    }

    pub(super) fn crash(&mut self, i: usize, wipes: bool) {
        self.say(|_| format!("{} {i}", if wipes { "wipe" } else { "crash" }));
        let node = &mut self.nodes[i];
        (node.service, node.paused_until) = (None, 0);
        node.effects.clear();
        node.inputs.clear();
        node.word.clear();
        for worker in &mut node.workers {
            worker.crash(&mut node.disk.cells, &mut self.random);
        }
        if wipes {
            // The mistake: a wiped node knows its image's id.
            let same = node.disk.record.filter(|_| mutation::is(Mutation::SameImage));
            let record = same.map(|record| LocalRecord { promised: Epoch(0), ..record });
            node.disk = Disk { record, cells: Default::default(), is_lost: false };
            self.watch.on_wiped(NodeId(i as u16 + 1));
        } else if self.is_volatile {
            (node.disk.cells, node.disk.is_lost) = (Default::default(), true);
        }
    }

    /// A running node finds one of its stores damaged.
    pub(super) fn lose(&mut self, i: usize) -> Check {
        self.say(|_| format!("lose {i}"));
        let key = self.random.below(2) as usize;
        let node = &mut self.nodes[i];
        (node.disk.cells[key], node.disk.is_lost) = (Cell::default(), true);
        (node.workers[key].is_broken, node.workers[key].pending) = (true, None);
        self.input(i, Input::Lost { group: GROUP })
    }

    /// A new lease length for the node's next start.
    pub(super) fn set_lease(&mut self, i: usize, lease: Nanos) {
        self.nodes[i].lease = lease;
    }

    pub(super) fn set_clock(&mut self, i: usize, offset: u64) {
        self.nodes[i].offset = offset;
    }

    pub(super) fn pause(&mut self, i: usize, span: u64) {
        self.nodes[i].paused_until = self.now + span;
        if mutation::is(Mutation::ClockStops) {
            let stopped = span / 1000 * self.nodes[i].rate;
            self.nodes[i].offset = self.nodes[i].offset.saturating_sub(stopped);
        }
    }

    // Steps of a node.

    pub(super) fn input(&mut self, i: usize, input: Input) -> Check {
        self.flush(i, usize::MAX)?;
        let now = self.clock(i);
        let node = &mut self.nodes[i];
        let Some(service) = &mut node.service else { return Ok(()) };
        let mut out = Vec::new();
        service.on(now, input, &mut out);
        node.effects.extend(out);
        let count = node.effects.len();
        if self.is_rough && count > 0 && self.random.chance(0.02) {
            let some = self.random.below(count as u64) as usize;
            self.flush(i, some)?;
            if self.random.chance(0.5) {
                let span = *self.random.pick(&[20, 60, 150]) * MS;
                self.pause(i, span);
            }
        } else {
            self.flush(i, usize::MAX)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, i: usize, limit: usize) -> Check {
        for _ in 0..limit {
            let Some(effect) = self.nodes[i].effects.pop_front() else { break };
            self.carry_out(i, effect)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, i: usize, effect: Effect) -> Check {
        let name = NodeId(i as u16 + 1);
        let node = &mut self.nodes[i];
        let mut order = |order: fn(Effect) -> Order, effect: Effect| {
            for worker in &mut node.workers {
                worker.orders.push_back(order(effect.clone()));
            }
        };
        match effect {
            Effect::Send { to, message } => {
                self.check_message(i, &message)?;
                let body = Body::Control(message.to_bytes());
                self.send(i, usize::from(to.0) - 1, body);
            }
            Effect::ReadRegister { token, .. } => self.operate(i, token, None),
            Effect::SwapRegister { token, expected, new, .. } => {
                self.operate(i, token, Some((expected, new)));
            }
            Effect::Persist { record, .. } => {
                let is_new = node.disk.record.is_none_or(|old| old.image != record.image);
                node.disk.is_lost &= !is_new;
                node.disk.record = Some(record);
                if !mutation::is(Mutation::VolatilePromise) {
                    self.watch.on_promised(GROUP, name, record.promised)?;
                }
            }
            Effect::Wedge { .. }
            | Effect::Install { .. }
            | Effect::Erase { .. }
            | Effect::Keep { .. } => {
                if let Effect::Install { configuration, .. } = &effect
                    && !self.active.contains(configuration)
                {
                    return fail(format!("{name} installs {configuration:?}, which is not active"));
                }
                order(
                    |effect| match effect {
                        Effect::Wedge { epoch, .. } => Order::Wedge(epoch),
                        Effect::Install { configuration, role, .. } => {
                            Order::Install(Box::new(configuration), role)
                        }
                        Effect::Erase { image, .. } => Order::Erase(image),
                        Effect::Keep { .. } => Order::Keep,
                        _ => Order::Wedge(Epoch(0)),
                    },
                    effect,
                );
                self.work_now(i)?;
            }
            Effect::SetLease { epoch, until, .. } => {
                node.word.set(epoch, until);
                self.check_leases()?;
            }
            Effect::ClearLease { .. } => node.word.clear(),
            Effect::Report(report) => self.say(|_| format!("{i}: {report}")),
        }
        Ok(())
    }

    fn work_now(&mut self, i: usize) -> Check {
        for worker in 0..2 {
            while !self.is_rough || self.random.chance(0.8) {
                if !self.work(i, worker)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// All inputs that workers have made.
    pub(super) fn hear_workers(&mut self, i: usize) -> Check {
        while self.runs(i) {
            let Some(input) = self.nodes[i].inputs.pop_front() else { break };
            self.input(i, input)?;
        }
        Ok(())
    }

    pub(super) fn tick(&mut self, i: usize) -> Check {
        if self.runs(i) {
            self.hear_workers(i)?;
            self.input(i, Input::Tick)?;
            self.nodes[i].last_clock = self.clock(i);
        }
        Ok(())
    }

    // Network and register.

    pub(super) fn send(&mut self, from: usize, to: usize, body: Body) {
        let incarnation = self.nodes[from].incarnation;
        self.net.push(Packet { from, to, incarnation, body });
    }

    pub(super) fn deliver(&mut self, place: usize) -> Check {
        let packet = self.net.remove(place);
        let (from, to) = (packet.from, packet.to);
        if !self.is_up(to) || self.deaf == Some(to) && from != to {
            return Ok(());
        }
        if !self.runs(to) {
            self.net.push(packet);
            return Ok(());
        }
        if self.cuts.contains(&(from, to)) {
            return Ok(());
        }
        if from != to && self.is_rough {
            if self.random.chance_ppm(self.loss) {
                return Ok(());
            }
            let is_apart = self.apart.contains(&from) || self.apart.contains(&to);
            if is_apart && self.random.chance(0.8) {
                self.net.push(packet);
                return Ok(());
            }
        }
        self.hear_workers(to)?;
        if self.is_rough && self.random.chance(0.03) {
            let again = match &packet.body {
                Body::Control(bytes) => Body::Control(bytes.clone()),
                Body::Data(data) => Body::Data(data.clone()),
            };
            self.net.push(Packet { body: again, ..packet });
        }
        match packet.body {
            Body::Control(ref bytes) => {
                let Ok(message) = Message::from_bytes(bytes) else {
                    return fail("a message has no decoding".to_string());
                };
                if mutation::is(Mutation::LinkFiltersMembership) && !self.is_listed(&packet) {
                    return Ok(());
                }
                let from = NodeId(from as u16 + 1);
                let incarnation = packet.incarnation;
                self.input(to, Input::Message { from, incarnation, message })?;
            }
            Body::Data(data) => self.on_data(to, from, packet.incarnation, data)?,
        }
        self.nodes[to].last_clock = self.clock(to);
        Ok(())
    }

    /// True if the receiver's configuration has the sender's process, or another node's only.
    fn is_listed(&self, packet: &Packet) -> bool {
        let configuration = &self.nodes[packet.to].workers[0].configuration;
        let Some(configuration) = configuration else { return true };
        let member = configuration.member(NodeId(packet.from as u16 + 1));
        member.is_none_or(|member| member.incarnation == packet.incarnation)
    }

    fn operate(&mut self, node: usize, token: u64, swap: Option<(Option<Bytes>, Bytes)>) {
        let incarnation = self.nodes[node].incarnation;
        let operation =
            RegisterOperation { node, incarnation, token, swap, result: None, told: false };
        self.operations.push(operation);
    }

    /// The operation takes effect, once.
    fn take_effect(&mut self, place: usize) -> Check {
        let operation = &self.operations[place];
        if operation.result.is_some() {
            return Ok(());
        }
        let result = match operation.swap.clone() {
            None => RegisterResult::Read(self.register.clone()),
            Some((expected, new)) => {
                let done = self.register == expected;
                if done {
                    self.register = Some(new);
                    self.on_register_change(self.operations[place].node)?;
                }
                RegisterResult::Swapped { done, value: self.register.clone() }
            }
        };
        self.operations[place].result = Some(result);
        Ok(())
    }

    /// One step of an operation: its effect, its answer, or the claim that it is unknown.
    pub(super) fn step_operation(&mut self, place: usize) -> Check {
        if self.is_rough && !self.operations[place].told && self.random.chance(0.06) {
            self.operations[place].told = true;
            return self.answer(place, RegisterResult::Unknown);
        }
        if self.is_rough && self.operations[place].result.is_none() && self.random.chance(0.3) {
            return self.take_effect(place);
        }
        self.finish_operation(place)
    }

    pub(super) fn finish_operation(&mut self, place: usize) -> Check {
        if self.is_rough && !self.operations[place].told && self.random.chance(0.02) {
            self.operations[place].told = true;
            return self.answer(place, RegisterResult::Unknown);
        }
        self.take_effect(place)?;
        if self.runs(self.operations[place].node) || self.operations[place].told {
            if !self.operations[place].told
                && let Some(result) = self.operations[place].result.clone()
            {
                self.answer(place, result)?;
            }
            self.operations.remove(place);
        } else if !self.is_up(self.operations[place].node) {
            self.operations.remove(place);
        }
        Ok(())
    }

    fn answer(&mut self, place: usize, result: RegisterResult) -> Check {
        let operation = &self.operations[place];
        let (node, token) = (operation.node, operation.token);
        if self.runs(node) && self.nodes[node].incarnation == operation.incarnation {
            self.input(node, Input::Register { group: GROUP, token, result })?;
            self.nodes[node].last_clock = self.clock(node);
        }
        Ok(())
    }

    // Checks.

    /// Checks the claims of a message when it leaves.
    fn check_message(&mut self, i: usize, message: &Message) -> Check {
        let name = NodeId(i as u16 + 1);
        match message {
            Message::Wedged(wedged) => {
                self.watch.on_sealed(GROUP, name, wedged.epoch);
                let incarnation = self.nodes[i].incarnation;
                self.seals.insert((wedged.epoch, name, incarnation, wedged.report.image));
            }
            Message::Grants(grants) => {
                for &(_, epoch) in &grants.granted {
                    // A grant after the seal would be like an acknowledgement after it.
                    self.watch.on_acknowledged(GROUP, name, epoch)?;
                    if self.active.iter().all(|one| one.epoch != epoch) {
                        return fail(format!("{name} grants a lease of {epoch}, never active"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_register_change(&mut self, writer: usize) -> Check {
        let Some(value) = self.value() else { return fail("the register has no value".into()) };
        self.say(|_| {
            let members: Vec<String> = value
                .members()
                .iter()
                .map(|one| format!("{}.{}{:?}", one.node.0 - 1, one.incarnation, one.role))
                .collect();
            format!(
                "register {} {:?} {members:?} by {}",
                value.epoch(),
                value.phase,
                value.proposer.0 - 1
            )
        });
        self.watch.on_register(GROUP, &value)?;
        if !value.is_active() {
            return Ok(());
        }
        self.counts.changes += 1;
        self.active.push(value.configuration.clone());
        self.check_leases()?;
        for member in value.configuration.full() {
            let seal = (value.epoch(), member.node, member.incarnation, member.image);
            // A node's messages to itself are not seen here.
            let own = usize::from(member.node.0) - 1 == writer;
            if !own && !self.seals.contains(&seal) {
                return fail(format!("F3: {} became full in {} unsealed", seal.1, seal.0));
            }
            let disk = &self.nodes[usize::from(member.node.0) - 1].disk;
            // An image that was lost after its seal is beyond any rule.
            if disk.is_lost || disk.record.is_none_or(|record| record.image != member.image) {
                continue;
            }
            for (cell, committed) in disk.cells.iter().zip(self.committed) {
                if cell.version < committed {
                    let epoch = value.epoch();
                    return fail(format!(
                        "F3: full {} of {epoch} lacks {committed:?}",
                        member.node
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_leases(&self) -> Check {
        for i in 0..self.nodes.len() {
            let (epoch, _) = self.nodes[i].word.get();
            if self.is_up(i) && self.nodes[i].word.is_valid(epoch, self.clock(i)) {
                self.watch.on_lease(GROUP, NodeId(i as u16 + 1), epoch)?;
            }
        }
        Ok(())
    }
}
