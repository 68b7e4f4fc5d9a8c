//! A small world, all interleavings: two transactions on the same two keys, a command that meets
//! their locks, and faults. A request is lost, or its answer; a coordinator dies; a live one is
//! silent for long.
//!
//! The short form stops after some states. The whole one:
//! `TRANSACTION_STATES=100000000 cargo test --release -p transactions small_world -- --nocapture`

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use checker::serializable::{Promise, check};

use super::*;

/// States of the short form.
const STATES: usize = 2_500;
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
    Crash,
    Silence,
    /// All wait for a timer.
    Timer,
}

/// Faults that may still happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Budget {
    losses: u32,
    crashes: u32,
    silences: u32,
}

struct Search {
    seen: HashSet<u64>,
    states_max: usize,
    ends: usize,
    path: Vec<Event>,
}

fn begin() -> World {
    let append = |key: u64, element: u64| ListStep::Append { key, element };
    let is_plain = |world: &World| world.open.values().all(|it| it.transaction.once.is_none());
    let worlds = (0..).map(|seed| {
        let mut world = World::new(seed, Faults::NONE);
        world.begin_steps(0, vec![append(0, 101), append(1, 102)], usize::MAX);
        world.begin_steps(1, vec![append(1, 103), append(0, 104)], usize::MAX);
        world.begin_plain(2, 0);
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
        if budget.crashes > 0 && has_work {
            events.push(Event::Crash);
        }
        if budget.silences > 0 && has_work && self.has_timers() {
            events.push(Event::Silence);
        }
        if !has_work && (!self.is_quiet() || !self.plain.is_empty()) {
            events.push(Event::Timer);
        }
        events
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
                    self.registers.run(request.database, &request.key, &request.command);
                }
            }
            Event::Drop(at) => drop(self.requests.remove(at)),
            Event::Question(at) => self.deliver_question(at),
            Event::Plain(at) => self.run_plain(at),
            Event::Crash => {
                budget.crashes -= 1;
                self.crash(0);
            }
            Event::Silence => {
                budget.silences -= 1;
                self.pass(SILENCE);
            }
            Event::Timer => {
                let next = self.services.iter().filter_map(Service::next_timer).min();
                let span = next.map_or(Nanos::from_millis(1), |at| at - self.now);
                self.pass(span.max(Nanos::from_micros(1)));
            }
        }
        self.log.clear();
    }

    fn digest(&self, budget: Budget) -> u64 {
        let mut requests: Vec<String> = self.requests.iter().map(|it| format!("{it:?}")).collect();
        requests.sort_unstable();
        let outcomes: Vec<_> = self.history.operations().iter().map(|it| &it.outcome).collect();
        let state = (&self.services, &self.incarnations, &self.registers, self.now, outcomes);
        let waiting = (&self.questions, &self.plain, requests, budget);
        let mut hasher = DefaultHasher::new();
        format!("{state:?}{waiting:?}").hash(&mut hasher);
        hasher.finish()
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

fn search(budget: Budget, states_max: usize) -> (usize, usize, bool) {
    let mut search = Search { seen: HashSet::new(), states_max, ends: 0, path: Vec::new() };
    let is_whole = search.explore(&begin(), budget);
    (search.seen.len(), search.ends, is_whole)
}

#[test]
fn small_world_keeps_transactions_whole() {
    let given = std::env::var("TRANSACTION_STATES").ok().and_then(|text| text.parse().ok());
    let states_max = given.unwrap_or(STATES);
    for (losses, crashes, silences) in [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1), (1, 1, 1)] {
        let budget = Budget { losses, crashes, silences };
        let (states, ends, is_whole) = search(budget, states_max);
        println!("{budget:?}: {states} states, {ends} ends, whole: {is_whole}");
        assert!(ends > 0);
    }
}
