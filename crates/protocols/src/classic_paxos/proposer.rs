//! The proposer: both phases of a slot, help for others, and the fate of its attempt. [spec 3.5]

use std::sync::Arc;

use base::Nanos;
use types::{Key, NodeId, Outcome};

use super::active::{Accepting, Active, Phase, Preparing};
use super::machine::{Cx, Machine, known_base};
use super::message::{Body, Message};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::register_cache::CachedRegister;
use crate::toolkit::back_off::{Resend, pause};
use crate::toolkit::batch::Batch;
use crate::toolkit::countdown::Countdown;
use crate::toolkit::operation::{Attempt, Operation, clock};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, OpId, State, slot_of};

/// Commands of one proposal.
const BATCH_MAX: usize = 512;
/// The pause of a proposer that finds another one at work, as attempts in vain.
const BUSY: u32 = 2;

impl Machine {
    /// Begins the next phase.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        active.phase = Phase::Idle;
        active.wake_at = Nanos::MAX;
        let base = known_base(cx, active);
        if let Some(base) = &base {
            self.resolve(active, base);
            if self.answer_resolved(cx, active) {
                return;
            }
        }
        if active.is_done() {
            return;
        }
        let is_read = active.attempt.is_none()
            && active.voted.is_none()
            && !active.help
            && active.queue.iter().all(Operation::is_read);
        match base {
            Some(base) if !is_read => self.prepare_or_pause(cx, active, base),
            _ => self.read(cx, active),
        }
    }

    /// Decides the fate of the attempt by a decided state of its slot or a later one.
    fn resolve(&mut self, active: &mut Active, base: &Base) {
        let is_over = |attempt: &mut Attempt| slot_of(base) >= attempt.state.slot;
        let Some(attempt) = active.attempt.take_if(is_over) else { return };
        let is_done = base.as_ref().is_some_and(|state| state.done.has(attempt.op()));
        if is_done && !mutation::is(Mutation::NoRegistry) {
            active.resolved = Some(attempt);
        } else {
            // It will never take effect: its commands run anew.
            active.put_back(attempt.ops.into_iter().map(|(operation, _)| operation).collect());
        }
    }

    /// Answers an attempt that others decided. True if the phase waits for its commit.
    fn answer_resolved(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let Some(attempt) = active.resolved.take() else { return false };
        self.schedule_expiry(cx, &active.key, &attempt.state);
        self.end(cx, active, attempt.state, attempt.ops, None)
    }

    /// A proposer that finds another one at work on the slot lets it finish first. [spec Y1]
    fn prepare_or_pause(&mut self, cx: &mut Cx<'_>, active: &mut Active, base: Base) {
        let is_busy = match cx.cache.get(&active.key) {
            CachedRegister::Present(register) => {
                let by = register.promised;
                by != Stamp::NONE
                    && (by.writer, by.incarnation) != (self.env.me, self.env.incarnation)
                    && register.slot() == slot_of(&base)
                    && cx.replicas.peers.get(by.writer).is_some_and(|member| member.up)
            }
            CachedRegister::Absent | CachedRegister::Lost => false,
        };
        if is_busy && active.tries == 0 && !active.help {
            active.tries = 1;
            active.phase = Phase::Pausing;
            active.wake_at = cx.now + pause(cx.rng, BUSY);
            return;
        }
        self.prepare(cx, active, base);
    }

    fn prepare(&mut self, cx: &mut Cx<'_>, active: &mut Active, base: Base) {
        if let CachedRegister::Present(register) = cx.cache.get(&active.key) {
            active.seen = active.seen.max(register.promised);
        }
        let ballot = self.mint(active.seen);
        active.seen = ballot;
        active.since = self.next_step();
        active.phase = Phase::Preparing(Box::new(Preparing {
            slot: slot_of(&base) + 1,
            base,
            ballot,
            promises: Tally::default(),
            nacks: Tally::default(),
            highest: None,
            over: Tally::default(),
            rest: None,
        }));
        self.begin_phase(cx, active);
    }

    fn begin_phase(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        active.id = self.next_id();
        active.resend = Resend::default();
        active.wake_at = active.resend.next(cx.now);
        ask_missing(cx, active);
    }

    pub(super) fn on_promise(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        accepted: Option<(Stamp, Arc<State>)>,
        countdown: Countdown,
    ) {
        let Phase::Preparing(it) = &mut active.phase else { return };
        it.promises.add(cx.replicas, from.node, from.amnesia);
        let highest = it.highest.as_ref().map(|(ballot, _)| *ballot);
        if let Some((ballot, state)) = accepted.filter(|(ballot, _)| Some(*ballot) > highest)
            && state.slot == it.slot
            && !mutation::is(Mutation::IgnoreLowerVotes)
        {
            it.highest = Some((ballot, state));
        }
        it.rest = it.rest.max(countdown.rest());
        if countdown == Countdown::Over {
            it.over.add(cx.replicas, from.node, from.amnesia);
        }
        if cx.replicas.is_quorum(&it.promises) {
            self.promised(cx, active);
        }
    }

    /// A majority promised: proposes the highest vote, this node's attempt, or a new one.
    fn promised(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Preparing(it) = std::mem::take(&mut active.phase) else { return };
        let attempt = active.attempt.as_ref().map(|attempt| attempt.state.clone());
        let attempt = attempt.filter(|_| !mutation::is(Mutation::RecomputeAttempt));
        match (it.highest.as_ref().map(|(_, state)| state.clone()), attempt) {
            (Some(vote), attempt) => {
                let is_own = attempt.is_some_and(|state| state.op == vote.op);
                self.counters.helped += u64::from(!is_own);
                self.accept(cx, active, it.base, it.ballot, vote);
            }
            (None, Some(own)) => self.accept(cx, active, it.base, it.ballot, own),
            (None, None) => self.propose_batch(cx, active, *it),
        }
    }

    /// Runs the queue on the committed state, and proposes the result.
    fn propose_batch(&mut self, cx: &mut Cx<'_>, active: &mut Active, it: Preparing) {
        let Preparing { base, ballot, over, rest, .. } = it;
        let id = base.as_ref().and_then(|state| state.expiry_id());
        let is_over = cx.replicas.is_quorum(&over)
            || (mutation::is(Mutation::ExpireByOne)
                && over.places(cx.replicas.set, cx.replicas.peers) != 0);
        let voted = active.voted.take().or(id.filter(|_| is_over));
        let mut batch = Batch::on(&base, rest);
        if let Some(voted) = voted {
            batch.expire(voted);
        }
        let is_expired = batch.is_changed();
        if let Some(attempt) = active.attempt.take() {
            active.put_back(attempt.ops.into_iter().map(|(operation, _)| operation).collect());
        }
        let count = active.queue.len().min(BATCH_MAX);
        let run = |operation: Operation| {
            let clock = clock(cx);
            let outcome = batch.run(cx.update, &operation.command, clock);
            (operation, outcome)
        };
        let ops: Vec<(Operation, Outcome)> = active.queue.drain(..count).map(run).collect();
        active.look_until = None;
        active.help = false;
        if !batch.is_changed() {
            self.end_without_proposal(cx, active, &base, ballot, ops);
            return;
        }
        self.seq += 1;
        let (node, incarnation) = (self.env.me, self.env.incarnation);
        let op = OpId { node, incarnation, seq: self.seq };
        let peers = cx.replicas.peers;
        let state = batch.finish(op, |node| peers.get(node).is_some());
        self.counters.proposals += 1;
        self.counters.expired += u64::from(is_expired);
        let deadline = cx.now + self.env.request_timeout;
        active.attempt = Some(Attempt { state: state.clone(), ops, deadline });
        self.accept(cx, active, base, ballot, state);
    }

    /// The promises show the committed state to be the newest at a moment after they were asked
    /// for. Later operations need another look.
    fn end_without_proposal(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        base: &Base,
        ballot: Stamp,
        mut ops: Vec<(Operation, Outcome)>,
    ) {
        active.tries = 0;
        let is_late = |(it, _): &(Operation, Outcome)| it.step >= active.since;
        let late = match mutation::is(Mutation::AnswerNewer) {
            true => None,
            false => ops.iter().position(is_late),
        };
        let later = ops.split_off(late.unwrap_or(ops.len()));
        for (operation, outcome) in ops {
            cx.fx.reply(operation.tag, outcome);
        }
        active.put_back(later.into_iter().map(|(operation, _)| operation).collect());
        self.recovered(cx, active, base, ballot);
    }

    fn accept(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        base: Base,
        ballot: Stamp,
        state: Arc<State>,
    ) {
        let (acks, nacks) = (Tally::default(), Tally::default());
        active.phase = Phase::Accepting(Accepting { base, ballot, state, acks, nacks });
        self.begin_phase(cx, active);
    }

    pub(super) fn on_accepted(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let Phase::Accepting(it) = &mut active.phase else { return };
        it.acks.add(cx.replicas, from.node, from.amnesia);
        if cx.replicas.is_quorum(&it.acks) {
            self.decided(cx, active);
        }
    }

    /// A majority accepted: the state is decided.
    fn decided(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Accepting(it) = std::mem::take(&mut active.phase) else { return };
        let base = Some(it.state.clone());
        active.base = Some(base.clone());
        active.tries = 0;
        active.help = false;
        self.recovered(cx, active, &base, Stamp::NONE);
        let is_own = |attempt: &mut Attempt| attempt.state.op == it.state.op;
        let own = active.attempt.take_if(is_own);
        self.resolve(active, &base);
        let is_own = own.is_some();
        let ops = own.map_or_else(Vec::new, |attempt| attempt.ops);
        if is_own {
            self.schedule_expiry(cx, &active.key, &it.state);
        }
        self.end(cx, active, it.state, ops, Some((it.ballot, it.acks)));
        if !is_own && active.is_idle() {
            self.answer_reads(cx, active, &base, None);
        }
    }

    /// Answers the clients of a decided state and tells the replicas. True under rule Y5: the
    /// answers wait for a majority of commits.
    fn end(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        state: Arc<State>,
        ops: Vec<(Operation, Outcome)>,
        votes: Option<(Stamp, Tally)>,
    ) -> bool {
        let waits = self.waits && !ops.is_empty();
        let id = if waits { self.next_id() } else { 0 };
        for node in cx.replicas.all() {
            let body = match &votes {
                Some((ballot, acks)) if acks.has(cx.replicas, node) => {
                    Body::CommitThin { slot: state.slot, ballot: *ballot, answer: waits }
                }
                None if !waits => continue,
                _ => Body::Commit { state: state.clone(), answer: waits },
            };
            cx.fx.send_now(node, Message::About { id, key: active.key.clone(), body });
        }
        if waits {
            active.id = id;
            active.resend = Resend::default();
            active.wake_at = active.resend.next(cx.now);
            active.phase = Phase::Committing { state, ops, acks: Tally::default() };
        } else {
            ops.into_iter().for_each(|(operation, outcome)| cx.fx.reply(operation.tag, outcome));
        }
        waits
    }

    pub(super) fn on_committed(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let Phase::Committing { ops, acks, .. } = &mut active.phase else { return };
        acks.add(cx.replicas, from.node, from.amnesia);
        if cx.replicas.is_quorum(acks) {
            let ops = std::mem::take(ops);
            ops.into_iter().for_each(|(operation, outcome)| cx.fx.reply(operation.tag, outcome));
            active.phase = Phase::Idle;
        }
    }

    pub(super) fn on_higher_seen(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        promised: Stamp,
    ) {
        active.seen = active.seen.max(promised);
        let nacks = match &mut active.phase {
            Phase::Preparing(it) => &mut it.nacks,
            Phase::Accepting(it) => &mut it.nacks,
            _ => return,
        };
        nacks.add(cx.replicas, from.node, from.amnesia);
        if !cx.replicas.may_win(nacks) {
            self.back_off(cx, active);
        }
    }

    /// Another proposer is ahead: lets it finish, then tries a higher ballot.
    fn back_off(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        active.tries += 1;
        self.counters.duels += 1;
        active.phase = Phase::Pausing;
        active.wake_at = cx.now + pause(cx.rng, active.tries);
    }

    /// The slot is decided: this state or a later one is.
    pub(super) fn on_slot_low(&mut self, cx: &mut Cx<'_>, active: &mut Active, state: Arc<State>) {
        let slot = match &active.phase {
            Phase::Preparing(it) => it.slot,
            Phase::Accepting(it) => it.state.slot,
            _ => return,
        };
        if state.slot >= slot {
            self.learn(cx, &active.key, &state);
            active.base = Some(Some(state));
            active.phase = Phase::Idle;
        }
    }

    /// The timer of a proposer is due.
    pub(super) fn on_active_due(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        self.end_overdue(cx, active);
        self.give_up(cx, active);
        if cx.now < active.wake_at {
            return;
        }
        match &active.phase {
            Phase::Idle => {}
            Phase::Pausing => self.advance(cx, active),
            Phase::Reading(_) => self.on_reading_due(cx, active),
            Phase::Preparing(_) | Phase::Accepting(_) if has_nacks(cx, active) => {
                self.back_off(cx, active);
            }
            _ => {
                active.wake_at = active.resend.next(cx.now);
                ask_missing(cx, active);
            }
        }
    }
}

