//! A world for zab in tests: nodes of several workers, media with logs, a network that misbehaves.
//!
//! `explore` draws schedules at random. `schedules` plays those that single mistakes need. `order`
//! judges: one order over all keys, and no client of a node that goes back.

pub(super) mod explore;
mod node;
mod order;
pub(super) mod regressions;
pub(super) mod schedules;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base::Nanos;
use types::{AmnesiaCount, Incarnation, Key, NodeId, Outcome, SessionId, Shard, Tag};

use super::{letter, node_id};
use crate::protocol::{self as waist, Event, Protocol as _, Request};
use crate::register_cache::CachedRegister;
use crate::zab::message::{ToRegister, ToSequencer, ToWorker};
use crate::zab::{Message, Zab};

use node::{Node, Own, OwnLetter, Plan, Stored};
use order::{Do, Order};

type Letter = letter::Letter<Message>;

struct World {
    now: Nanos,
    plan: Plan,
    nodes: Vec<Node>,
    bag: Vec<Letter>,
    /// Pages of shards without keys, which arrive at once.
    swift: Vec<Letter>,
    keys: Vec<Key>,
    order: Order,
    /// Messages with this text, from one node to another, stay on their way.
    held: Vec<(usize, usize, &'static str)>,
    /// Workers whose messages from their own node wait, as behind slow loads.
    slow: BTreeSet<(usize, usize)>,
    /// Nodes whose flushes wait.
    unflushed: BTreeSet<usize>,
    clock: u64,
    fault: Option<String>,
    trace: Option<String>,
}

impl World {
    /// Nodes that have just started, all for the first time.
    fn new(plan: Plan) -> World {
        let is_of = |worker: usize| {
            move |key: &Key| usize::from(key.shard().0) % plan.workers == worker % plan.workers
        };
        let key = |place: usize| {
            let names = (0_u32..).map(move |n| Key::new(format!("k{place}-{n}").as_bytes()));
            names.into_iter().find(is_of(place)).expect("half of all keys are")
        };
        let open = |index| {
            let stored = vec![Stored::default(); plan.workers];
            Node::open(plan, index, (Incarnation(1), AmnesiaCount(1)), stored, 0)
        };
        let mut world = World {
            now: Nanos::from_secs(1),
            plan,
            nodes: (0..plan.nodes).map(open).collect(),
            bag: Vec::new(),
            swift: Vec::new(),
            keys: (0..3).map(key).collect(),
            order: Order::default(),
            held: Vec::new(),
            slow: BTreeSet::new(),
            unflushed: BTreeSet::new(),
            clock: 0,
            fault: None,
            trace: None,
        };
        for index in 0..plan.nodes {
            for worker in 0..plan.workers {
                world.step(index, worker, Event::PeerUp { node: node_id(index) });
            }
        }
        world
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            _ = writeln!(trace, "{} {}", self.now.as_millis(), text());
        }
    }

    fn fail(&mut self, text: String) {
        self.note(|| format!("FAULT {text}"));
        self.fault.get_or_insert(text);
    }

    fn worker_of(&self, message: &Message, sender: usize) -> usize {
        match waist::Message::shard(message) {
            Some(shard) => usize::from(shard.0) % self.plan.workers,
            None => sender,
        }
    }

    /// A client asks a node that is up.
    fn ask(&mut self, index: usize, session: u64, key: usize, what: Do) -> Tag {
        self.clock += 1;
        let tag = Tag(self.clock);
        let command = what.command(tag);
        self.note(|| format!("node {index}: {tag:?} of session {session} asks {what:?} of {key}"));
        let key = self.keys[key].clone();
        self.order.ask(tag, (index, session), key.clone(), what);
        let worker = usize::from(key.shard().0) % self.plan.workers;
        let session = SessionId(session);
        let request = Request { tag, session, key, command, asked_at: self.now };
        self.step(index, worker, Event::Request(request));
        tag
    }

    /// Runs one event of a worker and the turn that it begins.
    fn step(&mut self, index: usize, worker: usize, event: Event<Zab>) {
        self.turn(index, worker, event);
        self.go_on(index);
        while let Some(letter) = self.swift.pop() {
            let to = letter.to;
            self.hand(letter);
            self.go_on(to);
        }
    }

