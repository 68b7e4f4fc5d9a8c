//! Each anomaly is found, by its name and alone, in a long history that is right but for it.

use checker::model::lists::{Key, ListStep, Lists, Seen, Transaction};
use checker::serializable::{self, Anomaly, CycleKind, Finding, Promise};
use checker::{ClientId, History, Outcome};

mod support;

use support::Random;
use support::histories::{HistoryShape, right};

const SEEDS: u64 = 40;
/// Lists that the history around does not touch.
const A: Key = 1_001;
const B: Key = 1_002;
const C: Key = 1_003;

/// One transaction: client, invoked, responded, steps, outcome.
type TransactionRecord = (u64, u64, u64, Transaction, Outcome<Seen>);

fn add(key: Key, element: u64) -> ListStep {
    ListStep::Append { key, element }
}

fn read(key: Key) -> ListStep {
    ListStep::Read { key }
}

fn saw<const N: usize>(lists: [&[u64]; N]) -> Outcome<Seen> {
    Outcome::Returned(lists.map(<[u64]>::to_vec).to_vec())
}

/// Operations that are open at one time: real time orders none of them.
fn together(all: Vec<(Transaction, Outcome<Seen>)>) -> Vec<TransactionRecord> {
    let line = |(client, (steps, outcome))| (client, 0, 9, steps, outcome);
    (0..).zip(all).map(line).collect()
}

/// One after the other, of different clients.
fn in_turn(all: Vec<(Transaction, Outcome<Seen>)>) -> Vec<TransactionRecord> {
    let line = |(at, (steps, outcome))| (at, 2 * at, 2 * at + 1, steps, outcome);
    (0..).zip(all).map(line).collect()
}

/// The lines in the midst of a right history, in any order of recording.
fn planted(lines: &[TransactionRecord], seed: u64) -> History<Transaction, Seen> {
    let mut random = Random::new(seed);
    let shape = HistoryShape {
        operations_count: 60,
        clients_count: 5,
        pause_max: 3,
        duration_max: 10,
        percent_unknown: 10,
        percent_failed: 5,
        percent_pipelined: 0,
    };
    let around = right(&Lists, shape, &mut random);
    assert!(serializable::check(&around, Promise::StrictInSessions).holds(), "seed {seed}");
    let (from, slowness) = (random.below(100), 1 + random.below(5));
    let mut history = History::new();
    let mut left: Vec<&TransactionRecord> = lines.iter().collect();
    for operation in around.operations() {
        let op = history.invoke(operation.client, operation.input.clone(), operation.invoked);
        if let Some(responded) = operation.responded {
            history.complete(op, operation.outcome.clone(), responded);
        }
        if random.chance(20) && !left.is_empty() {
            record(&mut history, left.remove(0), from, slowness);
        }
    }
    left.into_iter().for_each(|line| record(&mut history, line, from, slowness));
    history
}

fn record(
    history: &mut History<Transaction, Seen>,
    line: &TransactionRecord,
    from: u64,
    slowness: u64,
) {
    let (client, invoked, responded, steps, outcome) = line;
    let at = |time: u64| from + slowness * time;
    let op = history.invoke(ClientId(1_000 + client), steps.clone(), at(*invoked));
    history.complete(op, outcome.clone(), at(*responded));
}

/// Compares all findings of a strict check; weaker promises that hold must find none.
fn check(lines: &[TransactionRecord], is_expected: impl Fn(&[Anomaly]) -> bool) {
    for seed in 0..SEEDS {
        let finding = serializable::check(&planted(lines, seed), Promise::StrictInSessions);
        let anomalies = finding.anomalies();
        assert!(is_expected(anomalies), "seed {seed}: {anomalies:#?}");
    }
}

/// Expects exactly one cycle; `needs` are sessions and real time.
fn check_cycle(lines: &[TransactionRecord], kind: CycleKind, needs: (bool, bool), length: usize) {
    check(lines, |anomalies| match anomalies {
        [Anomaly::Cycle(cycle)] => {
            let ends = cycle.edges.iter().map(|edge| edge.to);
            let begins = cycle.edges.iter().cycle().skip(1).map(|edge| edge.from);
            let is_round = ends.zip(begins).all(|(end, begin)| end == begin);
            let found = (cycle.kind, (cycle.needs_sessions, cycle.needs_real_time));
            is_round && found == (kind, needs) && cycle.edges.len() == length
        }
        _ => false,
    });
    // A promise finds the cycle exactly if it orders the edges that the cycle needs.
    for (promise, sessions, real_time) in [
        (Promise::Serializable, false, false),
        (Promise::InSessions, true, false),
        (Promise::Strict, false, true),
    ] {
        let finding = serializable::check(&planted(lines, 1), promise);
        let is_broken = (sessions || !needs.0) && (real_time || !needs.1);
        assert_eq!(finding.holds(), !is_broken, "{promise:?}: {finding:#?}");
    }
}

