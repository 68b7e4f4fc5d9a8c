//! Applies the effects of a step, and holds back those that are not durable yet.
//!
//! A message or reply names the ticket that must be durable first. If it is, the effect leaves with
//! this turn. Otherwise it joins the durability queue. A message to this node itself takes the same
//! path and never sees the network.

use protocols::{Effects, Message, Protocol, PutAside, Send};
use storage::Room;
use types::{NodeId, Outcome, Shard, Tag, Ticket, Wire};

use super::Input;
use super::worker_state::WorkerState;
use crate::engine::{EngineOf, EngineWork};

/// Queued effects of a database at most, while its store has no room.
const QUEUED_MAX: usize = 1 << 20;

/// An effect that waits for a ticket.
#[derive(Debug)]
pub(crate) enum QueuedEffect<M> {
    Send { to: NodeId, message: M },
    Reply(Tag, Outcome),
}

impl<P: Protocol> EngineOf<P> {
    /// Applies the effects of the step that just ran.
    pub(crate) fn apply_effects(&mut self, shared: &mut WorkerState) {
        if !self.fx.sends.is_empty() {
            self.apply_sends(shared);
        }
        if !self.fx.outcomes.is_empty() {
            self.apply_outcomes(shared);
        }
        for (id, at) in self.fx.timers.drain(..) {
            shared.timers.push(at, self.index, id);
        }
        if has_rare_effects(&self.fx) {
            self.apply_rare_effects(shared);
        }
    }

    fn apply_sends(&mut self, shared: &mut WorkerState) {
        let (open, durable) = {
            let state = &shared.stores[self.store];
            (state.open, state.durable)
        };
        let mut sends = std::mem::take(&mut self.fx.sends);
        for Send { to, message, after } in sends.drain(..) {
            if after <= durable {
                self.leave(shared, to, message);
            } else {
                assert!(after <= open, "a message waits for {after:?}, beyond {open:?}");
                shared.counters.sends_queued += 1;
                self.durability_queue.push(after, QueuedEffect::Send { to, message });
                if self.durability_queue.len() > QUEUED_MAX
                    && shared.stores[self.store].store.room() == Room::Missing
                {
                    shared.fail("storage has no room, and too much waits for it".to_owned());
                }
            }
        }
        self.fx.sends = sends;
    }

    fn apply_outcomes(&mut self, shared: &mut WorkerState) {
        let durable = shared.stores[self.store].durable;
        for (tag, outcome, after) in self.fx.outcomes.drain(..) {
            if after <= durable {
                shared.reply(tag, outcome);
            } else {
                self.durability_queue.push(after, QueuedEffect::Reply(tag, outcome));
            }
        }
    }

    fn apply_rare_effects(&mut self, shared: &mut WorkerState) {
        self.inner.extend(self.fx.again.drain(..).map(|input| match input {
            PutAside::Request(request) => EngineWork::Request(request),
            PutAside::Message { from, message } => EngineWork::Peer { from, message, len: 0 },
        }));
        let reports = self.fx.group.drain(..);
        shared.group_reports.extend(reports.map(|report| (self.database, report)));
        for node in self.fx.suspects.drain(..) {
            if !shared.suspects.contains(&(self.database, node)) {
                shared.suspects.push((self.database, node));
            }
        }
        shared.fenced = shared.fenced.max(self.fx.fenced.take());
        if let Some(violation) = self.fx.violation.take() {
            shared.fail(format!("database {}: {}: {}", self.database, P::NAME, violation.0));
        }
        let locked = self.fx.locked.drain(..);
        shared.locked.extend(locked.map(|(key, lock)| (self.database, key, lock)));
        let records = self.fx.records.drain(..);
        shared.records.extend(records.map(|(key, since)| (self.database, key, since)));
        for key in std::mem::take(&mut self.fx.disowned) {
            self.disown(shared, key.shard(), Some(&key));
        }
        for shard in std::mem::take(&mut self.fx.forgotten) {
            self.disown(shared, shard, None);
        }
        for text in self.fx.warnings.drain(..) {
            shared.warn(format!("database {}: {text}", self.database.0));
        }
        for shard in std::mem::take(&mut self.fx.recovered) {
            self.start_clearing(shared, shard);
        }
        self.inner.extend(self.fx.scans.drain(..).map(EngineWork::Scan));
    }

    /// Sends a durable message: into the peer's frame, or back to this engine.
    fn leave(&mut self, shared: &mut WorkerState, to: NodeId, message: P::Message) {
        // Any shard of this worker will do: it finds the worker with the same index.
        let shard = message.shard().unwrap_or(Shard(shared.index as u8));
        if to == shared.peers.me() {
            shared.counters.messages_looped += 1;
            let worker = usize::from(shard.0) % shared.workers;
            if worker == shared.index {
                self.inner.push_back(EngineWork::Peer { from: shared.me(), message, len: 0 });
            } else {
                let (database, bytes) = (self.database, message.to_bytes().into());
                shared.for_workers.push((worker, Input::Own { database, shard, bytes }));
            }
            return;
        }
        if shared.outbox.push(
            (shared.sets.epoch(), &shared.peers),
            to,
            self.database,
            shard,
            &message,
        ) {
            shared.counters.messages_out += 1;
        } else {
            shared.counters.messages_undeliverable += 1;
        }
    }

    /// Releases the effects that wait for tickets up to `durable`.
    pub(crate) fn release(&mut self, shared: &mut WorkerState, durable: Ticket) {
        while let Some(mut batch) = self.durability_queue.pop_durable(durable) {
            for effect in batch.drain(..) {
                match effect {
                    QueuedEffect::Send { to, message } => self.leave(shared, to, message),
                    QueuedEffect::Reply(tag, outcome) => shared.reply(tag, outcome),
                }
            }
            self.durability_queue.recycle(batch);
        }
    }
}

fn has_rare_effects<M>(fx: &Effects<M>) -> bool {
    !fx.scans.is_empty()
        || !fx.again.is_empty()
        || !fx.group.is_empty()
        || !fx.recovered.is_empty()
        || !fx.suspects.is_empty()
        || !fx.disowned.is_empty()
        || !fx.forgotten.is_empty()
        || !fx.warnings.is_empty()
        || !fx.locked.is_empty()
        || !fx.records.is_empty()
        || fx.fenced.is_some()
        || fx.violation.is_some()
}