    /// Workers that are not slow handle all messages of their own node.
    fn go_on(&mut self, index: usize) {
        for _ in 0..100_000 {
            let is_due = |letter: &OwnLetter| !self.slow.contains(&(index, letter.to));
            let Some(at) = self.nodes[index].own.iter().position(is_due) else { return };
            self.take_own(index, at);
        }
        self.fail(format!("node {index} never stops talking to itself"));
    }

    fn take_own(&mut self, index: usize, at: usize) {
        let OwnLetter { to, body, .. } = self.nodes[index].own.remove(at);
        match body {
            Own::Message(message) => {
                let from = self.nodes[index].workers[to].as_peer();
                self.turn(index, to, Event::Peer { from, message: *message });
            }
            Own::Amnesia(amnesia) => {
                if self.nodes[index].workers[to].forget_messages(amnesia) {
                    self.turn(index, to, Event::ViewChanged);
                }
            }
        }
    }

    fn turn(&mut self, index: usize, worker: usize, event: Event<Zab>) {
        self.run(index, worker, event);
        self.run(index, worker, Event::Turn);
        while let Some(scan) = self.nodes[index].workers[worker].scans.pop_front() {
            let event = Event::Scanned(self.nodes[index].workers[worker].scan(scan));
            self.run(index, worker, event);
            self.run(index, worker, Event::Turn);
        }
        let durable = self.plan.durable;
        self.nodes[index].workers[worker].submit(durable);
    }

    fn run(&mut self, index: usize, worker: usize, event: Event<Zab>) {
        let now = self.now;
        let Node { workers, sets, lent, .. } = &mut self.nodes[index];
        if let Err(violation) = workers[worker].run(now, (sets, lent), Shard(0), event) {
            self.fail(violation.0);
        }
        self.carry_out(index, worker);
    }

    fn carry_out(&mut self, index: usize, worker: usize) {
        let it = &mut self.nodes[index].workers[worker];
        let fx = it.take_effects();
        fx.recovered.into_iter().for_each(|shard| it.recover(shard));
        if let Some(violation) = fx.violation {
            self.fail(violation.0);
        }
        for send in fx.sends {
            self.post(index, worker, send.to, send.message);
        }
        for (tag, outcome, _) in fx.outcomes {
            self.complete(tag, &outcome);
        }
        if !fx.forgotten.is_empty() {
            self.forget(index, worker, &fx.forgotten);
        }
    }

    /// A worker found shards forgotten: the amnesia count grows, and the others hear of it later.
    fn forget(&mut self, index: usize, worker: usize, shards: &[Shard]) {
        let node = &mut self.nodes[index];
        node.amnesia.0 += 1;
        let amnesia = node.amnesia;
        self.note(|| {
            format!("node {index}.{worker}: forgets {} shards, {amnesia:?}", shards.len())
        });
        let node = &mut self.nodes[index];
        for to in (0..self.plan.workers).filter(|&to| to != worker) {
            node.own.push(OwnLetter { from: worker, to, body: Own::Amnesia(amnesia) });
        }
        node.workers[worker].forget_messages(amnesia);
        for &shard in shards {
            self.nodes[index].workers[worker].forget(shard);
        }
        self.run(index, worker, Event::ViewChanged);
        for &shard in shards {
            self.run(index, worker, Event::Forgotten { shard });
        }
    }

    fn post(&mut self, index: usize, worker: usize, to: NodeId, message: Message) {
        let incarnation = self.nodes[index].incarnation;
        self.observe(index, incarnation, &message);
        let receiver = self.worker_of(&message, worker);
        let to = usize::from(to.0) - 1;
        let node = &mut self.nodes[index];
        if to == index {
            let body = Own::Message(Box::new(message));
            return node.own.push(OwnLetter { from: worker, to: receiver, body });
        }
        let sender = &node.workers[worker];
        let (from, losses) = (sender.as_peer(), sender.losses());
        let letter = Letter { from, to, losses, message };
        let is_empty = |shard: &Shard| self.keys.iter().all(|key| key.shard() != *shard);
        match &letter.message {
            Message::Worker(shard, ToWorker::AskPage { .. } | ToWorker::Page { .. })
                if is_empty(shard) =>
            {
                self.swift.push(letter);
            }
            _ => self.bag.push(letter),
        }
    }

