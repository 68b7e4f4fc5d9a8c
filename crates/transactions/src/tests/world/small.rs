//! Small worlds, all interleavings: transactions and commands on two keys, and one fault. A request
//! is lost, or its answer; a coordinator dies, and starts again or not; time passes while messages
//! are under way.
//!
//! Worlds that differ in numbers of requests, or in the time of day, are one state. So each search
//! ends. The test explores the smallest world whole. All of them:
//! `TRANSACTION_STATES=10000000 cargo test --release -p transactions small_world -- --nocapture`

use std::collections::HashSet;
use std::fmt;
use std::panic::catch_unwind;

use checker::serializable::{Promise, check};

use super::*;
use crate::mutation::{self, Mutation};

/// Runs of a transaction. Another one may abort it each time, and it takes its keys again at once.
const RUNS: u32 = 2;
/// No budget of the smallest world has more states.
const STATES: usize = 10_000;
/// A span in which a coordinator counts as silent.
const SILENCE: Nanos = Nanos::from_millis(60);

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Deliver(usize),
    /// The request runs later, or never. Its sender hears that its end is unknown.
    Lose(usize),
    RunLate(usize),
    Drop(usize),
    Question(usize),
    Plain(usize),
    /// A node's process ends, and the next one starts.
    Restart(usize),
    /// A node's process ends.
    Die(usize),
    /// The others take a node for gone, though it lives.
    TakeForGone(usize),
    Silence,
    /// The deadline of all transactions has come.
    Deadline,
    /// The third node finds a record that stays.
    Patrol,
    /// All wait for a timer.
    Timer,
}

/// Faults that may still happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Budget {
    losses: u32,
    restarts: u32,
    deaths: u32,
    partings: u32,
    silences: u32,
    deadlines: u32,
    patrols: u32,
}

/// Hashes text as it is written.
struct Digest(u64);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ mixed >> 29;
        }
        Ok(())
    }
}

struct Search {
    seen: HashSet<u64>,
    states_max: usize,
    ends: usize,
    path: Vec<Event>,
}

/// The clients of a small world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clients {
    /// A transaction, and a command that meets its lock.
    OneAndCommand,
    /// Two transactions that share one key.
    Overlap,
    /// Two transactions on the same two keys.
    Two,
    TwoAndCommand,
}

impl Clients {
    const ALL: &[Clients] =
        &[Clients::OneAndCommand, Clients::Overlap, Clients::Two, Clients::TwoAndCommand];
}

fn begin(clients: Clients) -> World {
    let append = |key: u64, element: u64| ListStep::Append { key, element };
    let is_plain = |world: &World| world.open.values().all(|it| it.transaction.once.is_none());
    let worlds = (0..).map(|seed| {
        let mut world = World::new(seed, Faults::NONE);
        world.begin_steps(0, vec![append(0, 101), append(1, 102)], usize::MAX);
        match clients {
            Clients::OneAndCommand => {}
            Clients::Overlap => world.begin_steps(1, vec![append(1, 103)], usize::MAX),
            Clients::Two | Clients::TwoAndCommand => {
                world.begin_steps(1, vec![append(1, 103), append(0, 104)], usize::MAX);
            }
        }
        if matches!(clients, Clients::OneAndCommand | Clients::TwoAndCommand) {
            world.begin_plain(2, 0);
        }
        world.services.iter_mut().for_each(|service| service.limit_runs(RUNS));
        world
    });
    worlds.into_iter().find(is_plain).expect("a seed without ONCE")
}

