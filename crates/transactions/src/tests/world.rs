//! Nodes with a service each, clients that append to lists and read them, and a clock.

mod hands;
mod small;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use base::{Millis, Nanos, Prng};
use bytes::Bytes;
use checker::history::{ClientId, History, OpId};
use checker::model::lists::{ListStep, Seen, Transaction as Steps};
use types::{
    Access, Change, Clock, Command, Database, ExpiryChange, Fence, Incarnation, Key, NodeId, Once,
    Outcome, Refusal, Reply, Shard, Tag, Txid, Under,
};

use super::registers::{Register, Registers};
use crate::{Cx, Effect, Holder, Mode, Program, Ran, Service, States, Status, Transaction};

const NODES: usize = 3;
pub(super) const KEYS: u64 = 4;
const DATABASE: Database = Database(0);
/// Times that a client sends a transaction again.
const RETRIES: u32 = 5;
const TIMEOUT: Nanos = Nanos::from_millis(400);
/// The time at which a world begins.
const PRESENT: Nanos = Nanos::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Faults {
    is_on: bool,
}

impl Faults {
    pub(super) const NONE: Faults = Faults { is_on: false };
    pub(super) const ALL: Faults = Faults { is_on: true };
}

/// A request on its way to a register.
#[derive(Clone, Debug)]
struct Request {
    node: usize,
    incarnation: Incarnation,
    token: u64,
    database: Database,
    key: Key,
    command: Command,
    /// Its sender is not answered any more.
    is_orphan: bool,
    /// Its proposer is gone: it was computed from a state of this version, and has no effect on any
    /// later one.
    base: Option<u64>,
}

/// A question on its way to a node, or its answer on the way back.
#[derive(Clone, Debug)]
struct Question {
    from: usize,
    txid: Txid,
    answer: Option<Status>,
}

/// A command of a client that is not part of a transaction.
#[derive(Clone, Debug)]
struct Plain {
    node: usize,
    incarnation: Incarnation,
    key: Key,
    op: OpId,
    element: u64,
    /// It waits for the end of a transaction.
    waits: bool,
}

/// A transaction whose client waits.
#[derive(Clone, Debug)]
struct Open {
    node: usize,
    op: OpId,
    transaction: Transaction,
    /// Times that its client sends it again, under `ONCE`.
    retries: u32,
}

#[derive(Clone)]
pub(super) struct World {
    rng: Prng,
    faults: Faults,
    pub(super) now: Nanos,
    /// The time of day in all states of a search.
    present: Nanos,
    services: Vec<Service>,
    incarnations: Vec<Incarnation>,
    /// The incarnations that ballots name, once fences shut out the first one.
    renewed: Vec<Incarnation>,
    /// Nodes that the others take for gone.
    gone: Vec<bool>,
    /// By node and shard of the record, the lowest incarnation that is not shut out.
    fences: BTreeMap<(NodeId, Shard), Incarnation>,
    paused_until: Vec<Nanos>,
    /// Nodes whose process ended, and did not start again.
    dead: Vec<bool>,
    registers: Registers,
    requests: Vec<Request>,
    questions: Vec<Question>,
    plain: Vec<Plain>,
    open: BTreeMap<Tag, Open>,
    pub(super) history: History<Steps, Seen>,
    clock: u64,
    next: u64,
    pub(super) committed: u64,
    pub(super) attempted: u64,
    log: String,
}

/// Appends an element to each key and reads it, before and after.
#[derive(Debug)]
struct Lists {
    steps: Steps,
}

fn key(number: u64) -> Key {
    Key::new(&number.to_le_bytes())
}

