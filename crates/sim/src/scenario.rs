//! Directed schedules: a small quiet world in which a test holds, loses and delivers single
//! messages by hand.
//!
//! Nodes are named by their ids (1, 2, 3). Every message travels in a frame of its own.
//! A message without a rule arrives after 100 microseconds.
//! A held one stays until the test delivers or drops it, even across crashes of nodes.
//! Rules do not see a node's messages to itself.
//! `run_until` panics with a chart when its condition does not come true.
//! [`Scenario::check`] judges all operations.

use std::sync::Arc;

use checker::model::kv::{Bytes as Value, KvInput, KvOutput};
use membership::settings::Timing;
use node::frame_payload;
use node::worker::ScrubConfig;
use protocols::Protocol;
use storage::Place;
use types::{Key, Wire};

use crate::clients::{Clients, Ended};
use crate::clock::{Clock, NOMINAL_PPM};
use crate::invariants;
use crate::judge;
use crate::medium::MediumConfig;
use crate::network::Links;
use crate::store::{Durability, Survival};
use crate::trace::Trace;
use crate::workload::operation::{Input, Output};
use crate::workload::update::SimUpdate;
use crate::world::{DATABASE, Taken, World, WorldConfig};

/// Latency of a message without a rule, nanoseconds.
const DELAY: u64 = 100_000;
/// Waiting for longer than this is a failure, nanoseconds of true time.
const WAIT_MAX: u64 = 20_000_000_000;

/// One message on its way.
#[derive(Debug)]
pub struct Envelope<P: Protocol> {
    pub from: u16,
    pub to: u16,
    pub message: P::Message,
    frame: Taken,
}

/// Names a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleId(usize);

/// Names an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked(usize);

type Predicate<P> = Box<dyn Fn(&Envelope<P>) -> bool>;

struct Rule<P: Protocol> {
    id: RuleId,
    applies: Predicate<P>,
    loses: bool,
}

/// See the module.
pub struct Scenario<P: Protocol> {
    world: World,
    clients: Clients,
    rules: Vec<Rule<P>>,
    rules_made: usize,
    held: Vec<Envelope<P>>,
}

impl<P: Protocol> Scenario<P> {
    /// Starts `nodes` nodes, connected, one worker each, request timeout 1.5 seconds.
    #[must_use]
    pub fn new(nodes: usize, durability: Durability) -> Scenario<P> {
        Scenario::with_replicas(nodes, nodes, durability)
    }

    /// The same with so many replicas of each shard.
    #[must_use]
    pub fn with_replicas(nodes: usize, replicas: usize, durability: Durability) -> Scenario<P> {
        let mut world = World::new(WorldConfig {
            protocol: P::NAME,
            nodes,
            replicas,
            group_size: nodes,
            workers: 1,
            has_transactions: false,
            medium: MediumConfig::model(durability),
            seed: 1,
            request_timeout: 1_500_000_000,
            cells_max: 10_000,
            scrub: ScrubConfig::OFF,
            update: Arc::new(SimUpdate),
            links: Links { is_connected: false, ..Links::default() },
            turn_max: 1,
            flush_min: 20_000,
            flush_max: 20_000,
            clocks: vec![Clock::new(0, NOMINAL_PPM, 0); nodes],
            timing: Timing::default(),
            late_ppm: 0,
        });
        world.watchers = invariants::watchers(P::NAME);
        world.trace = Some(Trace::new(None, None));
        world.taken = Some(Vec::new());
        world.start_all();
        let clients = Clients::by_hand();
        let mut it =
            Scenario { world, clients, rules: Vec::new(), rules_made: 0, held: Vec::new() };
        it.run_for_millis(2);
        it
    }

    /// Holds each matching message from now on.
    pub fn hold(&mut self, applies: impl Fn(&Envelope<P>) -> bool + 'static) -> RuleId {
        self.rule(Box::new(applies), false)
    }

    /// Loses each matching message from now on. The oldest rule that applies decides.
    pub fn lose(&mut self, applies: impl Fn(&Envelope<P>) -> bool + 'static) -> RuleId {
        self.rule(Box::new(applies), true)
    }