#[test]
fn a_read_against_its_own_transaction_is_internal() {
    for (steps, seen) in [
        (vec![add(A, 1), read(A)], saw([&[]])),
        (vec![read(A), read(A)], saw([&[], &[1]])),
        (vec![read(A), add(A, 2)], saw([&[2]])),
        (vec![add(A, 2), add(A, 3), read(A)], saw([&[3, 2]])),
    ] {
        let other = match &steps[..] {
            [ListStep::Read { .. }, ListStep::Read { .. }] => (vec![add(A, 1)], saw([])),
            _ => (vec![add(B, 1)], saw([])),
        };
        check(&together(vec![(steps, seen), other]), |anomalies| {
            matches!(anomalies, [Anomaly::Internal { key: A, .. }])
        });
    }
}

#[test]
fn an_element_seen_twice_is_a_duplicate() {
    let lines = in_turn(vec![(vec![add(A, 1)], saw([])), (vec![read(A)], saw([&[1, 1]]))]);
    check(&lines, |anomalies| {
        anomalies.contains(&Anomaly::Duplicate { reader: reader_of(anomalies), key: A, element: 1 })
    });
}

fn reader_of(anomalies: &[Anomaly]) -> checker::OpId {
    match anomalies {
        [Anomaly::Duplicate { reader, .. }, ..] => *reader,
        _ => panic!("no duplicate comes first: {anomalies:#?}"),
    }
}

#[test]
fn unappended_element_is_invented() {
    let lines = together(vec![(vec![read(A)], saw([&[7]]))]);
    check(&lines, |anomalies| matches!(anomalies, [Anomaly::Invented { key: A, element: 7, .. }]));
}

#[test]
fn an_append_of_a_failed_transaction_seen_is_g1a() {
    let lines = in_turn(vec![(vec![add(A, 1)], Outcome::Failed), (vec![read(A)], saw([&[1]]))]);
    check(&lines, |anomalies| {
        matches!(anomalies, [Anomaly::AbortedRead { key: A, element: 1, .. }])
    });
}

#[test]
fn an_append_upon_one_of_a_failed_transaction_is_a_dirty_update() {
    let lines = together(vec![
        (vec![add(A, 1)], Outcome::Failed),
        (vec![add(A, 2)], saw([])),
        (vec![read(A)], saw([&[1, 2]])),
    ]);
    check(&lines, |anomalies| {
        matches!(anomalies, [Anomaly::AbortedRead { .. }, Anomaly::DirtyUpdate { key: A, .. }])
    });
}

#[test]
fn half_of_a_transaction_seen_is_g1b() {
    let lines = together(vec![(vec![add(A, 1), add(A, 2)], saw([])), (vec![read(A)], saw([&[1]]))]);
    check(&lines, |anomalies| {
        let is_g1b = |anomaly: &Anomaly| {
            matches!(anomaly, Anomaly::IntermediateRead { key: A, element: 1, .. })
        };
        anomalies.iter().any(is_g1b)
    });
}

#[test]
fn reads_that_contradict_each_other_are_incompatible() {
    let lines = together(vec![
        (vec![add(A, 1)], saw([])),
        (vec![add(A, 2)], saw([])),
        (vec![read(A)], saw([&[1, 2]])),
        (vec![read(A)], saw([&[2, 1]])),
    ]);
    check(&lines, |anomalies| matches!(anomalies, [Anomaly::IncompatibleOrder { key: A, .. }]));
}