fn elements(value: &[u8]) -> Vec<u64> {
    value.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

impl Program for Lists {
    fn run(&self, states: &States, _clock: Clock) -> Ran {
        let mut values: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let (mut seen, mut changed) = (Vec::new(), Vec::new());
        for step in &self.steps {
            let (ListStep::Append { key: number, .. } | ListStep::Read { key: number }) = *step;
            let Some(found) = states.get(&key(number)) else {
                return Ran::Needs(vec![key(number)]);
            };
            let value = values
                .entry(number)
                .or_insert_with(|| found.value.clone().unwrap_or_default().to_vec());
            match *step {
                ListStep::Append { element, .. } => {
                    value.extend_from_slice(&element.to_le_bytes());
                    changed.push(number);
                }
                ListStep::Read { .. } => seen.push(Reply::copy(value)),
            }
        }
        changed.sort_unstable();
        changed.dedup();
        let put = |number: u64| {
            let value = Bytes::from(values[&number].clone());
            (key(number), Change::Put { value, expiry: ExpiryChange::Keep })
        };
        Ran::Done { changes: changed.into_iter().map(put).collect(), reply: Reply::Array(seen) }
    }
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> World {
        let incarnations = vec![Incarnation(1); NODES];
        let service = |node: usize| Service::new(NodeId(node as u16 + 1), Incarnation(1), 0);
        World {
            rng: Prng::new(seed),
            faults,
            now: PRESENT,
            present: PRESENT,
            services: (0..NODES).map(service).collect(),
            renewed: incarnations.clone(),
            gone: vec![false; NODES],
            fences: BTreeMap::new(),
            incarnations,
            paused_until: vec![Nanos::ZERO; NODES],
            dead: vec![false; NODES],
            registers: Registers::default(),
            requests: Vec::new(),
            questions: Vec::new(),
            plain: Vec::new(),
            open: BTreeMap::new(),
            history: History::new(),
            clock: 0,
            next: 0,
            committed: 0,
            attempted: 0,
            log: String::new(),
        }
    }

    pub(super) fn trace(&self) -> &str {
        &self.log
    }

    fn note(&mut self, text: String) {
        let _ = writeln!(self.log, "{:?} {text}", self.now);
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn invoke(&mut self, steps: &Steps) -> OpId {
        self.clock += 1;
        self.attempted += 1;
        let client = ClientId(self.attempted);
        self.history.invoke(client, steps.clone(), self.clock)
    }

    fn complete(&mut self, op: OpId, outcome: checker::Outcome<Seen>) {
        self.clock += 1;
        self.committed += u64::from(matches!(outcome, checker::Outcome::Returned(_)));
        self.history.complete(op, outcome, self.clock);
    }

    /// A client asks for a transaction that appends to these lists and reads them. The program
    /// finds some keys by itself.
    fn begin_any(&mut self, node: usize, lists: &[u64]) {
        let declared = 1 + self.rng.below(lists.len() as u64 * 2) as usize;
        self.begin_with(node, lists, declared);
    }

    /// The same, all keys are declared, and it appends.
    pub(super) fn begin(&mut self, node: usize, lists: &[u64]) {
        self.begin_with(node, lists, usize::MAX);
    }

    /// A client reads these lists.
    pub(super) fn read(&mut self, node: usize, lists: &[u64]) {
        let steps = lists.iter().map(|&key| ListStep::Read { key }).collect();
        self.begin_steps(node, steps, usize::MAX);
    }

    fn begin_with(&mut self, node: usize, lists: &[u64], declared: usize) {
        let mut steps = Steps::new();
        for &list in lists {
            let is_first = steps.is_empty() && declared == usize::MAX;
            if is_first || self.rng.chance(0.7) {
                let element = self.next();
                steps.push(ListStep::Append { key: list, element });
            }
            steps.push(ListStep::Read { key: list });
        }
        self.begin_steps(node, steps, declared);
    }

    fn begin_steps(&mut self, node: usize, steps: Steps, declared: usize) {
        let is_read = steps.iter().all(|step| matches!(step, ListStep::Read { .. }));
        let mode = if is_read { Mode::Snapshot } else { Mode::Update };
        let op = self.invoke(&steps);
        let tag = Tag(self.next());
        self.note(format!("node {node} begins {tag:?} {steps:?}"));
        let numbers = steps.iter().map(|step| match *step {
            ListStep::Append { key, .. } | ListStep::Read { key } => key,
        });
        let mut keys: Vec<Key> = numbers.map(key).collect();
        keys.dedup();
        keys.truncate(declared);
        let transaction = Transaction {
            database: DATABASE,
            keys,
            watched: Vec::new(),
            program: Arc::new(Lists { steps }),
            clock: Clock { unix: Millis(0), seed: 0 },
            mode,
            once: None,
        };
        let is_repeated = self.rng.chance(0.4);
        let session = Bytes::copy_from_slice(&tag.0.to_le_bytes());
        let once = Once { session, seq: 1, window: Millis(1 << 40) };
        let transaction = transaction.under(is_repeated.then_some(once));
        let retries = if is_repeated { RETRIES } else { 0 };
        self.send(tag, Open { node, op, transaction, retries });
    }

    /// A client appends to a list under `ONCE`, if its version is this. All lines are the same one.
    pub(super) fn begin_watched(&mut self, node: usize, list: u64, version: Option<u64>) {
        let element = self.next();
        let steps = vec![ListStep::Append { key: list, element }];
        let op = self.invoke(&steps);
        let once = Once { session: Bytes::from_static(b"s"), seq: 1, window: Millis(1 << 40) };
        let transaction = Transaction {
            database: DATABASE,
            keys: vec![key(list)],
            watched: vec![(key(list), version)],
            program: Arc::new(Lists { steps }),
            clock: Clock { unix: Millis(0), seed: 0 },
            mode: Mode::Update,
            once: Some(once),
        };
        let tag = Tag(self.next());
        self.send(tag, Open { node, op, transaction, retries: 0 });
    }

    fn send(&mut self, tag: Tag, open: Open) {
        let deadline = self.now + TIMEOUT;
        let (node, transaction) = (open.node, open.transaction.clone());
        self.open.insert(tag, open);
        self.with(node, |service, cx| service.start(cx, tag, transaction, deadline));
    }

    /// A client without an answer sends its transaction to another node. True if it does.
    fn retry(&mut self, open: &Open) -> bool {
        if open.retries == 0 {
            return false;
        }
        let tag = Tag(self.next());
        let node = self.rng.below(NODES as u64) as usize;
        let (retries, open) = (open.retries - 1, open.clone());
        self.note(format!("it is sent again to node {node} as {tag:?}"));
        self.send(tag, Open { node, retries, ..open });
        true
    }

    /// A client appends to a list without a transaction.
    pub(super) fn begin_plain(&mut self, node: usize, list: u64) {
        let element = self.next();
        let steps = vec![ListStep::Append { key: list, element }, ListStep::Read { key: list }];
        let op = self.invoke(&steps);
        let incarnation = self.incarnations[node];
        self.note(format!("node {node} appends {element} to {list}"));
        self.plain.push(Plain { node, incarnation, key: key(list), op, element, waits: false });
    }

    fn with(&mut self, node: usize, step: impl FnOnce(&mut Service, &mut Cx<'_>)) {
        let mut effects = Vec::new();
        let (incarnations, gone) = (&self.incarnations, &self.gone);
        let dead = &self.dead;
        let holder = |other: NodeId, incarnation: Incarnation| {
            let other = usize::from(other.0) - 1;
            match incarnations[other] > incarnation {
                true => Holder::Replaced,
                false if gone[other] && other != node => Holder::Gone,
                false if dead[other] => Holder::Away,
                false => Holder::Up,
            }
        };
        let mut cx = Cx {
            now: self.now,
            unix: self.now.as_millis(),
            holder: &holder,
            effects: &mut effects,
        };
        step(&mut self.services[node], &mut cx);
        for effect in effects {
            self.carry_out(node, effect);
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Run { token, database, key, command } => {
                let incarnation = self.incarnations[node];
                let (is_orphan, base) = (false, None);
                self.requests.push(Request {
                    node,
                    incarnation,
                    token,
                    database,
                    key,
                    command,
                    is_orphan,
                    base,
                });
            }
            Effect::Reply { tag, outcome } => self.reply(tag, outcome),
            Effect::Compute(_) | Effect::Begin { .. } => panic!("{effect:?}"),
            Effect::Ask { txid, .. } => {
                self.questions.push(Question { from: node, txid, answer: None });
            }
        }
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        self.note(format!("{tag:?} ends: {outcome:?}"));
        let Some(open) = self.open.remove(&tag) else { panic!("{tag:?} ends twice") };
        let op = open.op;
        let ended = match outcome {
            Outcome::Reply(Reply::Array(seen)) => {
                let list = |reply: &Reply| match reply {
                    Reply::Bulk(value) => elements(value),
                    other => panic!("{other:?}"),
                };
                checker::Outcome::Returned(seen.iter().map(list).collect())
            }
            // A watched key has changed.
            Outcome::Reply(Reply::NullArray) => checker::Outcome::Failed,
            Outcome::Unknown if self.retry(&open) => return,
            Outcome::Unknown => checker::Outcome::Unknown,
            Outcome::NoQuorum | Outcome::Refused(_) if open.retries == RETRIES => {
                checker::Outcome::Failed
            }
            Outcome::NoQuorum | Outcome::Refused(_) if open.transaction.once.is_none() => {
                checker::Outcome::Failed
            }
            // An earlier attempt may have run.
            Outcome::NoQuorum | Outcome::Refused(_) if self.retry(&open) => return,
            Outcome::NoQuorum | Outcome::Refused(_) => checker::Outcome::Unknown,
            other => panic!("{other:?}"),
        };
        self.complete(op, ended);
    }

    fn is_paused(&self, node: usize) -> bool {
        self.paused_until[node] > self.now
    }

    /// One random event.
    pub(super) fn step(&mut self) {
        let node = self.rng.below(NODES as u64) as usize;
        match self.rng.below(20) {
            0..=2 => {
                let count = 1 + self.rng.below(3) as usize;
                let lists: Vec<u64> = (0..count).map(|_| self.rng.below(KEYS)).collect();
                self.begin_any(node, &lists);
            }
            3 => {
                let list = self.rng.below(KEYS);
                self.begin_plain(node, list);
            }
            4 => {
                let span = Nanos::from_millis(1 + self.rng.below(8));
                self.pass(span);
            }
            5 if self.faults.is_on && self.rng.chance(0.2) => self.crash(node),
            6 if self.faults.is_on && self.rng.chance(0.3) => {
                let span = 10 + self.rng.below(120);
                self.paused_until[node] = self.now + Nanos::from_millis(span);
            }
            7 => self.find_records(node, true),
            8 if self.faults.is_on && self.rng.chance(0.3) => self.gone[node] ^= true,
            _ => {
                for _ in 0..self.rng.below(6) {
                    self.deliver_any();
                }
            }
        }
    }

    /// Delivers a request, a question or a plain command.
    fn deliver_any(&mut self) {
        let (requests, questions) = (self.requests.len() as u64, self.questions.len() as u64);
        let all = requests + questions + self.plain.len() as u64;
        if all == 0 {
            return;
        }
        let at = self.rng.below(all);
        if at < requests {
            self.deliver(at as usize);
        } else if at < requests + questions {
            self.deliver_question((at - requests) as usize);
        } else {
            self.run_plain((at - requests - questions) as usize);
        }
    }

    fn deliver(&mut self, at: usize) {
        let request = self.requests.remove(at);
        if !request.is_orphan && self.is_paused(request.node) {
            return self.requests.push(request);
        }
        let lives = !request.is_orphan && request.incarnation == self.incarnations[request.node];
        if self.faults.is_on && lives && self.rng.chance(0.06) {
            let outcome = match self.rng.below(3) {
                0 => Outcome::NoQuorum,
                // It may still run, or never.
                _ => {
                    self.requests.push(Request { is_orphan: true, ..request.clone() });
                    Outcome::Unknown
                }
            };
            let is_read = request.command.access == Access::Read;
            let outcome = if is_read { Outcome::NoQuorum } else { outcome };
            self.note(format!("{request:?} ends {outcome:?}"));
            return self
                .with(request.node, |service, cx| service.on_outcome(cx, request.token, outcome));
        }
        let place = (request.database, request.key.clone());
        let is_late = request.base.is_some_and(|base| base != self.registers.version(&place));
        if !lives && (is_late || self.rng.chance(0.5)) {
            return;
        }
        let waits = request.command.hold.as_ref().is_some_and(|hold| hold.waits());
        let lock = self.registers.is_locked(request.database, &request.key);
        if let Some(lock) = lock.filter(|_| waits && lives) {
            let (database, key) = (request.database, request.key.clone());
            self.with(request.node, |service, cx| service.on_locked(cx, database, key, lock));
            self.requests.push(request);
            return self.pass(Nanos::from_millis(1));
        }
        let Some(outcome) = self.run_fenced(&request, lives) else { return };
        self.note(format!(
            "node {} {:?} {:?} -> {outcome:?}",
            request.node, request.key, request.command
        ));
        if lives {
            if self.registers.is_locked(request.database, &request.key).is_none() {
                self.let_in(request.node, &request.key);
            }
            self.with(request.node, |service, cx| service.on_outcome(cx, request.token, outcome));
        }
    }

    /// Runs a request, unless its node is shut out. A live one takes another incarnation then.
    fn run_fenced(&mut self, request: &Request, lives: bool) -> Option<Outcome> {
        let Request { node, database, key, command, .. } = request;
        let place = (NodeId(*node as u16 + 1), key.shard());
        let fence = self.fences.get(&place).copied().unwrap_or_default();
        if database.is_hidden() && lives && self.renewed[*node] < fence {
            self.renew(*node);
        }
        match command.under_ballots() {
            Under::Incarnation(it) if !lives && it < fence => return None,
            Under::Incarnation(it) if lives && it != self.renewed[*node] => {
                return Some(Outcome::Refused(Refusal::Conflict));
            }
            Under::Incarnation(_) | Under::Any => {}
            Under::Fence(Fence { node, below }) => {
                let fence = self.fences.entry((node, key.shard())).or_default();
                *fence = below.max(*fence);
            }
        }
        Some(self.registers.run(*database, key, command))
    }

    /// The node takes another incarnation.
    pub(super) fn renew(&mut self, node: usize) {
        self.note(format!("node {node} takes another incarnation"));
        self.renewed[node].0 += 1;
        self.services[node].renew(self.renewed[node]);
    }

    /// Commands of the node that wait for this key run.
    fn let_in(&mut self, node: usize, key: &Key) {
        while let Some(at) =
            self.plain.iter().position(|it| it.waits && it.node == node && it.key == *key)
        {
            self.plain[at].waits = false;
            self.run_plain(at);
        }
    }

    fn run_plain(&mut self, at: usize) {
        let plain = self.plain[at].clone();
        if plain.incarnation != self.incarnations[plain.node] {
            self.plain.remove(at);
            return self.complete(plain.op, checker::Outcome::Failed);
        }
        if plain.waits {
            return;
        }
        if let Some(lock) = self.registers.is_locked(DATABASE, &plain.key) {
            self.plain[at].waits = true;
            let key = plain.key.clone();
            return self.with(plain.node, |service, cx| service.on_locked(cx, DATABASE, key, lock));
        }
        self.plain.remove(at);
        let body = Bytes::copy_from_slice(&plain.element.to_le_bytes());
        let command = Command::new(Access::Update, body);
        let outcome = self.registers.run(DATABASE, &plain.key, &command);
        self.note(format!("node {} {:?} plain -> {outcome:?}", plain.node, plain.key));
        let Outcome::Reply(Reply::Bulk(value)) = outcome else { panic!("{outcome:?}") };
        self.complete(plain.op, checker::Outcome::Returned(vec![elements(&value)]));
    }

    fn deliver_question(&mut self, at: usize) {
        let question = self.questions.remove(at);
        if self.faults.is_on && self.rng.chance(0.1) {
            return;
        }
        let holder = usize::from(question.txid.node.0) - 1;
        match question.answer {
            None if self.is_paused(holder) => self.questions.push(question),
            None if self.dead[holder] => {}
            None if self.incarnations[holder] <= question.txid.incarnation => {
                let answer = self.services[holder].status(question.txid);
                assert!(answer.is_some(), "it is this node's");
                self.questions.push(Question { answer, ..question });
            }
            None => {}
            Some(status) => {
                self.with(question.from, |service, cx| {
                    service.on_status(cx, question.txid, status)
                });
            }
        }
    }

    fn pass(&mut self, span: Nanos) {
        self.now += span;
        for node in 0..NODES {
            if !self.is_paused(node) {
                self.with(node, |service, cx| service.on_timer(cx));
            }
        }
    }

    /// Restarts a node: its requests may still run.
    pub(super) fn crash(&mut self, node: usize) {
        self.note(format!("node {node} restarts"));
        self.dead[node] = false;
        self.renewed[node].0 += 1;
        self.incarnations[node] = self.renewed[node];
        self.die(node);
    }

    /// Ends the process of a node.
    fn die(&mut self, node: usize) {
        self.services[node] = Service::new(NodeId(node as u16 + 1), self.incarnations[node], 0);
        self.paused_until[node] = Nanos::ZERO;
        for request in self.requests.iter_mut().filter(|request| request.node == node) {
            let place = (request.database, request.key.clone());
            request.is_orphan = true;
            request.base.get_or_insert_with(|| self.registers.version(&place));
        }
        let gone: Vec<Tag> =
            self.open.iter().filter(|(_, open)| open.node == node).map(|(tag, _)| *tag).collect();
        for tag in gone {
            if let Some(open) = self.open.remove(&tag) {
                self.retry(&open);
            }
        }
    }

    pub(super) fn deliver_one(&mut self) {
        if !self.requests.is_empty() {
            self.deliver(0);
        }
    }

    pub(super) fn has_timers(&self) -> bool {
        self.services.iter().any(|service| service.next_timer().is_some())
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.services.iter().all(Service::is_idle)
    }

    /// Ends all faults and runs until no work is left. Then each key is read.
    pub(super) fn heal(&mut self) {
        self.faults = Faults::NONE;
        self.gone = vec![false; NODES];
        self.paused_until = vec![Nanos::ZERO; NODES];
        let dead: Vec<usize> = (0..NODES).filter(|&node| self.dead[node]).collect();
        dead.into_iter().for_each(|node| self.crash(node));
        self.run_dry();
        for node in 0..NODES {
            self.find_records(node, true);
            self.run_dry();
        }
        for list in 0..KEYS {
            self.begin_plain(0, list);
        }
        self.run_dry();
    }

    /// This node is told of all records.
    fn find_records(&mut self, node: usize, are_old: bool) {
        let records = self.registers.all.iter().filter(|(_, register)| register.value.is_some());
        let records = records.map(|((database, key), _)| (*database, key.clone()));
        let records: Vec<(Database, Key)> =
            records.filter(|(database, _)| database.is_hidden()).collect();
        for (_, record) in records {
            self.with(node, |service, cx| service.on_record(cx, DATABASE, record, are_old));
        }
    }

    fn run_dry(&mut self) {
        for _ in 0..20_000 {
            let waits = |it: &Plain| it.waits;
            if self.requests.is_empty() && self.questions.is_empty() && self.plain.iter().all(waits)
            {
                if self.is_quiet() && self.plain.is_empty() {
                    return;
                }
                self.pass(Nanos::from_millis(1));
            }
            self.deliver_any();
        }
        panic!("work that never ends\n{}", self.log);
    }

    /// No lock is left, and no record.
    pub(super) fn check_registers(&self, seed: u64) {
        for ((database, key), register) in &self.registers.all {
            assert_eq!(register.lock, None, "seed {seed}: {database:?} {key:?}\n{}", self.log);
            let is_record = database.is_hidden() && register.value.is_some();
            assert!(!is_record, "seed {seed}: {key:?} {:?}\n{}", register.value, self.log);
        }
    }
}
