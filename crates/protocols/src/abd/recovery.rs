//! Recovery of forgotten registers: one by one on demand, or as a page of a shard.
//!
//! The eras of a forgotten shard come first. So a replica of them that closed an era before has
//! closed it here, too, and no register is recovered from before that.

use base::Nanos;
use types::{Key, Shard};

use super::collection::raise;
use super::message::Message;
use super::operation::Kind;
use super::register::{Register, Version};
use super::rounds::Dating;
use super::{Abd, Cx};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::register_cache::CachedRegister;
use crate::toolkit::back_off::RESEND_MAX;
use crate::toolkit::eras::{Eras, Step};

/// Registers recovered one by one at a time. Others wait until they are asked for again.
const RECOVERIES_MAX: usize = 4_096;

impl Abd {
    /// Recovers one register on demand. [DISC 2017]
    pub(super) fn recover(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.dating.contains_key(&key.shard()) {
            return;
        }
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
        self.give_up(cx, shard);
        // Its walk must not end before the eras are known again.
        self.pager.end_recovery(cx, shard);
        if mutation::is(Mutation::RecoverUndated) {
            return self.pager.on_forgotten(cx, shard);
        }
        let id = self.next_id();
        self.dating.insert(shard, Dating { id, answers: Tally::default(), is_known: false });
        self.date(cx, shard);
    }

    /// Asks the others for the eras of the shard, or goes on once they are durable.
    fn date(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let Some(dating) = self.dating.get(&shard) else { return };
        let (id, me) = (dating.id, cx.replicas.me());
        if dating.is_known {
            cx.fx.send(me, Message::Dated { id, shard }, cx.metas.ticket(shard));
        } else {
            for node in cx.replicas.others().filter(|&it| !dating.answers.has(cx.replicas, it)) {
                cx.fx.send_now(node, Message::Era { id, shard, step: Step::Ask {} });
            }
        }
        self.dating_due.set(shard, cx.now + RESEND_MAX);
    }

    pub(super) fn on_dating_due(&mut self, cx: &mut Cx<'_>) {
        for shard in self.dating_due.take(cx.now) {
            cx.about(shard);
            self.date(cx, shard);
        }
    }

    /// An answer about the eras of a forgotten shard. False if it answers another question.
    pub(super) fn on_eras_recovered(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        id: u64,
        (shard, eras): (Shard, Eras),
    ) -> bool {
        let Some(dating) = self.dating.get_mut(&shard).filter(|it| it.id == id) else {
            return false;
        };
        dating.answers.add(cx.replicas, from.node, from.amnesia);
        raise(cx, shard, eras);
        let (set, answers) = (cx.replicas.set, &dating.answers);
        let answered = answers.places(set, cx.replicas.peers) & !set.own_place();
        if set.is_quorum_of(answered) && !dating.is_known {
            dating.is_known = true;
            self.date(cx, shard);
        }
        true
    }

    /// The eras of a forgotten shard are durable: its registers follow.
    pub(super) fn on_dated(&mut self, cx: &mut Cx<'_>, id: u64, shard: Shard) {
        if self.dating.get(&shard).is_some_and(|dating| dating.id == id) {
            self.dating.remove(&shard);
            self.dating_due.clear(&shard);
            self.pager.on_forgotten(cx, shard);
        }
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
        // A page of the shard has told since. Its tombstone may be gone.
        if !is_lost && !cx.cache.is_forgotten(key.shard()) && !mutation::is(Mutation::AdoptLate) {
            self.end_recovery(cx, key);
            return self.pager.on_recovered_key(cx, key);
        }
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
