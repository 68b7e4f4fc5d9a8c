//! The other servers as this node hears them. Safety never depends on it.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Incarnation, NodeId};

use crate::settings::{Settings, Timing};

#[derive(Debug)]
struct Peer {
    incarnation: Incarnation,
    heard: Nanos,
    hears: Vec<NodeId>,
}

#[derive(Debug)]
pub(crate) struct Peers {
    me: NodeId,
    timing: Timing,
    peers: BTreeMap<NodeId, Peer>,
}

impl Peers {
    pub(crate) fn new(settings: &Settings) -> Peers {
        let new = || Peer { incarnation: Incarnation(0), heard: Nanos::ZERO, hears: Vec::new() };
        let others = settings.servers.iter().filter(|&&node| node != settings.me);
        let peers = others.map(|&node| (node, new())).collect();
        Peers { me: settings.me, timing: settings.timing, peers }
    }

    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.peers.keys().copied().collect()
    }

    /// Nodes are not silent before they could have been heard.
    pub(crate) fn excuse(&mut self, now: Nanos) {
        self.peers.values_mut().for_each(|peer| peer.heard = peer.heard.max(now));
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
            (peer.heard, peer.hears) = (now, hears);
        }
    }

    pub(crate) fn is_silent(&self, node: NodeId, now: Nanos) -> bool {
        let silent = |peer: &Peer| now.since(peer.heard) > self.timing.suspect;
        node != self.me && self.peers.get(&node).is_none_or(silent)
    }

    /// Nodes heard lately, this one not included.
    pub(crate) fn hears(&self, now: Nanos) -> Vec<NodeId> {
        self.peers.keys().copied().filter(|&node| !self.is_silent(node, now)).collect()
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
            return !self.is_silent(other, now);
        }
        self.peers.get(&one).is_some_and(|peer| peer.hears.contains(&other))
    }

    /// How many others the node hears, by its last heartbeat.
    pub(crate) fn hearing(&self, node: NodeId, now: Nanos) -> usize {
        if node == self.me {
            return self.hears(now).len();
        }
        self.peers.get(&node).map_or(0, |peer| peer.hears.len())
    }
}