    fn rule(&mut self, applies: Predicate<P>, loses: bool) -> RuleId {
        let id = RuleId(self.rules_made);
        self.rules_made += 1;
        self.rules.push(Rule { id, applies, loses });
        id
    }

    /// Ends a rule. Held messages stay held.
    pub fn lift(&mut self, id: RuleId) {
        self.rules.retain(|rule| rule.id != id);
    }

    /// Ends all rules and delivers everything held, oldest first.
    pub fn release_all(&mut self) {
        self.rules.clear();
        self.deliver(|_| true);
    }

    /// Messages held, oldest first.
    #[must_use]
    pub fn held(&self) -> &[Envelope<P>] {
        &self.held
    }

    /// True when a matching message from and to these nodes is held.
    #[must_use]
    pub fn holds(&self, from: u16, to: u16, applies: impl Fn(&P::Message) -> bool) -> bool {
        self.held.iter().any(|it| it.from == from && it.to == to && applies(&it.message))
    }

    /// Delivers every matching held message, oldest first; returns their number.
    pub fn deliver(&mut self, applies: impl Fn(&Envelope<P>) -> bool) -> usize {
        let (due, kept) = std::mem::take(&mut self.held).into_iter().partition(|it| applies(it));
        self.held = kept;
        let due: Vec<Envelope<P>> = due;
        let count = due.len();
        for envelope in due {
            self.world.put_back(envelope.frame, self.world.now());
        }
        self.run_for_micros(10);
        count
    }

    /// Delivers the oldest matching held message from and to these nodes.
    ///
    /// # Panics
    /// If there is none.
    pub fn deliver_one(&mut self, from: u16, to: u16, applies: impl Fn(&P::Message) -> bool) {
        let index = self.find(from, to, applies);
        let envelope = self.held.remove(index);
        self.world.put_back(envelope.frame, self.world.now());
        self.run_for_micros(10);
    }

    /// The same, and a copy stays held.
    ///
    /// # Panics
    /// If there is none.
    pub fn deliver_copy(&mut self, from: u16, to: u16, applies: impl Fn(&P::Message) -> bool) {
        let index = self.find(from, to, applies);
        let frame = self.held[index].frame.clone();
        self.world.put_back(frame, self.world.now());
        self.run_for_micros(10);
    }

    fn find(&self, from: u16, to: u16, applies: impl Fn(&P::Message) -> bool) -> usize {
        let found =
            self.held.iter().position(|it| it.from == from && it.to == to && applies(&it.message));
        found
            .unwrap_or_else(|| self.fail(&format!("no such message from n{from} to n{to} is held")))
    }

    /// Drops every matching held message; returns their number.
    pub fn drop_held(&mut self, applies: impl Fn(&Envelope<P>) -> bool) -> usize {
        let before = self.held.len();
        self.held.retain(|it| !applies(it));
        before - self.held.len()
    }

    /// Ends a node's process; unflushed data is lost.
    pub fn crash(&mut self, node: u16) {
        self.world.crash(index(node), Survival::Nothing);
        self.clients.on_crash(&self.world, index(node));
    }

    /// Ends a node's process and wipes its medium.
    pub fn crash_and_wipe(&mut self, node: u16) {
        self.world.crash_and_wipe(index(node));
        self.clients.on_crash(&self.world, index(node));
    }

    /// Starts a node that is down, and waits until it is connected.
    pub fn start(&mut self, node: u16) {
        self.world.start(index(node));
        self.run_for_millis(1);
    }

    /// True while a node knows that it has forgotten a shard.
    #[must_use]
    pub fn is_recovering(&self, node: u16) -> bool {
        self.world.medium(index(node)).is_recovering()
    }

    /// Damages the durable record of a key. True when there was one.
    pub fn damage(&mut self, node: u16, key: &str) -> bool {
        let place = Place::Cell(DATABASE, Key::new(key.as_bytes()));
        self.world.medium(index(node)).damage(|candidate| *candidate == place)
    }

    /// The node has no turns until [`Scenario::resume`].
    pub fn pause(&mut self, node: u16) {
        self.world.pause(index(node), u64::MAX);
    }

