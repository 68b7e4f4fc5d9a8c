//! Recovery of a whole shard: lists what the others hold of it, in steps, and recovers each register that is listed.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::{Ballot, Key, NodeId, Shard};

use crate::cells::Cell;
use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::protocol::{Peer, Scanned};
use crate::replicas::{Places, Replicas};
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::message::{Due, Listing, Message};
use crate::rmwpaxos::register::Register;
use crate::rmwpaxos::services::listing::Listings;

const SHARDS_AT_ONCE: usize = 8;
const LISTING_STEP: u32 = 512;
/// A shard that has come no further for so long waits for what may never be, and others do not wait for it.
pub(crate) const STANDS_STILL_AFTER: Nanos = Nanos::from_secs(3);
/// Bytes of states that may be on their way here from each of the others: an eighth of what a link may hold.
const ASKED_LEN_MAX: usize = 8 << 20;
/// Registers that may be asked for, however short they are.
const ASKED_MAX: usize = SHARDS_AT_ONCE * LISTING_STEP as usize;

#[derive(Debug)]
pub(crate) struct ShardRecovery {
    id: u64,
    from_hash: u64,
    listings: Listings,
    floor_ballot: Ballot,
    floor_version: u64,
    /// Highest ballot number that any of the others has seen in the shard.
    number: u64,
    /// Listed and not begun, with the lengths of their states.
    pending: BTreeMap<Key, usize>,
    /// Begun and not known to be recovered.
    begun: BTreeMap<Key, usize>,
    /// Sum of their lengths.
    begun_len: usize,
    /// Begun in vain: a majority has lost them, as it seems. The shard cannot end before they are recovered, but nothing else
    /// waits for them.
    stuck: BTreeSet<Key>,
    /// The step's listing is complete; go on here when nothing is pending. `None` inside: the shard ends.
    next: Option<Option<u64>>,
    /// Where nothing that is stored is believed: reads what is held here of the range that is listed.
    own_scan: Option<u64>,
    progressed_at: Nanos,
    /// It waits for nothing but what a majority, which is there, has lost, as it seems.
    pub(crate) is_in_vain: bool,
    retry_at: Nanos,
    retries: u32,
}

impl ShardRecovery {
    fn wants(&self, key: &Key) -> bool {
        self.pending.contains_key(key) || self.begun.contains_key(key) || self.stuck.contains(key)
    }

    /// True when it was wanted.
    fn remove(&mut self, key: &Key) -> bool {
        if let Some(len) = self.begun.remove(key) {
            self.begun_len -= len;
            return true;
        }
        self.pending.remove(key).is_some() || self.stuck.remove(key)
    }

    /// The next of those that are listed, if that many bytes are enough for it.
    fn begin_next(&mut self, left: usize) -> Option<(Key, usize)> {
        let first = self.pending.first_entry().filter(|first| *first.get() <= left)?;
        let (key, len) = first.remove_entry();
        self.begun_len += len;
        self.begun.insert(key.clone(), len);
        Some((key, len))
    }

    /// Nothing else waits any more for those that were begun.
    fn pass_by_begun(&mut self) {
        self.begun_len = 0;
        self.stuck.extend(std::mem::take(&mut self.begun).into_keys());
    }

    /// The node has not listed its part of the step.
    fn lacks(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        self.next.is_none() && !self.listings.tally.has(replicas, node)
    }

    fn stands_still(&self, now: Nanos) -> bool {
        now.since(self.progressed_at) >= STANDS_STILL_AFTER
    }
}

impl RmwPaxos {
    /// A shard was found forgotten: list what the others hold of it. From the start where a recovery is under way:
    /// registers that it found whole may be among what is forgotten now.
    pub(crate) fn on_forgotten(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        if !cx.replicas.set.has_me() {
            // It held no register of the shard.
            (cx.metas.get_mut(shard).void, cx.metas.get_mut(shard).disbelieved) = (false, false);
            return cx.fx.recovered(shard);
        }
        if !mutation::is(Mutation::NoRecovery) {
            let is_recovered = self.recovery.shards.remove(&shard).is_none();
            if !is_recovered {
                base::sometimes!("a shard is forgotten again while it is recovered");
            }
            if self.recovery.waiting_shards.insert(shard) && is_recovered {
                self.void_answers(cx.now, shard);
            }
            self.start_shards(cx);
        }
    }