    /// Notes the numbers and places of writes for the judge.
    fn observe(&mut self, index: usize, incarnation: Incarnation, message: &Message) {
        match message {
            Message::Sequencer(ToSequencer::Write { epoch, stream, number, command, .. }) => {
                self.order.number((*epoch, *stream, *number), command);
            }
            Message::Register(key, ToRegister::Apply { at, stream, number, effect, reply, .. }) => {
                let known = self.order.place(*at, (*stream, *number), key, effect, reply);
                if let Err(fault) = known {
                    self.fail(format!("node {index}.{}: {fault}", incarnation.0));
                }
            }
            _ => {}
        }
    }

    fn complete(&mut self, tag: Tag, outcome: &Outcome) {
        self.clock += 1;
        self.note(|| format!("{tag:?} is answered {outcome:?}"));
        if let Err(fault) = self.order.complete(tag, outcome.clone(), self.clock) {
            self.fail(fault);
        }
    }

    /// Delivers a message as a worker would: first the counts of losses, then the message unless
    /// it is void.
    fn deliver(&mut self, letter: Letter) {
        self.note(|| {
            let Letter { from, to, message, .. } = &letter;
            format!("node {to}: from {}.{}: {message:?}", from.node.0 - 1, from.incarnation.0)
        });
        let to = letter.to;
        self.hand(letter);
        if self.nodes[to].is_up {
            self.go_on(to);
        }
        while let Some(letter) = self.swift.pop() {
            let to = letter.to;
            self.hand(letter);
            if self.nodes[to].is_up {
                self.go_on(to);
            }
        }
    }

    fn hand(&mut self, letter: Letter) {
        let (from, to) = (letter.from, letter.to);
        if !self.nodes[to].is_up {
            return;
        }
        let worker = self.worker_of(&letter.message, 0);
        let it = &mut self.nodes[to].workers[worker];
        let grew = it.learn(&letter);
        let is_void = it.peers.get(from.node).is_some_and(|known| {
            from.amnesia < known.amnesia || from.incarnation < known.incarnation
        });
        if grew {
            self.turn(to, worker, Event::ViewChanged);
        }
        if !is_void {
            self.turn(to, worker, Event::Peer { from, message: letter.message });
        }
    }

    /// Ends the oldest flush in progress of a worker.
    fn flush(&mut self, index: usize, worker: usize) -> bool {
        if !self.nodes[index].is_up || !self.nodes[index].workers[worker].end_batch() {
            return false;
        }
        self.note(|| format!("node {index}.{worker}: flushed"));
        let it = &mut self.nodes[index].workers[worker];
        let free = it.release();
        it.submit(self.plan.durable);
        for send in free.sends {
            self.post(index, worker, send.to, send.message);
        }
        for (tag, outcome, _) in free.outcomes {
            self.complete(tag, &outcome);
        }
        self.go_on(index);
        true
    }

    /// Fires the timers of a node that are due.
    fn fire(&mut self, index: usize) {
        for worker in 0..self.plan.workers {
            while self.nodes[index].is_up
                && let Some(timer) = self.nodes[index].workers[worker].take_timer(self.now)
            {
                self.step(index, worker, Event::Timer(timer));
            }
        }
    }

    /// Kills the process. `kept` flushes in progress of each worker reached the medium, and a part
    /// of the next.
    fn kill(&mut self, index: usize, kept: usize, part: u64) {
        self.note(|| format!("node {index}: killed, {kept} flushes reach the medium"));
        self.nodes[index].kill(kept, part);
        self.order.end_clients(index);
        for other in self.others(index) {
            self.reset_one(other, index, false);
        }
    }

    /// Starts the process anew, with so many records of the log that were cut off.
    fn start(&mut self, index: usize, revived: usize) {
        let workers = std::mem::take(&mut self.nodes[index].workers);
        let stored = workers.into_iter().map(|it| it.stored).collect();
        self.begin(index, stored, revived);
    }

