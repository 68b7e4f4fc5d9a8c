//! Strongly connected components of a graph.
//!
//! Tarjan, "Depth-First Search and Linear Graph Algorithms" (1972), without recursion: histories
//! are longer than stacks.

use super::graph::Vertex;

const UNVISITED: usize = usize::MAX;

struct ComponentSearch<'g> {
    successors: &'g [Vec<Vertex>],
    // By node: when it was found; the earliest node still open that it is known to lead to.
    found: Vec<usize>,
    lowest: Vec<usize>,
    is_open: Vec<bool>,
    // Visited nodes whose component is incomplete.
    open: Vec<Vertex>,
    // The path from the root; of each node, the number of followed successors.
    path: Vec<(Vertex, usize)>,
    found_count: usize,
    components: Vec<Vec<Vertex>>,
}

/// The strongly connected components, each after all that it leads to.
pub(super) fn of(successors: &[Vec<Vertex>]) -> Vec<Vec<Vertex>> {
    let count = successors.len();
    let mut search = ComponentSearch {
        successors,
        found: vec![UNVISITED; count],
        lowest: vec![0; count],
        is_open: vec![false; count],
        open: Vec::new(),
        path: Vec::new(),
        found_count: 0,
        components: Vec::new(),
    };
    for root in 0..count {
        if search.found[root] == UNVISITED {
            search.enter(root);
            search.run();
        }
    }
    search.components
}

impl ComponentSearch<'_> {
    fn enter(&mut self, node: Vertex) {
        self.found[node] = self.found_count;
        self.lowest[node] = self.found_count;
        self.found_count += 1;
        self.is_open[node] = true;
        self.open.push(node);
        self.path.push((node, 0));
    }

    fn run(&mut self) {
        while let Some((node, followed)) = self.path.last_mut() {
            let node = *node;
            if let Some(next) = self.successors[node].get(*followed).copied() {
                *followed += 1;
                if self.found[next] == UNVISITED {
                    self.enter(next);
                } else if self.is_open[next] {
                    self.lowest[node] = self.lowest[node].min(self.found[next]);
                }
            } else {
                self.leave(node);
            }
        }
    }

    fn leave(&mut self, node: Vertex) {
        self.path.pop();
        if let Some((before, _)) = self.path.last() {
            self.lowest[*before] = self.lowest[*before].min(self.lowest[node]);
        }
        if self.lowest[node] != self.found[node] {
            return;
        }
        let from = self.open.iter().rposition(|open| *open == node).expect("the node is open");
        let component = self.open.split_off(from);
        component.iter().for_each(|member| self.is_open[*member] = false);
        self.components.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(edges: &[(Vertex, Vertex)], count: usize, expected: &[&[Vertex]]) {
        let mut successors = vec![Vec::new(); count];
        for (from, to) in edges {
            successors[*from].push(*to);
        }
        let mut components = of(&successors);
        components.iter_mut().for_each(|component| component.sort_unstable());
        assert_eq!(components, expected);
    }

    #[test]
    fn component_comes_after_its_successors() {
        check(&[(0, 1), (1, 2), (0, 2)], 3, &[&[2], &[1], &[0]]);
        check(&[], 2, &[&[0], &[1]]);
    }

    #[test]
    fn nodes_on_a_cycle_share_a_component() {
        check(&[(0, 1), (1, 0), (1, 2), (2, 3), (3, 2)], 4, &[&[2, 3], &[0, 1]]);
        check(&[(0, 1), (1, 2), (2, 3), (3, 1), (2, 0)], 4, &[&[0, 1, 2, 3]]);
    }

    /// Against reachability, over every graph of three nodes and many larger ones.
    #[test]
    fn components_agree_with_reachability() {
        for (count, graphs) in [(3, 1_u64 << 9), (6, 3_000)] {
            for graph in 0..graphs {
                // Any mixing will do where not all graphs are tried.
                let bits =
                    if count == 3 { graph } else { graph.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
                let has = |from: usize, to: usize| bits >> (from * count + to) & 1 == 1;
                let successors: Vec<Vec<Vertex>> = (0..count)
                    .map(|from| (0..count).filter(|to| has(from, *to)).collect())
                    .collect();
                let mut reaches: Vec<Vec<bool>> =
                    (0..count).map(|a| (0..count).map(|b| a == b || has(a, b)).collect()).collect();
                for (via, a, b) in
                    (0..count.pow(3)).map(|i| (i / count / count, i / count % count, i % count))
                {
                    reaches[a][b] |= reaches[a][via] && reaches[via][b];
                }
                let components = of(&successors);
                let of_node = |node| components.iter().position(|c| c.contains(&node));
                for (a, b) in (0..count * count).map(|i| (i / count, i % count)) {
                    let expected = reaches[a][b] && reaches[b][a];
                    assert_eq!(of_node(a) == of_node(b), expected, "{successors:?}: {a}, {b}");
                    assert!(!has(a, b) || of_node(b) <= of_node(a), "{successors:?}: {a}, {b}");
                }
            }
        }
    }
}
