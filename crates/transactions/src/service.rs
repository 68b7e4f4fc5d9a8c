//! All transactions that a worker coordinates, and all locks that its clients' commands met.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Nanos;
use types::{Clock, Command, Database, Incarnation, Key, Lock, NodeId, Outcome, Tag, Txid};

use crate::coordinator::{self, Coordinator, Fate, Retry};
use crate::effects::{Effect, Status};
use crate::patrol::{self, Patrol};
use crate::program::{Computation, Mode, Program, Ran, States, Transaction};
use crate::resolver::{self, Resolver};
use crate::snapshot::{self, Snapshot};

#[cfg(test)]
mod canonical;

/// Records that are looked after at a time.
const PATROLS_MAX: usize = 256;

/// The node of a transaction's coordinator, as this node knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// Its incarnation is connected.
    Up,
    /// It is not connected.
    Away,
    /// It has not been connected for minutes.
    Gone,
    /// A later incarnation was seen.
    Replaced,
}

/// The surroundings of an event.
pub struct Cx<'a> {
    pub now: Nanos,
    /// Milliseconds of Unix time.
    pub unix: u64,
    pub holder: &'a dyn Fn(NodeId, Incarnation) -> Holder,
    pub effects: &'a mut Vec<Effect>,
}

impl Cx<'_> {
    pub(crate) fn holder(&self, txid: Txid) -> Holder {
        (self.holder)(txid.node, txid.incarnation)
    }
}

/// Sans-IO: events come in, effects go out. One per worker.
#[derive(Clone, Debug)]
pub struct Service {
    me: NodeId,
    incarnation: Incarnation,
    worker: u64,
    started: u64,
    last_token: u64,
    last_id: u64,
    coordinators: BTreeMap<u64, Coordinator>,
    snapshots: BTreeMap<u64, Snapshot>,
    /// By the records that they are about.
    patrols: BTreeMap<(Database, Key), (u64, Patrol)>,
    resolvers: BTreeMap<(Database, Key), Resolver>,
    asked: BTreeMap<u64, Asked>,
    timers: BTreeSet<(Nanos, Timer)>,
    /// Programs that run elsewhere.
    computing: BTreeMap<u64, Computing>,
}

/// The owner of a program that runs elsewhere.
#[derive(Clone, Debug)]
enum Computing {
    /// It has no keys yet.
    Start(Box<Retry>),
    Coordinator(u64),
    Snapshot(u64),
}

/// The sender of a request to a register.
#[derive(Clone, Debug)]
enum Asked {
    Coordinator(u64, coordinator::Purpose),
    Snapshot(u64, snapshot::Purpose),
    Patrol((Database, Key), u64, patrol::Purpose),
    Resolver(Database, Key, resolver::Purpose),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Coordinator(u64, Option<Key>),
    Snapshot(u64),
    Resolver(Database, Key),
}

/// Requests of a coordinator or resolver.
#[derive(Debug)]
pub(crate) struct Requests<P> {
    runs: Vec<(P, bool, Key, Command)>,
    wakes: Vec<(Nanos, Option<Key>)>,
    asks: Vec<Txid>,
    replies: Vec<(Tag, Outcome)>,
    computation: Option<(Arc<dyn Program>, States, Clock)>,
}

impl<P> Default for Requests<P> {
    fn default() -> Requests<P> {
        let (runs, wakes, asks, replies) = Default::default();
        Requests { runs, wakes, asks, replies, computation: None }
    }
}

impl<P> Requests<P> {
    pub(crate) fn run(&mut self, purpose: P, key: Key, command: Command) {
        self.runs.push((purpose, false, key, command));
    }

    /// On a register of the hidden keyspace.
    pub(crate) fn run_hidden(&mut self, purpose: P, key: Key, command: Command) {
        self.runs.push((purpose, true, key, command));
    }

    pub(crate) fn wake(&mut self, at: Nanos, key: Option<Key>) {
        self.wakes.push((at, key));
    }

    pub(crate) fn ask(&mut self, txid: Txid) {
        self.asks.push(txid);
    }

    pub(crate) fn reply(&mut self, tag: Tag, outcome: Outcome) {
        self.replies.push((tag, outcome));
    }

    /// Runs the program of a transaction elsewhere.
    pub(crate) fn compute(&mut self, transaction: &Transaction, states: States) {
        self.computation = Some((transaction.program.clone(), states, transaction.clock));
    }
}

impl Service {
    #[must_use]
    pub fn new(me: NodeId, incarnation: Incarnation, worker: usize) -> Service {
        Service {
            me,
            incarnation,
            worker: worker as u64,
            started: 0,
            last_token: 0,
            last_id: 0,
            coordinators: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            patrols: BTreeMap::new(),
            resolvers: BTreeMap::new(),
            asked: BTreeMap::new(),
            timers: BTreeSet::new(),
            computing: BTreeMap::new(),
        }
    }