impl World {
    fn events(&self, budget: Budget) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, request) in self.requests.iter().enumerate() {
            if request.is_orphan {
                events.extend([Event::RunLate(at), Event::Drop(at)]);
                continue;
            }
            events.push(Event::Deliver(at));
            if budget.losses > 0 && request.command.access != Access::Read {
                events.push(Event::Lose(at));
            }
        }
        events.extend((0..self.questions.len()).map(Event::Question));
        let ready = |at: &usize| !self.plain[*at].waits;
        events.extend((0..self.plain.len()).filter(ready).map(Event::Plain));
        let has_work = !events.is_empty();
        if has_work {
            // The third node coordinates no transaction.
            let nodes = 0..2;
            events.extend(nodes.clone().filter(|_| budget.restarts > 0).map(Event::Restart));
            events.extend(nodes.clone().filter(|_| budget.deaths > 0).map(Event::Die));
            events.extend(nodes.filter(|_| budget.partings > 0).map(Event::TakeForGone));
        }
        if budget.patrols > 0 && self.record_that_stays().is_some() {
            events.push(Event::Patrol);
        }
        if has_work && self.has_timers() {
            events.extend([Event::Silence].into_iter().filter(|_| budget.silences > 0));
            events.extend([Event::Deadline].into_iter().filter(|_| budget.deadlines > 0));
        }
        if !has_work && (!self.is_quiet() || !self.plain.is_empty()) {
            events.push(Event::Timer);
        }
        events
    }

    fn record_that_stays(&self) -> Option<Key> {
        let is_record = |((database, _), register): &(&(Database, Key), &Register)| {
            database.is_hidden() && register.value.is_some()
        };
        self.registers.all.iter().find(is_record).map(|((_, key), _)| key.clone())
    }

    fn take(&mut self, event: Event, budget: &mut Budget) {
        match event {
            Event::Deliver(at) => self.deliver(at),
            Event::Lose(at) => {
                budget.losses -= 1;
                let request = self.requests.remove(at);
                let (node, token) = (request.node, request.token);
                self.requests.push(Request { is_orphan: true, ..request });
                self.with(node, |service, cx| service.on_outcome(cx, token, Outcome::Unknown));
            }
            Event::RunLate(at) => {
                let request = self.requests.remove(at);
                let place = (request.database, request.key.clone());
                if request.base.is_none_or(|base| base == self.registers.version(&place)) {
                    self.run_fenced(&request, false);
                }
            }
            Event::Drop(at) => drop(self.requests.remove(at)),
            Event::Question(at) => self.deliver_question(at),
            Event::Plain(at) => self.run_plain(at),
            Event::Restart(node) => {
                budget.restarts -= 1;
                self.crash(node);
            }
            Event::Die(node) => {
                budget.deaths -= 1;
                self.dead[node] = true;
                self.die(node);
            }
            Event::TakeForGone(node) => {
                budget.partings -= 1;
                self.gone[node] = true;
            }
            Event::Silence => {
                budget.silences -= 1;
                self.pass(SILENCE);
            }
            Event::Deadline => {
                budget.deadlines -= 1;
                self.present += TIMEOUT;
                self.pass(TIMEOUT);
            }
            Event::Patrol => {
                budget.patrols -= 1;
                let record = self.record_that_stays().expect("there is one");
                self.with(2, |service, cx| service.on_record(cx, DATABASE, record, true));
            }
            Event::Timer => {
                let next = self.services.iter().filter_map(Service::next_timer).min();
                let span = next.map_or(Nanos::from_millis(1), |at| at - self.now);
                self.pass(span.max(Nanos::from_micros(1)));
            }
        }
        self.log.clear();
        self.make_canonical();
    }

    /// Gives all worlds that go on in the same way one form.
    fn make_canonical(&mut self) {
        let span = self.now - self.present;
        self.now = self.present;
        for node in 0..NODES {
            self.services[node].shift(span, self.now);
            let tokens = self.services[node].renumber();
            for request in self.requests.iter_mut().filter(|it| it.node == node) {
                // No outcome of an orphan reaches a node.
                let token = if request.is_orphan { None } else { tokens.get(&request.token) };
                request.token = token.copied().unwrap_or(0);
            }
        }
        self.requests.sort_by_cached_key(|it| format!("{it:?}"));
        self.questions.sort_by_cached_key(|it| format!("{it:?}"));
        // Of equal questions the others are lost.
        self.questions.dedup_by_key(|it| (it.from, it.txid, it.answer));
    }

    fn digest(&self, budget: Budget) -> u64 {
        let outcomes: Vec<_> = self.history.operations().iter().map(|it| &it.outcome).collect();
        let lives = (&self.incarnations, &self.renewed, &self.dead, &self.gone, self.now);
        let state = (lives, &self.services, &self.registers, &self.fences, outcomes);
        let waiting = (&self.questions, &self.plain, &self.requests, budget);
        let mut digest = Digest(0);
        write!(digest, "{state:?}{waiting:?}").expect("a digest takes all text");
        digest.0
    }
}

