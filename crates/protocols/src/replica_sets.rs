//! The table of replica sets: which nodes hold a shard.

use std::sync::Arc;

use types::key::SHARDS;
use types::{Epoch, NodeId, Shard};

use crate::replicas::ReplicaSet;

/// The replicas of every shard. Shards with equal replicas share one set.
#[derive(Clone, Debug)]
pub struct ReplicaSets {
    by_shard: Box<[Arc<ReplicaSet>; SHARDS]>,
    /// The set for events about no shard: the one that all shards share, or none that counts.
    any: Arc<ReplicaSet>,
}

impl ReplicaSets {
    /// Every shard has these replicas.
    #[must_use]
    pub fn shared(set: ReplicaSet) -> ReplicaSets {
        let set = Arc::new(set);
        let by_shard = Box::new(std::array::from_fn(|_| Arc::clone(&set)));
        ReplicaSets { by_shard, any: set }
    }

    /// Every node is a replica of every shard.
    #[must_use]
    pub fn of_all(epoch: Epoch, me: NodeId, nodes: &[NodeId]) -> ReplicaSets {
        ReplicaSets::shared(ReplicaSet::new(epoch, me, nodes))
    }

    /// Each shard has `replicas` nodes of the circle of all, those of the next shard one further.
    ///
    /// # Panics
    /// If there are fewer nodes than that.
    #[must_use]
    pub fn spread(epoch: Epoch, me: NodeId, nodes: &[NodeId], replicas: usize) -> ReplicaSets {
        assert!(replicas <= nodes.len(), "{replicas} replicas on {} nodes", nodes.len());
        if replicas == nodes.len() {
            return ReplicaSets::of_all(epoch, me, nodes);
        }
        let from = |first: usize| {
            let members: Vec<NodeId> =
                nodes.iter().copied().cycle().skip(first).take(replicas).collect();
            Arc::new(ReplicaSet::new(epoch, me, &members))
        };
        let sets: Vec<Arc<ReplicaSet>> = (0..nodes.len()).map(from).collect();
        let by_shard = std::array::from_fn(|shard| Arc::clone(&sets[shard % sets.len()]));
        ReplicaSets {
            by_shard: Box::new(by_shard),
            any: Arc::new(ReplicaSet::without_replicas(epoch)),
        }
    }

    #[must_use]
    pub fn of(&self, shard: Shard) -> &ReplicaSet {
        &self.by_shard[usize::from(shard.0)]
    }

    /// The set for an event that is about no shard: the one that all shards share. If there is no
    /// such set, one without replicas: no answer makes a quorum of it.
    #[must_use]
    pub fn any(&self) -> &ReplicaSet {
        &self.any
    }

    /// The epoch of the cluster.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.any.epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u16) -> Vec<NodeId> {
        (1..=count).map(NodeId).collect()
    }

    #[test]
    fn shards_spread_evenly_over_the_nodes() {
        let sets = ReplicaSets::spread(Epoch(1), NodeId(2), &nodes(5), 3);
        let mut held = [0; 6];
        for shard in (0..=u8::MAX).map(Shard) {
            let set = sets.of(shard);
            assert_eq!(set.nodes().len(), 3);
            assert_eq!(set.me().is_some(), set.nodes().contains(&NodeId(2)));
            set.nodes().iter().for_each(|node| held[usize::from(node.0)] += 1);
        }
        assert!(held[1..].iter().all(|&shards| (150..=156).contains(&shards)), "{held:?}");
        assert_ne!(sets.of(Shard(0)), sets.of(Shard(1)));
    }

    #[test]
    fn event_about_no_shard_counts_for_none() {
        let sets = ReplicaSets::spread(Epoch(1), NodeId(2), &nodes(5), 3);
        assert!(sets.any().nodes().is_empty() && !sets.any().is_quorum_of(u16::MAX));
        let sets = ReplicaSets::spread(Epoch(1), NodeId(2), &nodes(3), 3);
        assert_eq!(sets.any(), sets.of(Shard(9)));
    }
}
