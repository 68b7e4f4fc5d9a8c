//! The plainest cycle of a knot: it says most about what went wrong.
//!
//! Cycles of data alone come before those that need the order of sessions or real time, and among
//! them Adya's kinds in their order, as Elle reports them.

use std::collections::{BTreeMap, VecDeque};

use super::anomaly::{Cycle, CycleKind, Dependency, Edge};
use super::graph::{Graph, Node};
use super::{Promise, components};

/// How many nodes of a knot a shortest cycle is looked for through; any cycle would be right.
const STARTS_MAX: usize = 32;

/// Which edges a cycle may have.
#[derive(Clone, Copy)]
struct Allowed {
    // Reads of appends, and reads that came too early.
    reads: bool,
    early_reads: bool,
    sessions: bool,
    real_time: bool,
}

impl Allowed {
    fn permits(self, why: Dependency) -> bool {
        match why {
            Dependency::Overwrites { .. } => true,
            Dependency::Reads { .. } => self.reads,
            Dependency::Precedes { .. } => self.early_reads,
            Dependency::Session => self.sessions,
            Dependency::RealTime => self.real_time,
        }
    }
}

/// The edges within one knot, by node.
struct Knot<'g> {
    graph: &'g Graph,
    edges: BTreeMap<Node, Vec<(Node, Dependency)>>,
}

/// The plainest cycle among `nodes`, a strongly connected component of several.
pub(super) fn plainest(graph: &Graph, nodes: &[Node], promise: Promise) -> Cycle {
    let members: BTreeMap<Node, ()> = nodes.iter().map(|node| (*node, ())).collect();
    let within = |node: &Node| {
        let edges = graph.edges[*node].iter().filter(|(to, _)| members.contains_key(to));
        (*node, edges.copied().collect())
    };
    let knot = Knot { graph, edges: nodes.iter().map(within).collect() };
    for (sessions, real_time) in [(false, false), (true, false), (false, true), (true, true)] {
        let is_promised =
            (!sessions || promise.keeps_sessions()) && (!real_time || promise.keeps_real_time());
        if let Some(cycle) = is_promised.then(|| knot.plainest(sessions, real_time)).flatten() {
            return cycle;
        }
    }
    unreachable!("a component of several nodes has a cycle")
}

impl Knot<'_> {
    fn plainest(&self, sessions: bool, real_time: bool) -> Option<Cycle> {
        let allowed = |reads, early_reads| Allowed { reads, early_reads, sessions, real_time };
        let found = |kind| move |edges| (kind, edges);
        let (kind, edges) = (self.shortest(allowed(false, false)).map(found(CycleKind::G0)))
            .or_else(|| self.shortest(allowed(true, false)).map(found(CycleKind::G1c)))
            .or_else(|| {
                self.with_one_early_read(allowed(true, false)).map(found(CycleKind::GSingle))
            })
            .or_else(|| self.shortest(allowed(true, true)).map(found(CycleKind::G2)))?;
        // Without them there was no cycle of any kind.
        Some(Cycle { kind, needs_sessions: sessions, needs_real_time: real_time, edges })
    }

    /// A cycle of allowed edges, short if not the shortest.
    fn shortest(&self, allowed: Allowed) -> Option<Vec<Edge>> {
        let index: Vec<Node> = self.edges.keys().copied().collect();
        let successors: Vec<Vec<usize>> = self
            .edges
            .values()
            .map(|edges| {
                let to = edges.iter().filter(|(_, why)| allowed.permits(*why)).map(|(to, _)| to);
                to.map(|to| index.binary_search(to).expect("edges stay in the knot")).collect()
            })
            .collect();
        let tied = components::of(&successors).into_iter().filter(|nodes| nodes.len() > 1);
        let starts = tied.flatten().map(|at| index[at]);
        let starts = starts.filter(|node| self.graph.transaction(*node).is_some());
        let cycles = starts.take(STARTS_MAX).filter_map(|start| self.way(start, start, allowed));
        cycles.min_by_key(Vec::len).map(|way| self.told(&way))
    }

    /// A cycle with exactly one read that came too early.
    fn with_one_early_read(&self, allowed: Allowed) -> Option<Vec<Edge>> {
        for (from, edges) in &self.edges {
            for (to, why) in edges.iter().filter(|(_, why)| is_early_read(*why)) {
                if let Some(back) = self.way(*to, *from, allowed) {
                    let cycle = [&[(*from, *to, *why)], &back[..]].concat();
                    return Some(self.told(&cycle));
                }
            }
        }
        None
    }

    /// The way of allowed edges that passes the fewest transactions; at least one edge.
    fn way(&self, from: Node, to: Node, allowed: Allowed) -> Option<Vec<(Node, Node, Dependency)>> {
        let mut came: BTreeMap<Node, (Node, Dependency)> = BTreeMap::new();
        let mut open = VecDeque::from([from]);
        while let Some(node) = open.pop_front() {
            for (next, why) in self.edges[&node].iter().filter(|(_, why)| allowed.permits(*why)) {
                if came.contains_key(next) {
                    continue;
                }
                came.insert(*next, (node, *why));
                if *next == to {
                    return Some(backwards(&came, from, to));
                }
                match self.graph.transaction(*next) {
                    Some(_) => open.push_back(*next),
                    None => open.push_front(*next),
                }
            }
        }
        None
    }

    /// Edges between transactions: moments on the way are left out.
    fn told(&self, way: &[(Node, Node, Dependency)]) -> Vec<Edge> {
        let mut edges: Vec<Edge> = Vec::new();
        let mut since = None;
        for (from, to, why) in way {
            since = self.graph.transaction(*from).or(since);
            if let (Some(from), Some(to)) = (since, self.graph.transaction(*to)) {
                edges.push(Edge { from, to, why: *why });
            }
        }
        edges
    }
}

fn is_early_read(why: Dependency) -> bool {
    matches!(why, Dependency::Precedes { .. })
}

fn backwards(
    came: &BTreeMap<Node, (Node, Dependency)>,
    from: Node,
    to: Node,
) -> Vec<(Node, Node, Dependency)> {
    let mut way = Vec::new();
    let mut at = to;
    loop {
        let (before, why) = came[&at];
        way.push((before, at, why));
        at = before;
        if at == from {
            break;
        }
    }
    way.reverse();
    way
}
