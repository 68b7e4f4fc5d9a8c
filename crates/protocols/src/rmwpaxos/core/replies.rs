//! The acceptor among its messages: runs the pure handlers on resident registers, persists what they changed and lets
//! every reply wait for it.

use base::Nanos;
use types::{Ballot, Key, NodeId, Round, Ticket};

use crate::cells::Cell;
use crate::mutation::{self, Mutation};
use crate::peers::Pace;
use crate::protocol::Peer;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::acceptor::{self, Accepted, Payload, Prepared, Proposal};
use crate::rmwpaxos::core::operation::Active;
use crate::rmwpaxos::core::proposer;
use crate::rmwpaxos::core::state::State;
use crate::rmwpaxos::message::{Message, Report};
use crate::rmwpaxos::register::{Register, ShardMeta};

/// The ticket a reply about this register waits for: its last change and its shard's.
pub(crate) fn gate(cx: &Cx<'_>, key: &Key) -> Ticket {
    if mutation::is(Mutation::ExposeUnflushed) {
        return Ticket::DURABLE;
    }
    cx.cells.ticket(key).max(cx.metas.ticket(key.shard()))
}

fn accepted_gate(cx: &Cx<'_>, key: &Key) -> Ticket {
    if mutation::is(Mutation::ReplyBeforeStored) { Ticket::DURABLE } else { gate(cx, key) }
}

/// What the own acceptor holds of `key`, unless it is forgotten.
pub(crate) fn held<'a>(cx: &'a Cx<'_>, key: &Key) -> Option<&'a Register> {
    debug_assert!(
        std::ptr::eq(cx.replicas.set, cx.sets.of(key.shard())),
        "the event is about the shard of {key:?}"
    );
    match cx.cells.get(key) {
        Cell::Present(register) => Some(register),
        Cell::Absent | Cell::Lost => None,
    }
}

/// A register that is silent: it, or the fields of its shard, are forgotten. A node that is no
/// replica has forgotten no register.
pub(crate) fn is_lost(cx: &Cx<'_>, key: &Key) -> bool {
    let is_lost = matches!(cx.cells.get(key), Cell::Lost) || cx.metas.get(key.shard()).void;
    is_lost && cx.replicas_of(key.shard()).set.has_me() && !mutation::is(Mutation::NoRecovery)
}

pub(crate) fn report_of(cx: &Cx<'_>, key: &Key, have: Round) -> Report {
    let meta = cx.metas.get(key.shard());
    let mut report = acceptor::report(held(cx, key), meta, have, cx.uptime, cx.unix);
    if mutation::is(Mutation::AbsentAsTombstone)
        && report.accepted.is_none()
        && meta.floor_ballot > Ballot::ZERO
    {
        report.accepted = meta.floor_ballot.round(u32::MAX);
        report.state = Some(crate::rmwpaxos::core::state_builder::nil(meta.floor_version));
    }
    report
}

impl RmwPaxos {
    /// H4. A forgotten register is silent.
    pub(crate) fn on_read(&mut self, cx: &mut Cx<'_>, from: Peer, key: Key, id: u64, have: Round) {
        if self.recover_if_lost(cx, &key) {
            return;
        }
        let report = self.report_to(cx, from.node, &key, have);
        let after = gate(cx, &key);
        cx.fx.send(from.node, Message::State { key, id, report }, after);
    }

    /// H2.
    pub(crate) fn on_prepare(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: Key,
        ballot: Ballot,
        have: Round,
    ) {
        cx.metas.get_mut(key.shard()).saw(ballot);
        if self.recover_if_lost(cx, &key) {
            return nack(cx, from.node, key, ballot.round(0), Ballot::ZERO, true);
        }
        match self.promise(cx, &key, ballot) {
            Err(promised) => nack(cx, from.node, key, ballot.round(0), promised, false),
            Ok(after) => {
                let report = self.report_to(cx, from.node, &key, have);
                cx.fx.send(from.node, Message::Promise { key, ballot, report }, after);
            }
        }
    }

    /// Promises `ballot`; it may be said once the ticket is durable. An error is the higher promise that forbids it.
    pub(crate) fn promise(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        ballot: Ballot,
    ) -> Result<Ticket, Ballot> {
        let (epoch, durable) = (cx.replicas.epoch(), self.env.durable);
        let meta = cx.metas.get_mut(key.shard());
        let prepared = cx
            .cells
            .with(key, |register| acceptor::on_prepare(register, meta, epoch, ballot, durable));
        match prepared {
            Prepared::Refused { promised } => Err(promised),
            Prepared::Promised { raised_ceiling } => {
                if raised_ceiling && !mutation::is(Mutation::VolatilePromises) {
                    cx.metas.persist(key.shard());
                }
                cx.cells.persist_before_eviction(key);
                Ok(gate(cx, key))
            }
        }
    }