    /// Starts the process with an empty medium.
    fn start_empty(&mut self, index: usize) {
        let all = |worker| {
            let own =
                (0..=u8::MAX).filter(|shard| usize::from(*shard) % self.plan.workers == worker);
            Stored { forgotten: own.map(Shard).collect(), ..Stored::default() }
        };
        let stored = (0..self.plan.workers).map(all).collect();
        self.begin(index, stored, 0);
    }

    fn begin(&mut self, index: usize, stored: Vec<Stored>, revived: usize) {
        let old = &self.nodes[index];
        let incarnation = Incarnation(old.incarnation.0 + 1);
        let is_lost = stored.iter().any(|it: &Stored| !it.forgotten.is_empty());
        let amnesia = AmnesiaCount(old.amnesia.0 + u32::from(is_lost));
        let forgotten: Vec<Vec<Shard>> =
            stored.iter().map(|it| it.forgotten.iter().copied().collect()).collect();
        self.nodes[index] = Node::open(self.plan, index, (incarnation, amnesia), stored, revived);
        self.note(|| format!("node {index}: starts as {}, {amnesia:?}", incarnation.0));
        for (worker, shards) in forgotten.into_iter().enumerate() {
            let it = &mut self.nodes[index].workers[worker];
            shards.iter().for_each(|&shard| it.cache.set_forgotten(shard, true));
            for shard in shards {
                self.run(index, worker, Event::Forgotten { shard });
            }
            self.step(index, worker, Event::PeerUp { node: node_id(index) });
        }
        for other in self.others(index) {
            for (at, peer) in [(index, other), (other, index)] {
                let (known, amnesia) = (self.nodes[peer].incarnation, self.nodes[peer].amnesia);
                for worker in &mut self.nodes[at].workers {
                    worker.peers.learn(node_id(peer), known, amnesia);
                }
            }
            self.reset_one(index, other, true);
            self.reset_one(other, index, true);
        }
    }

    /// The medium has lost a register, and its worker has found out.
    fn damage(&mut self, index: usize, key: usize) {
        let key = self.keys[key].clone();
        let (shard, worker) = (key.shard(), usize::from(key.shard().0) % self.plan.workers);
        let it = &mut self.nodes[index].workers[worker];
        it.stored.records.remove(&key);
        it.stored.forgotten.insert(shard);
        it.cache.lose(&key);
        self.forget(index, worker, &[shard]);
        self.nodes[index].workers[worker].submit(self.plan.durable);
        self.go_on(index);
    }

    /// The link between two nodes dies and comes back.
    fn reset(&mut self, one: usize, other: usize) {
        self.bag.retain(|letter| !letter.goes_between(one, other));
        for (at, peer) in [(one, other), (other, one)] {
            self.reset_one(at, peer, false);
            self.reset_one(at, peer, true);
        }
    }

    /// One side of a link hears of its end, or that it stands.
    fn reset_one(&mut self, at: usize, peer: usize, is_up: bool) {
        let node = node_id(peer);
        for worker in 0..self.plan.workers {
            self.nodes[at].workers[worker].peers.set_up(node, is_up);
            let event = if is_up { Event::PeerUp { node } } else { Event::PeerReset { node } };
            self.step(at, worker, event);
        }
    }

