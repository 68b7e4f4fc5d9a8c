//! Recovery of forgotten registers from a majority of *others*. [DISC 2017, spec 8.4]
//!
//! The own acceptor is silent meanwhile, so every quorum of this proposer is one of others. A
//! register whose next slot has votes is recovered by a proposal, since a minority's vote must not
//! become this replica's.

use types::{Key, Shard};

use super::machine::{Cx, Machine, is_lost};
use super::reading::adopt;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::Base;

/// Registers recovered one by one at a time. Others wait until they are asked for again.
const RECOVERIES_MAX: usize = 4_096;

impl Machine {
    /// Recovers one register on demand.
    pub(super) fn recover(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.recovering.contains(key) || self.recovering.len() >= RECOVERIES_MAX {
            return;
        }
        self.recovering.insert(key.clone());
        let step = self.next_step();
        self.with(cx, key, |_, _, active| active.recover = Some(step));
    }

    /// Recoveries in this shard start anew, since its registers are forgotten again.
    pub(super) fn on_forgotten(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let keys: Vec<Key> =
            self.recovering.iter().filter(|key| key.shard() == shard).cloned().collect();
        for key in keys {
            let step = self.next_step();
            self.with(cx, &key, |_, _, active| active.recover = Some(step));
        }
        self.pager.on_forgotten(cx, shard);
    }

    /// The register is resident.
    pub(super) fn on_recover(
        &mut self,
        cx: &mut Cx<'_>,
        walk: u64,
        key: &Key,
        found: Option<(Base, Stamp)>,
    ) {
        if !self.pager.has_walk(walk) {
            return;
        }
        match found {
            _ if !is_lost(cx, key) => {}
            Some((base, promised)) => adopt(cx, key, &base, promised),
            None => return self.recover(cx, key),
        }
        self.pager.on_recovered_key(cx, key);
    }
}
