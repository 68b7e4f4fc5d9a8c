//! Removal of deleted keys' registers.
//!
//! A shard is in an *era* at each member, which only grows: an epoch, and a count of rounds. A key
//! without a register begins another *life* when it is written: its versions have the era of their
//! writer then. Versions lead with their era, so a later life lies above.
//!
//! A *round* for one tombstone goes from a member that holds it valid to all members, if none of
//! them is a shadow:
//!
//! 1. *Raise.* Each begins an era above the tombstone's. It answers if it holds exactly this
//!    tombstone, valid now at the latest, or has no register.
//! 2. *Bury.* Once all have answered, each removes the tombstone that it still holds.
//!
//! Two rules shut out late versions:
//!
//! - A full member without a register refuses versions of eras below its own ([`Message::Stale`]).
//! - A member with a register refuses those of an earlier life.
//!
//! A refused version that its writer still works on has had no effect. With one, the member that
//! refuses it held it, and has removed a tombstone above it since. The round has made that
//! tombstone valid at the writer, which has ended the write.
//!
//! It never will have one: that member refuses it as long as it is one. So the writer tries again
//! once a version of a later life is valid. If there is none, it stores a tombstone of one.
//!
//! Eras are kept in memory. A process begins with the epoch in which it becomes a full member: all
//! tombstones of before are of earlier eras. A shadow takes part in no round: the last page of its
//! copy may hold an older value.

use base::{Nanos, sometimes};
use types::{Epoch, Key, NodeId, Outcome, Role, Shard};

use super::lane::{Origin, Pend, Waiting};
use super::message::Message;
use super::register::Register;
use super::rounds::{Burial, Round};
use super::version::{Era, Version};
use super::{Cx, Hermes};
use crate::mutation::{self, Mutation};
use crate::register_cache::CachedRegister;
use crate::replicas::place;
use crate::toolkit::burials::{AGAIN, Burials};
use crate::toolkit::content::Content;

const RESEND: Nanos = Nanos::from_millis(200);

/// Lives.
impl Hermes {
    /// All tombstones that are removed here are of earlier eras.
    fn era(&self, cx: &Cx<'_, '_>, shard: Shard) -> Era {
        let first = Era::first(self.full_since.unwrap_or(cx.configuration.epoch));
        self.eras.get(&shard).copied().unwrap_or(first)
    }

    fn begin_era(&mut self, cx: &Cx<'_, '_>, shard: Shard, era: Era) {
        if era > self.era(cx, shard) {
            self.eras.insert(shard, era);
        }
    }

    /// Below every version of a life that begins now. No member refuses those for long.
    fn before_life(&self, cx: &Cx<'_, '_>, shard: Shard) -> Version {
        Version::before(self.era(cx, shard).max(Era::first(cx.configuration.epoch)))
    }

    /// The value of a key as changes see it, and the version that they lie above.
    pub(super) fn base(&self, cx: &Cx<'_, '_>, key: &Key) -> (Version, Content<Version>) {
        match cx.cache.get(key) {
            CachedRegister::Present(register) => (register.version, register.content.clone()),
            CachedRegister::Absent | CachedRegister::Lost => {
                (self.before_life(cx, key.shard()), Content::DELETED)
            }
        }
    }

    /// True if a version comes too late for a key without a register. Its sender is told.
    pub(super) fn refuses(
        &self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        version: Version,
    ) -> bool {
        let era = self.era(cx, key.shard());
        let is_full = cx.me().role == Role::Full;
        let is_absent = matches!(cx.cache.get(key), CachedRegister::Absent);
        if !is_full || !is_absent || version.era >= era || mutation::is(Mutation::TakeLate) {
            return false;
        }
        sometimes!("a version of an earlier life is refused");
        cx.send_now(from, Message::Stale { key: key.clone(), version, era });
        true
    }

    /// A member without a register refuses this version.
    pub(super) fn on_stale(
        &mut self,
        cx: &mut Cx<'_, '_>,
        key: &Key,
        (version, era): (Version, Era),
    ) {
        if era <= version.era {
            return;
        }
        self.begin_era(cx, key.shard(), era);
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        if register.is_valid || register.version < version {
            return;
        }
        if register.version == version {
            // The key is deleted. Others may hold this version too.
            let version = self.before_life(cx, key.shard()).next(cx.me().serial, true);
            let register = Register { version, content: Content::DELETED, is_valid: false };
            self.store(cx, key, register);
            self.on_superseded(cx, key);
            return self.replay_if_idle(cx, key);
        }
        let is_it = |pend: &mut Pend| pend.register.version == version;
        let lane = self.lanes.get_mut(key);
        if let Some(pend) = lane.and_then(|lane| lane.pend.take_if(is_it)) {
            self.give_back(cx, key, pend);
            self.lanes.plan(cx.cache, key);
        }
    }

    /// Tries the request of a write that has lost again, once the key is valid above it.
    pub(super) fn give_back(&mut self, cx: &mut Cx<'_, '_>, key: &Key, pend: Pend) {
        self.asks.end(pend.number);
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let Some(Origin { waiting, reply }) = pend.origin else { return };
        let tag = waiting.request.tag;
        if mutation::is(Mutation::AbortOnHigher) {
            return cx.fx.reply(tag, Outcome::NoQuorum);
        }
        if mutation::is(Mutation::StaleEndsWell) && !pend.register.version.is_rmw() {
            return cx.fx.reply(tag, Outcome::Reply(reply));
        }
        lane.waiting.push_front(Waiting { is_tried: true, ..waiting });
        self.waiting_count += 1;
    }
}

/// Rounds.
impl Hermes {
    /// The register has another version now.
    pub(super) fn forget_tombstone(&mut self, cx: &Cx<'_, '_>, key: &Key) {
        self.burials.forget(key);
        self.take_from_round(cx, key);
    }