    /// Transactions begin as this incarnation from now on: a fence shuts out those below. Registers
    /// refuse the commits of former ones.
    pub fn renew(&mut self, incarnation: Incarnation) {
        self.incarnation = self.incarnation.max(incarnation);
    }

    /// Begins a transaction. Its answer is a [`Effect::Reply`] with this tag.
    pub fn start(&mut self, cx: &mut Cx<'_>, tag: Tag, transaction: Transaction, deadline: Nanos) {
        let keys = snapshot::keys_of(&transaction);
        let start = cx.unix;
        let retry = Retry { tag, transaction, start, deadline, runs: 0, keys };
        if retry.keys.is_empty() { self.find_keys(cx, retry) } else { self.attempt(cx, retry) }
    }

    /// A first run without any state names the keys, or needs none. \[T15\]
    fn find_keys(&mut self, cx: &mut Cx<'_>, retry: Retry) {
        let transaction = &retry.transaction;
        let ran = transaction.program.run(&States::new(), transaction.clock);
        self.on_first_run(cx, retry, ran);
    }

    fn on_first_run(&mut self, cx: &mut Cx<'_>, mut retry: Retry, ran: Ran) {
        let Retry { tag, transaction, deadline, .. } = &mut retry;
        match ran {
            Ran::Done { reply, .. } | Ran::Refused(reply) => {
                cx.effects.push(Effect::Reply { tag: *tag, outcome: Outcome::Reply(reply) });
            }
            Ran::TooLong => {
                let run = (transaction.program.clone(), States::new(), transaction.clock);
                let deadline = *deadline;
                self.compute(cx, run, deadline, Computing::Start(Box::new(retry)));
            }
            Ran::Needs(keys) => {
                transaction.keys = keys;
                let Retry { tag, transaction, .. } = retry;
                cx.effects.push(Effect::Begin { tag, transaction });
            }
        }
    }

    fn attempt(&mut self, cx: &mut Cx<'_>, retry: Retry) {
        if retry.transaction.mode != Mode::Update {
            return self.read(cx, retry);
        }
        self.started += 1;
        let counter = Txid::counter(self.started, self.worker);
        let (node, incarnation) = (self.me, self.incarnation);
        let txid = Txid { start: retry.start, node, incarnation, counter };
        self.last_id += 1;
        let id = self.last_id;
        let mut coordinator = Coordinator::new(retry, txid);
        let mut out = Requests::default();
        coordinator.start(&mut out);
        self.send_of_coordinator(cx, id, coordinator.database(), out);
        self.coordinators.insert(id, coordinator);
    }

    fn read(&mut self, cx: &mut Cx<'_>, retry: Retry) {
        self.last_id += 1;
        let (id, database) = (self.last_id, retry.transaction.database);
        let mut snapshot = Snapshot::new(retry);
        let mut out = Requests::default();
        snapshot.start(&mut out);
        self.send_of_snapshot(cx, id, database, out);
        self.snapshots.insert(id, snapshot);
    }

    /// Commands of this node's clients wait for the end of a transaction.
    pub fn on_locked(&mut self, cx: &mut Cx<'_>, database: Database, key: Key, lock: Lock) {
        let place = (database, key);
        if let Some(resolver) = self.resolvers.get_mut(&place) {
            return resolver.on_locked();
        }
        let resolver = Resolver::new(place.1.clone(), lock);
        let mut out = Requests::default();
        resolver.start(&mut out);
        self.send_of_resolver(cx, &place, out);
        self.resolvers.insert(place, resolver);
    }

    /// A record of this database stays for longer than a transaction takes. `is_old`: a coordinator
    /// that lives would have forgotten it since.
    pub fn on_record(&mut self, cx: &mut Cx<'_>, database: Database, record: Key, is_old: bool) {
        let place = (database, record);
        if self.patrols.len() >= PATROLS_MAX {
            let oldest = self.patrols.iter().min_by_key(|(_, (id, _))| *id);
            let oldest = oldest.map(|(place, _)| place.clone());
            oldest.map(|place| self.patrols.remove(&place));
        }
        let Some(patrol) = Patrol::new(place.1.clone(), is_old) else { return };
        let mut out = Requests::default();
        patrol.start(&mut out);
        self.last_id += 1;
        self.patrols.insert(place.clone(), (self.last_id, patrol));
        self.send_of_patrol(cx, &place, out);
    }

