//! A shadow's copy of all registers, in pages from full members of its own epoch.
//!
//! The workers of a database have one page on its way at a time. After it they wait as long as it
//! took, so their copy takes at most half of a link. Every write of the epoch reaches the shadow by
//! itself, so the pages need not be of one moment.

use base::{Nanos, sometimes};
use bytes::Bytes;
use types::{Epoch, Key, Role, Shard, Wire};

use super::envelope::{Copy, Page};
use super::state::copying::{AskedPage, Copying};
use super::{COPY_DUE, Configured, Cx, Envelope, Installed, Member, MemberEvent, SCAN_TO_COPY};
use crate::effects::Scan;
use crate::group::GroupReport;
use crate::mutation::{self, Mutation};
use crate::protocol::{Peer, Scanned, ScannedRegister};
use crate::register_cache::CachedRegister;

/// Pages of a worker at a time: one on its way, others whose registers are being adopted.
const PAGES_MAX: usize = 4;
/// Registers of a page.
const PAGE_LEN: u32 = 512;
/// Bytes of a page's registers; one register may be longer.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// When a page that is not adopted is asked for again, elsewhere.
const PATIENCE: Nanos = Nanos::from_secs(1);
const PATIENCE_MAX: Nanos = Nanos::from_secs(60);
/// Pages that a member reads for shadows at a time.
const SERVED_MAX: usize = 64;

/// At the shadow.
impl<P: Member> Configured<P> {
    /// Begins the copy of the installed epoch if this node needs one.
    pub(super) fn begin_copy(&mut self, cx: &mut Cx<'_, P>) {
        self.copying =
            Copying { served: std::mem::take(&mut self.copying.served), ..Copying::default() };
        self.link.leave(cx.now);
        self.plan_copy(cx);
        let Some(installed) = &self.installed else { return };
        if installed.role != Some(Role::Shadow) {
            return;
        }
        let epoch = installed.configuration.epoch;
        if self.complete == Some(epoch) {
            return cx.fx.report(GroupReport::Copied { epoch });
        }
        self.copying.patience = PATIENCE;
        let own = (0..=u8::MAX).map(Shard).filter(|&shard| self.env.owns(shard));
        self.copying.to_do = own.map(Shard::first_hash).collect();
        self.copying.epoch = Some(epoch);
        self.copy_on(cx);
    }

    /// Asks for pages, up to the maximum; settles once all are adopted.
    fn copy_on(&mut self, cx: &mut Cx<'_, P>) {
        while let Some(entry) = self.copying.later.first_entry()
            && entry.key().0 <= cx.now
        {
            let ((_, from_hash), ()) = entry.remove_entry();
            self.copying.to_do.push_front(from_hash);
        }
        while self.has_room()
            && self.link.take(cx.now, cx.now + self.copying.patience)
            && let Some(from_hash) = self.copying.to_do.pop_front()
        {
            if !self.ask_page(cx, from_hash) {
                self.link.leave(cx.now);
                self.copying.later.insert((cx.now + PATIENCE, from_hash), ());
                break;
            }
        }
        let is_adopted = self.copying.pages.is_empty()
            && self.copying.later.is_empty()
            && self.copying.to_do.is_empty();
        if let Some(epoch) = self.copying.epoch
            && is_adopted
            && self.copying.settles_at <= cx.now
        {
            self.copying.settles_at = cx.now + PATIENCE;
            let after = match mutation::is(Mutation::CopiedBeforeDurable) {
                true => types::Ticket::DURABLE,
                false => self.copying.after,
            };
            cx.fx.send(cx.replicas.me(), Envelope::Settled { epoch }, after);
        }
        self.plan_copy(cx);
    }

    /// A page is to be asked for, and may be.
    fn has_room(&self) -> bool {
        let pages = self.copying.pages.len() + self.copying.later.len();
        !self.copying.to_do.is_empty() && pages < PAGES_MAX
    }

