//! Ballots that votes granted: the next proposal of a key needs no phase 1.

use std::collections::BTreeMap;

use types::{Epoch, Key};

use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::Base;

/// Keys whose next ballot is granted. Others pay for phase 1 again.
const GRANTED_MAX: usize = 65_536;

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
        let expires = self.base.as_ref().is_some_and(|state| state.expiry.is_some());
        !expires && self.epoch == replicas.epoch() && replicas.is_quorum(&self.promises)
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
        if self.by_key.len() >= GRANTED_MAX && !self.by_key.contains_key(key) {
            self.by_key.pop_first();
        }
        self.by_key.insert(key.clone(), granted);
    }

    /// Takes the granted ballot of a key: it is used once.
    pub fn take(&mut self, key: &Key) -> Option<Granted> {
        self.by_key.remove(key)
    }

    /// Another proposer took over with this ballot.
    pub fn drop_below(&mut self, key: &Key, ballot: Stamp) {
        if self.by_key.get(key).is_some_and(|it| it.ballot < ballot) {
            self.by_key.remove(key);
        }
    }
}
