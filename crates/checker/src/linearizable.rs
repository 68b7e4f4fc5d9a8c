//! Linearizability: one order, within real time, explains every answer.
//!
//! Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990).
//! Linearizability is local: a history is linearizable exactly when every object's part of it is.
//! So histories over many keys are checked key by key, which is much faster.

use std::collections::BTreeMap;

use crate::frontier::RealTime;
use crate::history::{History, Operation};
use crate::model::Model;
use crate::prepared::Prepared;
use crate::search::{Found, Search};
use crate::timeline::explain;
use crate::verdict::{Criterion, Limit, Verdict};

/// Checks the history of one object.
pub fn check<M: Model>(model: &M, history: &History<M::Input, M::Output>, limit: Limit) -> Verdict {
    let prepared = Prepared::new(model, history.operations(), |input| input);
    search(Criterion::Linearizable, RealTime::new(&prepared), model, &prepared, limit)
}

/// Checks the history of one object whose clients do not wait for an answer before they go on: what a client issued
/// first takes effect first, if both were answered.
pub fn check_in_sessions<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    limit: Limit,
) -> Verdict {
    let prepared = Prepared::new(model, history.operations(), |input| input);
    let frontier = RealTime::in_sessions(&prepared);
    search(Criterion::LinearizableInSessions, frontier, model, &prepared, limit)
}

/// Checks a history over many keys, each key by itself, and answers in order of keys.
///
/// `split` names the key of an input and the part of it that the model knows. The limit holds for
/// each key.
pub fn check_partitioned<M: Model, I, K: Ord + Clone>(
    model: &M,
    history: &History<I, M::Output>,
    split: impl Fn(&I) -> (&K, &M::Input),
    limit: Limit,
) -> Vec<(K, Verdict)> {
    let mut by_key: BTreeMap<&K, Vec<&Operation<I, M::Output>>> = BTreeMap::new();
    for operation in history.operations() {
        by_key.entry(split(&operation.input).0).or_default().push(operation);
    }
    let check_key = |(key, operations): (&K, Vec<&Operation<I, M::Output>>)| {
        let prepared = Prepared::new(model, operations, |input| split(input).1);
        let frontier = RealTime::new(&prepared);
        (key.clone(), search(Criterion::Linearizable, frontier, model, &prepared, limit))
    };
    by_key.into_iter().map(check_key).collect()
}

fn search<M: Model>(
    criterion: Criterion,
    frontier: RealTime,
    model: &M,
    prepared: &Prepared<'_, M>,
    limit: Limit,
) -> Verdict {
    match Search::new(model, prepared, frontier).run(limit) {
        Found::Order(order) => Verdict::Holds { order },
        Found::Nothing(dead_end) => {
            Verdict::Violation(Box::new(explain(criterion, prepared, dead_end)))
        }
        Found::LimitMet { explored } => Verdict::Undecided { explored },
    }
}
