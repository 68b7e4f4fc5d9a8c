//! Sequential consistency: one order, within each client's program order, explains every answer.
//!
//! Lamport, "How to Make a Multiprocessor Computer That Correctly Executes Multiprocess Programs"
//! (1979). [`WriteOrder::RealTime`] is the promise of ZooKeeper: writes are linearizable, reads may
//! be stale but never go back for one client. Hunt et al., "ZooKeeper" (2010), section 2.3.
//!
//! Program order is the order in which a client issued its calls, pipelined or not. A call of
//! unknown outcome comes after its client's earlier calls; no call must come after it.
//!
//! Sequential consistency is not local: check histories over many keys as one, with
//! [`crate::model::keyed::Keyed`]. A violation on one key alone is a violation all the same.

use std::collections::BTreeSet;

use crate::frontier::ProgramOrder;
use crate::history::{History, OpId};
use crate::model::Model;
use crate::prepared::{Prepared, scoped};
use crate::search::{Search, SearchResult};
use crate::timeline::explain;
use crate::verdict::{Criterion, Limit, Verdict};

/// The order among writes of different clients. A write is any call that is not pure for some
/// answer ([`Model::is_pure`] without an answer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOrder {
    /// No order.
    Free,
    /// Real time: a write that responded before another was invoked comes first.
    RealTime,
}

/// Checks a history as a whole.
pub fn check<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    write_order: WriteOrder,
    limit: Limit,
) -> Verdict {
    run(model, history, (write_order, &BTreeSet::new()), limit)
}

/// Checks a history in which writes and the reads in `ordered` are in the order of real time.
///
/// If all reads are, this is linearizability in sessions.
pub fn check_ordered<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    ordered: &BTreeSet<OpId>,
    limit: Limit,
) -> Verdict {
    run(model, history, (WriteOrder::RealTime, ordered), limit)
}

fn run<M: Model>(
    model: &M,
    history: &History<M::Input, M::Output>,
    (write_order, ordered): (WriteOrder, &BTreeSet<OpId>),
    limit: Limit,
) -> Verdict {
    let operations: Vec<_> = history.operations().iter().collect();
    let model = &scoped(model, &operations, |input| input);
    let prepared = Prepared::new(model, operations, |input| input);
    let criterion = match write_order {
        WriteOrder::Free => Criterion::Sequential,
        WriteOrder::RealTime => Criterion::SequentialWithOrderedWrites,
    };
    match Search::new(model, &prepared, ProgramOrder::new(&prepared, write_order, ordered))
        .run(limit)
    {
        SearchResult::Order(order) => Verdict::Holds { order },
        SearchResult::Nothing(dead_end) => {
            Verdict::Violation(Box::new(explain(criterion, &prepared, dead_end)))
        }
        SearchResult::LimitMet { explored } => Verdict::Undecided { explored },
    }
}
