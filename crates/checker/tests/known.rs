//! Histories known to be right or wrong, each a story that a replicated store could tell.

use checker::model::append::{Append, AppendInput, AppendOutput};
use checker::model::counter::{Counter, CounterInput};
use checker::model::keyed::Keyed;
use checker::model::kv::{Bytes, ExpiryTag, Kv, KvInput, KvOutput};
use checker::model::register::{Register, RegisterInput, RegisterOutput};
use checker::sequential::{self, WriteOrder};
use checker::{
    ClientId, Criterion, History, Limit, Model, OpId, Outcome, Verdict, Violation, linearizable,
};

/// Client, invocation, response, input, outcome.
type CallRecord<I, O> = (u64, u64, u64, I, Outcome<O>);

fn history<I, O>(lines: impl IntoIterator<Item = CallRecord<I, O>>) -> History<I, O> {
    let mut history = History::new();
    for (client, invoked, responded, input, outcome) in lines {
        let op = history.invoke(ClientId(client), input, invoked);
        history.complete(op, outcome, responded);
    }
    history
}

fn check<M: Model>(model: &M, lines: Vec<CallRecord<M::Input, M::Output>>) -> Verdict {
    linearizable::check(model, &history(lines), Limit::default())
}

fn order(verdict: Verdict) -> Vec<u32> {
    match verdict {
        Verdict::Holds { order } => order.into_iter().map(|op| op.0).collect(),
        other => panic!("{other}"),
    }
}

fn violation(verdict: Verdict) -> Violation {
    match verdict {
        Verdict::Violation(violation) => *violation,
        other => panic!("{other}"),
    }
}

fn write(value: u64) -> RegisterInput {
    RegisterInput::Write(value)
}

fn written() -> Outcome<RegisterOutput> {
    Outcome::Returned(RegisterOutput::Written)
}

fn read() -> RegisterInput {
    RegisterInput::Read
}

fn value(value: u64) -> Outcome<RegisterOutput> {
    Outcome::Returned(RegisterOutput::Value(Some(value)))
}

fn absent() -> Outcome<RegisterOutput> {
    Outcome::Returned(RegisterOutput::Value(None))
}

#[test]
fn empty_history_holds() {
    assert!(order(check(&Register, vec![])).is_empty());
}

#[test]
fn read_during_write_may_return_either_value() {
    for (seen, expected) in [(absent(), [1, 0]), (value(1), [0, 1])] {
        let lines = vec![(1, 0, 10, write(1), written()), (2, 2, 8, read(), seen)];
        assert_eq!(order(check(&Register, lines)), expected);
    }
}

#[test]
fn stale_read_is_a_violation() {
    let lines = vec![
        (1, 0, 1, write(1), written()),
        (1, 2, 3, write(2), written()),
        (2, 4, 5, read(), value(1)),
    ];
    let violation = violation(check(&Register, lines));
    assert_eq!(violation.criterion, Criterion::Linearizable);
    assert_eq!(violation.blocked, OpId(2));
    assert!(violation.concurrent.is_empty());
}

#[test]
fn equal_times_are_concurrent() {
    let lines = vec![(1, 0, 5, write(1), written()), (2, 5, 6, read(), absent())];
    assert!(check(&Register, lines).holds());
    let lines = vec![(1, 0, 4, write(1), written()), (2, 5, 6, read(), absent())];
    assert!(check(&Register, lines).is_violation());
}

#[test]
fn new_value_then_old_value_is_a_violation() {
    let lines = vec![
        (1, 0, 1, write(1), written()),
        (1, 2, 20, write(2), written()),
        (2, 5, 6, read(), value(2)),
        (3, 8, 9, read(), value(1)),
    ];
    let violation = violation(check(&Register, lines));
    assert_eq!(violation.concurrent, [OpId(1)]);
    assert_eq!(violation.blocked, OpId(3));
}

#[test]
fn read_of_unwritten_value_is_a_violation() {
    let lines = vec![(1, 0, 1, write(1), written()), (2, 0, 9, read(), value(7))];
    let violation = violation(check(&Register, lines));
    assert_eq!((violation.blocked, violation.prefix), (OpId(1), vec![OpId(0)]));
}