    fn plan_copy(&mut self, cx: &mut Cx<'_, P>) {
        let pages = self.copying.pages.values().map(|page| page.due);
        let later = self.copying.later.first_key_value().map(|(&(at, _), ())| at);
        let settles = self.copying.epoch.map(|_| self.copying.settles_at);
        let settles = settles.filter(|&at| at > cx.now);
        let link = self.has_room().then(|| self.link.look_at(cx.now)).flatten();
        let all = pages.chain(later).chain(settles).chain(link).chain(self.erasing.due());
        let Some(at) = all.min() else { return };
        if self.copying.due.is_none_or(|due| at < due) {
            self.copying.due = Some(at);
            cx.fx.timer(COPY_DUE, at);
        }
    }

    /// Plans the next look at erasing.
    pub(super) fn plan_erase(&mut self, cx: &mut Cx<'_, P>) {
        self.plan_copy(cx);
    }

    fn ask_page(&mut self, cx: &mut Cx<'_, P>, from_hash: u64) -> bool {
        let Some(epoch) = self.copying.epoch else { return true };
        let id = self.passing.next_id();
        // Another one for every attempt.
        let Some(donor) = self.full_member(cx, id) else { return false };
        let page = AskedPage {
            from_hash,
            donor,
            asked_at: cx.now,
            due: cx.now + self.copying.patience,
            left: None,
            next_hash: None,
        };
        self.copying.pages.insert(id, page);
        cx.fx.send_now(donor, Envelope::Copy(Copy { epoch, id, from_hash, limit: PAGE_LEN }));
        true
    }

    pub(super) fn on_copy_due(&mut self, cx: &mut Cx<'_, P>) {
        if self.copying.due.is_none_or(|due| due > cx.now) {
            return;
        }
        self.copying.due = None;
        let now = cx.now;
        let late = self.copying.pages.extract_if(.., |_, page| page.due <= now);
        let late: Vec<AskedPage> = late.map(|(_, page)| page).collect();
        if !late.is_empty() {
            // The link or the disk may need longer for large registers.
            self.copying.patience = Nanos(2 * self.copying.patience.0).min(PATIENCE_MAX);
        }
        if late.iter().any(|page| page.left.is_none()) {
            self.link.leave(cx.now);
        }
        for AskedPage { from_hash, .. } in late {
            sometimes!("a page of a copy is asked for again");
            self.copying.to_do.push_front(from_hash);
        }
        self.copy_on(cx);
        self.erase_on(cx);
    }

    pub(super) fn on_page(&mut self, cx: &mut Cx<'_, P>, from: Peer, page: Page) {
        let Page { epoch, id, records, next_hash, .. } = page;
        if self.copying.epoch != Some(epoch) {
            return;
        }
        let Some(asked) = self.copying.pages.get_mut(&id) else { return };
        if asked.donor != from.node || asked.left.is_some() {
            return;
        }
        let took = cx.now.since(asked.asked_at);
        let least = Nanos(2 * took.0).clamp(PATIENCE, PATIENCE_MAX);
        self.copying.patience = Nanos(self.copying.patience.0 / 2).max(least);
        asked.left = Some(records.len());
        asked.next_hash = next_hash;
        // A page without registers has not used the link.
        self.link.leave(if records.is_empty() { cx.now } else { cx.now + took });
        let me = cx.replicas.me();
        for (key, record) in records {
            if self.env.owns(key.shard()) {
                cx.fx.send_now(me, Envelope::Adopt { epoch, id, key, record });
            } else {
                self.note_adopted(id);
            }
        }
        if self.copying.pages.get(&id).is_some_and(|page| page.left == Some(0)) {
            self.end_page(cx, id);
        }
        self.plan_copy(cx);
    }

    pub(super) fn on_adopt(
        &mut self,
        cx: &mut Cx<'_, P>,
        from: Peer,
        (epoch, id): (Epoch, u64),
        key: &Key,
        record: &Bytes,
    ) {
        if from.node != cx.replicas.me() || self.copying.epoch != Some(epoch) {
            return;
        }
        let Ok(copied) = P::Record::from_bytes(record) else { return };
        let merged = match cx.cache.get(key) {
            CachedRegister::Present(held) => P::merge(Some(held), copied, cx.uptime),
            CachedRegister::Absent | CachedRegister::Lost => P::merge(None, copied, cx.uptime),
        };
        if let Some(merged) = merged {
            cx.cache.put(key, merged);
            cx.cache.persist(key);
            let copied = MemberEvent::Copied { key: key.clone() };
            self.inside(cx, |member, cx| member.on(cx, copied));
        }
        // A register that was newer already may not be durable yet.
        self.copying.after = self.copying.after.max(cx.cache.ticket(key));
        self.note_adopted(id);
        if self.copying.pages.get(&id).is_some_and(|page| page.left == Some(0)) {
            self.end_page(cx, id);
        }
    }

