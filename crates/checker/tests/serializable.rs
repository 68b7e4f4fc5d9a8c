//! The serializability check agrees with brute force over all orders, and with the search.

use checker::history::Operation;
use checker::model::lists::{Lists, Seen, Transaction};
use checker::serializable::{self, Finding, Promise};
use checker::{History, Limit, Verdict, linearizable};

mod support;

use support::Random;
use support::histories::{HistoryShape, right};
use support::transactions::changed;
use support::twin::{explains, in_program, in_real_time, is_explainable, is_reachable};

type TransactionOperation = Operation<Transaction, Seen>;

const PROMISES: [Promise; 4] =
    [Promise::Serializable, Promise::InSessions, Promise::Strict, Promise::StrictInSessions];

fn precedes(promise: Promise) -> impl Fn(&TransactionOperation, &TransactionOperation) -> bool {
    move |a, b| match promise {
        Promise::Serializable => false,
        Promise::InSessions => in_program(a, b),
        Promise::Strict => in_real_time(a, b),
        Promise::StrictInSessions => in_real_time(a, b) || in_program(a, b),
    }
}

fn shape(operations_max: u64, clients_max: u64, random: &mut Random) -> HistoryShape {
    HistoryShape {
        operations_count: 1 + random.below(operations_max) as usize,
        clients_count: 1 + random.below(clients_max),
        pause_max: random.below(4),
        duration_max: random.below(10),
        percent_unknown: *random.pick(&[0, 20, 50]),
        percent_failed: *random.pick(&[0, 10]),
        percent_pipelined: *random.pick(&[0, 0, 50]),
    }
}

fn history(operations_max: u64, seed: u64) -> History<Transaction, Seen> {
    let mut random = Random::new(seed);
    let shape = shape(operations_max, 5, &mut random);
    let history = right(&Lists, shape, &mut random);
    let changes = *random.pick(&[0, 1, 1, 1, 2, 3]);
    changed(&history, changes, &mut random)
}

/// Compares a finding with `expected`; true if the promise was kept.
fn agrees(
    history: &History<Transaction, Seen>,
    promise: Promise,
    expected: bool,
    seed: u64,
) -> bool {
    match serializable::check(history, promise) {
        Finding::Holds { order } => {
            assert!(expected, "seed {seed}, {promise:?}: {order:?}, none exists: {history:#?}");
            let is_right = explains(&Lists, history, precedes(promise), &order);
            assert!(is_right, "seed {seed}, {promise:?}: {order:?} is no order: {history:#?}");
            true
        }
        Finding::Broken(anomalies) => {
            assert!(!anomalies.is_empty(), "seed {seed}");
            assert!(!expected, "seed {seed}, {promise:?}: {anomalies:#?}, {history:#?}");
            false
        }
    }
}

#[test]
fn every_promise_agrees_with_trying_every_order() {
    for promise in PROMISES {
        let (mut held, mut broken) = (0, 0);
        for seed in 0..4_000 {
            let history = history(6, seed);
            let expected = is_explainable(&Lists, &history, precedes(promise));
            *if agrees(&history, promise, expected, seed) { &mut held } else { &mut broken } += 1;
        }
        assert!(held > 1_000 && broken > 600, "{promise:?}: {held} held, {broken} did not");
    }
}

#[test]
fn every_promise_agrees_with_trying_every_state() {
    for promise in PROMISES {
        let (mut held, mut broken) = (0, 0);
        for seed in 0..900 {
            let history = history(11, seed);
            let expected = is_reachable(&Lists, &history, precedes(promise));
            *if agrees(&history, promise, expected, seed) { &mut held } else { &mut broken } += 1;
        }
        assert!(held > 180 && broken > 180, "{promise:?}: {held} held, {broken} did not");
    }
}

/// The search has no notion of elements or cycles; it looks for the same order.
#[test]
fn strict_serializability_agrees_with_the_search_on_longer_histories() {
    let (mut held, mut broken, mut undecided) = (0, 0, 0);
    for seed in 0..600 {
        let history = history(30, seed);
        match linearizable::check(&Lists, &history, Limit { explored_max: 2_000 }) {
            Verdict::Undecided { .. } => undecided += 1,
            verdict => match agrees(&history, Promise::Strict, verdict.holds(), seed) {
                true => held += 1,
                false => broken += 1,
            },
        }
    }
    assert!(held > 150 && broken > 150, "{held} held, {broken} did not, {undecided} too hard");
}

/// Sequential transactions keep every promise.
#[test]
fn histories_of_a_serial_executor_hold() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut shape = shape(200, 20, &mut random);
        shape.percent_pipelined = 0;
        let history = right(&Lists, shape, &mut random);
        for promise in PROMISES {
            assert!(agrees(&history, promise, true, seed), "seed {seed}");
        }
    }
}

/// The stronger the promise, the fewer histories keep it.
#[test]
fn a_promise_kept_keeps_the_weaker_ones() {
    for seed in 0..5_000 {
        let history = history(20, seed);
        let holds = |promise| serializable::check(&history, promise).holds();
        let [plain, in_sessions, strict, both] = PROMISES.map(holds);
        assert!(!both || strict && in_sessions, "seed {seed}");
        assert!(plain || !strict && !in_sessions, "seed {seed}");
    }
}
