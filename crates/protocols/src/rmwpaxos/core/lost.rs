//! The way out of lost memory [spec 8]: a forgotten register or shard is silent. Services ask a
//! majority of others for it and install the answer here.

use types::{AmnesiaCount, Ballot, Key, Shard};

use super::instance::Core;
use crate::mutation::{self, Mutation};
use crate::register_cache::CachedRegister;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::record::fences::Fences;
use crate::rmwpaxos::record::register::Register;

impl Core {
    /// Installs a forgotten register as a majority of others reports it.
    pub(crate) fn install(&mut self, cx: &mut Cx<'_>, key: &Key, register: Register) {
        self.counters.expiring_states += u64::from(register.has_ages());
        cx.metas.get_mut(key.shard()).saw(register.promised);
        note_loss(cx, key.shard());
        cx.cache.put(key, register);
        cx.cache.persist(key);
    }

    /// Raises the floors of a shard. True if one of them was lower.
    pub(crate) fn raise_floors(
        &mut self,
        cx: &mut Cx<'_>,
        shard: Shard,
        (ballot, version): (Ballot, u64),
    ) -> bool {
        let meta = cx.metas.get_mut(shard);
        if version <= meta.floor_version && ballot <= meta.floor_ballot {
            return false;
        }
        meta.floor_version = meta.floor_version.max(version);
        meta.floor_ballot = meta.floor_ballot.max(ballot);
        meta.saw(ballot);
        cx.metas.persist(shard);
        true
    }

    /// Takes the fences that another member reports beside a register of the shard.
    pub(crate) fn take_fences(&mut self, cx: &mut Cx<'_>, shard: Shard, fences: &Fences) {
        if self.env.transient
            && !fences.is_empty()
            && !mutation::is(Mutation::FenceNotRecovered)
            && cx.metas.get_mut(shard).fences.merge(fences)
        {
            cx.metas.persist(shard);
        }
    }

    /// Ends the loss of a shard. Every register that the others hold is recovered, and their floors
    /// stand for the rest. `number` is the highest ballot number that they have seen. Their fences
    /// hold here before this node votes again. [spec 8.4, point 5]
    pub(crate) fn end_loss(
        &mut self,
        cx: &mut Cx<'_>,
        shard: Shard,
        floors: (Ballot, u64),
        (fences, number): (&Fences, u64),
    ) {
        self.raise_floors(cx, shard, floors);
        let meta = cx.metas.get_mut(shard);
        meta.saw(floors.0);
        meta.fences.merge(fences);
        if meta.void {
            // A phase 1 that was completed with this node's promise was seen by one of the others
            // that answered.
            base::sometimes!("lost shard fields are recovered");
            (meta.void, meta.disbelieved) = (false, false);
            meta.ceiling = meta.ceiling.max(number);
            meta.restart_floor =
                meta.restart_floor.max(Ballot::ceiling(cx.replicas.epoch(), number));
            meta.number = meta.number.max(number);
        }
        cx.metas.persist(shard);
        cx.fx.recovered(shard);
    }

    /// Ends the loss of a shard at a node that is no replica, since it held no register of it.
    pub(crate) fn end_loss_outside(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let meta = cx.metas.get_mut(shard);
        (meta.void, meta.disbelieved) = (false, false);
        cx.fx.recovered(shard);
    }

    /// Voids the shard's fields and its stored registers until the others have restored them.
    pub(crate) fn treat_as_lost(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let meta = cx.metas.get_mut(shard);
        (meta.void, meta.disbelieved) = (true, true);
        cx.metas.persist(shard);
    }

    /// Treats a disbelieved register as forgotten. True if it was held.
    pub(crate) fn disbelieve(&mut self, cx: &mut Cx<'_>, key: &Key) -> bool {
        let is_held = matches!(cx.cache.get(key), CachedRegister::Present(_));
        if is_held {
            cx.cache.lose(key);
        }
        is_held
    }
}

/// Registers of an earlier amnesia count are no evidence about the shard from now on.
pub(crate) fn note_loss(cx: &mut Cx<'_>, shard: Shard) {
    let amnesia = cx.replicas.member(cx.replicas.me()).map_or(AmnesiaCount(0), |me| me.amnesia);
    if cx.metas.get(shard).lost_at < amnesia {
        cx.metas.get_mut(shard).lost_at = amnesia;
        cx.metas.persist(shard);
    }
}