    pub fn resume(&mut self, node: u16) {
        self.world.resume(index(node));
    }

    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The world, for operations without a shorthand here.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Asks a node to run a command on a key, as a client with a session of its own.
    ///
    /// # Panics
    /// If the node does not take requests.
    pub fn ask(&mut self, node: u16, key: &str, input: impl Into<Input>) -> Asked {
        let key = self.clients.key(key);
        let asked = Asked(self.clients.ops.len());
        if !self.clients.ask_node(&mut self.world, index(node), key, input) {
            self.fail(&format!("n{node} takes no requests"));
        }
        self.run_for_micros(10);
        asked
    }

    pub fn write(&mut self, node: u16, key: &str, value: &str) -> Asked {
        self.ask(node, key, KvInput::Set(Value::from(value)))
    }

    pub fn read(&mut self, node: u16, key: &str) -> Asked {
        self.ask(node, key, KvInput::Get)
    }

    /// How an operation ended; `None` while it has not.
    #[must_use]
    pub fn outcome(&self, asked: Asked) -> Option<&Ended> {
        self.clients.ops[asked.0].ended.as_ref().map(|(_, ended)| ended)
    }

    /// Waits for the end of an operation.
    ///
    /// # Panics
    /// If it does not end.
    pub fn settle(&mut self, asked: Asked) -> Ended {
        self.run_until(|it| it.outcome(asked).is_some());
        self.outcome(asked).expect("it has just ended").clone()
    }

    /// Reads and waits: the value, `None` for an absent key.
    ///
    /// # Panics
    /// If the read does not return a value.
    pub fn value(&mut self, node: u16, key: &str) -> Option<String> {
        let asked = self.read(node, key);
        match self.settle(asked) {
            Ended::Returned(Output::Text(KvOutput::Value(value))) => {
                value.map(|value| String::from_utf8_lossy(value.as_slice()).into_owned())
            }
            other => self.fail(&format!("a read of {key} through n{node} ended as {other:?}")),
        }
    }

    /// Runs until this is true.
    ///
    /// # Panics
    /// If it does not become true.
    pub fn run_until(&mut self, until: impl Fn(&Scenario<P>) -> bool) {
        let bound = self.world.now() + WAIT_MAX;
        while !until(self) {
            if self.world.now() > bound || !self.step() {
                self.fail("the condition does not come true");
            }
        }
    }

    /// Lets this much true time pass.
    pub fn run_for_millis(&mut self, millis: u64) {
        self.run_for_micros(millis * 1_000);
    }

    fn run_for_micros(&mut self, micros: u64) {
        let end = self.world.now() + micros * 1_000;
        self.world.wake(end, crate::world::Wake(0));
        while self.world.now() < end {
            self.step();
        }
    }

    fn step(&mut self) -> bool {
        if self.world.run_next().is_none() {
            return false;
        }
        if let Some(reason) = self.world.failure.take() {
            self.fail(&reason);
        }
        for reply in std::mem::take(&mut self.world.replies) {
            if let Err(reason) = self.clients.on_reply(&mut self.world, reply) {
                self.fail(&reason);
            }
        }
        for taken in std::mem::take(&mut self.world.taken).into_iter().flatten() {
            self.sort(&taken);
        }
        self.world.taken = Some(Vec::new());
        true
    }

    /// Takes a frame apart and applies the rules to each message of the protocol. Registers of the
    /// system database are another protocol's.
    fn sort(&mut self, taken: &Taken) {
        let (_, header, messages) =
            frame_payload::decode(&taken.bytes).expect("a worker sends whole frames");
        for message in messages {
            let message = message.expect("a worker sends whole messages");
            let bytes = [header, message.whole].concat().into();
            if message.database != DATABASE {
                self.world.put_back(Taken { bytes, ..*taken }, self.world.now() + DELAY);
                continue;
            }
            let envelope = Envelope {
                from: taken.from as u16 + 1,
                to: taken.to as u16 + 1,
                message: P::Message::from_bytes(message.bytes).expect("a message of its protocol"),
                frame: Taken { bytes, ..*taken },
            };
            match self.rules.iter().find(|rule| (rule.applies)(&envelope)) {
                Some(rule) if rule.loses => {}
                Some(_) => self.held.push(envelope),
                None => self.world.put_back(envelope.frame, self.world.now() + DELAY),
            }
        }
    }

