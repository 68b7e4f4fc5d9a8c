//! Programs that name their keys in a first run, or run elsewhere.

use std::sync::Arc;

use base::{Millis, Nanos};
use types::{Change, Clock, Database, Incarnation, Key, NodeId, Outcome, Reply, Tag};

use crate::program::{Mode, Program, Ran, States, Stop, Transaction};
use crate::{Cx, Effect, Holder, Service};

/// Needs one key. The run that has it is too long for a worker.
#[derive(Debug)]
struct Long {
    key: Option<Key>,
}

impl Program for Long {
    fn run(&self, states: &States, _clock: Clock) -> Ran {
        match &self.key {
            Some(key) if !states.contains_key(key) => Ran::Needs(vec![key.clone()]),
            _ => Ran::TooLong,
        }
    }

    fn run_long(&self, states: &States, _clock: Clock, _stop: &Arc<dyn Stop>) -> Ran {
        let changes = states.keys().map(|key| (key.clone(), Change::Delete)).collect();
        Ran::Done { changes, reply: Reply::Integer(states.len() as i64) }
    }
}

#[derive(Debug)]
struct Never;

impl Stop for Never {
    fn reason(&self) -> Option<&'static str> {
        None
    }
}

struct Bench {
    service: Service,
    now: Nanos,
}

const DEADLINE: Nanos = Nanos::from_millis(1_000);

impl Bench {
    fn step(&mut self, step: impl FnOnce(&mut Service, &mut Cx<'_>)) -> Vec<Effect> {
        let mut effects = Vec::new();
        let holder = |_: NodeId, _: Incarnation| Holder::Up;
        let mut cx = Cx { now: self.now, unix: 1, holder: &holder, effects: &mut effects };
        step(&mut self.service, &mut cx);
        effects
    }

    fn start(&mut self, transaction: Transaction) -> Vec<Effect> {
        self.step(|service, cx| service.start(cx, Tag(7), transaction, DEADLINE))
    }
}

fn bench(key: Option<Key>) -> (Bench, Transaction) {
    let service = Service::new(NodeId(1), Incarnation(1), 0);
    let transaction = Transaction {
        database: Database(0),
        keys: Vec::new(),
        watched: Vec::new(),
        program: Arc::new(Long { key }),
        clock: Clock { unix: Millis(1), seed: 1 },
        mode: Mode::Update,
        once: None,
    };
    (Bench { service, now: Nanos(1) }, transaction)
}

fn key() -> Key {
    types::positions::PUBLIC.key(b"key")
}

#[test]
fn program_without_keys_is_computed_and_answered() {
    let (mut bench, transaction) = bench(None);
    let effects = bench.start(transaction);
    let [Effect::Compute(computation)] = &effects[..] else { panic!("{effects:?}") };
    assert!(!bench.service.is_idle());
    let stop: Arc<dyn Stop> = Arc::new(Never);
    let ran = computation.program.run_long(&computation.states, computation.clock, &stop);
    let effects = bench.step(|service, cx| service.on_computed(cx, computation.token, ran));
    let [Effect::Reply { tag: Tag(7), outcome }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*outcome, Outcome::Reply(Reply::Integer(0)));
    assert!(bench.service.is_idle());
}

#[test]
fn first_run_names_the_keys() {
    let (mut bench, transaction) = bench(Some(key()));
    let effects = bench.start(transaction);
    let [Effect::Begin { tag: Tag(7), transaction }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(transaction.keys, [key()]);
    assert!(bench.service.is_idle());
    let effects = bench.start(transaction.clone());
    assert!(matches!(&effects[..], [Effect::Run { .. }]), "it takes the key: {effects:?}");
}

/// The deadline passes while the program runs elsewhere: it is given up, and its result is late.
#[test]
fn late_result_has_no_effect() {
    let (mut bench, mut transaction) = bench(Some(key()));
    transaction.keys = vec![key()];
    let effects = bench.start(transaction);
    let [Effect::Run { token, .. }] = &effects[..] else { panic!("{effects:?}") };
    let found = types::Found {
        value: None,
        ttl: types::TimeToLive::Never,
        ends: None,
        version: 0,
        mod_version: 0,
        absent: None,
    };
    let held = Outcome::Held(Box::new(found));
    let effects = bench.step(|service, cx| service.on_outcome(cx, *token, held));
    let [Effect::Compute(computation)] = &effects[..] else { panic!("{effects:?}") };
    bench.now = DEADLINE;
    let effects = bench.step(|service, cx| service.on_timer(cx));
    let refused =
        |effect: &Effect| matches!(effect, Effect::Reply { outcome: Outcome::Refused(_), .. });
    assert!(effects.iter().any(refused), "{effects:?}");
    let late = Ran::Done { changes: vec![(key(), Change::Delete)], reply: Reply::OK };
    let effects = bench.step(|service, cx| service.on_computed(cx, computation.token, late));
    assert!(effects.is_empty(), "{effects:?}");
}
