//! The connections that this node has to open, and their retry times. Free of sockets.
//!
//! Of two nodes the one with the lower id dials. There is one control link, and one link per pair
//! of workers. Channel `c` joins worker `c % workers` of either side, for every `c` below the
//! larger number of workers.

use std::collections::{BTreeMap, BTreeSet};

use base::{Nanos, Prng};
use transport::Backoff;
use transport::handshake::CHANNEL_CONTROL;
use types::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialState {
    /// To be dialled at this time.
    Waiting(Nanos),
    /// An attempt is under way.
    Dialling,
    Standing,
}

/// Worker links to one peer that are dialled at a time: the peer bounds its unproven connections.
const DIALLED_AT_ONCE: usize = 2;

/// Links that this node opens.
#[derive(Debug)]
pub(crate) struct Dialler {
    links: BTreeMap<(NodeId, u16), (DialState, Backoff)>,
    rng: Prng,
}

impl Dialler {
    /// Starts with the control links to `peers`, all of which have higher ids.
    pub(crate) fn new(peers: impl Iterator<Item = NodeId>, rng: Prng) -> Dialler {
        let control =
            |peer| ((peer, CHANNEL_CONTROL), (DialState::Waiting(Nanos::ZERO), Backoff::default()));
        Dialler { links: peers.map(control).collect(), rng }
    }

    /// From now on these are the peers to dial. Links to others are dialled no more.
    pub(crate) fn set_peers(&mut self, peers: &BTreeSet<NodeId>) {
        self.links.retain(|(peer, _), _| peers.contains(peer));
        for &peer in peers {
            let new = (DialState::Waiting(Nanos::ZERO), Backoff::default());
            self.links.entry((peer, CHANNEL_CONTROL)).or_insert(new);
        }
    }

    /// The worker links to `peer` are wanted from now on: `count` of them.
    pub(crate) fn want(&mut self, peer: NodeId, count: u16, now: Nanos) {
        // A peer that was restarted with fewer workers takes its superfluous channels no more.
        self.links.retain(|&(node, channel), _| {
            node != peer || channel == CHANNEL_CONTROL || channel < count
        });
        for channel in 0..count {
            self.links
                .entry((peer, channel))
                .or_insert((DialState::Waiting(now), Backoff::default()));
        }
    }

    /// True when this node opens the links to `peer`.
    pub(crate) fn dials(&self, peer: NodeId) -> bool {
        self.links.contains_key(&(peer, CHANNEL_CONTROL))
    }