#[test]
fn appends_of_one_transaction_seen_turned_round_are_reordered() {
    let lines = together(vec![
        (vec![add(A, 1), add(A, 2), add(A, 3)], saw([])),
        (vec![read(A)], saw([&[2, 1, 3]])),
    ]);
    check(&lines, |anomalies| matches!(anomalies, [Anomaly::Reordered { key: A, .. }]));
    let lines = together(vec![
        (vec![add(A, 1), add(A, 2), add(A, 3)], saw([])),
        (vec![read(A)], saw([&[1, 3]])),
    ]);
    // With a gap, its reader also comes before and after it.
    check(&lines, |anomalies| {
        matches!(anomalies, [Anomaly::Reordered { key: A, .. }, Anomaly::Cycle(_)])
    });
}

#[test]
fn appends_upon_one_and_the_same_read_are_a_lost_update() {
    for last in [&[1, 2][..], &[2, 1], &[2], &[1], &[]] {
        let lines = together(vec![
            (vec![read(A), add(A, 1)], saw([&[]])),
            (vec![read(A), add(A, 2)], saw([&[]])),
            (vec![read(A)], saw([last])),
        ]);
        check(&lines, |anomalies| {
            matches!(anomalies, [Anomaly::LostUpdate { key: A, authors }, Anomaly::Cycle(_)]
                if authors.len() == 2)
        });
    }
}

#[test]
fn appends_in_opposite_orders_are_g0() {
    let lines = together(vec![
        (vec![add(A, 1), add(B, 1)], saw([])),
        (vec![add(A, 2), add(B, 2)], saw([])),
        (vec![read(A)], saw([&[1, 2]])),
        (vec![read(B)], saw([&[2, 1]])),
    ]);
    check_cycle(&lines, CycleKind::G0, (false, false), 2);
}

/// An append that a read does not show comes after those that it shows.
#[test]
fn unread_append_may_close_a_g0() {
    let lines = together(vec![
        (vec![add(A, 1), add(B, 1)], saw([])),
        (vec![add(A, 2), add(B, 2)], saw([])),
        (vec![read(A)], saw([&[1]])),
        (vec![read(B)], saw([&[2, 1]])),
    ]);
    check_cycle(&lines, CycleKind::G0, (false, false), 2);
}

#[test]
fn transactions_that_see_each_other_are_g1c() {
    let lines = together(vec![
        (vec![add(A, 1), read(B)], saw([&[2]])),
        (vec![add(B, 2), read(A)], saw([&[1]])),
    ]);
    check_cycle(&lines, CycleKind::G1c, (false, false), 2);
    let lines = together(vec![
        (vec![add(A, 1), read(C)], saw([&[3]])),
        (vec![add(B, 2), read(A)], saw([&[1]])),
        (vec![add(C, 3), read(B)], saw([&[2]])),
    ]);
    check_cycle(&lines, CycleKind::G1c, (false, false), 3);
}

#[test]
fn half_a_transaction_is_g_single() {
    let lines = together(vec![
        (vec![add(A, 1), add(B, 1)], saw([])),
        (vec![read(A), read(B)], saw([&[1], &[]])),
    ]);
    check_cycle(&lines, CycleKind::GSingle, (false, false), 2);
}

#[test]
fn write_skew_is_g2() {
    let lines = together(vec![
        (vec![read(A), add(B, 1)], saw([&[]])),
        (vec![read(B), add(A, 1)], saw([&[]])),
    ]);
    check_cycle(&lines, CycleKind::G2, (false, false), 2);
}

/// Two readers disagree on which of two independent appends came first.
#[test]
fn a_long_fork_is_g2() {
    let lines = together(vec![
        (vec![add(A, 1)], saw([])),
        (vec![add(B, 1)], saw([])),
        (vec![read(A), read(B)], saw([&[1], &[]])),
        (vec![read(A), read(B)], saw([&[], &[1]])),
    ]);
    check_cycle(&lines, CycleKind::G2, (false, false), 4);
}

#[test]
fn appends_against_real_time_are_g0_realtime() {
    let lines = in_turn(vec![
        (vec![add(A, 1)], saw([])),
        (vec![add(A, 2)], saw([])),
        (vec![read(A)], saw([&[2, 1]])),
    ]);
    check_cycle(&lines, CycleKind::G0, (false, true), 2);
}

#[test]
fn a_read_from_the_future_is_g1c_realtime() {
    let lines = in_turn(vec![(vec![read(A)], saw([&[1]])), (vec![add(A, 1)], saw([]))]);
    check_cycle(&lines, CycleKind::G1c, (false, true), 2);
}

