//! Removal of all registers, before a node may join as a shadow.

use base::Nanos;
use types::{Epoch, ImageId, Key, Shard};

use super::state::erasing::{Erasing, Step};
use super::{Configured, Cx, Envelope, Member, SCAN_TO_ERASE};
use crate::effects::Scan;
use crate::group::GroupReport;
use crate::protocol::{Peer, Scanned};

/// Registers removed at a time.
const STEP: usize = 256;
/// When a step without progress is taken again.
const PATIENCE: Nanos = Nanos::from_secs(1);

impl<P: Member> Configured<P> {
    pub(super) fn on_erase(&mut self, cx: &mut Cx<'_, P>, image: ImageId) {
        self.leave_image(cx);
        self.member = P::open(self.env.clone());
        let shards = (0..=u8::MAX).map(Shard).filter(|&shard| self.env.owns(shard)).collect();
        // Removals of an erasure before may not be durable yet.
        let after = self.erasing.after;
        self.erasing = Erasing { image: Some(image), shards, after, ..Erasing::default() };
        self.next_shard(cx);
        self.release_parked(cx);
    }

    /// This process is no member with the image that begins.
    fn leave_image(&mut self, cx: &mut Cx<'_, P>) {
        self.end_membership(cx);
        if let Some(installed) = &mut self.installed {
            installed.role = None;
        }
        self.complete = None;
        self.is_loss_told = false;
        self.begin_copy(cx);
    }

    /// Registers were lost, and the node remembers durably that its image is not whole. So they may
    /// count as absent: the rest may be the best that an operator has.
    pub(super) fn on_keep(&mut self, cx: &mut Cx<'_, P>) {
        self.leave_image(cx);
        for shard in (0..=u8::MAX).map(Shard) {
            if self.env.owns(shard) && cx.cache.is_forgotten(shard) {
                cx.fx.recovered(shard);
            }
        }
        self.release_parked(cx);
    }

    /// A shard that was done may have been forgotten since.
    pub(super) fn erase_again(&mut self, cx: &mut Cx<'_, P>) {
        if let Some(image) = self.erasing.image {
            self.on_erase(cx, image);
        }
    }

    fn next_shard(&mut self, cx: &mut Cx<'_, P>) {
        match self.erasing.shards.front() {
            Some(shard) => self.erase_from(cx, shard.first_hash()),
            None => self.settle_erased(cx),
        }
    }

    fn settle_erased(&mut self, cx: &mut Cx<'_, P>) {
        self.erasing.due = cx.now + PATIENCE;
        let settled = Envelope::Settled { epoch: Epoch(0) };
        cx.fx.send(cx.replicas.me(), settled, self.erasing.after);
        self.plan_erase(cx);
    }

    fn erase_from(&mut self, cx: &mut Cx<'_, P>, from_hash: u64) {
        let scan = self.next_scan(SCAN_TO_ERASE);
        self.erasing.step = Some(Step { scan, from_hash, left: None, next_hash: None });
        self.erasing.due = cx.now + PATIENCE;
        cx.fx.scan(Scan { id: scan, from_hash, limit: STEP });
        self.plan_erase(cx);
    }

    /// Takes a step again that made no progress.
    pub(super) fn erase_on(&mut self, cx: &mut Cx<'_, P>) {
        if self.erasing.is_idle() || self.erasing.due > cx.now {
            return self.plan_erase(cx);
        }
        match &self.erasing.step {
            Some(step) => self.erase_from(cx, step.from_hash),
            None => self.settle_erased(cx),
        }
    }

    pub(super) fn on_erasable(&mut self, cx: &mut Cx<'_, P>, scanned: Scanned<P::Record>) {
        let Some(step) = &mut self.erasing.step else { return };
        if step.scan != scanned.id {
            return;
        }
        step.left = Some(scanned.records.len());
        step.next_hash = scanned.next_hash;
        for (key, _) in scanned.records {
            cx.fx.send_now(cx.replicas.me(), Envelope::Drop { scan: scanned.id, key });
        }
        self.end_step(cx);
    }

    pub(super) fn on_drop(&mut self, cx: &mut Cx<'_, P>, from: Peer, scan: u64, key: &Key) {
        let Some(step) = &mut self.erasing.step else { return };
        if from.node != cx.replicas.me() || step.scan != scan {
            return;
        }
        step.left = step.left.map(|left| left.saturating_sub(1));
        self.erasing.after = self.erasing.after.max(cx.cache.remove(key));
        self.end_step(cx);
    }

    fn end_step(&mut self, cx: &mut Cx<'_, P>) {
        let Some(Step { left: Some(0), from_hash, next_hash, .. }) = self.erasing.step else {
            return;
        };
        if let Some(next) = next_hash.filter(|next| next >> 56 == from_hash >> 56) {
            return self.erase_from(cx, next);
        }
        self.erasing.step = None;
        if let Some(shard) = self.erasing.shards.pop_front()
            && cx.cache.is_forgotten(shard)
        {
            cx.fx.recovered(shard);
        }
        self.next_shard(cx);
    }

    pub(super) fn on_erased(&mut self, cx: &mut Cx<'_, P>) {
        if let Some(image) = self.erasing.image
            && self.erasing.step.is_none()
            && self.erasing.shards.is_empty()
        {
            self.erasing = Erasing { after: self.erasing.after, ..Erasing::default() };
            cx.fx.report(GroupReport::Erased { image });
        }
    }
}
