//! The slow and obvious checker: tries every order of every choice of unknown operations.

use std::collections::HashSet;

use checker::{History, Model, OpId, Operation, Outcome};

/// Whether some order explains every answer.
pub(crate) fn is_explainable<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    precedes: impl Fn(&Operation<M::Input, M::Output>, &Operation<M::Input, M::Output>) -> bool,
) -> bool {
    let all = history.operations();
    let placeable: Vec<&Operation<M::Input, M::Output>> =
        all.iter().filter(|op| !matches!(op.outcome, Outcome::Failed)).collect();
    extend(model, &placeable, &precedes, &mut Vec::new(), &[model.initial()])
}

type Ops<'a, M> = [&'a Operation<<M as Model>::Input, <M as Model>::Output>];

fn extend<M: Model>(
    model: &M,
    all: &Ops<'_, M>,
    precedes: &impl Fn(&Operation<M::Input, M::Output>, &Operation<M::Input, M::Output>) -> bool,
    order: &mut Vec<OpId>,
    states: &[M::State],
) -> bool {
    if states.is_empty() {
        return false;
    }
    let left: Vec<_> = all.iter().filter(|op| !order.contains(&op.id)).collect();
    if left.iter().all(|op| matches!(op.outcome, Outcome::Unknown)) {
        return true;
    }
    for next in &left {
        if left.iter().any(|other| is_returned(other) && precedes(other, next)) {
            continue;
        }
        order.push(next.id);
        let states = step_all(model, states, next);
        let found = extend(model, all, precedes, order, &states);
        order.pop();
        if found {
            return true;
        }
    }
    false
}

/// As `is_explainable`, for up to 24 operations: keeps every (operations placed, state) that can be
/// reached, instead of every order.
pub(crate) fn is_reachable<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    precedes: impl Fn(&Operation<M::Input, M::Output>, &Operation<M::Input, M::Output>) -> bool,
) -> bool {
    let all = history.operations();
    assert!(all.len() <= 24, "{} operations are too many to try", all.len());
    let returned: Vec<usize> = (0..all.len()).filter(|at| is_returned(&all[*at])).collect();
    let goal = returned.iter().fold(0_u32, |mask, at| mask | 1 << at);
    let mut seen = HashSet::from([(0_u32, model.initial())]);
    let mut open: Vec<(u32, M::State)> = seen.iter().cloned().collect();
    while let Some((placed, state)) = open.pop() {
        if placed & goal == goal {
            return true;
        }
        for (at, next) in all.iter().enumerate() {
            let is_free = placed >> at & 1 == 0 && !matches!(next.outcome, Outcome::Failed);
            let is_early =
                returned.iter().any(|to| placed >> to & 1 == 0 && precedes(&all[*to], next));
            if !is_free || is_early {
                continue;
            }
            for state in step_all(model, std::slice::from_ref(&state), next) {
                let reached = (placed | 1 << at, state);
                if seen.insert(reached.clone()) {
                    open.push(reached);
                }
            }
        }
    }
    false
}

/// Whether `order` explains every answer: each returned operation once, no failed one, all
/// precedences respected, every answer right.
pub(crate) fn explains<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    precedes: impl Fn(&Operation<M::Input, M::Output>, &Operation<M::Input, M::Output>) -> bool,
    order: &[OpId],
) -> bool {
    let is_complete =
        history.operations().iter().filter(|op| is_returned(op)).all(|op| order.contains(&op.id));
    is_complete && is_right_prefix(model, history, precedes, order)
}

/// As `explains`, though returned operations may be missing at the end.
pub(crate) fn is_right_prefix<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    precedes: impl Fn(&Operation<M::Input, M::Output>, &Operation<M::Input, M::Output>) -> bool,
    order: &[OpId],
) -> bool {
    let mut states = vec![model.initial()];
    let mut left: Vec<_> = history.operations().iter().collect();
    for id in order {
        let Some(at) = left.iter().position(|op| op.id == *id) else { return false };
        let next = left.remove(at);
        let is_early = left.iter().any(|other| is_returned(other) && precedes(other, next));
        if is_early || matches!(next.outcome, Outcome::Failed) {
            return false;
        }
        states = step_all(model, &states, next);
    }
    !states.is_empty()
}

fn is_returned<I, O>(operation: &Operation<I, O>) -> bool {
    matches!(operation.outcome, Outcome::Returned(_))
}

fn step_all<M: Model>(
    model: &M,
    states: &[M::State],
    operation: &Operation<M::Input, M::Output>,
) -> Vec<M::State> {
    let observed = match &operation.outcome {
        Outcome::Returned(output) => Some(output),
        Outcome::Failed | Outcome::Unknown => None,
    };
    states.iter().flat_map(|state| model.step(state, &operation.input, observed)).collect()
}

/// Real time.
pub(crate) fn in_real_time<I, O>(a: &Operation<I, O>, b: &Operation<I, O>) -> bool {
    a.responded.is_some_and(|responded| responded < b.invoked)
}

/// Program order of one client.
pub(crate) fn in_program<I, O>(a: &Operation<I, O>, b: &Operation<I, O>) -> bool {
    a.client == b.client && (a.invoked, a.id) < (b.invoked, b.id)
}