#[test]
fn two_swaps_from_one_value_are_a_violation() {
    let swap = |new| RegisterInput::Cas { expected: Some(0), new };
    let swapped = |did| Outcome::Returned(RegisterOutput::Swapped(did));
    let lines = |second| {
        vec![
            (1, 0, 1, write(0), written()),
            (2, 2, 9, swap(1), swapped(true)),
            (3, 2, 9, swap(2), swapped(second)),
        ]
    };
    assert!(check(&Register, lines(true)).is_violation());
    assert!(check(&Register, lines(false)).holds());
}

#[test]
fn lost_update_is_a_violation() {
    let increment = |client, invoked, responded, seen| {
        (client, invoked, responded, CounterInput::Increment, Outcome::Returned(seen))
    };
    let lost = vec![increment(1, 0, 9, 1), increment(2, 0, 9, 1)];
    assert!(check(&Counter, lost).is_violation());
    let kept = vec![increment(1, 0, 9, 2), increment(2, 0, 9, 1)];
    assert_eq!(order(check(&Counter, kept)), [1, 0]);
}

#[test]
fn unknown_write_may_surface_late_or_never() {
    let lines = |seen| {
        vec![
            (1, 0, 1, write(1), Outcome::Unknown),
            (2, 2, 3, write(2), written()),
            (2, 4, 5, read(), value(2)),
            (2, 600, 601, read(), seen),
        ]
    };
    assert_eq!(order(check(&Register, lines(value(2)))), [1, 2, 3]);
    assert_eq!(order(check(&Register, lines(value(1)))), [1, 2, 0, 3]);
}

#[test]
fn unknown_write_must_not_surface_before_its_invocation() {
    let lines = vec![(2, 0, 1, read(), value(1)), (1, 2, 3, write(1), Outcome::Unknown)];
    assert!(check(&Register, lines).is_violation());
}

#[test]
fn unknown_write_must_not_surface_twice() {
    let lines = vec![
        (1, 0, 1, write(1), Outcome::Unknown),
        (2, 2, 3, read(), value(1)),
        (2, 4, 5, write(2), written()),
        (2, 6, 7, read(), value(2)),
        (2, 8, 9, read(), value(1)),
    ];
    assert!(check(&Register, lines.clone()).is_violation());
    let (mut retried, again) = (lines, (3, 0, 1, write(1), Outcome::Unknown));
    retried.push(again);
    assert!(check(&Register, retried).holds());
}

#[test]
fn unknown_increment_counts_at_most_once() {
    let lines = |seen| {
        vec![
            (1, 0, 1, CounterInput::Increment, Outcome::Unknown),
            (2, 2, 3, CounterInput::Increment, Outcome::Returned(seen)),
        ]
    };
    assert!(check(&Counter, lines(1)).holds());
    assert!(check(&Counter, lines(2)).holds());
    assert!(check(&Counter, lines(3)).is_violation());
}

#[test]
fn visible_failed_write_is_a_violation() {
    let lines = |outcome| vec![(1, 0, 1, write(1), outcome), (2, 2, 3, read(), value(1))];
    assert!(check(&Register, lines(Outcome::Unknown)).holds());
    assert!(check(&Register, lines(Outcome::Failed)).is_violation());
}

#[test]
fn append_reveals_the_order_of_all_before() {
    let append = |item: u8, seen| (1, 0, 90, AppendInput::Append(item), Outcome::Returned(seen));
    let content = |items: &[u8]| Outcome::Returned(AppendOutput::Content(items.to_vec()));
    let lines = |seen| {
        vec![
            append(1, AppendOutput::Length(2)),
            append(2, AppendOutput::Length(1)),
            (2, 95, 96, AppendInput::Append(3), Outcome::Unknown),
            (3, 97, 98, AppendInput::Read, seen),
        ]
    };
    let model = Append::<u8>::new();
    assert_eq!(order(check(&model, lines(content(&[2, 1])))), [1, 0, 3]);
    assert_eq!(order(check(&model, lines(content(&[2, 1, 3])))), [1, 0, 2, 3]);
    assert!(check(&model, lines(content(&[1, 2]))).is_violation());
    assert!(check(&model, lines(content(&[2, 3, 1]))).is_violation());
}