impl Search {
    /// False once enough states were seen.
    fn explore(&mut self, world: &World, budget: Budget) -> bool {
        let events = world.events(budget);
        if events.is_empty() {
            self.ends += 1;
            self.judge(world.clone());
        }
        for event in events {
            let (mut next, mut budget) = (world.clone(), budget);
            next.take(event, &mut budget);
            if !self.seen.insert(next.digest(budget)) {
                continue;
            }
            self.path.push(event);
            if self.seen.len() >= self.states_max || !self.explore(&next, budget) {
                return false;
            }
            self.path.pop();
        }
        true
    }

    /// All locks end, and both lists show a transaction or none does.
    fn judge(&self, mut world: World) {
        world.heal();
        world.read(2, &[0, 1]);
        world.heal();
        let finding = check(&world.history, Promise::Strict);
        assert!(finding.holds(), "{:?}\n{:?}", finding.anomalies(), self.path);
        world.check_registers(0);
    }
}

fn search(clients: Clients, budget: Budget, states_max: usize) -> (usize, usize, bool) {
    let mut search = Search { seen: HashSet::new(), states_max, ends: 0, path: Vec::new() };
    let is_whole = search.explore(&begin(clients), budget);
    (search.seen.len(), search.ends, is_whole)
}

/// Each fault alone, with its name.
fn budgets() -> [(&'static str, Budget); 8] {
    let none = Budget::default();
    [
        ("no fault", none),
        ("a lost message", Budget { losses: 1, ..none }),
        ("a restart", Budget { restarts: 1, ..none }),
        ("a death", Budget { deaths: 1, ..none }),
        ("a silence", Budget { silences: 1, ..none }),
        ("a deadline", Budget { deadlines: 1, ..none }),
        ("a patrol", Budget { patrols: 1, ..none }),
        ("a fence", Budget { partings: 1, patrols: 1, ..none }),
    ]
}

#[test]
fn small_worlds_keep_transactions_whole() {
    let given = std::env::var("TRANSACTION_STATES").ok().and_then(|text| text.parse().ok());
    let worlds = match given {
        Some(_) => Clients::ALL,
        None => &Clients::ALL[..1],
    };
    for &clients in worlds {
        for (fault, budget) in budgets() {
            let (states, ends, is_whole) = search(clients, budget, given.unwrap_or(STATES));
            let extent = if is_whole { "whole" } else { "in part" };
            println!("{clients:?}, {fault}: {states} states, {ends} ends, {extent}");
            assert!(ends > 0 && (is_whole || given.is_some()), "{clients:?}, {fault}: {states}");
        }
    }
}

/// A search ends at a state without a rule that the fault needs.
#[test]
fn small_worlds_find_mistakes() {
    for (mutation, budget) in [
        (Mutation::UnknownIsAborted, Budget { losses: 1, ..Budget::default() }),
        (Mutation::ReplyBeforeCommit, Budget { restarts: 1, ..Budget::default() }),
        (Mutation::ForgetAbortedEarly, Budget { deadlines: 1, ..Budget::default() }),
    ] {
        mutation::set(Some(mutation));
        let found = catch_unwind(|| search(Clients::OneAndCommand, budget, STATES));
        mutation::set(None);
        assert!(found.is_err(), "{} is not noticed: {found:?}", mutation.name());
    }
}
