//! Committed entries go to the workers of their keys, in order. [ZAB, B4]

use std::sync::atomic::Ordering;

use super::super::context::{Cx, tell_register, tell_worker};
use super::super::epoch::Zxid;
use super::super::message::{ToRegister, ToWorker};
use super::super::txn::Txn;
use super::Sequencer;
use super::role::Role;
use crate::mutation::{self, Mutation};

/// Entries handed over ahead of those in the registers, durably.
const AHEAD_MAX: u64 = 8_192;

impl Sequencer {
    /// This node's amnesia count was raised: messages to itself on their way are void.
    pub fn on_amnesia(&mut self, cx: &mut Cx<'_>) {
        if !self.outlets.is_held {
            // Registers may be ahead of the entries that are applied again.
            self.env.shared.fetch_max(self.outlets.handed, Ordering::AcqRel);
            let copy = self.outlets.again();
            for worker in 0..self.env.workers {
                tell_worker(cx, worker, ToWorker::Again { copy });
            }
        }
        match &self.role {
            Role::Recalling(_) => self.recall(cx),
            Role::Looking | Role::Leading(_) | Role::Following(_) => self.look(cx),
        }
    }

    pub(super) fn hand_over(&mut self, cx: &mut Cx<'_>) {
        // An entry that is durable elsewhere only would leave a hole here. [ZOOKEEPER-4882]
        let limit = match mutation::is(Mutation::ApplyUncommitted) {
            true => self.history.last(),
            false => self.committed.min(self.durable),
        };
        let limit = limit.min(self.outlets.kept().max(self.outlets.start()) + AHEAD_MAX);
        if self.outlets.is_held || self.outlets.told >= limit {
            return;
        }
        while self.outlets.handed < limit {
            let index = self.outlets.handed + 1;
            let Some(entry) = self.history.get(index) else { break };
            let at = Zxid { epoch: entry.epoch, index };
            self.outlets.handed = index;
            let Some(txn) = entry.txn.clone() else { continue };
            let copy = self.outlets.copy;
            let Txn { stream, number, key, effect, reply } = txn;
            let worker = usize::from(key.shard().0) % self.env.workers;
            let outlet = &mut self.outlets.workers[worker];
            outlet.place += 1;
            let place = outlet.place;
            let apply = ToRegister::Apply { copy, place, at, stream, number, effect, reply };
            tell_register(cx, key, apply);
        }
        let (copy, index) = (self.outlets.copy, self.outlets.handed);
        self.outlets.told = index;
        for worker in 0..self.env.workers {
            let place = self.outlets.workers[worker].place;
            tell_worker(cx, worker, ToWorker::Upto { copy, place, index });
        }
    }

    /// Cuts entries off the log that the registers include, durably.
    pub(super) fn cut(&mut self, cx: &mut Cx<'_>) {
        // A log that begins anew must not begin in front of its first entry.
        if self.outlets.is_held {
            return;
        }
        let capacity = self.env.log.capacity;
        let mut applied = self.outlets.kept();
        if let Role::Leading(leading) = &self.role
            && self.history.bytes() < capacity / 2
        {
            // Those behind would have to copy everything.
            let acked = leading.followers.values().map(|it| it.acked).min();
            applied = applied.min(acked.unwrap_or(applied));
        }
        let before = self.history.first();
        let first = self.history.cut(applied, capacity / 4);
        if first > before {
            cx.fx.cut_log(first);
        }
    }
}
