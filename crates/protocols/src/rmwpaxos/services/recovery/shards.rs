//! Recovery of a whole shard: lists the others' registers in steps, and recovers each of them.

use std::collections::{BTreeMap, BTreeSet};

use types::{Ballot, Key, NodeId, Shard};

use super::keys::Recovery;
use super::shard::{ShardRecovery, majority_is_up};
use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::protocol::{Peer, Scanned};
use crate::register_cache::CachedRegister;
use crate::replicas::Places;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::message::{Due, Listing, Message};
use crate::rmwpaxos::record::fences::Fences;
use crate::rmwpaxos::record::register::Register;
use crate::rmwpaxos::services::anti_entropy::ranges::Ranges;
use crate::rmwpaxos::services::listing::Listings;

const SHARDS_AT_ONCE: usize = 8;
const LISTING_STEP: u32 = 512;
/// Bytes of states in flight from each other member: an eighth of a link's capacity.
const ASKED_LEN_MAX: usize = 8 << 20;
/// Registers in flight, however short they are.
const ASKED_MAX: usize = SHARDS_AT_ONCE * LISTING_STEP as usize;

impl Recovery {
    /// Starts the recovery of a forgotten shard by listing the others' registers. Restarts one in
    /// progress, because registers that it found whole may be forgotten now.
    pub(crate) fn on_forgotten(&mut self, core: &mut Core, cx: &mut Cx<'_>, shard: Shard) {
        if !cx.replicas.set.has_me() {
            return core.end_loss_outside(cx, shard);
        }
        if !mutation::is(Mutation::NoRecovery) {
            let is_recovered = self.shards.remove(&shard).is_none();
            if !is_recovered {
                base::sometimes!("a shard is forgotten again while it is recovered");
            }
            if self.waiting_shards.insert(shard) && is_recovered {
                self.void_answers(core, cx.now, shard);
            }
            self.start_shards(core, cx);
        }
    }

    fn start_shards(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let going_on = self.shards.values().filter(|it| !it.is_in_vain).count();
        for _ in going_on..SHARDS_AT_ONCE {
            let Some(shard) = self.waiting_shards.pop_first() else { break };
            let recovery = ShardRecovery {
                id: core.next_id(),
                from_hash: shard.first_hash(),
                listings: Listings::default(),
                floor_ballot: Ballot::ZERO,
                floor_version: 0,
                fences: Fences::default(),
                number: 0,
                pending: BTreeMap::new(),
                begun: BTreeMap::new(),
                begun_len: 0,
                stuck: BTreeSet::new(),
                next: None,
                own_scan: None,
                progressed_at: cx.now,
                is_in_vain: false,
                retry_at: cx.now + core.round_trip().resend_after(0),
                retries: 0,
            };
            ask_listing(cx, shard, &recovery);
            self.shards.insert(shard, recovery);
        }
        self.arm(cx);
    }

    pub(crate) fn on_listed(
        &mut self,
        (core, ranges): (&mut Core, &mut Ranges),
        cx: &mut Cx<'_>,
        from: Peer,
        (shard, id): (Shard, u64),
        listing: Listing,
    ) {
        let scan = core.next_id();
        let Some(recovery) = self.shards.get_mut(&shard) else { return };
        if recovery.id != id || recovery.next.is_some() || from.node == core.me() {
            return;
        }
        recovery.listings.add(cx.replicas, from, listing);
        if !cx.replicas.is_quorum(&recovery.listings.tally) {
            return;
        }
        for listing in recovery.listings.counted(cx.replicas) {
            recovery.floor_ballot = recovery.floor_ballot.max(listing.floor_ballot);
            recovery.floor_version = recovery.floor_version.max(listing.floor_version);
            recovery.fences.merge(&listing.fences);
            recovery.number = recovery.number.max(listing.number);
        }
        recovery.progressed_at = cx.now;
        recovery.next = Some(recovery.listings.complete_below(cx.replicas));
        let merged = recovery.listings.merged(cx.replicas).into_iter();
        recovery.pending = merged.map(|(key, found)| (key, found.state_len)).collect();
        if cx.metas.get(shard).disbelieved {
            recovery.own_scan = Some(scan);
            let from_hash = recovery.from_hash;
            return cx.fx.scan(Scan { id: scan, from_hash, limit: LISTING_STEP as usize });
        }
        self.go_on_with_shard(core, ranges, cx, shard);
    }

