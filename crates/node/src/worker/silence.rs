//! How long peers have been silent, as far as this node can tell.
//!
//! A verdict need not be true. A silent node that lives is shut out of its own transactions, and
//! takes another incarnation.

use base::Nanos;
use protocols::Peers;
use types::NodeId;

/// A peer that was not connected for so long may be gone for good.
pub const GONE_AFTER: Nanos = Nanos::from_secs(120);

#[derive(Debug)]
pub(crate) struct Silence {
    /// When each peer left that is not connected.
    left: Vec<(NodeId, Nanos)>,
    /// When this node was last joined by a majority, which it still reaches. Before that it was
    /// perhaps cut off itself.
    reached: Option<Nanos>,
    gone_after: Nanos,
}

impl Silence {
    /// No peer is connected yet.
    pub(crate) fn new(peers: &Peers, gone_after: Nanos, now: Nanos) -> Silence {
        let left = peers.others().map(|node| (node, now)).collect();
        let mut silence = Silence { left, reached: None, gone_after };
        silence.look(peers, now);
        silence
    }

    /// The connection to a peer stands, or has ended.
    pub(crate) fn note(&mut self, peers: &Peers, node: NodeId, now: Nanos) {
        let is_up = peers.get(node).is_some_and(|member| member.up);
        let at = self.left.iter().position(|(left, _)| *left == node);
        match (at, is_up) {
            (Some(at), true) => drop(self.left.swap_remove(at)),
            (None, false) => self.left.push((node, now)),
            _ => {}
        }
        self.look(peers, now);
    }

    fn look(&mut self, peers: &Peers, now: Nanos) {
        let up = peers.nodes().iter().filter(|member| member.up).count();
        match up > peers.nodes().len() / 2 {
            true => _ = self.reached.get_or_insert(now),
            false => self.reached = None,
        }
    }

    /// True if the peer was silent for minutes, in which this node reached a majority.
    pub(crate) fn is_gone(&self, node: NodeId, now: Nanos) -> bool {
        let left = self.left.iter().find(|(left, _)| *left == node);
        let (Some((_, left)), Some(reached)) = (left, self.reached) else { return false };
        self.is_over(*left.max(&reached), now)
    }

    /// A peer that was silent since then may be gone for good.
    pub(crate) fn is_over(&self, since: Nanos, now: Nanos) -> bool {
        now >= since + self.gone_after
    }
}

#[cfg(test)]
mod tests {
    use types::{AmnesiaCount, Incarnation};

    use super::*;

    const PEERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    fn start() -> (Peers, Silence) {
        let nodes = [NodeId(1), NodeId(2), NodeId(3)];
        let peers = Peers::new(NodeId(1), Incarnation(1), AmnesiaCount(1), &nodes);
        let silence = Silence::new(&peers, GONE_AFTER, Nanos::from_secs(1));
        (peers, silence)
    }

    fn set(peers: &mut Peers, silence: &mut Silence, node: NodeId, up: bool, seconds: u64) {
        peers.set_up(node, up);
        silence.note(peers, node, Nanos::from_secs(seconds));
    }

    #[test]
    fn peer_is_gone_after_two_minutes() {
        let (mut peers, mut silence) = start();
        set(&mut peers, &mut silence, PEERS[0], true, 1);
        set(&mut peers, &mut silence, PEERS[1], true, 5);
        set(&mut peers, &mut silence, PEERS[1], false, 10);
        set(&mut peers, &mut silence, PEERS[1], false, 100);
        assert!(!silence.is_gone(PEERS[1], Nanos::from_secs(129)));
        assert!(silence.is_gone(PEERS[1], Nanos::from_secs(130)));
        assert!(!silence.is_gone(PEERS[0], Nanos::from_secs(130)));
        set(&mut peers, &mut silence, PEERS[1], true, 140);
        assert!(!silence.is_gone(PEERS[1], Nanos::from_secs(300)));
    }

    #[test]
    fn node_that_was_cut_off_judges_no_peer() {
        let (mut peers, mut silence) = start();
        assert!(PEERS.iter().all(|&peer| !silence.is_gone(peer, Nanos::from_secs(999))));
        set(&mut peers, &mut silence, PEERS[0], true, 1_000);
        assert!(!silence.is_gone(PEERS[1], Nanos::from_secs(1_119)));
        assert!(silence.is_gone(PEERS[1], Nanos::from_secs(1_120)));
        set(&mut peers, &mut silence, PEERS[0], false, 1_130);
        assert!(!silence.is_gone(PEERS[1], Nanos::from_secs(1_131)));
    }
}
