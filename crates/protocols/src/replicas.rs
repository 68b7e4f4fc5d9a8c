//! The replicas of a shard, and the one place that says which of them make a quorum.

use types::limits::MEMBERS_MAX;
use types::{Epoch, NodeId};

use crate::peers::{Member, Peers};

/// The place of a replica in its set.
pub type MemberIndex = usize;

/// Replicas of a set, one bit for each place.
pub type Places = u16;

/// The replicas of one shard in one epoch. Immutable; shards with equal replicas share it.
///
/// While the membership changes it has two memberships, and a quorum is a majority of each.
/// Places count over the union of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSet {
    epoch: Epoch,
    /// The union of both memberships, sorted.
    nodes: Vec<NodeId>,
    members: Places,
    joint: Option<Places>,
    /// `None` if this node is no replica: it proposes without an acceptor.
    me: Option<MemberIndex>,
}

impl ReplicaSet {
    /// The replicas `members`, as the node `me` sees them.
    ///
    /// # Panics
    /// If `members` is empty, names a node twice, or more than [`MEMBERS_MAX`].
    #[must_use]
    pub fn new(epoch: Epoch, me: NodeId, members: &[NodeId]) -> ReplicaSet {
        ReplicaSet::build(epoch, me, members, None)
    }

    /// The set on the way from `members` to `next`.
    ///
    /// # Panics
    /// If either is empty or names a node twice, or both together more than [`MEMBERS_MAX`].
    #[must_use]
    pub fn joint(epoch: Epoch, me: NodeId, members: &[NodeId], next: &[NodeId]) -> ReplicaSet {
        ReplicaSet::build(epoch, me, members, Some(next))
    }

    fn build(epoch: Epoch, me: NodeId, members: &[NodeId], next: Option<&[NodeId]>) -> ReplicaSet {
        let mut nodes = [members, next.unwrap_or_default()].concat();
        nodes.sort_unstable();
        nodes.dedup();
        assert!(nodes.len() <= MEMBERS_MAX, "{} replicas, at most {MEMBERS_MAX}", nodes.len());
        let place_of = |node: NodeId| nodes.iter().position(|&it| it == node);
        let places = |of: &[NodeId]| {
            let places = of.iter().filter_map(|&node| place_of(node)).fold(0, with);
            assert!(
                !of.is_empty() && count(places) == of.len(),
                "a replica twice, or none: {of:?}"
            );
            places
        };
        let (members, joint, me) = (places(members), next.map(places), place_of(me));
        ReplicaSet { epoch, nodes, members, joint, me }
    }

    /// A set without replicas: it has no quorum.
    pub(crate) fn without_replicas(epoch: Epoch) -> ReplicaSet {
        ReplicaSet { epoch, nodes: Vec::new(), members: 0, joint: None, me: None }
    }

    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// True if this node is a replica.
    #[must_use]
    pub fn has_me(&self) -> bool {
        self.me.is_some()
    }

    /// The place of this node, if it is a replica.
    #[must_use]
    pub fn me(&self) -> Option<MemberIndex> {
        self.me
    }

    /// The replicas in the order of their places.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    #[must_use]
    pub fn index(&self, node: NodeId) -> Option<MemberIndex> {
        self.nodes.iter().position(|&it| it == node)
    }

