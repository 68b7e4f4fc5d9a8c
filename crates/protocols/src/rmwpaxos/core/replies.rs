//! The acceptor among its messages: runs the pure rules on resident registers, persists their
//! changes and lets every reply wait for them.

use base::Nanos;
use types::{Ballot, Fence, Key, NodeId, Round, Ticket};

use super::acceptor::{self, Accepted, Prepared, Proposal};
use super::fencing::{self, Refused};
use super::hooks::{Hooks, Notice};
use super::instance::Core;
use super::proposer;
use super::send;
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::rmwpaxos::context::{Cx, gate, held, is_lost};
use crate::rmwpaxos::message::{Message, Payload, Report};
use crate::rmwpaxos::progress::active::{Active, Phase, PhaseTwo};
use crate::rmwpaxos::record::register::{Register, ShardMeta};
use crate::rmwpaxos::record::state::State;
use crate::rmwpaxos::record::state_builder;

/// Bounds of the time in which another node's proposal makes a key contended: two round trips,
/// within these.
const CONTENDED_FOR_MIN: Nanos = Nanos::from_millis(3);
const CONTENDED_FOR_MAX: Nanos = Nanos::from_millis(40);

fn accepted_gate(cx: &Cx<'_>, key: &Key) -> Ticket {
    if mutation::is(Mutation::ReplyBeforeStored) { Ticket::DURABLE } else { gate(cx, key) }
}

/// The own acceptor's report of `key`, for an asker that holds the state of round `have`.
pub(crate) fn report_of(cx: &Cx<'_>, key: &Key, have: Round) -> Report {
    let meta = cx.metas.get(key.shard());
    let mut report = acceptor::report(held(cx, key), meta, have, cx.uptime, cx.unix);
    if mutation::is(Mutation::AbsentAsTombstone)
        && report.accepted.is_none()
        && meta.floor_ballot > Ballot::ZERO
    {
        report.accepted = meta.floor_ballot.round(u32::MAX);
        report.state = Some(state_builder::nil(meta.floor_version));
    }
    report
}

fn full_report(
    cx: &mut Cx<'_>,
    to: NodeId,
    (key, have): (&Key, Round),
    hooks: &mut dyn Hooks,
) -> Report {
    let mut report = report_of(cx, key, have);
    hooks.complete_report(cx, to, key, have, &mut report);
    report
}

