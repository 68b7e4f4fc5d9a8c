//! The leader's side: one order for the writes of all nodes, proposed, counted and committed.

use types::{Clock, Command, Key, NodeId};

use super::history::WINDOW;
use super::message::{Message, TXNS_MAX, Txn};
use super::{Cx, Zab};

impl Zab {
    /// [ZAB, B1] Takes each write once, in the order of its origin. The turn ends with proposals.
    pub(super) fn on_write(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        number: u64,
        key: Key,
        command: Command,
    ) {
        let Some(index) = cx.replicas.index(from) else { return };
        let origin = &mut self.leader.origins[index];
        if number <= origin.taken || number > origin.taken + WINDOW {
            return;
        }
        origin.early.insert(number, (key, command));
        while !self.history.is_full()
            && let Some((key, command)) = origin.early.remove(&(origin.taken + 1))
        {
            origin.taken += 1;
            let clock = Clock { unix: cx.unix, seed: cx.rng.next_u64() };
            let txn = Txn { origin: from, number: origin.taken, key, command, clock };
            self.forwards.on_taken(cx.replicas.me(), &txn);
            self.history.insert(self.history.last() + 1, txn);
        }
    }

    pub(super) fn on_ack(&mut self, cx: &Cx<'_>, from: NodeId, upto: u64) {
        let Some(index) = cx.replicas.index(from) else { return };
        // A later index was never proposed.
        let upto = upto.min(self.history.last());
        self.leader.acked[index] = self.leader.acked[index].max(upto);
        self.leader.acked_by_all = cx.replicas.set.reached_by_all(&self.leader.acked);
    }

    /// At the end of a turn: proposes new writes and commits those that a majority has.
    pub(super) fn lead(&mut self, cx: &mut Cx<'_>) {
        let last = self.history.last();
        while self.leader.proposed < last {
            let first = self.leader.proposed + 1;
            let txns = self.history.range(first, TXNS_MAX);
            self.leader.proposed += txns.len() as u64;
            for node in cx.replicas.others() {
                cx.fx.send_now(node, Message::Propose { first, txns: txns.clone() });
            }
        }
        // The leader's own copy is in memory: it counts at once.
        self.on_ack(cx, cx.replicas.me(), last);
        let committed = self.leader.acked_by_majority(cx.replicas.set);
        self.history.commit(committed);
        if self.leader.told < committed {
            self.leader.told = committed;
            for node in cx.replicas.others() {
                cx.fx.send_now(node, Message::Commit { upto: committed });
            }
        }
        self.history.forget(self.leader.acked_by_all);
    }

    /// Proposes again to members without progress since the last tick.
    pub(super) fn propose_again(&mut self, cx: &mut Cx<'_>) {
        for (index, member) in cx.replicas.members().enumerate() {
            let acked = self.leader.acked[index];
            let is_stuck = acked == self.leader.acked_before[index];
            self.leader.acked_before[index] = acked;
            if is_stuck && acked < self.leader.proposed && member.node != cx.replicas.me() {
                let txns = self.history.range(acked + 1, TXNS_MAX);
                cx.fx.send_now(member.node, Message::Propose { first: acked + 1, txns });
            }
        }
    }

    /// Every write that came is in the history of every member.
    pub(super) fn is_leader_idle(&self) -> bool {
        self.leader.acked_by_all == self.history.last()
            && self.leader.origins.iter().all(|origin| origin.early.is_empty())
    }
}