    fn start_shards(&mut self, cx: &mut Cx<'_>) {
        let going_on = self.recovery.shards.values().filter(|it| !it.is_in_vain).count();
        for _ in going_on..SHARDS_AT_ONCE {
            let Some(shard) = self.recovery.waiting_shards.pop_first() else { break };
            let recovery = ShardRecovery {
                id: self.next_id(),
                from_hash: shard.first_hash(),
                listings: Listings::default(),
                floor_ballot: Ballot::ZERO,
                floor_version: 0,
                number: 0,
                pending: BTreeMap::new(),
                begun: BTreeMap::new(),
                begun_len: 0,
                stuck: BTreeSet::new(),
                next: None,
                own_scan: None,
                progressed_at: cx.now,
                is_in_vain: false,
                retry_at: cx.now + self.round_trip.resend_after(0),
                retries: 0,
            };
            ask_listing(cx, shard, &recovery);
            self.recovery.shards.insert(shard, recovery);
        }
        self.arm_recovery(cx);
    }

    pub(crate) fn on_shard_listed(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        shard: Shard,
        id: u64,
        listing: Listing,
    ) {
        let scan = self.next_id();
        let Some(recovery) = self.recovery.shards.get_mut(&shard) else { return };
        if recovery.id != id || recovery.next.is_some() || from.node == self.env.me {
            return;
        }
        recovery.listings.add(cx.replicas, from, listing);
        if !cx.replicas.is_quorum(&recovery.listings.tally) {
            return;
        }
        for listing in recovery.listings.counted(cx.replicas) {
            recovery.floor_ballot = recovery.floor_ballot.max(listing.floor_ballot);
            recovery.floor_version = recovery.floor_version.max(listing.floor_version);
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
        self.go_on_with_shard(cx, shard);
    }

    /// True when the scan was for a recovery: what is held here and by none of the others is recovered, too, or what was
    /// removed would come back.
    pub(crate) fn on_disbelieved_scanned(
        &mut self,
        cx: &mut Cx<'_>,
        scanned: &mut Scanned<Register>,
    ) -> bool {
        let mut shards = self.recovery.shards.iter_mut();
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
        self.go_on_with_shard(cx, shard);
        true
    }

    /// Begins with as many of the listed registers, of any shard, as may be under way together; one always may.
    fn begin_listed(&mut self, cx: &mut Cx<'_>) {
        let shards = &mut self.recovery.shards;
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
                cx.fx.send_now(self.env.me, Message::Touch { key, due: Due::Recover });
                left -= 1;
                left_len = left_len.min(ASKED_LEN_MAX).saturating_sub(len);
            }
        }
    }

    /// Lists on, or ends, where nothing that was listed is left.
    fn go_on_with_shard(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        self.begin_listed(cx);
        let id = self.next_id();
        let Some(recovery) = self.recovery.shards.get_mut(&shard) else { return };
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
                recovery.retry_at = cx.now + self.round_trip.resend_after(0);
                ask_listing(cx, shard, recovery);
            }
            Some(None) if recovery.stuck.is_empty() => self.end_shard(cx, shard),
            Some(None) => {}
        }
    }

    /// The register is resident: recovered already, or begin.
    pub(crate) fn on_recover_due(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let recovery = self.recovery.shards.get(&key.shard());
        let is_wanted = recovery.is_some_and(|recovery| recovery.wants(key));
        let is_disbelieved = cx.metas.get(key.shard()).disbelieved && is_wanted;
        if is_disbelieved && matches!(cx.cells.get(key), Cell::Present(_)) {
            base::sometimes!("a register that may have gone back is recovered");
            cx.cells.lose(key);
            if self.recovery.keys.remove(key).is_some() {
                cx.cells.unpin(key);
            }
        }
        self.recover_if_lost(cx, key);
        if !matches!(cx.cells.get(key), Cell::Lost) {
            self.on_key_recovered(cx, key);
        }
    }

    pub(crate) fn on_key_recovered(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let shard = key.shard();
        let Some(recovery) = self.recovery.shards.get_mut(&shard) else { return };
        if recovery.remove(key) {
            recovery.progressed_at = cx.now;
            self.go_on_with_shard(cx, shard);
        }
    }

    /// Every register that the others hold is recovered; the floors stand for the rest.
    fn end_shard(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let Some(recovery) = self.recovery.shards.remove(&shard) else { return };
        base::sometimes!("a forgotten shard is recovered");
        let meta = cx.metas.get_mut(shard);
        meta.floor_ballot = meta.floor_ballot.max(recovery.floor_ballot);
        meta.floor_version = meta.floor_version.max(recovery.floor_version);
        meta.saw(recovery.floor_ballot);
        if meta.void {
            // Whatever completed phase 1 with this node's promise was seen by one of the others that answered.
            base::sometimes!("lost shard fields are recovered");
            (meta.void, meta.disbelieved) = (false, false);
            meta.ceiling = meta.ceiling.max(recovery.number);
            meta.restart_floor =
                meta.restart_floor.max(Ballot::ceiling(cx.replicas.epoch(), recovery.number));
            meta.number = meta.number.max(recovery.number);
        }
        cx.metas.persist(shard);
        self.ranges.on_raised(cx, shard);
        self.void_answers(cx.now, shard);
        cx.fx.recovered(shard);
        self.doubt(cx, shard, Places::MAX);
        self.start_shards(cx);
    }

    pub(crate) fn retry_shards(&mut self, cx: &mut Cx<'_>) {
        for (&shard, recovery) in &mut self.recovery.shards {
            if recovery.retry_at > cx.now {
                continue;
            }
            recovery.retries += 1;
            recovery.retry_at = cx.now + self.round_trip.resend_after(recovery.retries);
            let replicas = cx.replicas_of(shard);
            for node in replicas.others().filter(|&node| recovery.lacks(replicas, node)) {
                ask_listing_of(cx, node, shard, recovery);
            }
            for key in recovery.begun.keys().chain(&recovery.stuck).cloned() {
                cx.fx.send_now(self.env.me, Message::Touch { key, due: Due::Recover });
            }
        }
        self.pass_by_what_stands_still(cx);
    }

    /// What nobody answers though a majority is there may be lost for good: the shard goes on with the rest.
    fn pass_by_what_stands_still(&mut self, cx: &mut Cx<'_>) {
        let is_enough_up = |shard: Shard| majority_is_up(cx.replicas_of(shard));
        for (&shard, recovery) in &mut self.recovery.shards {
            let has_more = !recovery.pending.is_empty() || !recovery.begun.is_empty();
            recovery.is_in_vain = !has_more && recovery.stands_still(cx.now) && is_enough_up(shard);
        }
        let still = self.recovery.shards.iter_mut().filter(|(_, it)| it.stands_still(cx.now));
        let mut passed = Vec::new();
        let still = still.filter(|(shard, it)| !it.begun.is_empty() && is_enough_up(**shard));
        for (&shard, recovery) in still {
            recovery.pass_by_begun();
            recovery.progressed_at = cx.now;
            passed.push(shard);
        }
        for shard in passed {
            self.go_on_with_shard(cx, shard);
        }
        self.begin_listed(cx);
        self.start_shards(cx);
    }

    pub(crate) fn ask_returned_for_shards(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let replicas_of = cx.by_shard();
        let is_missing = |shard: Shard, it: &ShardRecovery| {
            let replicas = replicas_of(shard);
            replicas.index(node).is_some() && it.lacks(replicas, node)
        };
        let shards = self.recovery.shards.iter();
        for (&shard, recovery) in shards.filter(|(shard, it)| is_missing(**shard, it)) {
            ask_listing_of(cx, node, shard, recovery);
        }
    }
}

/// Enough others are there to recover from.
pub(crate) fn majority_is_up(replicas: Replicas<'_>) -> bool {
    replicas.set.is_quorum_of(replicas.other_places(|member| member.up))
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