impl Core {
    /// H4. A forgotten register is silent.
    pub(crate) fn on_read(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, id): (Key, u64),
        have: Round,
        hooks: &mut dyn Hooks,
    ) {
        if is_lost(cx, &key) {
            return;
        }
        let report = full_report(cx, from.node, (&key, have), hooks);
        let after = gate(cx, &key);
        cx.fx.send(from.node, Message::State { key, id, report }, after);
    }

    /// H2.
    pub(crate) fn on_prepare(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, ballot, fence): (Key, Ballot, Option<Fence>),
        have: Round,
        hooks: &mut dyn Hooks,
    ) {
        cx.metas.get_mut(key.shard()).saw(ballot);
        if is_lost(cx, &key) {
            return nack(cx, from.node, key, ballot.round(0), Ballot::ZERO, true);
        }
        match self.promise(cx, &key, ballot, fence) {
            Err(refused) => refuse(cx, from.node, key, ballot.round(0), refused),
            Ok(after) => {
                let report = full_report(cx, from.node, (&key, have), hooks);
                cx.fx.send(from.node, Message::Promise { key, ballot, report }, after);
            }
        }
    }

    /// Raises the fence, if there is one, and promises `ballot`. The promise may be sent once the
    /// ticket is durable: the fence is then, too.
    pub(crate) fn promise(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        ballot: Ballot,
        fence: Option<Fence>,
    ) -> Result<Ticket, Refused> {
        if let Some(below) = fencing::shut_out(cx, key, ballot) {
            return Err(Refused::ShutOut(below));
        }
        let (epoch, durable) = (cx.replicas.epoch(), self.env.durable);
        let meta = cx.metas.get_mut(key.shard());
        let prepared = cx
            .cache
            .with(key, |register| acceptor::on_prepare(register, meta, epoch, ballot, durable));
        match prepared {
            Prepared::Refused { promised } => {
                fencing::refused(cx, key, fence);
                Err(Refused::Promised(promised))
            }
            Prepared::Promised { raised_ceiling } => {
                if let Some(fence) = fence {
                    self.raise(cx, key, fence, ballot);
                }
                if raised_ceiling && !mutation::is(Mutation::VolatilePromises) {
                    cx.metas.persist(key.shard());
                }
                cx.cache.persist_before_eviction(key);
                Ok(gate(cx, key))
            }
        }
    }

    /// The own acceptor's promise, which counts at once if it is durable; compare
    /// [`accept_own`](Core::accept_own).
    pub(super) fn prepare_own(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        hooks: &mut dyn Hooks,
    ) {
        let Phase::Preparing(one) = &mut active.phase else { return };
        let (me, key, ballot, fence) = (self.env.me, &active.key, one.ballot, one.fence);
        if !cx.replicas.set.has_me() {
            return;
        }
        if is_lost(cx, key) || !self.takes_short_ways() {
            return send::prepare(cx, key, one, me);
        }
        match self.promise(cx, key, ballot, fence) {
            Err(refused) => refuse(cx, me, key.clone(), ballot.round(0), refused),
            Ok(after) => {
                let report = full_report(cx, me, (key, Round::NONE), hooks);
                match cx.replicas.member(me) {
                    Some(&member) if after == Ticket::DURABLE => {
                        proposer::count_promise(cx, key, one, (me, member.amnesia), report);
                    }
                    _ => {
                        let key = key.clone();
                        cx.fx.send(me, Message::Promise { key, ballot, report }, after);
                    }
                }
            }
        }
    }

    /// H3.
    pub(crate) fn on_accept(&mut self, cx: &mut Cx<'_>, from: Peer, key: Key, proposal: Proposal) {
        let tried = proposal.round;
        if is_lost(cx, &key) {
            return nack(cx, from.node, key, tried, Ballot::ZERO, true);
        }
        if let Some(below) = fencing::shut_out(cx, &key, tried.ballot()) {
            return refuse(cx, from.node, key, tried, Refused::ShutOut(below));
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

    /// Has the own acceptor accept the newest proposal. A durable acknowledgement counts at once.
    /// Any other answer comes as a message.
    pub(crate) fn accept_own(&mut self, cx: &mut Cx<'_>, key: &Key, two: &mut PhaseTwo) {
        let me = self.env.me;
        let Some(newest) = two.in_flight.last() else { return };
        if !cx.replicas.set.has_me() {
            return;
        }
        if is_lost(cx, key) || !self.takes_short_ways() {
            return send::accept(cx, key, two, two.in_flight.len() - 1, me);
        }
        let round = two.round(newest.k);
        if let Some(below) = fencing::shut_out(cx, key, two.ballot) {
            return refuse(cx, me, key.clone(), round, Refused::ShutOut(below));
        }
        let payload = Payload::Whole(newest.state.clone());
        let proposal = Proposal { round, chosen_k: two.chosen_k, payload };
        match self.accept(cx, key, proposal) {
            Accepted::Refused { promised } => nack(cx, me, key.clone(), round, promised, false),
            Accepted::Yes { round, .. } => {
                let after = accepted_gate(cx, key);
                match cx.replicas.index(me) {
                    Some(index) if after == Ticket::DURABLE && round.ballot() == two.ballot => {
                        two.acks.set(index, round.k(), cx.replicas.at(index).amnesia);
                    }
                    _ => cx.fx.send(me, Message::Accepted { key: key.clone(), round }, after),
                }
            }
            Accepted::NeedFull => unreachable!("the state is whole"),
        }
    }

    /// A late delivery of an accept. Only a refusal is answered: a node that wants this register
    /// equal must propose above it.
    pub(crate) fn on_repair(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: Key,
        round: Round,
        state: State,
    ) {
        if is_lost(cx, &key) {
            return;
        }
        if mutation::is(Mutation::RepairBelowFloor) && held(cx, &key).is_none() {
            cx.cache.put(&key, Register::promise_only(round.ballot()));
        }
        let payload = Payload::Whole(state);
        match self.accept(cx, &key, Proposal { round, chosen_k: 0, payload }) {
            Accepted::Refused { promised } => nack(cx, from.node, key, round, promised, false),
            Accepted::Yes { changed, .. } => self.counters.repaired += u64::from(changed),
            Accepted::NeedFull => unreachable!("the state is whole"),
        }
    }

    /// Notes a chosen round. The hint has no answer, and a crash may forget it.
    pub(crate) fn on_chosen(&mut self, cx: &mut Cx<'_>, key: &Key, round: Round) {
        if !is_lost(cx, key)
            && let Some(register) = cx.cache.get_mut(key)
        {
            acceptor::on_chosen(register, round);
        }
    }

    pub(crate) fn accept(&mut self, cx: &mut Cx<'_>, key: &Key, proposal: Proposal) -> Accepted {
        let ballot = proposal.round.ballot();
        let (epoch, moment) =
            (cx.replicas.epoch(), acceptor::Moment { now: cx.now, uptime: cx.uptime });
        let meta = cx.metas.get_mut(key.shard());
        meta.saw(ballot);
        let meta: &ShardMeta = meta;
        let (me, contended_for) = (self.env.me, self.contended_for());
        let (mut has_ages, transient) = (false, self.env.transient);
        let lingers = |register: &Option<Register>| {
            let state = register.as_ref().and_then(|register| register.state.as_ref());
            state.is_some_and(|state| state.lingers(transient))
        };
        let (mut lingered, mut goes_on_lingering) = (false, false);
        let accepted = cx.cache.with(key, |register| {
            lingered = lingers(register);
            let accepted = acceptor::on_accept(register, meta, epoch, proposal, moment);
            goes_on_lingering = lingers(register);
            if let (Accepted::Yes { changed: true, .. }, Some(register)) = (accepted, register) {
                has_ages = register.has_ages();
                note_proposer(register, ballot.node() == me, moment.now, contended_for);
            }
            accepted
        });
        if let Accepted::Yes { changed: true, .. } = accepted {
            self.counters.expiring_states += u64::from(has_ages);
            cx.cache.persist(key);
            self.notices.push(Notice::Accepted(key.shard()));
            match (lingered, goes_on_lingering) {
                (_, true) => self.notices.push(Notice::Lingers { key: key.clone() }),
                (true, false) => self.notices.push(Notice::Ended { key: key.clone() }),
                (false, false) => {}
            }
        }
        accepted
    }

    /// H5. The raised floors and the removal become durable together.
    pub(crate) fn on_remove(&mut self, cx: &mut Cx<'_>, key: Key, round: Round) {
        if is_lost(cx, &key) {
            return;
        }
        let meta = cx.metas.get_mut(key.shard());
        let removed = cx.cache.with(&key, |register| acceptor::on_remove(register, meta, round));
        if removed {
            cx.metas.persist(key.shard());
            cx.cache.remove(&key);
            self.counters.collected += 1;
            self.notices.push(Notice::Removed(key.shard()));
        }
    }

    /// How long a key is contended after another node's accepted proposal.
    pub(crate) fn contended_for(&self) -> Nanos {
        self.round_trip.times(2).clamp(CONTENDED_FOR_MIN, CONTENDED_FOR_MAX)
    }
}

pub(crate) fn nack(
    cx: &mut Cx<'_>,
    to: NodeId,
    key: Key,
    tried: Round,
    promised: Ballot,
    recovering: bool,
) {
    cx.fx.send_now(to, Message::Nack { key, tried, promised, recovering });
}

/// Answers a refused proposer.
pub(crate) fn refuse(cx: &mut Cx<'_>, to: NodeId, key: Key, tried: Round, refused: Refused) {
    match refused {
        Refused::Promised(promised) => nack(cx, to, key, tried, promised, false),
        Refused::ShutOut(_) if mutation::is(Mutation::FenceSilent) => {}
        Refused::ShutOut(below) => {
            base::sometimes!("a fence shuts out a proposal");
            let after = cx.metas.ticket(key.shard());
            cx.fx.send(to, Message::Fenced { key, tried, below }, after);
        }
    }
}

/// Notes that a register keeps accepting another node's proposals: a hint for forwarding.
fn note_proposer(register: &mut Register, is_own: bool, now: Nanos, contended_for: Nanos) {
    let is_recent = now.since(register.foreign_at) < contended_for;
    if is_own {
        register.foreign_run = 0;
    } else {
        register.foreign_run = if is_recent { register.foreign_run.saturating_add(1) } else { 1 };
        register.foreign_at = now;
    }
}
