//! The simplest cycle of a component, as the best explanation.
//!
//! Cycles of data alone come before those that need the order of sessions or real time.
//! Among them Adya's kinds come in their order, as in Elle's reports.

use std::collections::{BTreeMap, VecDeque};

use super::anomaly::{Cycle, CycleKind, Dependency, Edge};
use super::graph::{Graph, Vertex};
use super::{Promise, components};

/// Start nodes for the shortest cycle of a component; any cycle would be right.
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

/// The edges within one component, by node.
struct Component<'g> {
    graph: &'g Graph,
    edges: BTreeMap<Vertex, Vec<(Vertex, Dependency)>>,
}

/// The simplest cycle among `nodes`, a strongly connected component of several.
pub(super) fn plainest(graph: &Graph, nodes: &[Vertex], promise: Promise) -> Cycle {
    let members: BTreeMap<Vertex, ()> = nodes.iter().map(|node| (*node, ())).collect();
    let within = |node: &Vertex| {
        let edges = graph.edges[*node].iter().filter(|(to, _)| members.contains_key(to));
        (*node, edges.copied().collect())
    };
    let component = Component { graph, edges: nodes.iter().map(within).collect() };
    for (sessions, real_time) in [(false, false), (true, false), (false, true), (true, true)] {
        let is_promised =
            (!sessions || promise.keeps_sessions()) && (!real_time || promise.keeps_real_time());
        if let Some(cycle) = is_promised.then(|| component.plainest(sessions, real_time)).flatten()
        {
            return cycle;
        }
    }
    unreachable!("a component of several nodes has a cycle")
}

impl Component<'_> {
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
        let index: Vec<Vertex> = self.edges.keys().copied().collect();
        let successors: Vec<Vec<usize>> = self
            .edges
            .values()
            .map(|edges| {
                let to = edges.iter().filter(|(_, why)| allowed.permits(*why)).map(|(to, _)| to);
                to.map(|to| index.binary_search(to).expect("edges stay in the component")).collect()
            })
            .collect();
        let tied = components::of(&successors).into_iter().filter(|nodes| nodes.len() > 1);
        let starts = tied.flatten().map(|at| index[at]);
        let starts = starts.filter(|node| self.graph.transaction(*node).is_some());
        let cycles = starts.take(STARTS_MAX).filter_map(|start| self.path(start, start, allowed));
        cycles.min_by_key(Vec::len).map(|path| self.edges_of(&path))
    }

    /// A cycle with exactly one read that came too early.
    fn with_one_early_read(&self, allowed: Allowed) -> Option<Vec<Edge>> {
        for (from, edges) in &self.edges {
            for (to, why) in edges.iter().filter(|(_, why)| is_early_read(*why)) {
                if let Some(back) = self.path(*to, *from, allowed) {
                    let cycle = [&[(*from, *to, *why)], &back[..]].concat();
                    return Some(self.edges_of(&cycle));
                }
            }
        }
        None
    }

    /// The path of allowed edges through the fewest transactions; at least one edge.
    fn path(
        &self,
        from: Vertex,
        to: Vertex,
        allowed: Allowed,
    ) -> Option<Vec<(Vertex, Vertex, Dependency)>> {
        let mut came: BTreeMap<Vertex, (Vertex, Dependency)> = BTreeMap::new();
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

    /// Edges between transactions: moments on the path are left out.
    fn edges_of(&self, path: &[(Vertex, Vertex, Dependency)]) -> Vec<Edge> {
        let mut edges: Vec<Edge> = Vec::new();
        let mut since = None;
        for (from, to, why) in path {
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
    came: &BTreeMap<Vertex, (Vertex, Dependency)>,
    from: Vertex,
    to: Vertex,
) -> Vec<(Vertex, Vertex, Dependency)> {
    let mut path = Vec::new();
    let mut at = to;
    loop {
        let (before, why) = came[&at];
        path.push((before, at, why));
        at = before;
        if at == from {
            break;
        }
    }
    path.reverse();
    path
}
