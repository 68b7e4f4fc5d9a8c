//! The graph of precedences.
//!
//! Nodes are the transactions that took effect and, for real time, the moments at which some
//! responded. A moment follows its responses and the moment before it, and precedes later
//! invocations. So real time costs a few edges for each transaction, not for each pair.

use std::collections::BTreeMap;

use super::lines::{Lines, ListOrder};
use super::observations::{Observations, Recorded};
use super::{Dependency, Promise};
use crate::history::{ClientId, OpId, Outcome};
use crate::model::lists::Key;

/// A transaction or a moment, as an index.
pub(super) type Vertex = usize;

pub(super) struct Graph {
    // By node; moments come after them.
    transactions: Vec<OpId>,
    /// By node.
    pub(super) edges: Vec<Vec<(Vertex, Dependency)>>,
}

impl Graph {
    pub(super) fn new(
        observations: &Observations<'_>,
        lines: &Lines<'_>,
        promise: Promise,
    ) -> Graph {
        let operations = observations.history.operations().iter();
        let operations: Vec<&Recorded> =
            operations.filter(|operation| observations.took_effect(operation.id)).collect();
        let transactions: Vec<OpId> = operations.iter().map(|operation| operation.id).collect();
        let mut graph = Graph { edges: vec![Vec::new(); transactions.len()], transactions };
        for (key, line) in &lines.0 {
            graph.add_line(*key, line, observations);
        }
        if promise.keeps_sessions() {
            graph.add_sessions(&operations);
        }
        if promise.keeps_real_time() {
            graph.add_real_time(&operations);
        }
        for edges in &mut graph.edges {
            edges.sort_unstable();
            edges.dedup();
        }
        graph
    }

    /// The transaction that a node stands for; `None` for a moment.
    pub(super) fn transaction(&self, node: Vertex) -> Option<OpId> {
        self.transactions.get(node).copied()
    }

    /// The nodes that come after each, for any reason.
    pub(super) fn successors(&self) -> Vec<Vec<Vertex>> {
        let successors =
            |edges: &Vec<(Vertex, Dependency)>| edges.iter().map(|(to, _)| *to).collect();
        self.edges.iter().map(successors).collect()
    }

    fn add(&mut self, from: OpId, to: OpId, why: Dependency) {
        if from != to {
            let (from, to) = (self.node(from), self.node(to));
            self.edges[from].push((to, why));
        }
    }

    fn node(&self, transaction: OpId) -> Vertex {
        self.transactions.binary_search(&transaction).expect("it took effect")
    }

    fn add_line(&mut self, key: Key, line: &ListOrder<'_>, observations: &Observations<'_>) {
        let author = |at: usize| observations.author(key, line.longest[at]);
        for at in 1..line.longest.len() {
            if let (Some(before), Some(after)) = (author(at - 1), author(at)) {
                let why = Dependency::Overwrites { key, element: line.longest[at] };
                self.add(before, after, why);
            }
        }
        if let Some(last) = line.longest.len().checked_sub(1).and_then(author) {
            for (after, element) in &line.unseen {
                self.add(last, *after, Dependency::Overwrites { key, element: *element });
            }
        }
        for (reader, found) in &line.readers {
            if let Some(before) = found.checked_sub(1).and_then(author) {
                let why = Dependency::Reads { key, element: line.longest[found - 1] };
                self.add(before, *reader, why);
            }
            self.add_what_it_missed(key, line, (*reader, *found), observations);
        }
    }

    /// A reader comes before the first append that it did not find, if that is known.
    fn add_what_it_missed(
        &mut self,
        key: Key,
        line: &ListOrder<'_>,
        (reader, found): (OpId, usize),
        observations: &Observations<'_>,
    ) {
        if let Some(element) = line.longest.get(found).copied() {
            if let Some(after) = observations.author(key, element) {
                self.add(reader, after, Dependency::Precedes { key, element });
            }
            return;
        }
        for (after, element) in &line.unseen {
            self.add(reader, *after, Dependency::Precedes { key, element: *element });
        }
    }

    /// An unknown outcome comes after its client's earlier transactions; no transaction must come
    /// after it.
    fn add_sessions(&mut self, operations: &[&Recorded]) {
        let mut sessions: BTreeMap<ClientId, Vec<&Recorded>> = BTreeMap::new();
        for operation in operations {
            sessions.entry(operation.client).or_default().push(operation);
        }
        for session in sessions.values_mut() {
            session.sort_by_key(|operation| (operation.invoked, operation.id));
            let mut last_answered: Option<OpId> = None;
            for operation in session {
                if let Some(before) = last_answered {
                    self.add(before, operation.id, Dependency::Session);
                }
                if matches!(operation.outcome, Outcome::Returned(_)) {
                    last_answered = Some(operation.id);
                }
            }
        }
    }

    fn add_real_time(&mut self, operations: &[&Recorded]) {
        let mut moments: Vec<u64> =
            operations.iter().filter_map(|operation| operation.responded).collect();
        moments.sort_unstable();
        moments.dedup();
        let first = self.transactions.len();
        for at in 0..moments.len() {
            let is_last = at + 1 == moments.len();
            let next = (!is_last).then_some((first + at + 1, Dependency::RealTime));
            self.edges.push(next.into_iter().collect());
        }
        for (node, operation) in operations.iter().enumerate() {
            if let Some(responded) = operation.responded {
                let at = moments.partition_point(|moment| *moment < responded);
                self.edges[node].push((first + at, Dependency::RealTime));
            }
            let passed = moments.partition_point(|moment| *moment < operation.invoked);
            if let Some(at) = passed.checked_sub(1) {
                self.edges[first + at].push((node, Dependency::RealTime));
            }
        }
    }
}