#[test]
fn key_must_not_vanish_before_its_time_nor_take_its_successor_along() {
    let tag = ExpiryTag(7);
    let get = |at, seen: Option<&str>| {
        let seen = KvOutput::Value(seen.map(Bytes::from));
        (1, at, at + 1, KvInput::Get, Outcome::Returned(seen))
    };
    let lines = |gets: Vec<CallRecord<KvInput, KvOutput>>| {
        let set = KvInput::SetExpiring(Bytes::from("a"), tag);
        let mut lines = vec![
            (1, 0, 1, set, Outcome::Returned(KvOutput::Done)),
            (9, 100, 100, KvInput::Expire(Some(tag)), Outcome::Unknown),
        ];
        lines.extend(gets);
        lines
    };
    assert!(check(&Kv, lines(vec![get(50, Some("a")), get(150, None)])).holds());
    assert!(check(&Kv, lines(vec![get(150, Some("a")), get(160, None)])).holds());
    assert!(check(&Kv, lines(vec![get(50, None)])).is_violation());
    assert!(check(&Kv, lines(vec![get(150, None), get(160, Some("a"))])).is_violation());
    let overwrite = (1, 60, 61, KvInput::Set(Bytes::from("b")), Outcome::Returned(KvOutput::Done));
    assert!(check(&Kv, lines(vec![overwrite, get(150, None)])).is_violation());
}

