//! Acknowledgements by place in a replica set, each with its amnesia count.
//!
//! [Michael et al., DISC 2017] An answer stops counting once its sender is known to have lost its
//! memory since. A tally is therefore counted against the peers at the moment of the decision.

use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, NodeId};

use crate::mutation::{self, Mutation};
use crate::peers::Peers;
use crate::replicas::{MemberIndex, Places, ReplicaSet, Replicas, place};

/// The replicas that have answered, each with its amnesia count then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Amnesia count plus one by place; zero: no answer.
    answers: [u32; MEMBERS_MAX],
}

impl Tally {
    /// Records an answer. A higher amnesia count replaces an older one. True if it is new.
    pub fn add(&mut self, replicas: Replicas<'_>, node: NodeId, amnesia: AmnesiaCount) -> bool {
        let Some(index) = replicas.index(node) else { return false };
        let is_new = self.answers[index] < amnesia.0 + 1;
        if !is_new && mutation::is(Mutation::AnswerCountedTwice) {
            let given = self.places(replicas.set, replicas.peers);
            let silent = (0..replicas.len()).find(|&index| given & place(index) == 0);
            if let Some(silent) = silent {
                self.answers[silent] = replicas.at(silent).amnesia.0 + 1;
            }
        }
        self.answers[index] = self.answers[index].max(amnesia.0 + 1);
        is_new
    }

    /// True if the answer at this place has this amnesia count.
    #[must_use]
    pub fn is_from(&self, index: MemberIndex, amnesia: AmnesiaCount) -> bool {
        self.answers[index] == amnesia.0 + 1
    }

    /// Forgets a replica's answer.
    pub fn remove(&mut self, replicas: Replicas<'_>, node: NodeId) {
        if let Some(index) = replicas.index(node) {
            self.answers[index] = 0;
        }
    }

    /// True when the node's answer counts now.
    #[must_use]
    pub fn has(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        let counts = |index| self.counts(index, replicas.at(index).amnesia);
        replicas.index(node).is_some_and(counts)
    }

    /// The places whose answers count now.
    #[must_use]
    pub fn places(&self, set: &ReplicaSet, peers: &Peers) -> Places {
        let counted = |index| self.counts(index, Replicas { set, peers }.at(index).amnesia);
        (0..set.nodes().len()).filter(|&index| counted(index)).fold(0, |set, it| set | place(it))
    }

    fn counts(&self, index: MemberIndex, known: AmnesiaCount) -> bool {
        let answered = self.answers[index];
        answered > known.0 || (answered > 0 && mutation::is(Mutation::NoCrashVector))
    }
}

impl ReplicaSet {
    /// True if acknowledgements that count now make a majority of each membership.
    #[must_use]
    pub fn is_quorum(&self, acks: &Tally, peers: &Peers) -> bool {
        self.is_quorum_of(acks.places(self, peers))
    }

    /// True if every replica has an acknowledgement that counts now.
    #[must_use]
    pub fn is_all(&self, acks: &Tally, peers: &Peers) -> bool {
        self.is_all_of(acks.places(self, peers))
    }
}

impl Replicas<'_> {
    /// True if a quorum may still say yes soon: these replicas said no, and some are down.
    #[must_use]
    pub fn may_win(self, nacks: &Tally) -> bool {
        let down = self.members().enumerate().filter(|(_, member)| !member.up);
        let down = down.fold(0, |set, (index, _)| set | place(index));
        let no = nacks.places(self.set, self.peers) | (down & !self.set.own_place());
        self.set.is_quorum_of(self.set.all_places() & !no)
    }

    #[must_use]
    pub fn is_quorum(self, acks: &Tally) -> bool {
        self.set.is_quorum(acks, self.peers)
    }

    #[must_use]
    pub fn is_all(self, acks: &Tally) -> bool {
        self.set.is_all(acks, self.peers)
    }
}

/// The highest proposal of one ballot that each replica has acknowledged, with its amnesia count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    by_place: [(u32, AmnesiaCount); MEMBERS_MAX],
}

impl Acks {
    /// Records an acknowledgement of all proposals up to `k`. A higher amnesia count voids older
    /// ones.
    pub fn add(&mut self, index: MemberIndex, k: u32, amnesia: AmnesiaCount) {
        let ack = &mut self.by_place[index];
        if amnesia > ack.1 {
            *ack = (k, amnesia);
        } else if amnesia == ack.1 {
            ack.0 = ack.0.max(k);
        }
    }

    /// Replaces the acknowledgement at a place.
    pub fn set(&mut self, index: MemberIndex, k: u32, amnesia: AmnesiaCount) {
        self.by_place[index] = (k, amnesia);
    }

