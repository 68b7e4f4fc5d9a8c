//! Shard scans: for a client's listing, for this replica's recovery, and for other replicas.

use base::Nanos;
use bytes::Bytes;
use types::{Key, NodeId, Outcome, Shard, Tag, Ticket};

use super::message::{Message, PAGE_ENTRIES_MAX, PageEntry, Reported, Version};
use super::operation::Kind;
use super::paging::{NewestReport, Purpose, Walk};
use super::{Abd, Cx, RESEND_FIRST, RESEND_MAX, Register, Served, store};
use crate::effects::Scan;
use crate::protocol::{Scanned, ScannedRegister};
use crate::register_cache::CachedRegister;

/// Registers recovered one by one at a time. Others wait until they are asked for again.
const RECOVERIES_MAX: usize = 4_096;
/// Shards scanned at a time.
const SHARDS_AT_ONCE: usize = 16;
/// Pages read for others at a time. Others wait until they are asked for again.
const SCANS_MAX: usize = 1_024;
const RECOVERY_PAGE: u32 = 256;
const LISTING_PAGE_MAX: u32 = 1_024;
/// A page is cut where its values exceed this.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// Listing and recovery.
impl Abd {
    pub(super) fn on_list(&mut self, cx: &mut Cx<'_>, tag: Tag, from_hash: u64, limit: usize) {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, LISTING_PAGE_MAX);
        let deadline = cx.now + self.env.request_timeout;
        self.walk(cx, Walk::new(Purpose::List { tag }, from_hash, limit, deadline));
    }

    pub(super) fn walk(&mut self, cx: &mut Cx<'_>, mut walk: Walk) {
        walk.resend_at = cx.now + RESEND_FIRST;
        let id = self.next_id();
        self.due.insert((walk.resend_at.min(walk.deadline), id));
        ask_pages(cx, id, &walk);
        self.walks.insert(id, walk);
    }

    pub(super) fn remove_walk(&mut self, id: u64) -> Option<Walk> {
        let walk = self.walks.remove(&id)?;
        self.due.remove(&(walk.resend_at.min(walk.deadline), id));
        Some(walk)
    }

    pub(super) fn on_page_asked(
        &mut self,
        cx: &mut Cx<'_>,
        to: NodeId,
        op: u64,
        from_hash: u64,
        limit: u32,
        want_values: bool,
    ) {
        let shard = Shard((from_hash >> 56) as u8);
        if cx.cache.is_forgotten(shard) || self.scans.len() >= SCANS_MAX {
            return;
        }
        let id = self.next_id();
        self.scans.insert(id, Served { to, op, from_hash, want_values });
        cx.fx.scan(Scan { id, from_hash, limit: limit.min(LISTING_PAGE_MAX) as usize });
    }

    pub(super) fn on_scanned(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        let Some(served) = self.scans.remove(&scanned.id) else { return };
        let Served { to, op, from_hash, want_values } = served;
        if cx.cache.is_forgotten(Shard((from_hash >> 56) as u8)) {
            return;
        }
        let mut entries: Vec<PageEntry> = Vec::with_capacity(scanned.records.len());
        let mut next_hash = scanned.next_hash;
        let mut after = Ticket::DURABLE;
        let mut len = 0;
        for (key, found) in scanned.records {
            let ScannedRegister::Present(register) = found else {
                // A page must not skip a forgotten register. Recover it; the requester retries.
                let query = Message::Query { op: 0, key, want_value: false };
                return cx.fx.send_now(cx.replicas.me(), query);
            };
            len += key.bytes().len() + register.value.as_ref().map_or(0, Bytes::len);
            let is_same_hash = entries.last().is_some_and(|last| last.key.hash() == key.hash());
            let is_full = len > PAGE_BYTES_MAX || entries.len() + 64 > PAGE_ENTRIES_MAX;
            if is_full && !entries.is_empty() && !is_same_hash {
                next_hash = Some(key.hash());
                break;
            }
            after = after.max(cx.cache.ticket(&key));
            let value = register.report(want_values);
            entries.push(PageEntry { key, version: register.version, value });
        }
        cx.fx.send(to, Message::Page { op, from_hash, entries, next_hash }, after);
    }

    pub(super) fn settle_walk(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        let Some(merged) = walk.merged(cx.replicas) else { return };
        match walk.purpose {
            Purpose::List { tag } => {
                let is_there = |found: &NewestReport| found.value != Reported::Nothing;
                let (settled, undecided): (Vec<_>, Vec<_>) = (merged.registers.into_iter())
                    .partition(|(_, found)| cx.replicas.set.is_quorum_of(found.holders));
                let keys = settled.into_iter().filter(|(_, found)| is_there(found));
                let keys = keys.map(|(key, _)| key).collect();
                let undecided = undecided.into_iter().map(|(key, _)| key).collect();
                let next_hash = merged.next_hash;
                cx.fx.reply(tag, Outcome::Listed { keys, undecided, next_hash });
                self.remove_walk(id);
            }
            Purpose::Recover { .. } => {
                walk.next_hash = merged.next_hash;
                walk.adopting = Some(merged.registers.len());
                if merged.registers.is_empty() {
                    return self.on_adopted(cx, id);
                }
                for (key, NewestReport { version, value, .. }) in merged.registers {
                    let value = match value {
                        Reported::Value(value) => Some(value),
                        Reported::Nothing | Reported::Omitted => None,
                    };
                    cx.fx
                        .send_now(cx.replicas.me(), Message::Adopt { op: id, key, version, value });
                }
            }
        }
    }

