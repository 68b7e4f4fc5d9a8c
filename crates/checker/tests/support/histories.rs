//! Random histories: possible answers of a correct object, some with one answer changed.

use std::mem::discriminant;

use checker::{ClientId, History, Outcome};

use super::Random;
use super::subjects::Subject;

/// The shape of random histories.
#[derive(Clone, Copy)]
pub(crate) struct HistoryShape {
    pub(crate) operations_count: usize,
    pub(crate) clients_count: u64,
    /// Longest time between the invocations of one client, and longest call.
    pub(crate) pause_max: u64,
    pub(crate) duration_max: u64,
    pub(crate) percent_unknown: u64,
    pub(crate) percent_failed: u64,
    /// Calls that their client does not wait for before it goes on.
    pub(crate) percent_pipelined: u64,
}

struct PlannedCall<I> {
    client: u64,
    input: I,
    invoked: u64,
    responded: u64,
    fate: EffectTime,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EffectTime {
    Returns {
        at: u64,
    },
    /// Takes effect at that time, or never.
    Unknown {
        at: Option<u64>,
    },
    Failed,
}

/// A history that some order explains: every call takes effect at one moment within it.
pub(crate) fn right<S: Subject>(
    subject: &S,
    shape: HistoryShape,
    random: &mut Random,
) -> History<S::Input, S::Output> {
    let planned = plan(subject, shape, random);
    let mut effects: Vec<(u64, usize)> = Vec::new();
    for (index, call) in planned.iter().enumerate() {
        match call.fate {
            EffectTime::Returns { at } | EffectTime::Unknown { at: Some(at) } => {
                effects.push((at, index))
            }
            EffectTime::Unknown { at: None } | EffectTime::Failed => {}
        }
    }
    effects.sort_unstable();
    let mut answers: Vec<Option<S::Output>> = planned.iter().map(|_| None).collect();
    let mut state = subject.initial();
    for (_, index) in effects {
        let (answer, next) = subject.run(&state, &planned[index].input, random);
        answers[index] = Some(answer);
        state = next;
    }
    record(planned, answers)
}

/// `right`, then one answer exchanged for a possibly wrong one, or one call delayed.
pub(crate) fn doubtful<S: Subject>(
    subject: &S,
    shape: HistoryShape,
    random: &mut Random,
) -> History<S::Input, S::Output> {
    let history = right(subject, shape, random);
    let victim = random.below(history.len() as u64) as usize;
    let delay = if random.chance(30) { 1 + random.below(2 * shape.duration_max + 2) } else { 0 };
    let mut changed = History::new();
    for (index, operation) in history.operations().iter().enumerate() {
        let delay = if index == victim { delay } else { 0 };
        let invoked = operation.invoked + delay;
        let op = changed.invoke(operation.client, operation.input.clone(), invoked);
        let Some(at) = operation.responded.map(|at| at + delay) else { continue };
        let outcome = match &operation.outcome {
            unchanged if delay > 0 => unchanged.clone(),
            Outcome::Returned(answer) if index == victim => {
                let wrong = match answer_nearby(&history, index, answer, random) {
                    Some(other) if random.chance(50) => other,
                    _ => {
                        let answers = subject.answers(&subject.initial(), &operation.input);
                        random.pick(&answers).clone()
                    }
                };
                Outcome::Returned(wrong)
            }
            Outcome::Unknown if index == victim => Outcome::Failed,
            other => other.clone(),
        };
        changed.complete(op, outcome, at);
    }
    changed
}

/// An answer of the same kind from a call around `index`: stale, or from the future.
fn answer_nearby<I, O: Clone>(
    history: &History<I, O>,
    index: usize,
    answer: &O,
    random: &mut Random,
) -> Option<O> {
    let around = history.operations()[index.saturating_sub(20)..].iter().take(40);
    let answers: Vec<&O> = around
        .filter_map(|operation| match &operation.outcome {
            Outcome::Returned(other) if discriminant(other) == discriminant(answer) => Some(other),
            _ => None,
        })
        .collect();
    (!answers.is_empty()).then(|| (*random.pick(&answers)).clone())
}

fn plan<S: Subject>(
    subject: &S,
    shape: HistoryShape,
    random: &mut Random,
) -> Vec<PlannedCall<S::Input>> {
    let mut free_at = vec![0; shape.clients_count as usize];
    let mut planned: Vec<PlannedCall<S::Input>> = (0..shape.operations_count)
        .map(|index| {
            let client = index as u64 % shape.clients_count;
            let invoked = free_at[client as usize] + random.below(shape.pause_max + 1);
            let responded = invoked + random.below(shape.duration_max + 1);
            let is_pipelined = random.chance(shape.percent_pipelined);
            free_at[client as usize] = if is_pipelined { invoked } else { responded + 1 };
            let fate = fate(shape, invoked, responded, random);
            PlannedCall { client, input: subject.random_input(random), invoked, responded, fate }
        })
        .collect();
    planned.sort_by_key(|call| call.invoked);
    planned
}

fn fate(shape: HistoryShape, invoked: u64, responded: u64, random: &mut Random) -> EffectTime {
    let within = invoked + random.below(responded - invoked + 1);
    if random.chance(shape.percent_failed) {
        EffectTime::Failed
    } else if random.chance(shape.percent_unknown) {
        // Some take effect long after the client gave up.
        let late = random.below(4 * shape.duration_max + 1);
        EffectTime::Unknown { at: random.chance(60).then_some(within + late) }
    } else {
        EffectTime::Returns { at: within }
    }
}

fn record<I, O>(planned: Vec<PlannedCall<I>>, answers: Vec<Option<O>>) -> History<I, O> {
    let mut history = History::new();
    for (call, answer) in planned.into_iter().zip(answers) {
        let op = history.invoke(ClientId(call.client), call.input, call.invoked);
        let outcome = match (call.fate, answer) {
            (EffectTime::Returns { .. }, Some(answer)) => Outcome::Returned(answer),
            (EffectTime::Failed, _) => Outcome::Failed,
            _ => Outcome::Unknown,
        };
        history.complete(op, outcome, call.responded);
    }
    history
}