    /// The own acceptor's promise, which counts at once where nothing is waited for; compare
    /// [`accept_own`](RmwPaxos::accept_own).
    pub(crate) fn prepare_own(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let me = self.env.me;
        if !cx.replicas.set.has_me() {
            return;
        }
        if is_lost(cx, &active.key) || !self.takes_short_ways() {
            return proposer::send_prepare(cx, active, me);
        }
        match self.promise(cx, &active.key, active.ballot) {
            Err(promised) => {
                nack(cx, me, active.key.clone(), active.ballot.round(0), promised, false);
            }
            Ok(after) => {
                let report = self.report_to(cx, me, &active.key, Round::NONE);
                match cx.replicas.member(me) {
                    Some(&member) if after == Ticket::DURABLE => {
                        proposer::count_promise(cx, active, (me, member.loss), report);
                    }
                    _ => {
                        let (key, ballot) = (active.key.clone(), active.ballot);
                        cx.fx.send(me, Message::Promise { key, ballot, report }, after);
                    }
                }
            }
        }
    }

    /// H3.
    pub(crate) fn on_accept(&mut self, cx: &mut Cx<'_>, from: Peer, key: Key, proposal: Proposal) {
        let tried = proposal.round;
        if self.recover_if_lost(cx, &key) {
            return nack(cx, from.node, key, tried, Ballot::ZERO, true);
        }
        match self.accept(cx, &key, proposal) {
            Accepted::Refused { promised } => nack(cx, from.node, key, tried, promised, false),
            Accepted::Yes { round, .. } => {
                let after = accepted_gate(cx, &key);
                cx.fx.send(from.node, Message::Accepted { key, round }, after);
            }
            Accepted::NeedFull => {
                cx.fx.send_now(from.node, Message::NeedFull { key, round: tried });
            }
        }
    }

    /// H2 and H3 in one. Only a proposer whose own promise still stands and makes a majority together with this
    /// acceptor's has won phase 1 by it. Where it has not, the promise alone is given: the proposer learns that this
    /// message will never be accepted here.
    pub(crate) fn on_prepare_accept(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: Key,
        (round, base): (Round, Round),
        payload: Payload,
    ) {
        let ballot = round.ballot();
        if !has_promised(cx, from, ballot) {
            return;
        }
        let meta = cx.metas.get(key.shard());
        let held = held(cx, &key);
        let is_refused = acceptor::effective_promise(held, meta, cx.replicas.epoch()) > ballot;
        let is_won = acceptor::completes_phase_one(held, meta, (round, base), &payload);
        if is_refused || is_won || is_lost(cx, &key) {
            return self.on_accept(cx, from, key, Proposal { round, chosen_k: 0, payload });
        }
        match self.promise(cx, &key, ballot) {
            Err(promised) => nack(cx, from.node, key, round, promised, false),
            Ok(after) => cx.fx.send(from.node, Message::NeedFull { key, round }, after),
        }
    }

    /// The own acceptor takes the newest proposal. Its acknowledgement counts at once where nothing is waited for;
    /// elsewhere, and where it has something else to say, it comes as a message like anybody's.
    pub(crate) fn accept_own(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let me = self.env.me;
        let Some(newest) = active.in_flight.back() else { return };
        if !cx.replicas.set.has_me() {
            return;
        }
        if is_lost(cx, &active.key) || !self.takes_short_ways() {
            return proposer::send_accept(cx, active, active.in_flight.len() - 1, me);
        }
        let round = active.ballot.round(newest.k);
        let payload = Payload::Whole(newest.state.clone());
        let proposal = Proposal { round, chosen_k: active.chosen_k, payload };
        match self.accept(cx, &active.key, proposal) {
            Accepted::Refused { promised } => {
                nack(cx, me, active.key.clone(), round, promised, false);
            }
            Accepted::Yes { round, .. } => {
                let after = accepted_gate(cx, &active.key);
                match cx.replicas.index(me) {
                    Some(index) if after == Ticket::DURABLE && round.ballot() == active.ballot => {
                        active.acks.set(index, round.k(), cx.replicas.at(index).loss);
                    }
                    _ => {
                        let message = Message::Accepted { key: active.key.clone(), round };
                        cx.fx.send(me, message, after);
                    }
                }
            }
            Accepted::NeedFull => unreachable!("the state is whole"),
        }
    }

