//! The recovery of one shard.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::{Ballot, Key, NodeId};

use crate::replicas::Replicas;
use crate::rmwpaxos::record::fences::Fences;
use crate::rmwpaxos::services::listing::Listings;

/// After this time without progress a shard waits for answers that may never come. Other shards go
/// ahead.
pub(crate) const STANDS_STILL_AFTER: Nanos = Nanos::from_secs(3);

#[derive(Debug)]
pub(crate) struct ShardRecovery {
    pub(super) id: u64,
    pub(super) from_hash: u64,
    pub(super) listings: Listings,
    pub(super) floor_ballot: Ballot,
    pub(super) floor_version: u64,
    pub(super) fences: Fences,
    /// Highest ballot number that the others have seen in the shard.
    pub(super) number: u64,
    /// Listed but not started, with the lengths of their states.
    pub(super) pending: BTreeMap<Key, usize>,
    /// Started and not known to be recovered.
    pub(super) begun: BTreeMap<Key, usize>,
    /// Sum of their lengths.
    pub(super) begun_len: usize,
    /// Started without progress: a majority seems to have lost them. The shard cannot end before
    /// they are recovered, but other work goes ahead.
    pub(super) stuck: BTreeSet<Key>,
    /// The step's listing is complete; continue here when no register is pending. `None` inside:
    /// the shard ends.
    pub(super) next: Option<Option<u64>>,
    /// In a disbelieved shard: the scan of this node's registers in the listed range.
    pub(super) own_scan: Option<u64>,
    pub(super) progressed_at: Nanos,
    /// It waits only for registers that a majority seems to have lost although it is up.
    pub(crate) is_in_vain: bool,
    pub(super) retry_at: Nanos,
    pub(super) retries: u32,
}

impl ShardRecovery {
    pub(super) fn wants(&self, key: &Key) -> bool {
        self.pending.contains_key(key) || self.begun.contains_key(key) || self.stuck.contains(key)
    }

    /// True if the key was wanted.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        if let Some(len) = self.begun.remove(key) {
            self.begun_len -= len;
            return true;
        }
        self.pending.remove(key).is_some() || self.stuck.remove(key)
    }

    /// Starts the next listed register if its length fits into `left`.
    pub(super) fn begin_next(&mut self, left: usize) -> Option<(Key, usize)> {
        let first = self.pending.first_entry().filter(|first| *first.get() <= left)?;
        let (key, len) = first.remove_entry();
        self.begun_len += len;
        self.begun.insert(key.clone(), len);
        Some((key, len))
    }

    /// Lets other work go ahead of the started registers.
    pub(super) fn pass_by_begun(&mut self) {
        self.begun_len = 0;
        self.stuck.extend(std::mem::take(&mut self.begun).into_keys());
    }

    /// True if the node has not listed its part of the step.
    pub(super) fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        self.next.is_none() && !self.listings.tally.has(replicas, node)
    }

    pub(super) fn stands_still(&self, now: Nanos) -> bool {
        now.since(self.progressed_at) >= STANDS_STILL_AFTER
    }
}

/// True if enough others are up to recover from.
pub(crate) fn majority_is_up(replicas: Replicas<'_>) -> bool {
    replicas.set.is_quorum_of(replicas.other_places(|member| member.up))
}
