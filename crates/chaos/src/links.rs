//! The network's treatment of packets between nodes, and the rules that configure it.
//!
//! Nodes are counted from 0. Clients reach every node over the same links; only explicit rules
//! affect them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::Ipv4Addr;

use base::Prng;

/// The port of nodes for their peers.
pub const PEER_PORT: u16 = 16_379;
/// The port of nodes for clients.
pub const RESP_PORT: u16 = 6_379;

/// The address of a node.
pub fn address(node: usize) -> Ipv4Addr {
    let last = u8::try_from(node + 1).expect("there are at most nine nodes");
    Ipv4Addr::new(10, 77, 0, last)
}

/// The address of clients and detours.
pub const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

/// Packets from one node to another do not arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cut {
    pub from: usize,
    pub to: usize,
}

/// The treatment of a cut packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Manner {
    /// It is dropped silently.
    #[default]
    Silent,
    /// Its connection is reset.
    Reset,
}

/// All network faults at one moment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NetworkRules {
    pub cuts: BTreeSet<Cut>,
    pub manner: Manner,
    /// Nodes that hear no clients.
    pub deaf: BTreeSet<usize>,
    /// Packets between nodes that are lost, in percent.
    pub loss_percent: u64,
    /// New connections of a pair (dialler, target) lead to this port of the hub.
    pub detours: BTreeMap<(usize, usize), u16>,
}

impl NetworkRules {
    /// Only these cuts.
    pub fn cut(cuts: impl IntoIterator<Item = Cut>) -> NetworkRules {
        NetworkRules { cuts: cuts.into_iter().collect(), ..NetworkRules::default() }
    }

    /// The rules of one node, as nft reads them; they replace those that it had.
    pub fn script(&self, node: usize) -> String {
        let mut arriving = String::new();
        let mut leaving = String::new();
        let mut dialled = String::new();
        for cut in &self.cuts {
            match self.manner {
                Manner::Silent if cut.to == node => {
                    line(&mut arriving, &format!("ip saddr {} drop", address(cut.from)));
                }
                Manner::Reset if cut.from == node => {
                    let to = address(cut.to);
                    let reset = "meta l4proto tcp reject with tcp reset";
                    line(&mut leaving, &format!("ip daddr {to} {reset}"));
                }
                _ => {}
            }
        }
        if self.deaf.contains(&node) {
            line(&mut arriving, &format!("ip saddr {HUB} drop"));
        }
        if self.loss_percent > 0 {
            let lost = format!("numgen random mod 100 < {} drop", self.loss_percent);
            line(&mut arriving, &format!("ip saddr 10.77.0.0/24 ip saddr != {HUB} {lost}"));
        }
        for (&(from, to), port) in self.detours.iter().filter(|((from, _), _)| *from == node) {
            debug_assert_ne!(from, to, "a node does not dial itself");
            let target = address(to);
            let rule = format!("ip daddr {target} tcp dport {PEER_PORT} dnat to {HUB}:{port}");
            line(&mut dialled, &rule);
        }
        format!(
            "table ip chaos\ndelete table ip chaos\ntable ip chaos {{\n\
             chain arriving {{\ntype filter hook input priority 0;\n{arriving}}}\n\
             chain leaving {{\ntype filter hook output priority 0;\n{leaving}}}\n\
             chain dialled {{\ntype nat hook output priority -100;\n{dialled}}}\n}}\n"
        )
    }

    /// Routes of one node that drop its packets along a cut, for a host without nft.
    pub fn black_holes(&self, node: usize) -> Vec<String> {
        let mine = self.cuts.iter().filter(|cut| cut.from == node);
        mine.map(|cut| format!("{}/32", address(cut.to))).collect()
    }
}

fn line(into: &mut String, rule: &str) {
    writeln!(into, "{rule}").expect("a string takes every line");
}

/// A way to cut a network in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionShape {
    /// A minority on its own, as one group.
    Minority,
    /// Every node alone.
    All,
    /// One node receives no packet.
    Deaf,
    /// One node's packets arrive nowhere.
    Mute,
    /// Between two nodes, one direction.
    OneWay,
    /// Between two nodes; both still reach the others.
    Pair,
    /// Each node's packets do not reach the next node.
    Ring,
}

