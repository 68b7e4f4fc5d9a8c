//! Fast equals slow and obvious, on thousands of small random histories right and wrong.

use checker::history::Outcome;
use checker::model::append::Append;
use checker::model::counter::Counter;
use checker::model::keyed::Keyed;
use checker::model::kv::Kv;
use checker::model::register::Register;
use checker::sequential::{self, WriteOrder};
use checker::{History, Limit, Operation, Verdict, linearizable};

mod support;

use support::Random;
use support::histories::{HistoryShape, doubtful, right};
use support::subjects::{
    Bag, Subject, kv_of_lists, kv_of_numbers, kv_that_expires, register_without_swaps,
};
use support::twin::{
    explains, in_program, in_real_time, is_explainable, is_reachable, is_right_prefix,
};

const SEEDS: u64 = 3_000;
/// Every third history is longer, for the twin that keeps states rather than orders.
const LONG_EVERY: u64 = 3;
const ORDERS_OPERATIONS_MAX: u64 = 7;
const STATES_OPERATIONS_MAX: u64 = 12;

fn shape(operations_max: u64, random: &mut Random) -> HistoryShape {
    HistoryShape {
        operations_count: 1 + random.below(operations_max) as usize,
        clients_count: 1 + random.below(6),
        pause_max: random.below(4),
        duration_max: random.below(8),
        percent_unknown: *random.pick(&[0, 20, 50, 80]),
        percent_failed: *random.pick(&[0, 10]),
        percent_pipelined: *random.pick(&[0, 0, 30, 80]),
    }
}

fn history<S: Subject>(subject: &S, seed: u64) -> History<S::Input, S::Output> {
    let mut random = Random::new(seed);
    let is_long = seed.is_multiple_of(LONG_EVERY);
    let operations_max = if is_long { STATES_OPERATIONS_MAX } else { ORDERS_OPERATIONS_MAX };
    let shape = shape(operations_max, &mut random);
    if random.chance(30) {
        right(subject, shape, &mut random)
    } else {
        doubtful(subject, shape, &mut random)
    }
}

/// Checks both on every seed; both answers must have come up.
fn compare<S: Subject>(
    subject: &S,
    fast: impl Fn(&History<S::Input, S::Output>) -> Verdict,
    precedes: impl Fn(&Operation<S::Input, S::Output>, &Operation<S::Input, S::Output>) -> bool,
) {
    let (mut held, mut violated) = (0, 0);
    for seed in 0..SEEDS {
        let history = history(subject, seed);
        let expected = if seed.is_multiple_of(LONG_EVERY) {
            is_reachable(subject, &history, &precedes)
        } else {
            is_explainable(subject, &history, &precedes)
        };
        match fast(&history) {
            Verdict::Holds { order } => {
                assert!(expected, "seed {seed}: {order:?} found, none exists: {history:#?}");
                let is_right = explains(subject, &history, &precedes, &order);
                assert!(is_right, "seed {seed}: {order:?} explains nothing: {history:#?}");
                held += 1;
            }
            Verdict::Violation(violation) => {
                assert!(!expected, "seed {seed}: an order exists\n{violation}");
                let prefix = &violation.prefix;
                assert!(is_right_prefix(subject, &history, &precedes, prefix), "seed {seed}");
                assert!(!prefix.contains(&violation.blocked), "seed {seed}");
                violated += 1;
            }
            Verdict::Undecided { explored } => panic!("seed {seed}: gave up after {explored}"),
        }
    }
    assert!(held > SEEDS / 10, "only {held} histories held");
    assert!(violated > SEEDS / 30, "only {violated} histories were violations");
}

fn compare_linearizable<S: Subject>(subject: &S) {
    compare(subject, |h| linearizable::check(subject, h, Limit::default()), in_real_time);
    let in_sessions = |h: &_| linearizable::check_in_sessions(subject, h, Limit::default());
    compare(subject, in_sessions, |a, b| {
        let are_answered = [a, b].iter().all(|op| matches!(op.outcome, Outcome::Returned(_)));
        in_real_time(a, b) || are_answered && in_program(a, b)
    });
}

fn compare_sequential<S: Subject>(subject: &S) {
    let check = |write_order| {
        move |history: &_| sequential::check(subject, history, write_order, Limit::default())
    };
    let is_write =
        |operation: &Operation<S::Input, S::Output>| !subject.is_pure(&operation.input, None);
    compare(subject, check(WriteOrder::Free), in_program);
    compare(subject, check(WriteOrder::RealTime), |a, b| {
        in_program(a, b) || is_write(a) && is_write(b) && in_real_time(a, b)
    });
}

#[test]
fn linearizable_register_agrees_with_twin() {
    compare_linearizable(&Register);
}

#[test]
fn linearizable_register_without_swaps_agrees_with_twin() {
    compare_linearizable(&register_without_swaps());
}

#[test]
fn linearizable_counter_agrees_with_twin() {
    compare_linearizable(&Counter);
}

#[test]
fn linearizable_append_agrees_with_twin() {
    compare_linearizable(&Append::<u8>::new());
}

#[test]
fn linearizable_kv_agrees_with_twin() {
    compare_linearizable(&Kv);
}

#[test]
fn linearizable_kv_of_lists_agrees_with_twin() {
    compare_linearizable(&kv_of_lists());
}

#[test]
fn linearizable_kv_of_numbers_agrees_with_twin() {
    compare_linearizable(&kv_of_numbers());
}

#[test]
fn linearizable_kv_that_expires_agrees_with_twin() {
    compare_linearizable(&kv_that_expires());
}

#[test]
fn sequential_kv_of_lists_agrees_with_twin() {
    compare_sequential(&kv_of_lists());
}

#[test]
fn linearizable_nondeterministic_bag_agrees_with_twin() {
    compare_linearizable(&Bag);
}

#[test]
fn linearizable_keyed_register_agrees_with_twin() {
    compare_linearizable(&Keyed::new(Register));
}

#[test]
fn sequential_register_agrees_with_twin() {
    compare_sequential(&Register);
}

#[test]
fn sequential_register_without_swaps_agrees_with_twin() {
    compare_sequential(&register_without_swaps());
}

#[test]
fn sequential_counter_agrees_with_twin() {
    compare_sequential(&Counter);
}

#[test]
fn sequential_append_agrees_with_twin() {
    compare_sequential(&Append::<u8>::new());
}

#[test]
fn sequential_kv_agrees_with_twin() {
    compare_sequential(&Kv);
}

#[test]
fn sequential_nondeterministic_bag_agrees_with_twin() {
    compare_sequential(&Bag);
}

#[test]
fn sequential_keyed_register_agrees_with_twin() {
    compare_sequential(&Keyed::new(Register));
}

/// Partitioned by key says the same as one check of all keys.
#[test]
fn partitioned_check_agrees_with_whole_check() {
    let keyed = Keyed::new(Register);
    let mut violated = 0;
    for seed in 0..SEEDS {
        let history = history(&keyed, seed);
        let whole = linearizable::check(&keyed, &history, Limit::default());
        let split = pair;
        let by_key = linearizable::check_partitioned(&Register, &history, split, Limit::default());
        assert_eq!(whole.holds(), by_key.iter().all(|(_, verdict)| verdict.holds()), "{seed}");
        violated += u64::from(whole.is_violation());
    }
    assert!(violated > SEEDS / 20, "only {violated} histories were violations");
}

fn pair<K, I>(input: &(K, I)) -> (&K, &I) {
    (&input.0, &input.1)
}
