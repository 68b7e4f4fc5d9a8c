//! Recovery of forgotten registers from a majority of *others*. [DISC 2017, spec 8.4]
//!
//! The own acceptor is silent meanwhile, so every quorum of this proposer is one of others. A
//! register whose next slot has votes is recovered by a proposal, since a minority's vote must not
//! become this replica's.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Key, Shard};

use super::machine::{Cx, Machine, is_lost};
use super::message::{Body, Message};
use super::reading::adopt;
use super::register::{Base, Report};
use super::reports::{Decision, decide};
use crate::toolkit::pages::{RECOVERY_PAGE, SHARDS_AT_ONCE};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::walk::{Merged, Purpose, Walk};

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
        let walks: Vec<u64> = (self.walks.iter())
            .filter(|(_, walk)| walk.purpose == Purpose::Recover { shard })
            .map(|(&id, _)| id)
            .collect();
        for id in walks {
            self.remove_walk(id);
        }
        self.forgotten.insert(shard);
        self.walk_forgotten(cx);
    }

    fn walk_forgotten(&mut self, cx: &mut Cx<'_>) {
        while self.walks.values().filter(|walk| walk.is_recovery()).count() < SHARDS_AT_ONCE {
            let Some(shard) = self.forgotten.pop_first() else { return };
            let purpose = Purpose::Recover { shard };
            self.walk(cx, Walk::new(purpose, shard.first_hash(), RECOVERY_PAGE, Nanos::MAX));
        }
    }

    /// A page is complete: takes the registers that it decides, and has the others decided.
    pub(super) fn recover_page(&mut self, cx: &mut Cx<'_>, id: u64, merged: Merged<Report>) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        let Merged { registers, counted, next_hash } = merged;
        walk.next_hash = next_hash;
        walk.recovering = Some(registers.keys().cloned().collect());
        if registers.is_empty() {
            return self.on_page_recovered(cx, id);
        }
        for (key, reports) in registers {
            let reports: BTreeMap<usize, Report> = reports.into_iter().collect();
            let found = match decide(cx.replicas.set, counted, |index| reports.get(&index)) {
                Decision::Decided { base, promised } => Some((base, promised)),
                Decision::Undecided { .. } | Decision::Wait => None,
            };
            let recover = Message::About { id, key, body: Body::Recover { found } };
            cx.fx.send_now(cx.replicas.me(), recover);
        }
    }

    /// The register is resident.
    pub(super) fn on_recover(
        &mut self,
        cx: &mut Cx<'_>,
        walk: u64,
        key: &Key,
        found: Option<(Base, Stamp)>,
    ) {
        // A later amnesia removes the walk and makes its answers worthless.
        if !self.walks.contains_key(&walk) {
            return;
        }
        match found {
            _ if !is_lost(cx, key) => {}
            Some((base, promised)) => adopt(cx, key, &base, promised),
            None => return self.recover(cx, key),
        }
        self.on_recovered_key(cx, key);
    }

    /// This register is recovered: the walks that wait for it go on.
    pub(super) fn on_recovered_key(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let ticket = cx.cache.ticket(key);
        for (&id, walk) in &mut self.walks {
            let Some(recovering) = &mut walk.recovering else { continue };
            if recovering.remove(key) {
                walk.recovered_after = walk.recovered_after.max(ticket);
                if recovering.is_empty() {
                    let recovered = Message::Recovered { id, from_hash: walk.from_hash };
                    cx.fx.send(cx.replicas.me(), recovered, walk.recovered_after);
                }
            }
        }
    }

    /// A page is recovered, durably.
    pub(super) fn on_page_recovered(&mut self, cx: &mut Cx<'_>, id: u64) {
        let is_done =
            |walk: &Walk<Report>| walk.recovering.as_ref().is_some_and(|it| it.is_empty());
        if !self.walks.get(&id).is_some_and(is_done) {
            return;
        }
        let Some(walk) = self.remove_walk(id) else { return };
        let Purpose::Recover { shard } = walk.purpose else { return };
        match walk.next_hash {
            Some(next) => self.walk(cx, Walk::new(walk.purpose, next, RECOVERY_PAGE, Nanos::MAX)),
            None => {
                cx.fx.recovered(shard);
                self.walk_forgotten(cx);
            }
        }
    }
}