fn has_nacks(cx: &Cx<'_>, active: &Active) -> bool {
    let nacks = match &active.phase {
        Phase::Preparing(it) => &it.nacks,
        Phase::Accepting(it) => &it.nacks,
        _ => return false,
    };
    nacks.places(cx.replicas.set, cx.replicas.peers) != 0
}

/// Sends the phase's message to every replica whose answer is missing, this node included.
pub(super) fn ask_missing(cx: &mut Cx<'_>, active: &Active) {
    let replicas = cx.replicas;
    for node in replicas.all().filter(|&node| active.lacks(replicas, node)) {
        ask(cx, active, node, false);
    }
}

/// Sends the phase's message; `with_base` to a replica that lacks the slot before.
pub(super) fn ask(cx: &mut Cx<'_>, active: &Active, node: NodeId, with_base: bool) {
    let given = |base: &Base| if with_base { base.clone() } else { None };
    let body = match &active.phase {
        Phase::Idle | Phase::Pausing => return,
        Phase::Reading(_) => Body::Read,
        Phase::Preparing(it) => {
            Body::Propose { slot: it.slot, ballot: it.ballot, base: given(&it.base) }
        }
        Phase::Accepting(it) => {
            Body::Accept { ballot: it.ballot, state: it.state.clone(), base: given(&it.base) }
        }
        Phase::Committing { state, .. } => Body::Commit { state: state.clone(), answer: true },
    };
    let key: Key = active.key.clone();
    cx.fx.send_now(node, Message::About { id: active.id, key, body });
}