    /// The other nodes that are up.
    fn others(&self, index: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&it| it != index && self.nodes[it].is_up).collect()
    }

    fn up(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&it| self.nodes[it].is_up).collect()
    }

    // Calm: everything that is not held goes on.

    /// Delivers and flushes all that is not held, until there is no more.
    fn drain(&mut self) {
        for _ in 0..20_000 {
            let is_held = |letter: &Letter| {
                let mut held = self.held.iter();
                held.any(|&(from, to, part)| letter.goes(from, to) && letter.has(part))
            };
            if let Some(at) = self.bag.iter().position(|letter| !is_held(letter)) {
                let letter = self.bag.remove(at);
                self.deliver(letter);
                continue;
            }
            let mut any = false;
            for index in self.up() {
                self.go_on(index);
                for worker in 0..self.plan.workers {
                    any |= !self.unflushed.contains(&index) && self.flush(index, worker);
                }
            }
            if !any {
                return;
            }
        }
        self.fail("messages never end".to_owned());
    }

    /// So much time passes, in small steps.
    fn pass(&mut self, millis: u64) {
        self.drain();
        for _ in 0..millis.div_ceil(5) {
            self.now += Nanos::from_millis(5);
            self.up().into_iter().for_each(|index| self.fire(index));
            self.drain();
        }
    }

    /// Time passes until this is so. False if it takes too long.
    fn pass_until(&mut self, is_so: impl Fn(&World) -> bool) -> bool {
        for _ in 0..2_000 {
            if is_so(self) || self.fault.is_some() {
                return true;
            }
            self.pass(5);
        }
        false
    }

    /// Time passes until these requests have ended.
    fn settle(&mut self, tags: &[Tag]) {
        self.pass_until(|world| tags.iter().all(|&tag| !world.order.is_open(tag)));
    }

    /// Everything works again: each node answers for every key, and all agree.
    fn heal(&mut self) {
        self.held.clear();
        self.slow.clear();
        self.unflushed.clear();
        for index in 0..self.nodes.len() {
            if !self.nodes[index].is_up {
                self.start(index, 0);
            }
        }
        let open = self.order.open();
        self.settle(&open);
        for what in [Do::ReadLast, Do::Get] {
            self.read_all(what);
        }
        for tag in self.order.open() {
            self.fail(format!("{tag:?} was never answered"));
        }
        let is_idle = |world: &World| {
            let workers = world.nodes.iter().flat_map(|it| &it.workers);
            workers.into_iter().all(|it| it.protocol.is_idle())
        };
        if !self.pass_until(is_idle) {
            self.fail("a healed world never rests".to_owned());
        }
    }

    /// Reads every key at every node.
    fn read_all(&mut self, what: Do) {
        let keys = self.keys.len();
        let mut left: Vec<(usize, usize)> = (0..self.nodes.len())
            .flat_map(|index| (0..keys).map(move |key| (index, key)))
            .collect();
        // A node whose log was cut off copies, and does not know then which writes have ended.
        for _ in 0..5 {
            let ask = |(index, key)| ((index, key), self.ask(index, 0, key, what));
            let asked: Vec<((usize, usize), Tag)> = left.into_iter().map(ask).collect();
            let tags: Vec<Tag> = asked.iter().map(|it| it.1).collect();
            self.settle(&tags);
            let failed = asked.into_iter().filter(|it| !self.is_answered(it.1));
            left = failed.map(|it| it.0).collect();
            if left.is_empty() {
                return;
            }
        }
        self.fail(format!("reads of a healed world fail at {left:?}"));
    }

    fn is_answered(&self, tag: Tag) -> bool {
        matches!(self.order.outcome(tag), Some(Outcome::Reply(_)))
    }

    /// The first fault, or the verdict on the order.
    fn verdict(&mut self) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.order.judge()
    }

    /// Heals the world and judges it, with the registers that all nodes have then.
    fn judge(mut self) -> Result<(), String> {
        self.heal_and_judge()
    }

    fn heal_and_judge(&mut self) -> Result<(), String> {
        if self.fault.is_none() {
            self.heal();
        }
        self.verdict()?;
        for (index, node) in self.nodes.iter().enumerate() {
            for key in &self.keys {
                let worker = usize::from(key.shard().0) % self.plan.workers;
                let held = match node.workers[worker].cache.get(key) {
                    CachedRegister::Present(register) => {
                        let content = &register.content;
                        let value = content.value.as_ref().map(|value| value.to_vec());
                        Some((register.index, value))
                    }
                    CachedRegister::Absent => None,
                    CachedRegister::Lost => return Err(format!("node {index}: {key:?} is lost")),
                };
                let last = self.order.last(key);
                if held != last {
                    return Err(format!("node {index}: {key:?} is {held:?}, not {last:?}"));
                }
            }
        }
        Ok(())
    }
}
