//! Serializability of transactions over lists, by what their reads reveal.
//!
//! The list-append method of Elle: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations" (VLDB 2020), with the anomalies of Adya, "Weak Consistency" (1999).
//! Every element is appended once, so a read of a list names the transactions that made it, in
//! their order. What must come before what makes a graph; a cycle in it is a violation, and its
//! edges say of which kind.
//!
//! The verdict is exact. All reads of a list are beginnings of the longest one, and an append that
//! none of them shows comes after all that it shows, hence after everybody who read it. Appends
//! that nobody saw may stand in any order. So any order that the graph allows explains every read,
//! and [`Finding::Holds`] has one. A transaction of unknown outcome took effect if one of its
//! appends was seen; if none was, leaving it out spoils no order.
//!
//! The cost is about that of reading the history, and for each list the number of reads of all that
//! was ever seen in it times the number of appends that nobody saw.

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

/// What the order of transactions must respect, besides explaining all that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Nothing.
    Serializable,
    /// The order in which each client issued its transactions (strong session serializability).
    InSessions,
    /// Real time: strict serializability.
    Strict,
    /// Both; they differ where a client does not wait for answers.
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
        /// An order that explains every read: all transactions that returned, and those of unknown
        /// outcome that were seen.
        order: Vec<OpId>,
    },
    /// It was not: what tells so, of each knot of transactions the plainest cycle.
    Broken(Vec<Anomaly>),
}

impl Finding {
    /// True only if the promise was kept.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Finding::Holds { .. })
    }

    /// What was found; nothing if the promise was kept.
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
    let knots = components.iter().filter(|component| component.len() > 1);
    anomalies.extend(knots.map(|knot| Anomaly::Cycle(cycles::plainest(&graph, knot, promise))));
    if !anomalies.is_empty() {
        return Finding::Broken(anomalies);
    }
    let nodes = components.iter().rev().flatten();
    Finding::Holds { order: nodes.filter_map(|node| graph.transaction(*node)).collect() }
}