    /// The replicas but this node.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        let others = self.nodes.iter().enumerate().filter(|&(place, _)| Some(place) != self.me);
        others.map(|(_, &node)| node)
    }

    /// True if these replicas make a majority of each membership.
    #[must_use]
    pub fn is_quorum_of(&self, places: Places) -> bool {
        is_majority(places, self.members)
            && self.joint.is_none_or(|joint| is_majority(places, joint))
    }

    /// True if these are all replicas.
    #[must_use]
    pub fn is_all_of(&self, places: Places) -> bool {
        places != 0 && places == self.all_places()
    }

    #[must_use]
    pub fn all_places(&self) -> Places {
        self.members | self.joint.unwrap_or(0)
    }

    /// This node's place as a set: empty if it is no replica.
    #[must_use]
    pub fn own_place(&self) -> Places {
        self.me.map_or(0, place)
    }

    /// True if there are two replicas and any two of them are a quorum.
    #[must_use]
    pub fn is_quorum_of_any_two(&self) -> bool {
        let all = 0..self.nodes.len();
        let pairs =
            all.clone().flat_map(|one| (0..one).map(move |other| place(one) | place(other)));
        all.len() >= 2 && pairs.into_iter().all(|pair| self.is_quorum_of(pair))
    }

    /// The highest number that a quorum has reached, by place.
    #[must_use]
    pub fn reached_by_quorum(&self, reached: &[u64; MEMBERS_MAX]) -> u64 {
        let reached = &reached[..self.nodes.len()];
        let at_least = |number: u64| {
            let places = reached.iter().enumerate().filter(|&(_, &it)| it >= number);
            places.map(|(index, _)| index).fold(0, with_index)
        };
        let by_quorum = reached.iter().copied().filter(|&it| self.is_quorum_of(at_least(it)));
        by_quorum.max().unwrap_or(0)
    }

    /// The highest number that all replicas have reached, by place.
    #[must_use]
    pub fn reached_by_all(&self, reached: &[u64; MEMBERS_MAX]) -> u64 {
        reached[..self.nodes.len()].iter().copied().min().unwrap_or(0)
    }
}

/// One place as a set.
#[must_use]
pub fn place(index: MemberIndex) -> Places {
    1 << index
}

/// True if `these` are more replicas than `those`. A measure of likelihood, never of safety.
#[must_use]
pub fn outnumber(these: Places, those: Places) -> bool {
    count(these) > count(those)
}

fn with_index(places: Places, index: MemberIndex) -> Places {
    places | place(index)
}

fn with(places: Places, index: MemberIndex) -> Places {
    with_index(places, index)
}

fn count(places: Places) -> usize {
    places.count_ones() as usize
}

fn is_majority(places: Places, members: Places) -> bool {
    2 * count(places & members) > count(members)
}

/// The replica set of the shard that an event is about, and the nodes as this node knows them.
#[derive(Clone, Copy, Debug)]
pub struct Replicas<'a> {
    pub set: &'a ReplicaSet,
    pub peers: &'a Peers,
}

impl<'a> Replicas<'a> {
    #[must_use]
    pub fn epoch(self) -> Epoch {
        self.set.epoch
    }

    /// This node, be it a replica or not.
    #[must_use]
    pub fn me(self) -> NodeId {
        self.peers.me()
    }

    /// Number of replicas.
    #[must_use]
    pub fn len(self) -> usize {
        self.set.nodes.len()
    }

    /// True for the set of an event about no shard, if shards have different replicas.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The replicas in the order of their places, as this node knows them.
    pub fn members(self) -> impl Iterator<Item = &'a Member> + Clone {
        let nodes = self.set.nodes.iter().enumerate();
        nodes.map(move |(place, &node)| self.peers.at(place, node))
    }

    /// The replica at a place.
    ///
    /// # Panics
    /// If the set has no such place.
    #[must_use]
    pub fn at(self, index: MemberIndex) -> &'a Member {
        self.peers.at(index, self.set.nodes[index])
    }

    #[must_use]
    pub fn index(self, node: NodeId) -> Option<MemberIndex> {
        self.set.index(node)
    }

    /// A replica as this node knows it; `None` for a node that is no replica.
    #[must_use]
    pub fn member(self, node: NodeId) -> Option<&'a Member> {
        self.index(node).map(|index| self.at(index))
    }

    /// The replicas but this node.
    pub fn others(self) -> impl Iterator<Item = NodeId> + 'a {
        self.set.others()
    }

    /// All replicas; this node only if it is one.
    pub fn all(self) -> impl Iterator<Item = NodeId> + 'a {
        self.set.nodes.iter().copied()
    }

    /// The places of the replicas for which `is` holds.
    #[must_use]
    pub fn places(self, is: impl Fn(&Member) -> bool) -> Places {
        let members = self.members().enumerate().filter(|(_, member)| is(member));
        members.map(|(index, _)| index).fold(0, with_index)
    }

    /// The places of the replicas but this node for which `is` holds.
    #[must_use]
    pub fn other_places(self, is: impl Fn(&Member) -> bool) -> Places {
        self.places(is) & !self.set.own_place()
    }
}