    /// Judges all operations so far.
    ///
    /// # Panics
    /// If no order explains the answers.
    pub fn check(&self) {
        if let Err(wrong) = judge::linearizable(&self.clients, NOMINAL_PPM) {
            self.fail(&wrong.reason);
        }
    }

    fn fail(&self, reason: &str) -> ! {
        let lines: Vec<String> = self.world.trace.iter().flat_map(Trace::lines).collect();
        panic!("{}\n{} messages held\n{reason}", lines.join("\n"), self.held.len());
    }
}

fn index(node: u16) -> usize {
    usize::from(node) - 1
}

#[cfg(test)]
mod tests {
    use protocols::abd::{Abd, Message};

    use super::*;

    fn is_store(message: &Message) -> bool {
        matches!(message, Message::Store { .. })
    }

    /// S31: a read that met the new value at a minority must not let a later read return the old
    /// one.
    #[test]
    fn new_is_never_followed_by_old() {
        let mut it = Scenario::<Abd>::new(3, Durability::Disk);
        let old = it.write(1, "x", "old");
        assert_eq!(it.settle(old), Ended::Returned(Output::Text(KvOutput::Done)));
        it.run_for_millis(5);
        it.hold(|it| it.from == 1 && is_store(&it.message));
        let new = it.write(1, "x", "new");
        it.run_until(|it| it.holds(1, 2, is_store) && it.holds(1, 3, is_store));
        it.deliver_one(1, 2, is_store);
        it.run_for_millis(1);
        assert_eq!(it.value(2, "x").as_deref(), Some("new"));
        assert_eq!(it.value(3, "x").as_deref(), Some("new"));
        it.release_all();
        it.settle(new);
        it.check();
    }

    /// S2: a value that only the crashed writer holds is unknown, may appear, and never disappears
    /// again.
    #[test]
    fn write_of_a_crashed_writer_is_unknown() {
        let mut it = Scenario::<Abd>::new(3, Durability::Disk);
        let losing = it.lose(|it| it.from == 1 && is_store(&it.message));
        let write = it.write(1, "x", "1");
        it.run_for_millis(2);
        it.crash(1);
        assert_eq!(it.outcome(write), Some(&Ended::Unknown));
        assert_eq!(it.value(2, "x"), None);
        it.lift(losing);
        it.start(1);
        let first = it.value(1, "x");
        for node in [2, 3, 1] {
            let later = it.value(node, "x");
            assert!(first.is_none() || later == first, "{first:?}, then {later:?}");
        }
        it.check();
    }

    /// S28: an acknowledgement from before a loss of memory is void once the loss is known.
    #[test]
    fn acknowledgement_of_a_node_that_forgot_does_not_count() {
        let mut it = Scenario::<Abd>::new(3, Durability::Volatile);
        // n2 alone takes the store, acknowledges it and forgets it; n3 hears of it after n2 has
        // recovered.
        it.hold(|it| it.from == 1 && it.to == 3 && is_store(&it.message));
        it.hold(|it| it.to == 1 && matches!(it.message, Message::Stored { .. }));
        let write = it.write(1, "x", "1");
        it.run_until(|it| it.holds(2, 1, |m| matches!(m, Message::Stored { .. })));
        it.pause(1);
        it.crash_and_wipe(2);
        it.start(2);
        it.resume(1);
        it.run_for_millis(50);
        it.deliver(|it| it.from == 2);
        it.run_for_millis(1);
        it.release_all();
        it.settle(write);
        for node in [1, 2, 3] {
            assert_eq!(it.value(node, "x").as_deref(), Some("1"));
        }
        it.check();
    }

    #[test]
    #[should_panic(expected = "the condition does not come true")]
    fn waiting_for_false_condition_fails() {
        let mut it = Scenario::<Abd>::new(3, Durability::Disk);
        it.run_until(|it| it.held().len() == 1);
    }
}
