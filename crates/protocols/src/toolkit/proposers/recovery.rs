//! Recovery of forgotten registers from a majority of *others*. [DISC 2017]
//!
//! The own acceptor is silent meanwhile, so every quorum of this proposer is one of others. A
//! register whose reports do not decide is recovered by a proposal, since a minority's vote must
//! not become this replica's.

use types::{Key, Shard};

use super::acceptor::is_lost;
use super::active::Active;
use super::machine::{Cx, Machine, Rules};
use crate::register_cache::CachedRegister;
use crate::toolkit::report::Report;

/// Registers recovered one by one at a time. Others wait until they are asked for again.
const RECOVERIES_MAX: usize = 4_096;

impl<R: Rules> Machine<R> {
    /// Recovers one register on demand.
    pub(super) fn recover(&mut self, cx: &mut Cx<'_, R>, key: &Key) {
        if self.recovering.contains(key) || self.recovering.len() >= RECOVERIES_MAX {
            return;
        }
        self.recovering.insert(key.clone());
        let step = self.next_step();
        self.with(cx, key, |_, _, active| active.recover = Some(step));
    }

    /// The own register, if it was forgotten before the phase began, has this content.
    pub fn recovered(
        &mut self,
        cx: &mut Cx<'_, R>,
        active: &mut Active<R>,
        found: <R::Report as Report>::Found,
    ) {
        if active.recover.is_some_and(|step| step < active.since) {
            active.recover = None;
            self.recovering.remove(&active.key);
            self.adopt(cx, &active.key, found);
            self.pager.on_recovered_key(cx, &active.key);
        }
    }

    /// Recoveries in this shard start anew, since its registers are forgotten again.
    pub(super) fn on_forgotten(&mut self, cx: &mut Cx<'_, R>, shard: Shard) {
        let in_shard = |key: &&Key| key.shard() == shard;
        let keys: Vec<Key> = self.recovering.iter().filter(in_shard).cloned().collect();
        for key in keys {
            let step = self.next_step();
            self.with(cx, &key, |_, _, active| active.recover = Some(step));
        }
        self.pager.on_forgotten(cx, shard);
    }

    /// A register of a page.
    pub(super) fn on_recover(
        &mut self,
        cx: &mut Cx<'_, R>,
        walk: u64,
        key: &Key,
        found: Option<<R::Report as Report>::Found>,
    ) {
        if !self.pager.has_walk(walk) {
            return;
        }
        match found {
            _ if !is_lost(cx, key) => {}
            Some(found) => self.adopt(cx, key, found),
            None => return self.recover(cx, key),
        }
        self.pager.on_recovered_key(cx, key);
    }

    /// Takes the recovered content of a forgotten register.
    fn adopt(&mut self, cx: &mut Cx<'_, R>, key: &Key, found: <R::Report as Report>::Found) {
        if !matches!(cx.cache.get(key), CachedRegister::Lost) {
            return;
        }
        let record = R::Report::restore(found, cx.uptime);
        if record == Default::default() && !cx.cache.is_forgotten(key.shard()) {
            cx.cache.remove(key);
            return;
        }
        // In a forgotten shard an empty register marks a key that was never written.
        cx.cache.put(key, record);
        cx.cache.persist(key);
        self.watch(cx, key);
    }
}