#[cfg(test)]
mod tests {
    use base::Prng;
    use types::{AmnesiaCount, Incarnation};

    use super::*;
    use crate::quorum::Tally;

    fn nodes(ids: &[u16]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn peers(me: u16, count: u16) -> Peers {
        let all: Vec<u16> = (1..=count).collect();
        Peers::new(NodeId(me), Incarnation(1), AmnesiaCount(1), &nodes(&all))
    }

    fn tally(replicas: Replicas<'_>, ids: &[u16]) -> Tally {
        let mut tally = Tally::default();
        ids.iter().for_each(|&id| _ = tally.add(replicas, NodeId(id), AmnesiaCount(1)));
        tally
    }

    #[test]
    fn joint_quorum_is_a_majority_of_each() {
        let peers = peers(1, 5);
        let set = ReplicaSet::joint(Epoch(2), NodeId(1), &nodes(&[1, 2, 3]), &nodes(&[3, 4, 5]));
        let replicas = Replicas { set: &set, peers: &peers };
        for (ids, is_quorum) in [
            (&[1, 2, 3][..], false),
            (&[3, 4, 5], false),
            (&[1, 2, 4], false),
            (&[1, 3, 4], true),
            (&[2, 3, 5], true),
            (&[1, 2, 4, 5], true),
        ] {
            assert_eq!(set.is_quorum(&tally(replicas, ids), &peers), is_quorum, "{ids:?}");
        }
        assert!(!set.is_all(&tally(replicas, &[1, 2, 3, 4]), &peers));
        assert!(set.is_all(&tally(replicas, &[1, 2, 3, 4, 5]), &peers));
        assert!(!set.is_quorum_of_any_two());
    }

    #[test]
    fn node_that_is_no_replica_never_counts() {
        let peers = peers(1, 5);
        let set = ReplicaSet::new(Epoch(1), NodeId(1), &nodes(&[2, 4, 5]));
        let replicas = Replicas { set: &set, peers: &peers };
        assert_eq!((set.me(), set.own_place(), replicas.me()), (None, 0, NodeId(1)));
        assert_eq!(set.others().collect::<Vec<_>>(), nodes(&[2, 4, 5]));
        assert_eq!(replicas.all().collect::<Vec<_>>(), nodes(&[2, 4, 5]));
        assert!(replicas.member(NodeId(1)).is_none());
        let mut acks = tally(replicas, &[1, 3, 4]);
        assert!(!set.is_quorum(&acks, &peers));
        assert!(!acks.add(replicas, NodeId(1), AmnesiaCount(9)));
        assert!(acks.add(replicas, NodeId(5), AmnesiaCount(1)));
        assert!(set.is_quorum(&acks, &peers));
        assert!(!acks.has(replicas, NodeId(1)));
    }

    #[test]
    fn replica_counts_itself_once_it_answers() {
        let peers = peers(2, 3);
        let set = ReplicaSet::new(Epoch(1), NodeId(2), &nodes(&[3, 1, 2]));
        let replicas = Replicas { set: &set, peers: &peers };
        assert_eq!((set.me(), set.own_place()), (Some(1), 0b10));
        assert_eq!(set.others().collect::<Vec<_>>(), nodes(&[1, 3]));
        assert!(!set.is_quorum(&tally(replicas, &[1]), &peers));
        assert!(set.is_quorum(&tally(replicas, &[1, 2]), &peers));
    }

    #[test]
    fn any_two_of_at_most_three_decide() {
        for count in 1..=9 {
            let all: Vec<u16> = (1..=count).collect();
            let set = ReplicaSet::new(Epoch(1), NodeId(1), &nodes(&all));
            assert_eq!(set.is_quorum_of_any_two(), count == 2 || count == 3, "{count}");
        }
        let same = ReplicaSet::joint(Epoch(1), NodeId(1), &nodes(&[1, 2]), &nodes(&[1, 2, 3]));
        assert!(!same.is_quorum_of_any_two(), "one of the two and the third");
    }

    #[test]
    fn number_is_reached_by_a_quorum_of_each() {
        let mut reached = [0; MEMBERS_MAX];
        reached[..5].copy_from_slice(&[9, 7, 5, 3, 1]);
        let plain = ReplicaSet::new(Epoch(1), NodeId(1), &nodes(&[1, 2, 3, 4, 5]));
        assert_eq!((plain.reached_by_quorum(&reached), plain.reached_by_all(&reached)), (5, 1));
        let joint = ReplicaSet::joint(Epoch(1), NodeId(1), &nodes(&[1, 2, 3]), &nodes(&[3, 4, 5]));
        assert_eq!(joint.reached_by_quorum(&reached), 3);
    }

    fn draw_some(rng: &mut Prng) -> Vec<NodeId> {
        loop {
            let some: Vec<u16> = (1..=9).filter(|_| rng.next_u64().is_multiple_of(2)).collect();
            if !some.is_empty() {
                return nodes(&some);
            }
        }
    }

    #[test]
    fn quorums_of_sets_that_follow_each_other_meet() {
        let mut rng = Prng::new(57);
        for _ in 0..100 {
            let (old, new) = (draw_some(&mut rng), draw_some(&mut rng));
            let sets = [
                ReplicaSet::new(Epoch(1), NodeId(1), &old),
                ReplicaSet::joint(Epoch(2), NodeId(1), &old, &new),
                ReplicaSet::new(Epoch(3), NodeId(1), &new),
            ];
            let quorum = |set: &ReplicaSet, by_id: u16| {
                let held = set.nodes().iter().enumerate().filter(|(_, id)| by_id & 1 << id.0 != 0);
                set.is_quorum_of(held.map(|(index, _)| index).fold(0, with_index))
            };
            for (one, next) in [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)] {
                // The nodes that make no quorum of the one cannot keep the next from having none.
                for by_id in (0..1024_u16).filter(|it| it & 1 == 0) {
                    let rest = !by_id & 0b11_1111_1110;
                    let both = quorum(&sets[one], by_id) && quorum(&sets[next], rest);
                    assert!(!both, "{old:?} {new:?} {by_id:b}");
                }
            }
        }
    }

