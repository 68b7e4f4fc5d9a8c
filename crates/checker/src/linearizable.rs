//! Linearizability: one order, within real time, explains every answer.
//!
//! Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990).
//! Linearizability is local: a history is linearizable exactly when every object's part of it is.
//! So histories over many keys are checked key by key, which is much faster.

use std::collections::BTreeMap;

use crate::frontier::RealTime;
use crate::history::{History, Operation};
use crate::inference::infer;
use crate::model::Model;
use crate::prepared::{Prepared, scoped};
use crate::search::{Search, SearchResult};
use crate::timeline::explain;
use crate::verdict::{Criterion, Limit, Verdict};

/// Checks the history of one object.
pub fn check<M: Model>(model: &M, history: &History<M::Input, M::Output>, limit: Limit) -> Verdict {
    check_operations(model, history.operations(), |input| input, Criterion::Linearizable, limit)
}

/// Checks the history of one object whose clients pipeline their calls.
///
/// Answered calls of a client also take effect in its order of issue.
pub fn check_in_sessions<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    limit: Limit,
) -> Verdict {
    let criterion = Criterion::LinearizableInSessions;
    check_operations(model, history.operations(), |input| input, criterion, limit)
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
        let input_of = |input| split(input).1;
        (key.clone(), check_operations(model, operations, input_of, Criterion::Linearizable, limit))
    };
    by_key.into_iter().map(check_key).collect()
}

fn check_operations<'a, M: Model<Input: 'a, Output: 'a>, I: 'a>(
    model: &M,
    operations: impl IntoIterator<Item = &'a Operation<I, M::Output>>,
    input_of: impl Fn(&'a I) -> &'a M::Input,
    criterion: Criterion,
    limit: Limit,
) -> Verdict {
    let operations: Vec<_> = operations.into_iter().collect();
    let model = &scoped(model, &operations, &input_of);
    let mut prepared = Prepared::new(model, operations, input_of);
    let in_sessions = criterion == Criterion::LinearizableInSessions;
    infer(model, &mut prepared, in_sessions);
    let frontier = match in_sessions {
        true => RealTime::in_sessions(&prepared),
        false => RealTime::new(&prepared),
    };
    match Search::new(model, &prepared, frontier).run(limit) {
        SearchResult::Order(order) => Verdict::Holds { order },
        SearchResult::Nothing(dead_end) => {
            Verdict::Violation(Box::new(explain(criterion, &prepared, dead_end)))
        }
        SearchResult::LimitMet { explored } => Verdict::Undecided { explored },
    }
}