/// The answered append may have been lost, or the read may be stale: strictness forbids either.
#[test]
fn an_append_missed_by_a_later_read_is_g_single_realtime() {
    let lines = in_turn(vec![(vec![add(A, 1)], saw([])), (vec![read(A)], saw([&[]]))]);
    check_cycle(&lines, CycleKind::GSingle, (false, true), 2);
}

/// The second read is right if it came first, before the transaction that appends to its list.
#[test]
fn two_stale_reads_around_real_time_are_g2_realtime() {
    let lines = [
        (1, 0, 1, vec![add(A, 1)], saw([])),
        (2, 2, 3, vec![read(B)], saw([&[]])),
        (3, 0, 9, vec![read(A), add(B, 1)], saw([&[]])),
    ];
    check_cycle(&lines, CycleKind::G2, (false, true), 3);
}

#[test]
fn anomalies_against_the_order_of_a_session_are_process_variants() {
    // The second is invoked before the first has been answered, so real time does not order them.
    let session =
        |first: Transaction, seen: Outcome<Seen>, second: Transaction, too: Outcome<Seen>| {
            vec![(1, 0, 5, first, seen), (1, 1, 6, second, too)]
        };
    let mut lines = session(vec![add(A, 1)], saw([]), vec![add(A, 2)], saw([]));
    lines.push((2, 0, 9, vec![read(A)], saw([&[2, 1]])));
    check_cycle(&lines, CycleKind::G0, (true, false), 2);
    let lines = session(vec![read(A)], saw([&[1]]), vec![add(A, 1)], saw([]));
    check_cycle(&lines, CycleKind::G1c, (true, false), 2);
    let lines = session(vec![add(A, 1)], saw([]), vec![read(A)], saw([&[]]));
    check_cycle(&lines, CycleKind::GSingle, (true, false), 2);
    let mut lines = session(vec![add(A, 1)], saw([]), vec![read(B)], saw([&[]]));
    lines.push((2, 0, 5, vec![add(B, 1)], saw([])));
    lines.push((2, 1, 6, vec![read(A)], saw([&[]])));
    check_cycle(&lines, CycleKind::G2, (true, false), 4);
}

#[test]
fn observed_unknown_transaction_took_full_effect() {
    // Its append to A was read, so its append to B happened too.
    let half = |in_b: &[u64]| {
        in_turn(vec![
            (vec![add(A, 1), add(B, 1)], Outcome::Unknown),
            (vec![read(A)], saw([&[1]])),
            (vec![read(B)], saw([in_b])),
        ])
    };
    check(&half(&[1]), <[Anomaly]>::is_empty);
    check_cycle(&half(&[]), CycleKind::GSingle, (false, true), 3);
}

#[test]
fn an_unknown_transaction_takes_effect_late_or_never_but_not_early() {
    let lines = |before: &[u64], after: &[u64]| {
        let mut lines = in_turn(vec![
            (vec![read(A)], saw([before])),
            (vec![add(A, 1)], Outcome::Unknown),
            (vec![read(A)], saw([&[]])),
            (vec![read(A)], saw([after])),
        ]);
        lines[1].2 = lines[1].1;
        lines
    };
    check(&lines(&[], &[]), <[Anomaly]>::is_empty);
    check(&lines(&[], &[1]), <[Anomaly]>::is_empty);
    check(&lines(&[1], &[1]), |anomalies| !anomalies.is_empty());
}

#[test]
#[should_panic(expected = "is appended to list 1001 twice")]
fn elements_that_are_not_unlike_are_refused() {
    let lines = in_turn(vec![(vec![add(A, 1)], saw([])), (vec![add(A, 1)], saw([]))]);
    let _: Finding = serializable::check(&planted(&lines, 0), Promise::Strict);
}

#[test]
fn an_anomaly_is_told_for_people() {
    let mut history = History::new();
    for (at, (steps, outcome)) in (0..)
        .zip([(vec![add(5, 1), add(6, 1)], saw([])), (vec![read(5), read(6)], saw([&[1], &[]]))])
    {
        let op = history.invoke(ClientId(at), steps, 0);
        history.complete(op, outcome, 9);
    }
    let finding = serializable::check(&history, Promise::Strict);
    let told: Vec<String> = finding.anomalies().iter().map(Anomaly::to_string).collect();
    let expected = "G-single:\n  #1 -> #0: it appended 1 to list 6, unseen by #1\n  \
                    #0 -> #1: it read 1 in list 5, by #0";
    assert_eq!(told, [expected]);
}