/// The cuts of a shape, and the nodes that can still reach a quorum and get its answers.
pub fn partition(shape: PartitionShape, nodes: usize, rng: &mut Prng) -> (Vec<Cut>, Vec<usize>) {
    let all: Vec<usize> = (0..nodes).collect();
    let victim = *rng.pick(&all);
    let other = (victim + 1 + rng.below(nodes as u64 - 1) as usize) % nodes;
    let everywhere = all.iter().flat_map(|&from| all.iter().map(move |&to| Cut { from, to }));
    let everywhere = everywhere.filter(|cut| cut.from != cut.to);
    let group = minority(nodes, rng);
    let cuts: Vec<Cut> = match shape {
        PartitionShape::Minority => {
            everywhere.filter(|c| group.contains(&c.from) != group.contains(&c.to)).collect()
        }
        PartitionShape::All => everywhere.collect(),
        PartitionShape::Deaf => everywhere.filter(|c| c.to == victim).collect(),
        PartitionShape::Mute => everywhere.filter(|c| c.from == victim).collect(),
        PartitionShape::OneWay => vec![Cut { from: victim, to: other }],
        PartitionShape::Pair => {
            vec![Cut { from: victim, to: other }, Cut { from: other, to: victim }]
        }
        PartitionShape::Ring => {
            all.iter().map(|&from| Cut { from, to: (from + 1) % nodes }).collect()
        }
    };
    let survivors = survivors(nodes, &cuts);
    (cuts, survivors)
}

/// A minority of the nodes, at least one.
pub fn minority(nodes: usize, rng: &mut Prng) -> Vec<usize> {
    let mut all: Vec<usize> = (0..nodes).collect();
    let size = rng.between(1, (nodes as u64 - 1) / 2) as usize;
    for at in 0..size {
        let from = rng.between(at as u64, nodes as u64 - 1) as usize;
        all.swap(at, from);
    }
    all.truncate(size);
    all
}

/// The nodes that form a quorum with peers reachable in both directions.
pub fn survivors(nodes: usize, cuts: &[Cut]) -> Vec<usize> {
    let cut = |from, to| cuts.contains(&Cut { from, to });
    let reaches = |a: usize, b: usize| a == b || !cut(a, b) && !cut(b, a);
    let serves = |&node: &usize| (0..nodes).filter(|&o| reaches(node, o)).count() > nodes / 2;
    (0..nodes).filter(serves).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: PartitionShape, nodes: usize, survivors_expected: &[usize]) {
        for seed in 0..50 {
            let (cuts, survivors) = partition(shape, nodes, &mut Prng::new(seed));
            assert!(!cuts.is_empty());
            let count = survivors.len();
            assert!(survivors_expected.contains(&count), "{shape:?} of {nodes}: {cuts:?}");
        }
    }

    #[test]
    fn shapes_leave_expected_quorums() {
        for shape in [PartitionShape::Minority, PartitionShape::Deaf, PartitionShape::Mute] {
            check(shape, 3, &[2]);
        }
        check(PartitionShape::Minority, 5, &[3, 4]);
        check(PartitionShape::All, 3, &[0]);
        check(PartitionShape::Ring, 3, &[0]);
        check(PartitionShape::Ring, 5, &[5]);
        check(PartitionShape::Pair, 3, &[3]);
        check(PartitionShape::OneWay, 5, &[5]);
    }

    #[test]
    fn drops_are_inbound_and_resets_outbound() {
        let mut rules = NetworkRules::cut([Cut { from: 0, to: 1 }]);
        assert!(rules.script(1).contains("ip saddr 10.77.0.1 drop"));
        assert!(!rules.script(0).contains("drop"));
        assert_eq!(rules.black_holes(0), ["10.77.0.2/32"]);
        rules.manner = Manner::Reset;
        assert!(rules.script(0).contains("ip daddr 10.77.0.2 meta l4proto tcp reject"));
        assert!(!rules.script(1).contains("reject"));
    }

    #[test]
    fn detours_and_loss_spare_clients() {
        let rules = NetworkRules {
            loss_percent: 7,
            detours: [((0, 2), 9_002)].into(),
            ..NetworkRules::default()
        };
        let script = rules.script(0);
        assert!(script.contains("ip saddr != 10.77.0.254 numgen random mod 100 < 7 drop"));
        assert!(script.contains("ip daddr 10.77.0.3 tcp dport 16379 dnat to 10.77.0.254:9002"));
        assert!(!rules.script(1).contains("dnat"));
    }
}
