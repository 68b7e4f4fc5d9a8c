//! Pages of a shard: for a client's listing, and for other replicas.

use std::collections::BTreeMap;

use types::{Key, NodeId, Outcome, Shard, Tag};

use super::machine::{Alarm, Cx, Machine};
use super::message::{Body, Message};
use super::register::{Register, Report};
use super::reports::{Decision, decide};
use crate::effects::Scan;
use crate::protocol::{Peer, Scanned};
use crate::toolkit::back_off::{RESEND_FIRST, RESEND_MAX};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::pages::{Asked, LISTING_PAGE_MAX, cut};
use crate::toolkit::walk::{Merged, Overdue, Page, Purpose, Walk};

impl Machine {
    pub(super) fn on_list(&mut self, cx: &mut Cx<'_>, tag: Tag, from_hash: u64, limit: usize) {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, LISTING_PAGE_MAX);
        let deadline = cx.now + self.env.request_timeout;
        self.walk(cx, Walk::new(Purpose::List { tag }, from_hash, limit, deadline));
    }

    pub(super) fn walk(&mut self, cx: &mut Cx<'_>, walk: Walk<Report>) {
        let id = self.next_id();
        cx.about(Shard((walk.from_hash >> 56) as u8));
        ask_pages(cx, id, &walk);
        self.due.set(Alarm::Walk(id), (cx.now + RESEND_FIRST).min(walk.deadline));
        self.walks.insert(id, walk);
    }

    pub(super) fn remove_walk(&mut self, id: u64) -> Option<Walk<Report>> {
        self.due.clear(&Alarm::Walk(id));
        self.walks.remove(&id)
    }

    pub(super) fn on_page_asked(
        &mut self,
        cx: &mut Cx<'_>,
        (to, walk): (NodeId, u64),
        from_hash: u64,
        limit: u32,
        want_values: bool,
    ) {
        let shard = Shard((from_hash >> 56) as u8);
        let id = self.next_id();
        if cx.replicas.set.has_me()
            && !cx.cache.is_forgotten(shard)
            && self.serving.begin(id, Asked { to, walk, from_hash, want_values })
        {
            cx.fx.scan(Scan { id, from_hash, limit: limit.min(LISTING_PAGE_MAX) as usize });
        }
    }

    pub(super) fn on_scanned(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        let Some(asked) = self.serving.end(scanned.id) else { return };
        let Asked { to, walk, from_hash, want_values } = asked;
        if cx.cache.is_forgotten(Shard((from_hash >> 56) as u8)) {
            return;
        }
        let (uptime, unix) = (cx.uptime, cx.unix);
        let entry = |_: &Key, register: &Register| {
            let report = register.report(uptime, unix);
            if want_values { report } else { report.without_values() }
        };
        let cache = &cx.cache;
        match cut(scanned, Register::value_len, |key| cache.ticket(key), entry) {
            Ok(page) => {
                let (entries, next_hash) = (page.entries, page.next_hash);
                let message = Message::Page { id: walk, from_hash, entries, next_hash };
                cx.fx.send(to, message, page.after);
            }
            // Recover it; the requester asks again.
            Err(key) => {
                let read = Message::About { id: 0, key, body: Body::Read };
                cx.fx.send_now(cx.replicas.me(), read);
            }
        }
    }

    pub(super) fn on_page(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        id: u64,
        from_hash: u64,
        page: Page<Report>,
    ) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        if walk.from_hash != from_hash || walk.recovering.is_some() {
            return;
        }
        walk.add(cx.replicas, (from.node, from.amnesia), page);
        let Some(merged) = walk.merged(cx.replicas) else { return };
        match walk.purpose {
            Purpose::List { tag } => {
                self.remove_walk(id);
                answer_listing(cx, tag, merged);
            }
            Purpose::Recover { .. } => self.recover_page(cx, id, merged),
        }
    }

    pub(super) fn on_walk_due(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(walk) = self.walks.get_mut(&id) else { return };
        cx.about(Shard((walk.from_hash >> 56) as u8));
        if walk.deadline <= cx.now {
            if let Purpose::List { tag } = walk.purpose {
                cx.fx.reply(tag, Outcome::NoQuorum);
            }
            self.remove_walk(id);
            return;
        }
        self.due.set(Alarm::Walk(id), (cx.now + RESEND_MAX).min(walk.deadline));
        match walk.overdue() {
            Overdue::Ask => ask_pages(cx, id, walk),
            Overdue::Finish => {
                let recovered = Message::Recovered { id, from_hash: walk.from_hash };
                cx.fx.send(cx.replicas.me(), recovered, walk.recovered_after);
            }
            Overdue::Restart => {
                let again = walk.again();
                self.remove_walk(id);
                self.walk(cx, again);
            }
            Overdue::Wait => {}
        }
    }
}

fn answer_listing(cx: &mut Cx<'_>, tag: Tag, merged: Merged<Report>) {
    let Merged { registers, counted, next_hash } = merged;
    let (mut keys, mut undecided) = (Vec::new(), Vec::new());
    for (key, reports) in registers {
        let reports: BTreeMap<usize, Report> = reports.into_iter().collect();
        let is_over = reports.values().any(|report| report.countdown == Countdown::Over);
        match decide(cx.replicas.set, counted, |index| reports.get(&index)) {
            Decision::Decided { base, .. } => match base.filter(|state| state.value.is_some()) {
                // A read of it has a quorum decide whether its time is over.
                Some(state) if state.expiry.is_some() && is_over => undecided.push(key),
                Some(_) => keys.push(key),
                None => {}
            },
            Decision::Undecided { .. } | Decision::Wait => undecided.push(key),
        }
    }
    cx.fx.reply(tag, Outcome::Listed { keys, undecided, next_hash });
}

fn ask_pages(cx: &mut Cx<'_>, id: u64, walk: &Walk<Report>) {
    for node in cx.replicas.all().filter(|&node| walk.lacks(cx.replicas, node)) {
        let (from_hash, limit, want_values) = (walk.from_hash, walk.limit, walk.is_recovery());
        cx.fx.send_now(node, Message::List { id, from_hash, limit, want_values });
    }
}
