//! Recovery of forgotten registers: one by one on demand, or as a page of a shard.

use base::Nanos;
use types::{Key, Shard};

use super::operation::Kind;
use super::register::{Register, Version};
use super::{Abd, Cx};
use crate::register_cache::CachedRegister;

/// Registers recovered one by one at a time. Others wait until they are asked for again.
const RECOVERIES_MAX: usize = 4_096;

impl Abd {
    /// Recovers one register on demand. [DISC 2017]
    pub(super) fn recover(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.recovering.contains_key(key) || self.recovering.len() >= RECOVERIES_MAX {
            return;
        }
        cx.cache.pin(key);
        let id = self.start(cx, key.clone(), Kind::Recover, Nanos::MAX);
        self.recovering.insert(key.clone(), id);
    }

    fn end_recovery(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if let Some(id) = self.recovering.remove(key) {
            self.remove(id);
            cx.cache.unpin(key);
        }
    }

    /// Recoveries in this shard start anew, since its registers are forgotten again.
    pub(super) fn on_forgotten(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let in_shard = |key: &&Key| key.shard() == shard;
        let keys: Vec<Key> = self.recovering.keys().filter(in_shard).cloned().collect();
        for key in &keys {
            self.end_recovery(cx, key);
        }
        self.pager.on_forgotten(cx, shard);
    }

    /// A register of a page.
    pub(super) fn on_adopt(&mut self, cx: &mut Cx<'_>, walk: u64, key: &Key, register: Register) {
        // A later amnesia removes the walk and makes its answers worthless.
        if self.pager.has_walk(walk) {
            self.adopt(cx, key, register);
        }
    }

    /// Takes the recovered content of a register.
    pub(super) fn adopt(&mut self, cx: &mut Cx<'_>, key: &Key, register: Register) {
        let is_lost = matches!(cx.cache.get(key), CachedRegister::Lost);
        // In a forgotten shard an empty register marks a key that was never written.
        if is_lost && register.version == Version::NONE && !cx.cache.is_forgotten(key.shard()) {
            cx.cache.remove(key);
        } else {
            self.store(cx, key, register);
        }
        self.end_recovery(cx, key);
        self.pager.on_recovered_key(cx, key);
    }
}