    /// True if the scan was for a recovery. Registers that only this node holds are recovered, too.
    /// Otherwise removed ones would come back.
    pub(crate) fn on_scanned(
        &mut self,
        core: &mut Core,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        scanned: &mut Scanned<Register>,
    ) -> bool {
        let mut shards = self.shards.iter_mut();
        let found = shards.find(|(_, recovery)| recovery.own_scan == Some(scanned.id));
        let Some((&shard, recovery)) = found else { return false };
        cx.about(shard);
        let listed_until = recovery.next.flatten();
        let until = [listed_until, scanned.next_hash].into_iter().flatten().min();
        let is_below = |key: &Key| until.is_none_or(|until| key.hash() < until);
        let own = std::mem::take(&mut scanned.records).into_iter().map(|(key, _)| key);
        recovery.own_scan = None;
        recovery.next = Some(until);
        for key in own {
            recovery.pending.entry(key).or_default();
        }
        recovery.pending.retain(|key, _| is_below(key));
        self.go_on_with_shard(core, ranges, cx, shard);
        true
    }

    /// Starts as many listed registers as may be in flight together, of any shard. At least one.
    fn begin_listed(&mut self, cx: &mut Cx<'_>) {
        let shards = &mut self.shards;
        let begun: usize = shards.values().map(|recovery| recovery.begun.len()).sum();
        let begun_len: usize = shards.values().map(|recovery| recovery.begun_len).sum();
        let mut left = ASKED_MAX.saturating_sub(begun);
        let mut left_len = ASKED_LEN_MAX.saturating_sub(begun_len);
        if begun == 0 {
            left_len = usize::MAX;
        }
        for recovery in shards.values_mut().filter(|recovery| recovery.own_scan.is_none()) {
            while left > 0 {
                let Some((key, len)) = recovery.begin_next(left_len) else { break };
                cx.fx.send_now(cx.replicas.me(), Message::Touch { key, due: Due::Recover });
                left -= 1;
                left_len = left_len.min(ASKED_LEN_MAX).saturating_sub(len);
            }
        }
    }

    /// Lists the next range once all listed registers are recovered, or ends the shard.
    fn go_on_with_shard(
        &mut self,
        core: &mut Core,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        shard: Shard,
    ) {
        self.begin_listed(cx);
        let id = core.next_id();
        let Some(recovery) = self.shards.get_mut(&shard) else { return };
        let is_left = !recovery.pending.is_empty() || !recovery.begun.is_empty();
        if is_left || recovery.own_scan.is_some() {
            return;
        }
        match recovery.next {
            None => {}
            Some(Some(next_hash)) => {
                recovery.progressed_at = cx.now;
                recovery.id = id;
                recovery.from_hash = next_hash;
                recovery.next = None;
                recovery.listings = Listings::default();
                recovery.retries = 0;
                recovery.retry_at = cx.now + core.round_trip().resend_after(0);
                ask_listing(cx, shard, recovery);
            }
            Some(None) if recovery.stuck.is_empty() => self.end_shard(core, ranges, cx, shard),
            Some(None) => {}
        }
    }

    /// The register is resident: starts its recovery unless that has ended.
    pub(crate) fn on_due(
        &mut self,
        core: &mut Core,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        key: &Key,
    ) {
        let recovery = self.shards.get(&key.shard());
        let is_wanted = recovery.is_some_and(|recovery| recovery.wants(key));
        let is_disbelieved = cx.metas.get(key.shard()).disbelieved && is_wanted;
        if is_disbelieved && core.disbelieve(cx, key) {
            base::sometimes!("a register that may have gone back is recovered");
            if self.keys.remove(key).is_some() {
                cx.cache.unpin(key);
            }
        }
        self.begin_if_lost(core, cx, key);
        if !matches!(cx.cache.get(key), CachedRegister::Lost) {
            self.on_key_recovered(core, ranges, cx, key);
        }
    }