    fn note_adopted(&mut self, id: u64) {
        if let Some(page) = self.copying.pages.get_mut(&id) {
            page.left = page.left.map(|left| left.saturating_sub(1));
        }
    }

    /// Every register of the page is adopted.
    fn end_page(&mut self, cx: &mut Cx<'_, P>, id: u64) {
        let Some(page) = self.copying.pages.remove(&id) else { return };
        let shard = page.from_hash >> 56;
        if let Some(next) = page.next_hash.filter(|next| next >> 56 == shard) {
            self.copying.to_do.push_front(next);
        }
        self.copy_on(cx);
    }

    /// All that was adopted is durable, or a register removed.
    pub(super) fn on_settled(&mut self, cx: &mut Cx<'_, P>, from: Peer, epoch: Epoch) {
        if from.node != cx.replicas.me() {
            return;
        }
        if epoch == Epoch(0) {
            return self.on_erased(cx);
        }
        let installed = self.installed.as_ref().map(|it| it.configuration.epoch);
        if self.copying.epoch == Some(epoch) && installed == Some(epoch) {
            self.copying.epoch = None;
            self.complete = Some(epoch);
            cx.fx.report(GroupReport::Copied { epoch });
        }
    }
}

/// At a full member.
impl<P: Member> Configured<P> {
    pub(super) fn on_copy(&mut self, cx: &mut Cx<'_, P>, from: Peer, copy: Copy) {
        let Some(Installed { configuration, .. }) = &self.installed else { return };
        let is_due = self.gives_copies(cx, copy);
        let is_member = configuration
            .member(from.node)
            .is_some_and(|member| member.incarnation == from.incarnation);
        if !is_due || !is_member || self.copying.served.len() >= SERVED_MAX {
            return;
        }
        let id = self.next_scan(SCAN_TO_COPY);
        cx.fx.scan(Scan { id, from_hash: copy.from_hash, limit: copy.limit as usize });
        self.copying.served.insert(id, (from.node, copy));
    }

    /// True for a full member of the shadow's epoch that has every register of the shard.
    fn gives_copies(&self, cx: &Cx<'_, P>, copy: Copy) -> bool {
        let Some(installed) = &self.installed else { return false };
        let is_full = installed.role == Some(Role::Full) || mutation::is(Mutation::CopyFromShadow);
        let has_all = !cx.cache.is_forgotten(Shard((copy.from_hash >> 56) as u8));
        is_full && !installed.is_sealed && has_all && installed.configuration.epoch == copy.epoch
    }

    pub(super) fn on_copied(&mut self, cx: &mut Cx<'_, P>, scanned: Scanned<P::Record>) {
        let Some((to, copy)) = self.copying.served.remove(&scanned.id) else { return };
        let is_lost =
            |(_, found): &(Key, ScannedRegister<P::Record>)| matches!(found, ScannedRegister::Lost);
        // The shadow asks another member.
        if !self.gives_copies(cx, copy) || scanned.records.iter().any(is_lost) {
            return;
        }
        let Copy { epoch, id, .. } = copy;
        let (mut records, mut bytes, mut next_hash) = (Vec::new(), 0, scanned.next_hash);
        for (key, found) in scanned.records {
            let ScannedRegister::Present(record) = found else { continue };
            let is_apart =
                records.last().is_none_or(|(last, _): &(Key, Bytes)| last.hash() != key.hash());
            if bytes >= PAGE_BYTES_MAX && is_apart {
                next_hash = Some(key.hash());
                break;
            }
            let record = Bytes::from(P::lend(record, cx.uptime, cx.unix).to_bytes());
            bytes += record.len();
            records.push((key, record));
        }
        let shard = Shard((copy.from_hash >> 56) as u8);
        cx.fx.send_now(to, Envelope::Page(Page { epoch, shard, id, records, next_hash }));
    }
}