#[test]
fn keys_are_judged_one_by_one() {
    let history = history([
        (1, 0, 1, ("a", write(1)), written()),
        (1, 2, 3, ("b", write(2)), written()),
        (1, 4, 5, ("a", read()), value(2)),
        (1, 6, 7, ("b", read()), value(2)),
    ]);
    let verdicts =
        linearizable::check_partitioned(&Register, &history, |(k, i)| (k, i), Limit::default());
    let [("a", a), ("b", b)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
    assert!(a.is_violation() && b.holds());
    // Operations keep the names they have in the whole history.
    assert_eq!(violation(a.clone()).blocked, OpId(2));
}

#[test]
fn limit_met_is_undecided_and_never_a_verdict() {
    let writes = (0..20).map(|at| (at, 0, 100, write(at), written()));
    let reads = [3, 5, 3].map(|seen| (30, 101 + seen, 101 + seen, read(), value(seen)));
    let lines: Vec<_> = writes.chain(reads).collect();
    let limit = Limit { explored_max: 5 };
    let verdict = linearizable::check(&Register, &history(lines.clone()), limit);
    assert!(matches!(verdict, Verdict::Undecided { explored: 5 }), "{verdict}");
    assert!(!verdict.holds() && !verdict.is_violation());
    assert!(check(&Register, lines).is_violation());
}

#[test]
fn stale_read_is_sequentially_consistent_until_it_goes_back() {
    let lines = |last| {
        vec![
            (1, 0, 1, write(1), written()),
            (1, 2, 3, write(2), written()),
            (2, 4, 5, read(), value(1)),
            (2, 6, 7, read(), value(2)),
            (2, 8, 9, read(), value(last)),
        ]
    };
    for (last, holds) in [(2, true), (1, false)] {
        for write_order in [WriteOrder::Free, WriteOrder::RealTime] {
            let history = history(lines(last));
            let verdict = sequential::check(&Register, &history, write_order, Limit::default());
            assert_eq!(verdict.holds(), holds, "{verdict}");
        }
    }
}

#[test]
fn only_ordered_writes_must_follow_real_time() {
    let lines = vec![
        (1, 0, 1, write(1), written()),
        (2, 2, 3, write(2), written()),
        (3, 4, 5, read(), value(2)),
        (3, 6, 7, read(), value(1)),
    ];
    let check =
        |order| sequential::check(&Register, &history(lines.clone()), order, Limit::default());
    assert!(check(WriteOrder::Free).holds());
    let violation = violation(check(WriteOrder::RealTime));
    assert_eq!(violation.criterion, Criterion::SequentialWithOrderedWrites);
}

#[test]
fn ordered_read_is_never_stale() {
    let lines = vec![(1, 0, 1, write(1), written()), (2, 2, 3, read(), absent())];
    let check = |ordered: &[u32]| {
        let ordered = ordered.iter().map(|&id| OpId(id)).collect();
        let history = history(lines.clone());
        sequential::check_ordered(&Register, &history, &ordered, Limit::default())
    };
    assert!(check(&[]).holds());
    assert!(check(&[1]).is_violation());
}

#[test]
fn client_must_read_its_own_write() {
    let lines = vec![(1, 0, 1, write(1), written()), (1, 2, 3, read(), absent())];
    let verdict = sequential::check(&Register, &history(lines), WriteOrder::Free, Limit::default());
    assert!(verdict.is_violation());
}

/// Each key alone is sequentially consistent, both together are not.
#[test]
fn sequential_consistency_needs_all_keys_at_once() {
    let lines = vec![
        (1, 0, 1, ("a", write(1)), written()),
        (1, 2, 3, ("b", read()), absent()),
        (2, 0, 1, ("b", write(1)), written()),
        (2, 2, 3, ("a", read()), absent()),
    ];
    let check = |lines: Vec<_>| {
        let model = Keyed::<&str, Register>::new(Register);
        sequential::check(&model, &history(lines), WriteOrder::Free, Limit::default())
    };
    assert!(check(lines.clone()).is_violation());
    for key in ["a", "b"] {
        assert!(check(lines.iter().filter(|line| line.3.0 == key).cloned().collect()).holds());
    }
}

/// Two readers disagree on which of two independent writes came first.
#[test]
fn independent_writes_are_seen_in_one_order() {
    let lines = |last| {
        vec![
            (1, 0, 1, ("a", write(1)), written()),
            (2, 0, 1, ("b", write(1)), written()),
            (3, 2, 3, ("a", read()), value(1)),
            (3, 4, 5, ("b", read()), absent()),
            (4, 2, 3, ("b", read()), value(1)),
            (4, 4, 5, ("a", read()), last),
        ]
    };
    for (last, holds) in [(value(1), true), (absent(), false)] {
        let history = history(lines(last));
        let model = Keyed::<&str, Register>::new(Register);
        let verdict = sequential::check(&model, &history, WriteOrder::Free, Limit::default());
        assert_eq!(verdict.holds(), holds, "{verdict}");
    }
}

/// Calls of a client take effect in order of issue, even when it pipelines.
#[test]
fn pipelined_calls_keep_their_order() {
    let lines = |later| {
        vec![
            (1, 0, 9, write(1), written()),
            (1, 0, 9, write(2), written()),
            (2, 3, 4, read(), value(2)),
            (2, 5, 6, read(), value(later)),
        ]
    };
    for (later, holds) in [(2, true), (1, false)] {
        let history = history(lines(later));
        for write_order in [WriteOrder::Free, WriteOrder::RealTime] {
            let verdict = sequential::check(&Register, &history, write_order, Limit::default());
            assert_eq!(verdict.holds(), holds, "{verdict}");
        }
        assert!(linearizable::check(&Register, &history, Limit::default()).holds());
        let verdict = linearizable::check_in_sessions(&Register, &history, Limit::default());
        assert_eq!(verdict.holds(), holds, "{verdict}");
    }
}

/// The read was issued first, so it must not see its client's later write.
///
/// The write was recorded first and lies within the read.
#[test]
fn order_of_a_session_is_that_of_time_not_of_recording() {
    let lines = vec![(1, 9, 9, write(2), written()), (1, 7, 13, read(), value(2))];
    let history = history(lines);
    assert!(linearizable::check(&Register, &history, Limit::default()).holds());
    let verdict = linearizable::check_in_sessions(&Register, &history, Limit::default());
    assert!(verdict.is_violation(), "{verdict}");
}

#[test]
fn violation_is_drawn_for_people() {
    let lines = vec![
        (1, 0, 10, write(1), written()),
        (2, 5, 20, write(2), Outcome::Failed),
        (3, 12, 40, write(3), Outcome::Unknown),
        (1, 15, 31, read(), value(2)),
    ];
    let drawn = check(&Register, lines).to_string();
    let expected = "\
not linearizable: operation #3 cannot be placed
longest order found: 1 operations, of 2 that returned; state after it: Some(1)
  op       client  time                                    invoked      responded  placed     call
  #0       1       |---------|                                   0             10  1          Write(1) -> Written
  #1       2            |--------------|                         5             20  never      Write(2) -> failed
  #2       3                   |------------------>             12              -  not yet    Write(3) -> unknown
> #3       1                      |---------------|             15             31  CANNOT     Read -> Value(Some(2))
";
    assert_eq!(drawn, expected, "\n{drawn}");
}