    /// The end of an [`Effect::Run`].
    pub fn on_outcome(&mut self, cx: &mut Cx<'_>, token: u64, outcome: Outcome) {
        match self.asked.remove(&token) {
            Some(Asked::Coordinator(id, purpose)) => {
                self.with_coordinator(cx, id, |it, cx, out| {
                    it.on_outcome(cx, purpose, outcome, out)
                })
            }
            Some(Asked::Snapshot(id, purpose)) => {
                self.with_snapshot(cx, id, |it, cx, out| it.on_outcome(cx, purpose, outcome, out));
            }
            Some(Asked::Resolver(database, key, purpose)) => {
                let place = (database, key);
                let Some(resolver) = self.resolvers.get_mut(&place) else { return };
                let mut out = Requests::default();
                if resolver.on_outcome(cx, purpose, outcome, &mut out) {
                    self.resolvers.remove(&place);
                }
                self.send_of_resolver(cx, &place, out);
            }
            Some(Asked::Patrol(place, id, purpose)) => {
                let Some((_, patrol)) = self.patrols.get_mut(&place).filter(|it| it.0 == id) else {
                    return;
                };
                let mut out = Requests::default();
                let ends = patrol.on_outcome(cx, purpose, outcome, &mut out);
                self.send_of_patrol(cx, &place, out);
                if ends {
                    self.patrols.remove(&place);
                }
            }
            None => {}
        }
    }

