//! The hints of every model are true statements about its steps, on random walks.

use checker::model::MarksAfter;
use checker::model::append::Append;
use checker::model::counter::Counter;
use checker::model::keyed::Keyed;
use checker::model::kv::Kv;
use checker::model::register::Register;

mod support;

use support::Random;
use support::subjects::{Bag, Subject};

const WALKS: u64 = 400;
const STEPS: usize = 12;

/// Walks through states; at each, holds every answer that is right to what the hints say of it.
fn check<S: Subject>(subject: &S) {
    let mut right_answers = 0;
    for seed in 0..WALKS {
        let mut random = Random::new(seed);
        let mut states = vec![subject.initial()];
        for _ in 0..STEPS {
            let state = states.last().expect("never empty").clone();
            let input = subject.random_input(&mut random);
            let other = subject.random_input(&mut random);
            for answer in subject.answers(&state, &input) {
                let successors: Vec<_> =
                    subject.step(&state, &input, Some(&answer)).into_iter().collect();
                if successors.is_empty() {
                    continue;
                }
                right_answers += 1;
                check_pure(subject, &state, &input, &answer, &successors);
                check_blind(subject, &states, &input, &other, &answer);
                check_marks(subject, &state, &input, &other, &answer, &successors);
                for earlier in &states {
                    let can = subject.can_lead_to(earlier, &input, &answer);
                    assert!(can, "{earlier:?} leads to {state:?}: {input:?} -> {answer:?}");
                }
            }
            let (_, next) = subject.run(&state, &input, &mut random);
            states.push(next);
        }
    }
    assert!(right_answers > WALKS, "only {right_answers} answers were right");
}

fn check_pure<S: Subject>(
    subject: &S,
    state: &S::State,
    input: &S::Input,
    answer: &S::Output,
    successors: &[S::State],
) {
    if subject.is_pure(input, None) {
        assert!(subject.is_pure(input, Some(answer)), "{input:?} -> {answer:?}");
    }
    if subject.is_pure(input, Some(answer)) {
        assert_eq!(successors, std::slice::from_ref(state), "{input:?} -> {answer:?}");
    }
}

fn check_blind<S: Subject>(
    subject: &S,
    states: &[S::State],
    input: &S::Input,
    other: &S::Input,
    answer: &S::Output,
) {
    for observed in [None, Some(answer)] {
        if !subject.is_blind(input, observed) {
            continue;
        }
        let left = |state: &S::State| -> Vec<_> {
            subject.step(state, input, observed).into_iter().collect()
        };
        let first = left(&states[0]);
        assert_eq!(first.len(), 1, "{input:?} -> {observed:?}");
        assert!(states.iter().all(|state| left(state) == first), "{input:?} -> {observed:?}");
        let (mut own, mut others) = (Vec::new(), Vec::new());
        subject.marks(&first[0], input, &mut own);
        subject.marks(&first[0], other, &mut others);
        assert!(own == others, "{:?} shows {input:?} and {other:?} different marks", first[0]);
    }
}

fn check_marks<S: Subject>(
    subject: &S,
    state: &S::State,
    input: &S::Input,
    other: &S::Input,
    answer: &S::Output,
    successors: &[S::State],
) {
    let marks = |state: &S::State, input: &S::Input| {
        let mut marks = Vec::new();
        subject.marks(state, input, &mut marks);
        marks
    };
    let before = marks(state, input);
    if let Some(needed) = subject.mark_before(input, answer) {
        assert!(before.contains(&needed), "{input:?} -> {answer:?} in {state:?}");
    }
    for next in successors {
        let after = marks(next, input);
        for new in after.iter().filter(|mark| !before.contains(mark)) {
            for observed in [None, Some(answer)] {
                let is_allowed = match subject.marks_after(input, observed) {
                    MarksAfter::Only(made) => made.contains(new),
                    MarksAfter::Several => subject.may_make(input, observed, new),
                };
                assert!(is_allowed, "{state:?}, {input:?} -> {observed:?} makes {next:?}");
            }
        }
        // What another call sees changes only where this call looks.
        let (seen_before, seen_after) = (marks(state, other), marks(next, other));
        let lost = seen_before.iter().filter(|mark| !seen_after.contains(mark));
        let gained = seen_after.iter().filter(|mark| !seen_before.contains(mark));
        assert!(lost.into_iter().all(|mark| before.contains(mark)), "{input:?} hides a loss");
        assert!(gained.into_iter().all(|mark| after.contains(mark)), "{input:?} hides a gain");
    }
}

#[test]
fn hints_of_register_are_true() {
    check(&Register);
}

#[test]
fn hints_of_counter_are_true() {
    check(&Counter);
}

#[test]
fn hints_of_append_are_true() {
    check(&Append::<u8>::new());
}

#[test]
fn hints_of_kv_are_true() {
    check(&Kv);
}

#[test]
fn hints_of_keyed_are_true() {
    check(&Keyed::new(Register));
}

#[test]
fn hints_of_bag_are_true() {
    check(&Bag);
}
