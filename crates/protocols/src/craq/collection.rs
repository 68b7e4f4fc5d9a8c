//! Removal of deleted keys' registers.
//!
//! A member with a clean tombstone asks the head ([`Body::Spent`]), which may answer
//! ([`Body::Bury`]). Then the member removes the register. Members do so one by one: a tombstone
//! and an absent register read alike.
//!
//! A late `Down` must not bring an older version back. So each shard has a *floor*, for one epoch:
//!
//! - The head raises it to the tombstone's number. New versions of all keys of the shard lie above.
//! - It answers with a floor below all versions on their way, if the tombstone lies up to there.
//!   So all versions up to that floor are committed.
//! - A member without a register ignores a `Down` up to the floor.
//!
//! Versions of earlier epochs come in no message. So a floor ends with its epoch.
//!
//! A shadow keeps tombstones: a page of its copy may still bring an older version.

use base::{Nanos, sometimes};
use types::{Key, NodeId, Role, Shard};

use super::message::Body;
use super::register::Register;
use super::version::Version;
use super::{Craq, Cx, chain, send};
use crate::mutation::{self, Mutation};
use crate::register_cache::CachedRegister;

/// When to ask the head again.
const PATIENCE: Nanos = Nanos::from_secs(60);

impl Craq {
    pub(super) fn floor(&self, shard: Shard) -> u64 {
        self.floors.get(&shard).copied().unwrap_or(0)
    }

    fn raise_floor(&mut self, shard: Shard, number: u64) {
        let floor = self.floors.entry(shard).or_default();
        *floor = number.max(*floor);
    }

    /// The version of the head's next value for this key.
    pub(super) fn next_version(&self, cx: &Cx<'_, '_>, key: &Key, held: Version) -> Version {
        let floor = match mutation::is(Mutation::MintBelowFloor) {
            true => 0,
            false => self.floor(key.shard()),
        };
        let number = held.number.max(floor);
        Version { number, ..held }.next(cx.configuration.epoch)
    }

    /// True if the version was committed, and the register removed since.
    pub(super) fn is_buried(&self, cx: &Cx<'_, '_>, key: &Key, version: Version) -> bool {
        let is_below =
            version.epoch < cx.configuration.epoch || version.number <= self.floor(key.shard());
        matches!(cx.cache.get(key), CachedRegister::Absent) && is_below
    }

    /// Asks the head whether the register of a deleted key is needed.
    pub(super) fn ask_to_bury(&mut self, cx: &mut Cx<'_, '_>, key: &Key, version: Version) {
        let Some(head) = chain::head(cx) else { return };
        self.ends.look(key, cx.now + PATIENCE);
        let low = self.open.first().copied().unwrap_or(self.next_seq + 1);
        let worker = self.env.worker as u64;
        send(cx, head, key, Body::Spent { version, worker, low });
    }

    pub(super) fn on_spent(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        version: Version,
    ) {
        if !chain::is_head(cx) || self.lanes.has(key) || !self.is_spent(cx, key, version) {
            return;
        }
        let shard = key.shard();
        let is_of_epoch = version.epoch == cx.configuration.epoch;
        if is_of_epoch {
            self.raise_floor(shard, version.number);
        }
        let mut floor = self.floor(shard);
        if let Some(lowest) = self.lowest_pend(shard)
            && !mutation::is(Mutation::FloorOverPends)
        {
            floor = floor.min(lowest - 1);
        }
        // Otherwise the member asks again.
        if floor >= version.number || !is_of_epoch {
            send(cx, from, key, Body::Bury { version, floor });
        }
    }

    /// The lowest number on its way in this shard.
    fn lowest_pend(&self, shard: Shard) -> Option<u64> {
        let lanes = self.lanes.of_shard(shard);
        lanes.filter_map(|(_, lane)| Some(lane.pend.as_ref()?.version.number)).min()
    }

    /// True if the head's register is this tombstone, which no command needs, or gone already.
    fn is_spent(&self, cx: &Cx<'_, '_>, key: &Key, version: Version) -> bool {
        match cx.cache.get(key) {
            CachedRegister::Absent => true,
            CachedRegister::Lost => false,
            CachedRegister::Present(held) => {
                let is_it = is_tombstone(held) && held.version == version;
                let is_needed = held.ran.iter().any(|ran| self.may_come_again(cx, ran));
                is_it && (!is_needed || mutation::is(Mutation::BuryNames))
            }
        }
    }

    pub(super) fn on_bury(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: NodeId,
        key: &Key,
        (version, floor): (Version, u64),
    ) {
        if chain::head(cx) != Some(from) {
            return;
        }
        self.raise_floor(key.shard(), floor);
        let CachedRegister::Present(held) = cx.cache.get(key) else { return };
        let is_it = is_tombstone(held) && held.version == version;
        if is_it && cx.me().role == Role::Full && !self.lanes.has(key) {
            sometimes!("the register of a deleted key is removed");
            cx.cache.remove(key);
            self.ends.forget(key);
        }
    }
}

/// True for a deletion that every member holds.
pub(super) fn is_tombstone(register: &Register) -> bool {
    register.is_clean && register.content.is_empty()
}