    fn with_coordinator(
        &mut self,
        cx: &mut Cx<'_>,
        id: u64,
        step: impl FnOnce(&mut Coordinator, &mut Cx<'_>, &mut Requests<coordinator::Purpose>) -> Fate,
    ) {
        let Some(coordinator) = self.coordinators.get_mut(&id) else { return };
        let mut out = Requests::default();
        let fate = step(coordinator, cx, &mut out);
        let (database, deadline) = (coordinator.database(), coordinator.deadline());
        if matches!(fate, Fate::Ended) {
            self.coordinators.remove(&id);
            self.timers.remove(&(deadline, Timer::Coordinator(id, None)));
        }
        if let Some(run) = out.computation.take() {
            self.compute(cx, run, deadline, Computing::Coordinator(id));
        }
        self.send_of_coordinator(cx, id, database, out);
        if let Fate::Again(retry) = fate {
            base::sometimes!("a transaction is attempted again");
            self.attempt(cx, *retry);
        }
    }

    fn with_snapshot(
        &mut self,
        cx: &mut Cx<'_>,
        id: u64,
        step: impl FnOnce(&mut Snapshot, &mut Cx<'_>, &mut Requests<snapshot::Purpose>) -> Fate,
    ) {
        let Some(snapshot) = self.snapshots.get_mut(&id) else { return };
        let Some(retry) = snapshot.retry() else { return };
        let (database, deadline) = (retry.transaction.database, retry.deadline);
        let mut out = Requests::default();
        let fate = step(snapshot, cx, &mut out);
        if !matches!(fate, Fate::Goes) {
            self.snapshots.remove(&id);
            self.timers.remove(&(deadline, Timer::Snapshot(id)));
        }
        if let Some(run) = out.computation.take() {
            self.compute(cx, run, deadline, Computing::Snapshot(id));
        }
        self.send_of_snapshot(cx, id, database, out);
        if let Fate::Again(retry) = fate {
            self.attempt(cx, *retry);
        }
    }

    fn compute(
        &mut self,
        cx: &mut Cx<'_>,
        (program, states, clock): (Arc<dyn Program>, States, Clock),
        deadline: Nanos,
        owner: Computing,
    ) {
        self.last_token += 1;
        let token = self.last_token;
        self.computing.insert(token, owner);
        let computation = Computation { token, program, states, clock, deadline };
        cx.effects.push(Effect::Compute(computation));
    }

    /// The end of an [`Effect::Compute`].
    pub fn on_computed(&mut self, cx: &mut Cx<'_>, token: u64, ran: Ran) {
        match self.computing.remove(&token) {
            Some(Computing::Start(retry)) => match ran {
                Ran::Needs(_) if cx.now >= retry.deadline => {
                    let outcome = Outcome::Refused(types::Refusal::Conflict);
                    cx.effects.push(Effect::Reply { tag: retry.tag, outcome });
                }
                ran => self.on_first_run(cx, *retry, ran),
            },
            Some(Computing::Coordinator(id)) => {
                self.with_coordinator(cx, id, |it, cx, out| it.on_computed(cx, ran, out));
            }
            Some(Computing::Snapshot(id)) => {
                self.with_snapshot(cx, id, |it, _, out| it.on_computed(ran, out));
            }
            None => {}
        }
    }

    /// The next time at which [`Service::on_timer`] has work.
    #[must_use]
    pub fn next_timer(&self) -> Option<Nanos> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub fn on_timer(&mut self, cx: &mut Cx<'_>) {
        while self.next_timer().is_some_and(|at| at <= cx.now) {
            match self.timers.pop_first() {
                Some((_, Timer::Coordinator(id, key))) => {
                    self.with_coordinator(cx, id, |it, cx, out| it.on_timer(cx, key, out));
                }
                Some((_, Timer::Snapshot(id))) => {
                    self.with_snapshot(cx, id, |it, cx, out| it.on_timer(cx, out));
                }
                Some((_, Timer::Resolver(database, key))) => {
                    let place = (database, key);
                    let mut out = Requests::default();
                    if let Some(resolver) = self.resolvers.get_mut(&place) {
                        resolver.on_timer(&mut out);
                    }
                    self.send_of_resolver(cx, &place, out);
                }
                None => {}
            }
        }
    }

    /// The status of a transaction; `None` unless this node and worker coordinated it.
    #[must_use]
    pub fn status(&self, txid: Txid) -> Option<Status> {
        let is_mine = txid.node == self.me
            && txid.incarnation <= self.incarnation
            && u64::from(txid.worker()) == self.worker;
        let is_it = |it: &Coordinator| it.txid == txid && it.is_alive();
        is_mine.then(|| match self.coordinators.values().any(is_it) {
            true => Status::Alive,
            false => Status::Finished,
        })
    }

    /// The answer to an [`Effect::Ask`]. It counts only from the transaction's own incarnation.
    pub fn on_status(&mut self, cx: &mut Cx<'_>, txid: Txid, status: Status) {
        let is_alive = status == Status::Alive;
        self.resolvers.values_mut().for_each(|it| it.on_status(txid, is_alive));
        self.coordinators.values_mut().for_each(|it| it.on_status(txid, is_alive));
        if !is_alive {
            self.forget_finished(cx, txid);
        }
    }

    fn forget_finished(&mut self, cx: &mut Cx<'_>, txid: Txid) {
        let mut all: Vec<((Database, Key), Requests<patrol::Purpose>)> = Vec::new();
        for (place, (_, patrol)) in &mut self.patrols {
            let mut out = Requests::default();
            patrol.on_finished(txid, &mut out);
            all.push((place.clone(), out));
        }
        all.into_iter().for_each(|(place, out)| self.send_of_patrol(cx, &place, out));
    }

    /// No transaction is in progress, and no lock is met.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.computing.is_empty()
            && self.coordinators.is_empty()
            && self.snapshots.is_empty()
            && self.resolvers.is_empty()
    }

    fn send_of_coordinator(
        &mut self,
        cx: &mut Cx<'_>,
        id: u64,
        database: Database,
        out: Requests<coordinator::Purpose>,
    ) {
        let timers = out.wakes.iter().map(|(at, key)| (*at, Timer::Coordinator(id, key.clone())));
        self.timers.extend(timers);
        self.send(cx, database, out, |purpose| Asked::Coordinator(id, purpose));
    }

    fn send_of_patrol(
        &mut self,
        cx: &mut Cx<'_>,
        place: &(Database, Key),
        out: Requests<patrol::Purpose>,
    ) {
        let Some((id, _)) = self.patrols.get(place) else { return };
        let id = *id;
        self.send(cx, place.0, out, |purpose| Asked::Patrol(place.clone(), id, purpose));
    }

    fn send_of_snapshot(
        &mut self,
        cx: &mut Cx<'_>,
        id: u64,
        database: Database,
        out: Requests<snapshot::Purpose>,
    ) {
        self.timers.extend(out.wakes.iter().map(|(at, _)| (*at, Timer::Snapshot(id))));
        self.send(cx, database, out, |purpose| Asked::Snapshot(id, purpose));
    }

    fn send_of_resolver(
        &mut self,
        cx: &mut Cx<'_>,
        place: &(Database, Key),
        out: Requests<resolver::Purpose>,
    ) {
        let timer = || Timer::Resolver(place.0, place.1.clone());
        self.timers.extend(out.wakes.iter().map(|(at, _)| (*at, timer())));
        self.send(cx, place.0, out, |purpose| Asked::Resolver(place.0, place.1.clone(), purpose));
    }

    fn send<P>(
        &mut self,
        cx: &mut Cx<'_>,
        database: Database,
        out: Requests<P>,
        asked: impl Fn(P) -> Asked,
    ) {
        for (purpose, is_hidden, key, command) in out.runs {
            self.last_token += 1;
            let token = self.last_token;
            self.asked.insert(token, asked(purpose));
            let database = if is_hidden { database.hidden() } else { database };
            cx.effects.push(Effect::Run { token, database, key, command });
        }
        cx.effects.extend(out.asks.into_iter().map(|txid| Effect::Ask { txid }));
        let replies = out.replies.into_iter();
        cx.effects.extend(replies.map(|(tag, outcome)| Effect::Reply { tag, outcome }));
    }
}