    /// The links to dial now; they count as under way.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Vec<(NodeId, u16)> {
        let mut due = Vec::new();
        let peers: Vec<NodeId> = self.peers().collect();
        for peer in peers {
            let mut room = self.room(peer);
            for (&link, (state, _)) in self.links.range_mut((peer, 0)..=(peer, u16::MAX)) {
                let is_control = link.1 == CHANNEL_CONTROL;
                if matches!(*state, DialState::Waiting(at) if at <= now) && (is_control || room > 0)
                {
                    *state = DialState::Dialling;
                    room -= usize::from(!is_control);
                    due.push(link);
                }
            }
        }
        due
    }

    fn peers(&self) -> impl Iterator<Item = NodeId> {
        self.links.keys().filter(|link| link.1 == CHANNEL_CONTROL).map(|link| link.0)
    }

    /// Worker links to `peer` that may be dialled now.
    fn room(&self, peer: NodeId) -> usize {
        let links = self.links.range((peer, 0)..(peer, CHANNEL_CONTROL));
        let dialling = links.filter(|(_, (state, _))| *state == DialState::Dialling).count();
        DIALLED_AT_ONCE.saturating_sub(dialling)
    }

    pub(crate) fn succeeded(&mut self, peer: NodeId, channel: u16) {
        if let Some((state, backoff)) = self.links.get_mut(&(peer, channel)) {
            *state = DialState::Standing;
            backoff.succeeded();
        }
    }

    /// An attempt failed or a link ended.
    pub(crate) fn failed(&mut self, peer: NodeId, channel: u16, now: Nanos) {
        if let Some((state, backoff)) = self.links.get_mut(&(peer, channel)) {
            *state = DialState::Waiting(now + backoff.failed(&mut self.rng));
        }
    }

    /// The peer has just said that it is there: every link that waits is due.
    pub(crate) fn hurry(&mut self, peer: NodeId, now: Nanos) {
        for (_, link) in self.links.iter_mut().filter(|((node, _), _)| *node == peer) {
            if matches!(link.0, DialState::Waiting(_)) {
                *link = (DialState::Waiting(now), Backoff::default());
            }
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        let full: Vec<NodeId> = self.peers().filter(|&peer| self.room(peer) == 0).collect();
        let at = |(link, (state, _)): (&(NodeId, u16), &(DialState, Backoff))| match *state {
            // A link that has to wait for others is dialled when one of them ends or stands.
            DialState::Waiting(_) if link.1 != CHANNEL_CONTROL && full.contains(&link.0) => None,
            DialState::Waiting(at) => Some(at),
            DialState::Dialling | DialState::Standing => None,
        };
        self.links.iter().filter_map(at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_dialled_once_and_again_after_a_wait_when_it_fails() {
        let mut dialler = Dialler::new([NodeId(2), NodeId(3)].into_iter(), Prng::new(1));
        let start = Nanos::from_secs(1);
        assert_eq!(dialler.take_due(start).len(), 2);
        assert_eq!((dialler.take_due(start), dialler.next_timer()), (vec![], None));
        dialler.failed(NodeId(2), CHANNEL_CONTROL, start);
        assert!(dialler.take_due(start).is_empty());
        let again = dialler.next_timer().expect("it tries again");
        assert_eq!(dialler.take_due(again), [(NodeId(2), CHANNEL_CONTROL)]);
    }

    #[test]
    fn a_peer_that_knocks_is_dialled_at_once() {
        let mut dialler = Dialler::new([NodeId(2)].into_iter(), Prng::new(1));
        let start = Nanos::from_secs(1);
        for _ in 0..8 {
            dialler.take_due(Nanos::MAX);
            dialler.failed(NodeId(2), CHANNEL_CONTROL, start);
        }
        assert!(dialler.take_due(start).is_empty());
        dialler.hurry(NodeId(2), start);
        assert_eq!(dialler.take_due(start), [(NodeId(2), CHANNEL_CONTROL)]);
        dialler.hurry(NodeId(2), start);
        assert!(dialler.take_due(start).is_empty(), "an attempt is under way");
    }

    #[test]
    fn peers_may_be_corrected() {
        let mut dialler = Dialler::new([NodeId(2), NodeId(3)].into_iter(), Prng::new(1));
        dialler.take_due(Nanos(1));
        dialler.set_peers(&[NodeId(3), NodeId(4)].into());
        assert!(!dialler.dials(NodeId(2)) && dialler.dials(NodeId(4)));
        dialler.failed(NodeId(2), CHANNEL_CONTROL, Nanos(1));
        let due = dialler.take_due(Nanos::MAX);
        assert_eq!(due, [(NodeId(4), CHANNEL_CONTROL)], "an attempt to 3 is under way");
    }

    #[test]
    fn worker_links_follow_the_larger_number_of_workers() {
        let mut dialler = Dialler::new([NodeId(2)].into_iter(), Prng::new(1));
        dialler.take_due(Nanos(1));
        dialler.want(NodeId(2), 3, Nanos(1));
        assert_eq!(dialler.take_due(Nanos(1)).len(), DIALLED_AT_ONCE);
        assert_eq!((dialler.take_due(Nanos(1)), dialler.next_timer()), (vec![], None));
        dialler.succeeded(NodeId(2), 0);
        assert_eq!(dialler.next_timer(), Some(Nanos(1)));
        assert_eq!(dialler.take_due(Nanos(1)), [(NodeId(2), 2)]);
        dialler.want(NodeId(2), 1, Nanos(1));
        dialler.failed(NodeId(2), 2, Nanos(1));
        assert_eq!(dialler.next_timer(), None);
    }
}
