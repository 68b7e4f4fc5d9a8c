//! Ballots that votes granted: the next proposal of a key needs no phase 1.

use std::collections::BTreeMap;

use types::{Epoch, Key};

use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::Base;

/// Keys whose next ballot is granted. Others pay for phase 1 again.
const GRANTED_MAX: usize = 65_536;
/// Bytes of the key and value of such a key. Phase 1 costs little beside longer ones.
const GRANTED_LEN_MAX: usize = 1_024;

/// A ballot that a quorum promised with its votes for the state before.
#[derive(Clone, Debug)]
pub struct Granted {
    pub ballot: Stamp,
    /// The chosen state.
    pub base: Base,
    pub promises: Tally,
    /// The replica set that the promises are counted in.
    pub epoch: Epoch,
}

impl Granted {
    /// True if the promises still count, and phase 1 is not needed for a deadline.
    #[must_use]
    pub fn is_usable(&self, replicas: Replicas<'_>) -> bool {
        // Only phase 1 asks whether a time to live is over.
        let expires = self.base.as_ref().is_some_and(|state| state.expiry.is_some())
            && !mutation::is(Mutation::GrantSkipsDeadline);
        let is_of_epoch =
            self.epoch == replicas.epoch() || mutation::is(Mutation::GrantOutlivesEpoch);
        !expires && is_of_epoch && replicas.is_quorum(&self.promises)
    }
}

/// The granted ballots of this node.
#[derive(Debug, Default)]
pub struct Grants {
    by_key: BTreeMap<Key, Granted>,
    /// Proposals under a granted ballot.
    pub used: u64,
}

impl Grants {
    pub fn put(&mut self, key: &Key, granted: Granted) {
        let value_len = granted.base.as_ref().map_or(0, |state| state.value_len());
        if key.bytes().len() + value_len > GRANTED_LEN_MAX {
            return;
        }
        if self.by_key.len() >= GRANTED_MAX && !self.by_key.contains_key(key) {
            self.by_key.pop_first();
        }
        self.by_key.insert(key.clone(), granted);
    }

    /// Takes the granted ballot of a key: it is used once.
    pub fn take(&mut self, key: &Key) -> Option<Granted> {
        match mutation::is(Mutation::GrantUsedTwice) {
            true => self.by_key.get(key).cloned(),
            false => self.by_key.remove(key),
        }
    }

    /// Another proposer took over with this ballot.
    pub fn drop_below(&mut self, key: &Key, ballot: Stamp) {
        if self.by_key.get(key).is_some_and(|it| it.ballot < ballot) {
            self.by_key.remove(key);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use base::Millis;
    use types::{AmnesiaCount, Incarnation, NodeId, TimeToLive};

    use super::super::register::tests::ballot;
    use super::*;
    use crate::peers::Peers;
    use crate::replicas::ReplicaSet;
    use crate::toolkit::state::tests::{op, state};
    use crate::toolkit::state::{Expiry, ExpiryId, State};

    const IDS: [NodeId; 4] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)];

    fn is_usable(epoch: u32, set: &[NodeId], expiry: Option<Expiry>) -> bool {
        let peers = Peers::new(NodeId(1), Incarnation(1), AmnesiaCount(1), &IDS);
        let promised_by = ReplicaSet::new(Epoch(1), NodeId(1), &IDS[..3]);
        let mut promises = Tally::default();
        for node in &IDS[..2] {
            let replicas = Replicas { set: &promised_by, peers: &peers };
            promises.add(replicas, *node, AmnesiaCount(1));
        }
        let base = Some(Arc::new(State { expiry, ..state(1, Some(b"v")) }));
        let granted = Granted { ballot: ballot(2), base, promises, epoch: Epoch(1) };
        let set = ReplicaSet::new(Epoch(epoch), NodeId(1), set);
        granted.is_usable(Replicas { set: &set, peers: &peers })
    }

    /// Two of three promised. They are places of another set now.
    pub(crate) fn grant_of_another_epoch() -> Result<(), String> {
        assert!(is_usable(1, &IDS[..3], None));
        match is_usable(2, &[NodeId(1), NodeId(3), NodeId(4)], None) {
            false => Ok(()),
            true => Err("a grant of one set is used in another".to_owned()),
        }
    }

    /// Only the promises of a phase 1 say whether a time to live is over.
    pub(crate) fn grant_of_an_expiring_key() -> Result<(), String> {
        let id = ExpiryId { slot: 1, op: op(1, 1) };
        let expiry = Expiry { id, ttl: TimeToLive::After(Millis(5)), ends: Millis(9) };
        match is_usable(1, &IDS[..3], Some(expiry)) {
            false => Ok(()),
            true => Err("a grant is used for a key with a time to live".to_owned()),
        }
    }

    #[test]
    fn grant_holds_for_its_replicas_and_lasting_keys() {
        assert_eq!(grant_of_another_epoch(), Ok(()));
        assert_eq!(grant_of_an_expiring_key(), Ok(()));
    }

    #[test]
    fn grant_is_taken_once_and_ends_with_a_higher_ballot() {
        let key = Key::new(b"k");
        let promises = Tally::default();
        let granted = Granted { ballot: ballot(2), base: None, promises, epoch: Epoch(1) };
        let mut grants = Grants::default();
        grants.put(&key, granted.clone());
        grants.drop_below(&key, ballot(2));
        assert!(grants.take(&key).is_some() && grants.take(&key).is_none());
        grants.put(&key, granted.clone());
        grants.drop_below(&key, ballot(3));
        assert!(grants.take(&key).is_none());
        let base = Some(Arc::new(state(1, Some(&[b'v'; GRANTED_LEN_MAX]))));
        grants.put(&key, Granted { base, ..granted });
        assert!(grants.take(&key).is_none(), "long values are not kept");
    }
}
