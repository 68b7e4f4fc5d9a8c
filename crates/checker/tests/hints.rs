//! The hints of every model are true statements about its steps, on random walks.

use checker::Model;
use checker::model::append::Append;
use checker::model::counter::Counter;
use checker::model::keyed::Keyed;
use checker::model::kv::Kv;
use checker::model::register::Register;
use checker::model::{Calls, MarksAfter};

mod support;

use support::Random;
use support::subjects::{Bag, Subject, kv_of_lists, kv_of_numbers, kv_that_expires};

const WALKS: u64 = 2_000;
const CALLS: usize = 12;
const STEPS: usize = 12;

type PossibleCall<S> = (<S as Model>::Input, Option<<S as Model>::Output>);

/// Calls of one history, with the answers that they get on a walk, others, or none.
fn calls<S: Subject>(subject: &S, random: &mut Random) -> Vec<PossibleCall<S>> {
    let mut state = subject.initial();
    let mut call = |_| {
        let input = subject.random_input(random);
        let (right, next) = subject.run(&state, &input, random);
        state = next;
        let any = random.pick(&subject.answers(&state, &input)).clone();
        let answer = [Some(right.clone()), Some(right), Some(any), None];
        (input, random.pick(&answer).clone())
    };
    (0..CALLS).map(&mut call).collect()
}

/// Walks through states with the calls of one history and compares models.
///
/// In each state, the scoped model must allow the same steps as the full one, and its hints must be
/// true.
fn check<S: Subject>(subject: &S) {
    let mut right_answers = 0;
    for seed in 0..WALKS {
        let mut random = Random::new(seed);
        let calls = calls(subject, &mut random);
        let seen: Vec<_> = calls.iter().map(|(input, answer)| (input, answer.as_ref())).collect();
        let model = subject.scoped(&seen);
        let (mut whole, mut states) = (subject.initial(), vec![model.initial()]);
        for _ in 0..STEPS {
            let state = states.last().expect("never empty").clone();
            let mut next = Vec::new();
            for (input, answer) in &seen {
                let wholes: Vec<_> = subject.step(&whole, input, *answer).into_iter().collect();
                let scoped: Vec<_> = model.step(&state, input, *answer).into_iter().collect();
                assert_eq!(wholes.is_empty(), scoped.is_empty(), "{state:?} {input:?} {answer:?}");
                // Several successors come in one order from both.
                next.extend(wholes.into_iter().zip(scoped.iter().cloned()).map(|to| (*input, to)));
                let (other, _) = random.pick(&seen);
                check_alike(&model, &states, input, other);
                check_marks(&model, &state, input, other, *answer, &scoped);
                let Some(answer) = answer.filter(|_| !scoped.is_empty()) else { continue };
                right_answers += 1;
                check_pure(&model, &state, input, answer, &scoped);
                check_blind(&model, &states, input, other, answer);
                for earlier in &states {
                    let can = model.can_lead_to(earlier, input, answer);
                    assert!(can, "{earlier:?} leads to {state:?}: {input:?} -> {answer:?}");
                }
            }
            check_growth(&model, &seen, &state, &mut random);
            if next.is_empty() {
                break;
            }
            let (_, (to, scoped)) = random.pick(&next).clone();
            whole = to;
            states.push(scoped);
        }
    }
    assert!(right_answers > WALKS, "only {right_answers} answers were right");
}

/// Two calls that are alike are interchangeable when their answers are unobserved.
fn check_alike<M: Model>(model: &M, states: &[M::State], one: &M::Input, other: &M::Input) {
    if model.are_alike(one, other) {
        let is_same = |state: &M::State| {
            let left = |input| model.step(state, input, None).into_iter().collect::<Vec<_>>();
            left(one) == left(other)
        };
        assert!(states.iter().all(is_same), "{one:?} and {other:?}");
    }
}

/// A state must expect each mark that non-blind calls with unobserved answers lead to.
fn check_growth<M: Model>(
    model: &M,
    calls: Calls<'_, M::Input, M::Output>,
    state: &M::State,
    random: &mut Random,
) {
    let mut reached = state.clone();
    for _ in 0..4 {
        let (input, _) = random.pick(calls);
        if model.is_blind(input, None) {
            continue;
        }
        let Some(next) = model.step(&reached, input, None).into_iter().next() else { continue };
        reached = next;
        let mut marks = Vec::new();
        model.marks(&reached, input, &mut marks);
        for mark in &marks {
            assert!(model.may_grow_to(state, mark), "{state:?} to {reached:?}");
        }
    }
}

fn check_pure<S: Model>(
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

fn check_blind<S: Model>(
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

fn check_marks<S: Model>(
    subject: &S,
    state: &S::State,
    input: &S::Input,
    other: &S::Input,
    answer: Option<&S::Output>,
    successors: &[S::State],
) {
    let marks = |state: &S::State, input: &S::Input| {
        let mut marks = Vec::new();
        subject.marks(state, input, &mut marks);
        marks
    };
    let before = marks(state, input);
    if let Some(needed) = answer.and_then(|answer| subject.mark_before(input, answer)) {
        assert!(
            successors.is_empty() || before.contains(&needed),
            "{input:?} -> {answer:?} in {state:?}"
        );
    }
    for next in successors {
        let after = marks(next, input);
        for new in after.iter().filter(|mark| !before.contains(mark)) {
            for observed in [None, answer] {
                let needed = subject.mark_to_make(input, observed, new);
                let has_needed = needed.is_none_or(|needed| before.contains(&needed));
                assert!(has_needed, "{state:?}, {input:?} -> {observed:?} makes {next:?}");
                let is_allowed = match subject.marks_after(input, observed) {
                    MarksAfter::Only(made) => made.contains(new),
                    MarksAfter::Several => subject.may_make(input, observed, new),
                };
                assert!(is_allowed, "{state:?}, {input:?} -> {observed:?} makes {next:?}");
            }
        }
        // A call changes the marks of another call only where it looks itself.
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
    check(&kv_of_lists());
    check(&kv_of_numbers());
    check(&kv_that_expires());
}

#[test]
fn hints_of_keyed_are_true() {
    check(&Keyed::new(Register));
}

#[test]
fn hints_of_bag_are_true() {
    check(&Bag);
}
