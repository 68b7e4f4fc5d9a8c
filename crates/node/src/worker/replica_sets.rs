//! The table of replica sets: which nodes hold a shard.

use std::sync::Arc;

use protocols::ReplicaSet;
use types::key::SHARDS;
use types::{Epoch, NodeId, Shard};

/// Shard by shard its replicas. Shards with equal replicas share one set.
pub(crate) struct ReplicaSets {
    by_shard: Box<[Arc<ReplicaSet>; SHARDS]>,
}

impl ReplicaSets {
    /// Every node is a replica of every shard.
    pub(crate) fn of_all(epoch: Epoch, me: NodeId, nodes: &[NodeId]) -> ReplicaSets {
        let set = Arc::new(ReplicaSet::new(epoch, me, nodes));
        ReplicaSets { by_shard: Box::new(std::array::from_fn(|_| Arc::clone(&set))) }
    }

    pub(crate) fn of(&self, shard: Shard) -> &ReplicaSet {
        &self.by_shard[usize::from(shard.0)]
    }

    /// The set for an event that is about no shard: all shards share it.
    pub(crate) fn any(&self) -> &ReplicaSet {
        &self.by_shard[0]
    }

    /// The epoch of the cluster.
    pub(crate) fn epoch(&self) -> Epoch {
        self.any().epoch()
    }
}
