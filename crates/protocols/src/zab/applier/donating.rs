//! Pages of a leader's registers for a node that copies them.

use types::{Key, NodeId, Shard};

use super::super::context::{Cx, replicas};
use super::super::epoch::Epoch;
use super::super::message::{Message, ToWorker};
use super::super::register::Register;
use super::Applier;
use super::state::{Scanning, Wanted};
use crate::effects::Scan;
use crate::protocol::{Scanned, ScannedRegister};

/// Registers of a page.
const PAGE_LEN: usize = 256;
/// Bytes of a page's registers; one register may be longer.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Pages read at a time. Others are asked for again.
const SERVED_MAX: usize = 64;

impl Applier {
    pub(super) fn on_ask_page(
        &mut self,
        cx: &mut Cx<'_>,
        by: NodeId,
        id: u64,
        (epoch, base): (Epoch, u64),
        from_hash: u64,
    ) {
        let shard = Shard((from_hash >> 56) as u8);
        let is_leader = self.view.epoch == epoch && epoch.node == u64::from(self.env.me.0);
        let is_member = replicas(cx).index(by).is_some();
        // The copy goes on from the entry behind `base`.
        let has_base = self.is_whole() && self.progress.visible >= base;
        let is_busy = self.donating.pages.len() >= SERVED_MAX;
        if !is_leader || !is_member || !has_base || is_busy || !self.env.owns(shard) {
            return;
        }
        let scan = self.scan(Scanning::Donate);
        self.donating.pages.insert(scan, Wanted { by, id, epoch, shard });
        cx.fx.scan(Scan { id: scan, from_hash, limit: PAGE_LEN });
    }

    pub(super) fn on_donated(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>) {
        let Some(wanted) = self.donating.pages.remove(&scanned.id) else { return };
        let is_lost = scanned.records.iter().any(|(_, it)| matches!(it, ScannedRegister::Lost));
        if is_lost || !self.is_whole() || self.view.epoch != wanted.epoch {
            return;
        }
        let (mut entries, mut bytes) = (Vec::<(Key, Register)>::new(), 0);
        let mut next_hash = scanned.next_hash;
        for (key, found) in scanned.records {
            let ScannedRegister::Present(register) = found else { continue };
            let is_apart = entries.last().is_none_or(|(last, _)| last.hash() != key.hash());
            if bytes >= PAGE_BYTES_MAX && is_apart {
                next_hash = Some(key.hash());
                break;
            }
            bytes += register.content.value.as_ref().map_or(0, bytes::Bytes::len);
            let content = register.content.with_rest(cx.uptime, cx.unix);
            entries.push((key, Register { content, ..register }));
        }
        let page = ToWorker::Page { id: wanted.id, entries, next_hash };
        cx.fx.send_now(wanted.by, Message::Worker(wanted.shard, page));
    }
}