    /// A late delivery of somebody's accept. Only a refusal is answered: whoever wants this register equal must
    /// propose above it.
    pub(crate) fn on_repair(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: Key,
        round: Round,
        state: State,
    ) {
        self.ranges.note_late(cx.now, state.bytes().len(), Pace::Steady);
        if self.recover_if_lost(cx, &key) {
            return;
        }
        if self.denies(cx, from.node, &key, round) {
            return;
        }
        let is_removed = held(cx, &key).is_none_or(|it| it.accepted.is_none());
        if is_removed && !state.is_tombstone() && self.tell_removed(cx, from.node, &key, round) {
            return;
        }
        if mutation::is(Mutation::RepairBelowFloor) && held(cx, &key).is_none() {
            cx.cells.put(&key, Register::promise_only(round.ballot()));
        }
        let payload = Payload::Whole(state);
        match self.accept(cx, &key, Proposal { round, chosen_k: 0, payload }) {
            Accepted::Refused { promised } => nack(cx, from.node, key, round, promised, false),
            Accepted::Yes { changed, .. } => self.counters.repaired += u64::from(changed),
            Accepted::NeedFull => unreachable!("the state is whole"),
        }
    }

    /// The owner says that a round is chosen. Nobody waits for an answer, and a crash may forget it.
    pub(crate) fn on_chosen(&mut self, cx: &mut Cx<'_>, key: &Key, round: Round) {
        if !is_lost(cx, key)
            && let Some(register) = cx.cells.get_mut(key)
        {
            acceptor::on_chosen(register, round);
        }
    }

    fn accept(&mut self, cx: &mut Cx<'_>, key: &Key, proposal: Proposal) -> Accepted {
        let ballot = proposal.round.ballot();
        let (epoch, moment) = (cx.replicas.epoch(), RmwPaxos::moment(cx));
        let meta = cx.metas.get_mut(key.shard());
        meta.saw(ballot);
        let meta: &ShardMeta = meta;
        let (me, contended_for) = (self.env.me, self.contended_for());
        let mut has_ages = false;
        let accepted = cx.cells.with(key, |register| {
            let accepted = acceptor::on_accept(register, meta, epoch, proposal, moment);
            if let (Accepted::Yes { changed: true, .. }, Some(register)) = (accepted, register) {
                has_ages = register.has_ages();
                note_proposer(register, ballot.node() == me, moment.now, contended_for);
            }
            accepted
        });
        if let Accepted::Yes { changed: true, .. } = accepted {
            self.counters.expiring_states += u64::from(has_ages);
            cx.cells.persist(key);
            self.ranges.on_write(cx, key.shard());
        }
        accepted
    }

    /// H5. The raised floors and the removal become durable together.
    pub(crate) fn on_remove(&mut self, cx: &mut Cx<'_>, key: Key, round: Round) {
        if self.recover_if_lost(cx, &key) {
            return;
        }
        let meta = cx.metas.get_mut(key.shard());
        let removed = cx.cells.with(&key, |register| acceptor::on_remove(register, meta, round));
        if removed {
            cx.metas.persist(key.shard());
            cx.cells.remove(&key);
            self.counters.collected += 1;
            // What others hold counts from here on with the floor that stands for it.
            self.ranges.on_removal(cx, key.shard());
        }
    }
}

/// The proposer's promise of its own ballot counts here.
fn has_promised(cx: &Cx<'_>, from: Peer, ballot: Ballot) -> bool {
    let is_proposer = from.node == ballot.node() && from.incarnation == ballot.incarnation();
    // It may have waited here for its register to be read while the loss became known.
    let is_current = cx.replicas.member(from.node).is_some_and(|member| from.loss >= member.loss)
        || mutation::is(Mutation::FirstFromBeforeLoss);
    let set = cx.replicas.set;
    is_proposer && is_current && set.is_quorum_of_any_two() && ballot.epoch() == set.epoch()
}

fn nack(cx: &mut Cx<'_>, to: NodeId, key: Key, tried: Round, promised: Ballot, recovering: bool) {
    cx.fx.send_now(to, Message::Nack { key, tried, promised, recovering });
}

/// Notes whose proposals a register keeps accepting: a hint for whom to forward to.
fn note_proposer(register: &mut Register, is_own: bool, now: Nanos, contended_for: Nanos) {
    let is_recent = now.since(register.foreign_at) < contended_for;
    if is_own {
        register.foreign_run = 0;
    } else {
        register.foreign_run = if is_recent { register.foreign_run.saturating_add(1) } else { 1 };
        register.foreign_at = now;
    }
}