    pub(super) fn on_adopt(
        &mut self,
        cx: &mut Cx<'_>,
        op: u64,
        key: &Key,
        version: Version,
        value: Option<Bytes>,
    ) {
        // A later amnesia removes the operation and makes its answers worthless.
        if !self.ops.contains_key(&op) && !self.walks.contains_key(&op) {
            return;
        }
        match cx.cache.get(key) {
            CachedRegister::Present(_) => store(cx, key, version, value),
            CachedRegister::Lost
                if version == Version::NONE && !cx.cache.is_forgotten(key.shard()) =>
            {
                cx.cache.remove(key);
            }
            // In a forgotten shard an empty register marks a key that was never written.
            CachedRegister::Lost | CachedRegister::Absent => {
                cx.cache.put(key, Register { version, value });
                cx.cache.persist(key);
            }
        }
        if self.remove(op).is_some() {
            self.recovering.remove(key);
        }
        if let Some(walk) = self.walks.get_mut(&op)
            && let Some(adopting) = &mut walk.adopting
        {
            *adopting = adopting.saturating_sub(1);
            walk.adopted_after = walk.adopted_after.max(cx.cache.ticket(key));
            if *adopting == 0 {
                let adopted = Message::Adopted { op, from_hash: walk.from_hash };
                cx.fx.send(cx.replicas.me(), adopted, walk.adopted_after);
            }
        }
    }

    /// A page is adopted, durably.
    pub(super) fn on_adopted(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(walk) = self.remove_walk(id) else { return };
        let Purpose::Recover { shard } = walk.purpose else { return };
        match walk.next_hash {
            Some(next_hash) => {
                self.walk(cx, Walk::new(walk.purpose, next_hash, RECOVERY_PAGE, Nanos::MAX));
            }
            None => {
                cx.fx.recovered(shard);
                self.walk_forgotten(cx);
            }
        }
    }

    /// Recovers one register on demand. [DISC 2017]
    pub(super) fn recover(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.recovering.contains_key(key) || self.recovering.len() >= RECOVERIES_MAX {
            return;
        }
        let id = self.start(cx, key.clone(), Kind::Recover, Nanos::MAX);
        self.recovering.insert(key.clone(), id);
    }

    /// Recoveries in this shard start anew, since its registers are forgotten again.
    pub(super) fn on_forgotten(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let keys: Vec<(Key, u64)> = (self.recovering.iter())
            .filter(|(key, _)| key.shard() == shard)
            .map(|(key, &id)| (key.clone(), id))
            .collect();
        for (key, id) in keys {
            self.recovering.remove(&key);
            self.remove(id);
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

    pub(super) fn walk_forgotten(&mut self, cx: &mut Cx<'_>) {
        let is_recovery = |walk: &&Walk| matches!(walk.purpose, Purpose::Recover { .. });
        while self.walks.values().filter(is_recovery).count() < SHARDS_AT_ONCE {
            let Some(shard) = self.forgotten.pop_first() else { return };
            let purpose = Purpose::Recover { shard };
            self.walk(cx, Walk::new(purpose, shard.first_hash(), RECOVERY_PAGE, Nanos::MAX));
        }
    }

    pub(super) fn on_walk_due(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        if walk.deadline <= cx.now {
            if let Purpose::List { tag } = walk.purpose {
                cx.fx.reply(tag, Outcome::NoQuorum);
            }
            self.remove_walk(id);
            return;
        }
        walk.resend_at = cx.now + RESEND_MAX;
        self.due.insert((walk.resend_at.min(walk.deadline), id));
        match walk.adopting {
            None => ask_pages(cx, id, walk),
            // An amnesia of another shard drops all sends that wait for storage, also those to this
            // node. So this message is repeated, and a page without progress is fetched again.
            Some(0) => {
                let adopted = Message::Adopted { op: id, from_hash: walk.from_hash };
                cx.fx.send(cx.replicas.me(), adopted, walk.adopted_after);
            }
            Some(left) if left == walk.left_before => {
                let again = Walk::new(walk.purpose, walk.from_hash, walk.limit, walk.deadline);
                self.remove_walk(id);
                self.walk(cx, again);
            }
            Some(left) => walk.left_before = left,
        }
    }
}

fn ask_pages(cx: &mut Cx<'_>, id: u64, walk: &Walk) {
    for node in cx.replicas.all().filter(|&node| walk.lacks(cx.replicas, node)) {
        let Walk { from_hash, limit, .. } = *walk;
        let want_values = walk.wants_values();
        cx.fx.send_now(node, Message::List { op: id, from_hash, limit, want_values });
    }
}
