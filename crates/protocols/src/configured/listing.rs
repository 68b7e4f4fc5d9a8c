//! Listings: a full member lists the keys of its own registers.

use types::{Key, NodeId, Outcome, Role, Shard, Tag};

use super::envelope::Listed;
use super::state::listings::{Requester, Wanted};
use super::{Configured, Cx, Envelope, Installed, Member, SCAN_TO_LIST};
use crate::effects::Scan;
use crate::protocol::{Peer, Scanned, ScannedRegister};

/// Listings in progress, each way; more end at once.
const LISTINGS_MAX: usize = 1 << 10;

impl<P: Member> Configured<P> {
    pub(super) fn on_list(&mut self, cx: &mut Cx<'_, P>, tag: Tag, from_hash: u64, limit: usize) {
        let deadline = cx.now + self.env.request_timeout;
        self.list(cx, Wanted { tag, from_hash, limit, deadline });
    }

    fn list(&mut self, cx: &mut Cx<'_, P>, wanted: Wanted) {
        if self.listings.len() >= LISTINGS_MAX || wanted.deadline <= cx.now {
            return cx.fx.reply(wanted.tag, Outcome::NoQuorum);
        }
        match &self.installed {
            Some(Installed { role: Some(Role::Full), .. }) if self.has_lease(cx) => {
                let Wanted { from_hash, limit, .. } = wanted;
                self.scan_to_list(cx, from_hash, limit, Requester::Client(wanted));
            }
            // The keys are scanned in vain without a lease.
            Some(Installed { role: Some(Role::Full), .. }) | None => self.wait_to_list(cx, wanted),
            Some(_) => self.pass_list(cx, wanted),
        }
    }

    fn wait_to_list(&mut self, cx: &mut Cx<'_, P>, wanted: Wanted) {
        self.listings.waiting.push(wanted);
        self.plan_retry(cx);
    }

    pub(super) fn retry_lists(&mut self, cx: &mut Cx<'_, P>) {
        for wanted in std::mem::take(&mut self.listings.waiting) {
            self.list(cx, wanted);
        }
    }

    fn pass_list(&mut self, cx: &mut Cx<'_, P>, wanted: Wanted) {
        let Some(to) = self.full_member(cx, wanted.from_hash >> 56) else {
            return self.wait_to_list(cx, wanted);
        };
        let id = self.passing.next_id();
        let Wanted { from_hash, limit, deadline, .. } = wanted;
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        cx.fx.send_now(to, Envelope::PassList { id, from_hash, limit });
        self.listings.sent.insert(id, (wanted, to));
        self.plan_passed(cx, deadline);
    }

    fn scan_to_list(
        &mut self,
        cx: &mut Cx<'_, P>,
        from_hash: u64,
        limit: usize,
        requester: Requester,
    ) {
        let id = self.next_scan(SCAN_TO_LIST);
        self.listings.scans.insert(id, requester);
        cx.fx.scan(Scan { id, from_hash, limit });
    }

    pub(super) fn on_pass_list(
        &mut self,
        cx: &mut Cx<'_, P>,
        from: Peer,
        id: u64,
        from_hash: u64,
        limit: u32,
    ) {
        let node = from.node;
        if !self.has_lease(cx) || self.listings.len() >= LISTINGS_MAX {
            let shard = Shard((from_hash >> 56) as u8);
            return cx.fx.send_now(node, Envelope::PassedList { shard, id, listed: None });
        }
        let shard = Shard((from_hash >> 56) as u8);
        self.scan_to_list(cx, from_hash, limit as usize, Requester::Node { node, shard, id });
    }

    pub(super) fn on_listed(&mut self, cx: &mut Cx<'_, P>, scanned: Scanned<P::Record>) {
        let Some(requester) = self.listings.scans.remove(&scanned.id) else { return };
        // Of a shard that lost registers some would be missing: the node is sealed then.
        let listed = self.has_lease(cx).then(|| listed::<P>(cx, scanned));
        match (requester, listed) {
            (Requester::Client(wanted), Some(Listed { keys, undecided, next_hash })) => {
                cx.fx.reply(wanted.tag, Outcome::Listed { keys, undecided, next_hash });
            }
            (Requester::Client(wanted), None) => self.wait_to_list(cx, wanted),
            (Requester::Node { node, shard, id }, listed) => {
                cx.fx.send_now(node, Envelope::PassedList { shard, id, listed });
            }
        }
    }

    pub(super) fn on_passed_list(
        &mut self,
        cx: &mut Cx<'_, P>,
        from: Peer,
        id: u64,
        listed: Option<Listed>,
    ) {
        if self.listings.sent.get(&id).is_none_or(|&(_, to)| to != from.node) {
            return;
        }
        let Some((wanted, _)) = self.listings.sent.remove(&id) else { return };
        match listed {
            Some(Listed { keys, undecided, next_hash }) => {
                cx.fx.reply(wanted.tag, Outcome::Listed { keys, undecided, next_hash });
            }
            None => self.wait_to_list(cx, wanted),
        }
    }

    pub(super) fn on_list_reset(&mut self, cx: &mut Cx<'_, P>, node: NodeId) {
        let lost = self.listings.sent.extract_if(.., |_, &mut (_, to)| to == node);
        let lost: Vec<Wanted> = lost.map(|(_, (wanted, _))| wanted).collect();
        for wanted in lost {
            self.wait_to_list(cx, wanted);
        }
    }

    pub(super) fn expire_lists(&mut self, cx: &mut Cx<'_, P>) {
        let now = cx.now;
        let over = self.listings.sent.extract_if(.., |_, (wanted, _)| wanted.deadline <= now);
        for (_, (wanted, _)) in over {
            cx.fx.reply(wanted.tag, Outcome::NoQuorum);
        }
    }

    /// This node may answer from its own state, which was taken just before.
    fn has_lease(&self, cx: &Cx<'_, P>) -> bool {
        let Some(installed) = &self.installed else { return false };
        let is_full = installed.role == Some(Role::Full) && !installed.is_sealed;
        is_full && cx.lease.holds(installed.configuration.epoch)
    }
}

fn listed<P: Member>(cx: &Cx<'_, P>, scanned: Scanned<P::Record>) -> Listed {
    let (mut keys, mut undecided): (Vec<Key>, Vec<Key>) = (Vec::new(), Vec::new());
    for (key, found) in scanned.records {
        match found {
            ScannedRegister::Present(record) => match P::is_live(&record, cx.uptime, cx.unix) {
                Some(true) => keys.push(key),
                Some(false) => {}
                None => undecided.push(key),
            },
            ScannedRegister::Lost => undecided.push(key),
        }
    }
    Listed { keys, undecided, next_hash: scanned.next_hash }
}
