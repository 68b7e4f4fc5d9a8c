//! Links in the care of workers: which stand, and whether they are all that there should be. Knows
//! no sockets.

use std::collections::BTreeMap;

use types::NodeId;

use crate::config::WORKERS_MAX;

/// Worker links that stand.
#[derive(Debug)]
pub(super) struct WorkerLinks {
    /// Workers of this node.
    workers: u16,
    /// Of the newest link.
    serial: u64,
    standing: BTreeMap<(NodeId, u16), StandingLink>,
}

#[derive(Debug)]
struct StandingLink {
    serial: u64,
    /// As many links join this node and that one when all stand.
    of: u16,
}

impl WorkerLinks {
    /// For a node with so many workers.
    pub(super) fn new(workers: usize) -> WorkerLinks {
        WorkerLinks { workers: workers as u16, serial: 0, standing: BTreeMap::new() }
    }

    /// How many links join this node and one with `workers` workers.
    pub(super) fn count(&self, workers: u16) -> u16 {
        workers.max(self.workers).min(WORKERS_MAX as u16)
    }

    /// A link to a peer with `workers` workers stands, in the place of an older one of the same
    /// channel. Returns its serial.
    pub(super) fn add(&mut self, peer: NodeId, channel: u16, workers: u16) -> u64 {
        self.serial += 1;
        let link = StandingLink { serial: self.serial, of: self.count(workers) };
        self.standing.insert((peer, channel), link);
        self.serial
    }

    /// That link ended. False when another has taken its place.
    pub(super) fn remove(&mut self, peer: NodeId, channel: u16, serial: u64) -> bool {
        let at = (peer, channel);
        let is_newest = self.standing.get(&at).is_some_and(|link| link.serial == serial);
        is_newest && self.standing.remove(&at).is_some()
    }

    /// Whether all links to this peer stand: only then can every worker do without the other peers.
    pub(super) fn is_complete(&self, peer: NodeId) -> bool {
        let links = || self.standing.range((peer, 0)..=(peer, u16::MAX)).map(|(_, link)| link);
        links().map(|link| link.of).max().is_some_and(|of| links().count() >= usize::from(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(2);

    #[test]
    fn a_peer_is_linked_when_every_worker_has_its_link() {
        let mut links = WorkerLinks::new(2);
        assert!(!links.is_complete(PEER));
        let first = links.add(PEER, 0, 3);
        links.add(PEER, 1, 3);
        assert!(!links.is_complete(PEER), "it has three workers");
        links.add(PEER, 2, 3);
        assert!(links.is_complete(PEER) && !links.is_complete(NodeId(3)));
        assert!(links.remove(PEER, 0, first));
        assert!(!links.is_complete(PEER));
    }

    #[test]
    fn the_end_of_a_link_whose_place_is_taken_changes_nothing() {
        let mut links = WorkerLinks::new(1);
        let old = links.add(PEER, 0, 1);
        let new = links.add(PEER, 0, 1);
        assert!(!links.remove(PEER, 0, old) && links.is_complete(PEER));
        assert!(links.remove(PEER, 0, new) && !links.is_complete(PEER));
    }

    #[test]
    fn a_peer_that_came_back_with_fewer_workers_is_linked_without_the_others() {
        let mut links = WorkerLinks::new(1);
        let old = [0, 1].map(|channel| links.add(PEER, channel, 2));
        links.add(PEER, 0, 1);
        assert!(links.remove(PEER, 1, old[1]) && links.is_complete(PEER));
    }
}
