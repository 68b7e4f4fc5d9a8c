//! Long histories of many clients, some outcomes unknown: right ones pass, one wrong answer fails.

use checker::history::Outcome;
use checker::model::kv::{Bytes, Kv, KvInput, KvOutput};
use checker::{ClientId, History, Limit, OpId, linearizable};

mod support;

use support::Random;
use support::histories::{HistoryShape, right};
use support::subjects::{
    Subject, kv_of_unlike_items, kv_of_unlike_values, register_of_unlike_values,
};

const LIMIT: Limit = Limit { explored_max: 100_000 };

fn shape(operations_count: usize, clients_count: u64, percent_unknown: u64) -> HistoryShape {
    let (pause_max, duration_max, percent_failed) = (20, 100, 1);
    HistoryShape {
        operations_count,
        clients_count,
        pause_max,
        duration_max,
        percent_unknown,
        percent_failed,
        percent_pipelined: 0,
    }
}

fn holds<S: Subject>(subject: &S, shape: HistoryShape, seed: u64) {
    let history = right(subject, shape, &mut Random::new(seed));
    for verdict in [
        linearizable::check(subject, &history, LIMIT),
        linearizable::check_in_sessions(subject, &history, LIMIT),
    ] {
        assert!(verdict.holds(), "{} operations, seed {seed}: {verdict}", shape.operations_count);
    }
}

#[test]
fn long_right_histories_hold() {
    for seed in 0..3 {
        holds(&kv_of_unlike_values(), shape(1_000, 16, 5), seed);
        for (operations, clients, unknown) in [(1_000, 16, 5), (1_000, 64, 1), (3_000, 64, 5)] {
            holds(&kv_of_unlike_items(), shape(operations, clients, unknown), seed);
            holds(&register_of_unlike_values(), shape(operations, clients, unknown), seed);
        }
    }
}

/// A list never shrinks: a read after all others must not show less than an earlier one.
#[test]
fn a_read_that_goes_back_shows_in_a_long_history() {
    for seed in 0..3 {
        let subject = kv_of_unlike_items();
        let mut history = right(&subject, shape(1_000, 16, 5), &mut Random::new(seed));
        let lists = history.operations().iter().filter_map(|operation| match &operation.outcome {
            Outcome::Returned(KvOutput::Value(Some(list))) => Some(list.clone()),
            _ => None,
        });
        let longest = lists.max_by_key(|list| list.as_slice().len()).expect("lists are read");
        let shorter = Bytes::from(&longest.as_slice()[..longest.as_slice().len() - 1]);
        assert!(linearizable::check_in_sessions(&Kv, &history, LIMIT).holds(), "seed {seed}");
        let stale = read(&mut history, 1_000_000, &shorter);
        let verdict = linearizable::check_in_sessions(&Kv, &history, LIMIT);
        assert!(verdict.is_violation(), "seed {seed}, {stale}: {verdict}");
    }
}

fn read(history: &mut History<KvInput, KvOutput>, at: u64, list: &Bytes) -> OpId {
    let op = history.invoke(ClientId(1_000), KvInput::Get, at);
    history.complete(op, Outcome::Returned(KvOutput::Value(Some(list.clone()))), at + 1);
    op
}