    /// The highest proposal acknowledged at a place, if that counts now; else zero.
    #[must_use]
    pub fn at(&self, replicas: Replicas<'_>, index: MemberIndex) -> u32 {
        let (k, amnesia) = self.by_place[index];
        if amnesia < replicas.at(index).amnesia { 0 } else { k }
    }

    /// The places that have acknowledged proposal `k`, or a later one, in answers that count now.
    #[must_use]
    pub fn at_least(&self, replicas: Replicas<'_>, k: u32) -> Places {
        self.places(replicas, |acked| acked >= k)
    }

    /// The places whose highest acknowledged proposal is `k`, in answers that count now.
    #[must_use]
    pub fn exactly(&self, replicas: Replicas<'_>, k: u32) -> Places {
        self.places(replicas, |acked| acked == k)
    }

    fn places(&self, replicas: Replicas<'_>, is: impl Fn(u32) -> bool) -> Places {
        let members = replicas.members().zip(&self.by_place).enumerate();
        let acked = members.filter(|(_, (member, (k, amnesia)))| {
            is(*k) && (*amnesia >= member.amnesia || mutation::is(Mutation::NoCrashVector))
        });
        let acked = acked.fold(0, |set, (index, _)| set | place(index));
        match mutation::is(Mutation::OutsideCounts) && !replicas.set.has_me() {
            // The first silent place.
            true => acked | (acked + 1),
            false => acked,
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Incarnation};

    use super::*;

    fn three() -> (ReplicaSet, Peers) {
        let ids = [NodeId(1), NodeId(2), NodeId(3)];
        let peers = Peers::new(NodeId(1), Incarnation(1), AmnesiaCount(1), &ids);
        (ReplicaSet::new(Epoch(1), NodeId(1), &ids), peers)
    }

    #[test]
    fn one_replica_counts_once() {
        let (set, peers) = three();
        let replicas = Replicas { set: &set, peers: &peers };
        let mut tally = Tally::default();
        assert!(tally.add(replicas, NodeId(2), AmnesiaCount(1)));
        assert!(!tally.add(replicas, NodeId(2), AmnesiaCount(1)));
        assert!(!replicas.is_quorum(&tally));
        assert!(tally.add(replicas, NodeId(3), AmnesiaCount(4)));
        assert!(replicas.is_quorum(&tally));
        assert!(!replicas.is_all(&tally));
    }

    #[test]
    fn answer_is_void_after_its_sender_lost_memory() {
        let (set, mut peers) = three();
        let mut tally = Tally::default();
        tally.add(Replicas { set: &set, peers: &peers }, NodeId(1), AmnesiaCount(1));
        tally.add(Replicas { set: &set, peers: &peers }, NodeId(2), AmnesiaCount(1));
        assert!(set.is_quorum(&tally, &peers));
        assert!(peers.learn(NodeId(2), Incarnation(2), AmnesiaCount(2)));
        assert!(!set.is_quorum(&tally, &peers));
        assert!(tally.add(Replicas { set: &set, peers: &peers }, NodeId(2), AmnesiaCount(2)));
        assert!(set.is_quorum(&tally, &peers));
    }

    #[test]
    fn strangers_do_not_count() {
        let (set, peers) = three();
        let mut tally = Tally::default();
        assert!(!tally.add(Replicas { set: &set, peers: &peers }, NodeId(9), AmnesiaCount(1)));
        assert_eq!(tally.places(&set, &peers), 0);
    }

    #[test]
    fn newer_amnesia_voids_earlier_acks() {
        let (set, mut peers) = three();
        let mut acks = Acks::default();
        acks.add(0, 3, AmnesiaCount(1));
        acks.add(1, 5, AmnesiaCount(1));
        acks.add(1, 4, AmnesiaCount(1));
        let places = |acks: &Acks, peers: &Peers, k| {
            let replicas = Replicas { set: &set, peers };
            (acks.at_least(replicas, k), acks.exactly(replicas, k))
        };
        assert_eq!(places(&acks, &peers, 3), (0b011, 0b001));
        peers.learn(NodeId(2), Incarnation(2), AmnesiaCount(2));
        assert_eq!(places(&acks, &peers, 3), (0b001, 0b001));
        acks.add(1, 9, AmnesiaCount(1));
        assert_eq!(places(&acks, &peers, 3).0, 0b001, "given before the loss");
        acks.add(1, 2, AmnesiaCount(2));
        assert_eq!(places(&acks, &peers, 2).0, 0b011);
        acks.add(1, 7, AmnesiaCount(1));
        assert_eq!(places(&acks, &peers, 3).0, 0b001, "an old answer that came late");
    }
}
