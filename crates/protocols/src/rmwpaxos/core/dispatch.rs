//! Events of the core: each goes to one handler of the acceptor, the proposer or the reader.

use base::Millis;
use types::Shard;

use super::acceptor::Proposal;
use super::hooks::Hooks;
use super::instance::Core;
use crate::effects::Violation;
use crate::protocol::{Peer, Request, Stats};
use crate::register_cache::{CachedRegister, RegisterCache};
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::message::{Message, Payload};
use crate::rmwpaxos::progress::active::{Active, DEPTH};
use crate::rmwpaxos::progress::operation::{Operation, Source};
use crate::rmwpaxos::record::register::Register;

impl Core {
    pub(crate) fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        let Request { tag, session, key, mut command, asked_at } = request;
        let mut deadline = cx.now + self.env.request_timeout;
        if let Some(once) = &mut command.once {
            // Entries outlast a time that all nodes share. A longer timeout would outlast them.
            let shared = self.env.once_timeout;
            deadline = deadline.min(asked_at + shared);
            // A line that comes in time runs in time: within one timeout, the other is for clocks.
            once.window = Millis(once.window.0.saturating_add(2 * shared.as_millis()));
        }
        let operation = Operation::new(Source::Client(tag), session, command, deadline, self.step);
        self.enqueue(cx, &key, operation);
    }

    /// A peer's message. Messages for the parts around the core are ignored.
    pub(crate) fn on_message(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        message: Message,
        hooks: &mut dyn Hooks,
    ) {
        match message {
            Message::Read { key, id, have } => self.on_read(cx, from, (key, id), have, hooks),
            Message::Prepare { key, ballot, have, fence } => {
                self.on_prepare(cx, from, (key, ballot, fence), have, hooks);
            }
            Message::Accept { key, round, chosen_k, state } => {
                let payload = Payload::Whole(state);
                self.on_accept(cx, from, key, Proposal { round, chosen_k, payload });
            }
            Message::AcceptDelta { key, round, chosen_k, delta } => {
                let payload = Payload::Delta(delta);
                self.on_accept(cx, from, key, Proposal { round, chosen_k, payload });
            }
            Message::Repair { key, round, state } => self.on_repair(cx, from, key, round, state),
            Message::Remove { key, round } => self.on_remove(cx, key, round),
            Message::Chosen { key, round } => self.on_chosen(cx, &key, round),
            Message::State { key, id, report } => {
                self.on_state(cx, from, (&key, id), report, hooks);
            }
            Message::Promise { key, ballot, report } => {
                self.on_promise(cx, from, (&key, ballot), report, hooks);
            }
            Message::Accepted { key, round } => self.on_accepted(cx, from, &key, round),
            Message::Nack { key, tried, promised, recovering } => {
                self.on_nack(cx, from, &key, (tried, promised), recovering);
            }
            Message::Fenced { key, tried, below } => self.on_fenced(cx, from, &key, tried, below),
            _ => {}
        }
    }

    /// Takes the fields of a shard as written by an earlier process.
    pub(crate) fn on_meta_loaded(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let epoch = cx.replicas.epoch();
        if self.env.durable {
            cx.metas.get_mut(shard).restarted(epoch);
        }
    }

    /// The fields of a shard are lost: no register of it takes part until they are recovered.
    pub(crate) fn on_meta_lost(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        cx.metas.get_mut(shard).void = true;
        cx.metas.persist(shard);
    }

    pub(crate) fn stats(&self, stats: &mut Stats) {
        let counters = &self.counters;
        stats.add("rmw_reads", counters.reads);
        stats.add("rmw_proposals", counters.proposals);
        stats.add("rmw_phase_ones", counters.phase_ones);
        stats.add("rmw_conflicts", counters.conflicts);
        stats.add("rmw_unknown", counters.unknowns);
        stats.add("rmw_repairs", counters.repairs);
        stats.add("rmw_repaired", counters.repaired);
        stats.add("rmw_proposals_spared", counters.spared);
        stats.add("rmw_deltas", counters.deltas);
        stats.add("tombstones_collected", counters.collected);
        stats.add("expired_keys", counters.expired);
        stats.add("expiring_states", counters.expiring_states);
        stats.add("active_keys", self.actives.len() as u64);
    }

    /// Checks the registers that proposers work on.
    pub(crate) fn check(&self, cache: &RegisterCache<Register>) -> Result<(), Violation> {
        for active in self.actives.iter() {
            let Active { key, .. } = active;
            let CachedRegister::Present(register) = cache.get(key) else { continue };
            if register.accepted.ballot() > register.promised {
                return Err(Violation(format!("{key:?}: accepted above promise: {register:?}")));
            }
            let in_flight = active.owner().map_or(0, |two| two.in_flight.len());
            if in_flight > DEPTH {
                return Err(Violation(format!("{key:?}: {in_flight} in flight")));
            }
        }
        Ok(())
    }
}