    #[test]
    fn answers_count_like_a_naive_model_with_losses() {
        let mut rng = Prng::new(571);
        for _ in 0..500 {
            let (old, new) = (draw_some(&mut rng), draw_some(&mut rng));
            let mut peers = peers(1, 9);
            let set = match rng.next_u64().is_multiple_of(2) {
                true => ReplicaSet::joint(Epoch(2), NodeId(1), &old, &new),
                false => ReplicaSet::new(Epoch(1), NodeId(1), &old),
            };
            let new = if set.joint.is_some() { new } else { old.clone() };
            let (mut tally, mut given, mut known) = (Tally::default(), [0; 10], [0; 10]);
            known[1] = 1;
            for _ in 0..40 {
                let (id, amnesia) = (1 + rng.next_u64() % 9, 1 + (rng.next_u64() % 3) as u32);
                let node = NodeId(id as u16);
                if rng.next_u64().is_multiple_of(3) {
                    peers.learn(node, Incarnation(1), AmnesiaCount(amnesia));
                    known[id as usize] = amnesia.max(known[id as usize]);
                } else {
                    tally.add(Replicas { set: &set, peers: &peers }, node, AmnesiaCount(amnesia));
                    given[id as usize] = amnesia.max(given[id as usize]);
                }
                let counts = |node: &&NodeId| {
                    let id = usize::from(node.0);
                    given[id] > 0 && given[id] >= known[id]
                };
                let has_majority = |of: &[NodeId]| of.iter().filter(counts).count() > of.len() / 2;
                let expected = has_majority(&old) && has_majority(&new);
                assert_eq!(set.is_quorum(&tally, &peers), expected);
                let all = set.nodes().iter().all(|node| counts(&node));
                assert_eq!(set.is_all(&tally, &peers), all);
            }
        }
    }
}
