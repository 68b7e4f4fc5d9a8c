//! Serializability of transactions over lists, judged by their reads.
//!
//! The list-append method of Elle: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations" (VLDB 2020), with the anomalies of Adya, "Weak Consistency" (1999).
//! Every element is appended once, so a read of a list names the transactions that made it, in
//! their order. Precedences form a graph. A cycle in it is a violation, and its edges give the
//! kind.
//!
//! The verdict is exact. All reads of a list are prefixes of the longest one.
//! An append that no read shows comes after all shown appends, hence after every reader.
//! Such appends may stand in any order.
//! So any order that the graph allows explains every read, and [`Finding::Holds`] has one.
//! A transaction of unknown outcome took effect if a read shows one of its appends. If none does,
//! leaving it out spoils no order.
//!
//! The cost is about that of reading the history.
//! Each list adds the number of reads of its longest state times the number of unread appends.

mod anomaly;
mod components;
mod cycles;
mod graph;
mod lines;
mod observations;

pub use anomaly::{Anomaly, Cycle, CycleKind, Dependency, Edge};

use crate::history::{History, OpId};
use crate::model::lists::{Seen, Transaction};
use graph::Graph;
use lines::Lines;
use observations::Observations;

/// Precedences that an order of transactions must respect, besides explaining all reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// No precedence.
    Serializable,
    /// The order in which each client issued its transactions (strong session serializability).
    InSessions,
    /// Real time: strict serializability.
    Strict,
    /// Both; they differ for a client that pipelines.
    StrictInSessions,
}

impl Promise {
    fn keeps_sessions(self) -> bool {
        matches!(self, Promise::InSessions | Promise::StrictInSessions)
    }

    fn keeps_real_time(self) -> bool {
        matches!(self, Promise::Strict | Promise::StrictInSessions)
    }
}

/// The answer of a check.
#[derive(Clone, Debug)]
#[must_use]
pub enum Finding {
    /// The promise was kept.
    Holds {
        /// An order that explains every read: all transactions that returned, and observed ones of
        /// unknown outcome.
        order: Vec<OpId>,
    },
    /// It was broken; of each strongly connected component the simplest cycle proves it.
    Broken(Vec<Anomaly>),
}

impl Finding {
    /// True only if the promise was kept.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Finding::Holds { .. })
    }

    /// The anomalies; empty if the promise was kept.
    #[must_use]
    pub fn anomalies(&self) -> &[Anomaly] {
        match self {
            Finding::Holds { .. } => &[],
            Finding::Broken(anomalies) => anomalies,
        }
    }
}

/// Checks a history of transactions as a whole.
///
/// # Panics
/// If an element is appended twice to one list, or an answer has not one list for each read.
pub fn check(history: &History<Transaction, Seen>, promise: Promise) -> Finding {
    let observations = Observations::new(history);
    let lines = Lines::new(&observations);
    let mut anomalies = observations.anomalies();
    anomalies.extend(lines.anomalies(&observations));
    let graph = Graph::new(&observations, &lines, promise);
    let components = components::of(&graph.successors());
    let cyclic = components.iter().filter(|component| component.len() > 1);
    anomalies.extend(
        cyclic.map(|component| Anomaly::Cycle(cycles::plainest(&graph, component, promise))),
    );
    if !anomalies.is_empty() {
        return Finding::Broken(anomalies);
    }
    let nodes = components.iter().rev().flatten();
    Finding::Holds { order: nodes.filter_map(|node| graph.transaction(*node)).collect() }
}