    fn take_from_round(&mut self, cx: &Cx<'_, '_>, key: &Key) {
        let Some(round) = self.burials.round(key.shard()) else { return };
        if round.batch.remove(key).is_some() && round.batch.is_empty() {
            self.burials.end(key.shard(), cx.now);
        }
    }

    /// A noted tombstone is resident.
    pub(super) fn on_tombstone(&mut self, cx: &Cx<'_, '_>, key: &Key, is_idle: bool) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        if is_idle && register.is_valid {
            self.burials.wait(key.clone(), register.version, cx.now);
        } else {
            self.burials.look(key, cx.now + AGAIN);
        }
    }

    pub(super) fn on_noted(&mut self, cx: &mut Cx<'_, '_>) {
        let room = self.looks.room(cx.now);
        for key in self.burials.take_keys(cx.now, room) {
            self.looks.begin(key.clone(), cx.now);
            cx.send_now(cx.replicas.me(), Message::Look { key });
        }
    }

    pub(super) fn on_rounds(&mut self, cx: &mut Cx<'_, '_>) {
        for shard in self.burials.take_shards(cx.now) {
            match self.burials.round(shard) {
                None => self.begin_round(cx, shard),
                Some(round) if round.deadline > cx.now => self.ask_round(cx, shard),
                Some(_) => self.give_up(cx, shard),
            }
        }
    }

    fn begin_round(&mut self, cx: &mut Cx<'_, '_>, shard: Shard) {
        let are_full = cx.configuration.members.iter().all(|member| member.role == Role::Full);
        let may_begin = are_full || mutation::is(Mutation::CollectBesideCopy);
        let batch = self.burials.batch(shard, may_begin, cx.now);
        let Some(above) = batch.values().map(|version| version.era).max() else { return };
        let era = self.era(cx, shard).max(above.next());
        let burial = |(key, version)| (key, Burial { version, raised: 0 });
        let batch = batch.into_iter().map(burial).collect();
        self.burials.begin(shard, Round { era, batch, deadline: cx.now + AGAIN });
        self.ask_round(cx, shard);
    }

    fn ask_round(&mut self, cx: &mut Cx<'_, '_>, shard: Shard) {
        let Some(round) = self.burials.round(shard) else { return };
        for (key, &Burial { version, raised }) in &round.batch {
            for (index, &node) in cx.set.nodes().iter().enumerate() {
                if raised & place(index) == 0 {
                    cx.send_now(node, Message::Raise { key: key.clone(), version, era: round.era });
                }
            }
        }
        self.burials.resume(shard, cx.now + RESEND);
    }

    fn give_up(&mut self, cx: &Cx<'_, '_>, shard: Shard) {
        let Some(round) = self.burials.end(shard, cx.now) else { return };
        for key in round.batch.keys() {
            self.burials.look(key, cx.now + AGAIN);
        }
    }

    /// The sender holds this tombstone, and it is valid there.
    pub(super) fn on_raise(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        (version, era): (Version, Era),
    ) {
        self.begin_era(cx, key.shard(), era);
        let is_held = match cx.cache.get(key) {
            CachedRegister::Present(held) => held.version == version,
            CachedRegister::Absent => true,
            CachedRegister::Lost => false,
        };
        let has_begun = self.era(cx, key.shard()) > version.era;
        if mutation::is(Mutation::RaiseAnyHeld) {
            return cx.send_now(from, Message::Raised { key: key.clone(), version });
        }
        if is_held && has_begun {
            cx.send_now(from, Message::Raised { key: key.clone(), version });
            self.on_validate(cx, key, version);
        }
    }

    pub(super) fn on_raised(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        version: Version,
    ) {
        let Some(round) = self.burials.round(key.shard()) else { return };
        let Some(burial) = round.batch.get_mut(key).filter(|it| it.version == version) else {
            return;
        };
        burial.raised |= cx.set.index(from).map_or(0, place);
        if !cx.set.is_all_of(burial.raised) && !mutation::is(Mutation::BuryUnraised) {
            return;
        }
        sometimes!("members remove the register of a deleted key");
        self.buried += 1;
        self.take_from_round(cx, key);
        for &node in cx.set.nodes() {
            cx.send_now(node, Message::Bury { key: key.clone(), version });
        }
    }

    pub(super) fn on_bury(&mut self, cx: &mut Cx<'_, '_>, key: &Key, version: Version) {
        let CachedRegister::Present(register) = cx.cache.get(key) else { return };
        if register.version != version {
            return;
        }
        if self.lanes.has(key) {
            return self.burials.look(key, cx.now + AGAIN);
        }
        cx.cache.remove(key);
        self.forget_tombstone(cx, key);
        self.ends.forget(key);
    }

    /// The epoch has ended. The sweep of the next one finds its tombstones. Eras outlive it while
    /// this process is a full member.
    pub(super) fn end_rounds(&mut self, next: Option<(Epoch, Role)>) {
        self.burials = Burials::new(super::NOTED, super::ROUNDS);
        self.looks.clear();
        let since = next.filter(|(_, role)| *role == Role::Full).map(|(epoch, _)| epoch);
        self.full_since = since.map(|epoch| self.full_since.unwrap_or(epoch));
        if since.is_none() {
            self.eras.clear();
        }
    }
}

/// True for a write that ends well although its register has a newer version.
pub(super) fn goes_on(pend: &Pend, held: Version) -> bool {
    let Version { era, .. } = pend.register.version;
    let is_of_life = era == held.era || mutation::is(Mutation::EndEarlierLife);
    !pend.register.version.is_rmw() && pend.origin.is_some() && is_of_life
}