    pub(super) fn on_key_recovered(
        &mut self,
        core: &mut Core,
        ranges: &mut Ranges,
        cx: &mut Cx<'_>,
        key: &Key,
    ) {
        let shard = key.shard();
        let Some(recovery) = self.shards.get_mut(&shard) else { return };
        if recovery.remove(key) {
            recovery.progressed_at = cx.now;
            self.go_on_with_shard(core, ranges, cx, shard);
        }
    }

    /// All registers of the others are recovered. The floors cover the rest.
    fn end_shard(&mut self, core: &mut Core, ranges: &mut Ranges, cx: &mut Cx<'_>, shard: Shard) {
        let Some(recovery) = self.shards.remove(&shard) else { return };
        base::sometimes!("a forgotten shard is recovered");
        let floors = (recovery.floor_ballot, recovery.floor_version);
        core.end_loss(cx, shard, floors, (&recovery.fences, recovery.number));
        ranges.on_raised(cx, shard);
        self.void_answers(core, cx.now, shard);
        ranges.doubt(cx, shard, Places::MAX);
        self.start_shards(core, cx);
    }

    pub(super) fn retry_shards(&mut self, core: &mut Core, ranges: &mut Ranges, cx: &mut Cx<'_>) {
        for (&shard, recovery) in &mut self.shards {
            if recovery.retry_at > cx.now {
                continue;
            }
            recovery.retries += 1;
            recovery.retry_at = cx.now + core.round_trip().resend_after(recovery.retries);
            let replicas = cx.replicas_of(shard);
            for node in replicas.others().filter(|&node| recovery.lacks(replicas, node)) {
                ask_listing_of(cx, node, shard, recovery);
            }
            for key in recovery.begun.keys().chain(&recovery.stuck).cloned() {
                cx.fx.send_now(cx.replicas.me(), Message::Touch { key, due: Due::Recover });
            }
        }
        self.pass_by_stuck_registers(core, ranges, cx);
    }

    /// Passes over registers without an answer although a majority is up. They may be lost for
    /// good; the shard continues with the rest.
    fn pass_by_stuck_registers(&mut self, core: &mut Core, ranges: &mut Ranges, cx: &mut Cx<'_>) {
        let is_enough_up = |shard: Shard| majority_is_up(cx.replicas_of(shard));
        for (&shard, recovery) in &mut self.shards {
            let has_more = !recovery.pending.is_empty() || !recovery.begun.is_empty();
            recovery.is_in_vain = !has_more && recovery.stands_still(cx.now) && is_enough_up(shard);
        }
        let still = self.shards.iter_mut().filter(|(_, it)| it.stands_still(cx.now));
        let mut passed = Vec::new();
        let still = still.filter(|(shard, it)| !it.begun.is_empty() && is_enough_up(**shard));
        for (&shard, recovery) in still {
            recovery.pass_by_begun();
            recovery.progressed_at = cx.now;
            passed.push(shard);
        }
        for shard in passed {
            self.go_on_with_shard(core, ranges, cx, shard);
        }
        self.begin_listed(cx);
        self.start_shards(core, cx);
    }

    pub(super) fn ask_returned_for_shards(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let replicas_of = cx.by_shard();
        let is_missing = |shard: Shard, it: &ShardRecovery| {
            let replicas = replicas_of(shard);
            replicas.index(node).is_some() && it.lacks(replicas, node)
        };
        let shards = self.shards.iter();
        for (&shard, recovery) in shards.filter(|(shard, it)| is_missing(**shard, it)) {
            ask_listing_of(cx, node, shard, recovery);
        }
    }
}

fn ask_listing(cx: &mut Cx<'_>, shard: Shard, recovery: &ShardRecovery) {
    for node in cx.replicas_of(shard).others() {
        ask_listing_of(cx, node, shard, recovery);
    }
}

fn ask_listing_of(cx: &mut Cx<'_>, node: NodeId, shard: Shard, recovery: &ShardRecovery) {
    let (id, from_hash) = (recovery.id, recovery.from_hash);
    cx.fx.send_now(node, Message::List { shard, id, from_hash, limit: LISTING_STEP });
}
