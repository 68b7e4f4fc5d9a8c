//! The other servers as this node hears them. Safety never depends on it.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Incarnation, NodeId};

use crate::settings::{Settings, Timing};

#[derive(Debug)]
struct Peer {
    incarnation: Incarnation,
    /// `None` until its first heartbeat since this node's start.
    heard: Option<Nanos>,
    /// The silence since then that was forgiven.
    excused: Nanos,
    hears: Vec<NodeId>,
}

#[derive(Debug)]
pub(crate) struct Peers {
    me: NodeId,
    timing: Timing,
    /// When a majority was heard first.
    majority_since: Option<Nanos>,
    peers: BTreeMap<NodeId, Peer>,
}

impl Peers {
    pub(crate) fn new(settings: &Settings) -> Peers {
        let new = || Peer {
            incarnation: Incarnation(0),
            heard: None,
            excused: Nanos::ZERO,
            hears: Vec::new(),
        };
        let others = settings.servers.iter().filter(|&&node| node != settings.me);
        let peers = others.map(|&node| (node, new())).collect();
        Peers { me: settings.me, timing: settings.timing, majority_since: None, peers }
    }

    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.peers.keys().copied().collect()
    }

    pub(crate) fn start(&mut self, now: Nanos) {
        self.note_majority(now);
    }

    /// Peers that were heard before this process stood still have not been silent since. A process
    /// that stands still again and again would never find a peer silent, so there is an end to it.
    pub(crate) fn excuse(&mut self, now: Nanos) {
        for peer in self.peers.values_mut() {
            if let Some(heard) = peer.heard.filter(|_| peer.excused < self.timing.excused_max()) {
                (peer.heard, peer.excused) = (Some(now), peer.excused + now.since(heard));
            }
        }
    }

    fn note_majority(&mut self, now: Nanos) {
        if self.majority_since.is_none() && self.hears_majority(now) {
            self.majority_since = Some(now);
        }
    }

    /// Notes the process at the other end. False for a stranger or an earlier start of the peer.
    pub(crate) fn note(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        if node == self.me {
            return true;
        }
        let Some(peer) = self.peers.get_mut(&node) else { return false };
        if incarnation < peer.incarnation {
            return false;
        }
        peer.incarnation = incarnation;
        true
    }

    pub(crate) fn heard(&mut self, node: NodeId, now: Nanos, hears: Vec<NodeId>) {
        if let Some(peer) = self.peers.get_mut(&node) {
            (peer.heard, peer.hears, peer.excused) = (Some(now), hears, Nanos::ZERO);
        }
        self.note_majority(now);
    }

    /// True once a node is suspected. When all nodes start, some take longer than others, so a peer
    /// that was never heard gets more time.
    pub(crate) fn is_silent(&self, node: NodeId, now: Nanos) -> bool {
        let silent = |peer: &Peer| match peer.heard {
            Some(heard) => now.since(heard) > self.timing.suspect,
            None => !self.may_start(now),
        };
        node != self.me && self.peers.get(&node).is_none_or(silent)
    }

    /// True until a majority has been there for a while: the others may still be starting.
    pub(crate) fn may_start(&self, now: Nanos) -> bool {
        self.majority_since.is_none_or(|since| now.since(since) <= self.timing.patience())
    }

    /// Nodes heard lately, this one not included.
    pub(crate) fn hears(&self, now: Nanos) -> Vec<NodeId> {
        let heard = |node: &NodeId| self.peers.get(node).is_some_and(|peer| peer.heard.is_some());
        let nodes = self.peers.keys().copied();
        nodes.filter(|node| heard(node) && !self.is_silent(*node, now)).collect()
    }

    pub(crate) fn hears_majority(&self, now: Nanos) -> bool {
        self.hears(now).len() + 1 > self.peers.len().div_ceil(2)
    }

    /// True if each of the two hears the other, as far as their heartbeats tell.
    pub(crate) fn are_connected(&self, one: NodeId, other: NodeId, now: Nanos) -> bool {
        self.hears_other(one, other, now) && self.hears_other(other, one, now)
    }

    fn hears_other(&self, one: NodeId, other: NodeId, now: Nanos) -> bool {
        if one == self.me {
            return self.hears(now).contains(&other);
        }
        self.peers.get(&one).is_some_and(|peer| peer.hears.contains(&other))
    }

    /// True if an audible node says that it hears this one.
    pub(crate) fn is_heard_by_others(&self, node: NodeId, now: Nanos) -> bool {
        let hears = |(&one, peer): (&NodeId, &Peer)| {
            peer.hears.contains(&node) && !self.is_silent(one, now)
        };
        self.peers.iter().any(hears)
    }

    /// How many others the node hears, by its last heartbeat.
    pub(crate) fn hearing(&self, node: NodeId, now: Nanos) -> usize {
        if node == self.me {
            return self.hears(now).len();
        }
        self.peers.get(&node).map_or(0, |peer| peer.hears.len())
    }
}
