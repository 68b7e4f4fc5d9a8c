//! The proposer: reads, both phases, help for others, and the fate of its attempt.

use std::sync::Arc;

use base::Nanos;
use types::{Key, NodeId, Outcome};

use super::acceptor::adopt;
use super::active::{Accepting, Active, Granted, Phase, Preparing, Tried};
use super::machine::{Cx, Machine};
use super::message::{Body, Message};
use super::register::Report;
use super::reports::Highest;
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::register_cache::CachedRegister;
use crate::toolkit::back_off::{Resend, pause};
use crate::toolkit::batch::Batch;
use crate::toolkit::operation::{Attempt, Operation, answer_reads, clock};
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, OpId, State};

/// Commands of one proposal.
const BATCH_MAX: usize = 512;
/// How long a read waits for the remaining replicas before it proposes.
const PATIENCE: Nanos = Nanos::from_millis(2);

impl Machine {
    /// Begins the next phase.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        active.phase = Phase::Idle;
        active.wake_at = Nanos::MAX;
        if !active.is_wanted() {
            return;
        }
        let is_busy = active.tried.is_some() || active.voted.is_some() || active.help;
        if !is_busy && active.queue.iter().all(Operation::is_read) {
            return self.begin(cx, active, Phase::Reading(Box::default()));
        }
        match self.granted.remove(&active.key) {
            Some(it) if !is_busy && can_use(cx, &it) => self.propose_directly(cx, active, it),
            _ => self.prepare(cx, active),
        }
    }

    /// Begins a phase that answers operations from before it.
    fn begin(&mut self, cx: &mut Cx<'_>, active: &mut Active, phase: Phase) {
        active.since = self.next_step();
        self.begin_part(cx, active, phase);
    }

    fn begin_part(&mut self, cx: &mut Cx<'_>, active: &mut Active, phase: Phase) {
        active.phase = phase;
        active.id = self.next_id();
        active.resend = Resend::default();
        active.wake_at = active.resend.next(cx.now);
        ask_missing(cx, active);
    }

    fn prepare(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if let CachedRegister::Present(register) = cx.cache.get(&active.key) {
            active.seen = active.seen.max(register.promised);
        }
        let ballot = self.mint(active.seen);
        active.seen = ballot;
        let (reports, refused) = Default::default();
        self.begin(cx, active, Phase::Preparing(Box::new(Preparing { ballot, reports, refused })));
    }

    pub(super) fn on_report(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        report: Report,
    ) {
        let sender = (from.node, from.amnesia);
        match &mut active.phase {
            Phase::Reading(reports) => {
                reports.add(cx.replicas, sender, report);
                let is_all = cx.replicas.is_all(&reports.tally);
                match reports.highest(cx.replicas) {
                    None => {}
                    Some(found) if is_answer(&found) => self.settle_read(cx, active, found),
                    Some(_) if is_all => need_help(active),
                    Some(_) => active.wake_at = active.wake_at.min(cx.now + PATIENCE),
                }
            }
            Phase::Preparing(it) if report.promised == it.ballot => {
                it.reports.add(cx.replicas, sender, report);
                if let Some(found) = it.reports.highest(cx.replicas) {
                    self.promised(cx, active, found);
                }
            }
            _ => {}
        }
    }

    fn settle_read(&mut self, cx: &mut Cx<'_>, active: &mut Active, found: Highest) {
        let phase = std::mem::take(&mut active.phase);
        let Phase::Reading(reports) = phase else { return };
        if let Some(state) = &found.state {
            // Repeats the proposer's message to replicas that missed it.
            for node in reports.lagging(cx.replicas, found.ballot) {
                let ballot = found.ballot;
                let body = Body::Accept { ballot, next: ballot, state: state.clone() };
                cx.fx.send_now(node, Message::About { id: 0, key: active.key.clone(), body });
            }
        }
        let id = found.state.as_ref().and_then(|state| state.expiry_id());
        let (over, rest) = id.map_or((0, None), |id| reports.votes(cx.replicas, id));
        let is_over = cx.replicas.set.is_quorum_of(over)
            || (over != 0 && mutation::is(Mutation::ExpireByOne));
        let base = found.state.clone();
        self.recovered(cx, active, found.promised, found.ballot, found.state);
        if is_over {
            // The reads wait for the tombstone.
            active.voted = id;
            active.look_until = Some(cx.now + self.env.request_timeout);
            return;
        }
        if active.look_until.take().is_some() {
            self.expire_later(cx, &active.key, rest);
        }
        answer_reads(cx, &mut active.queue, active.since, &base, rest);
    }

    /// The own register, if it was forgotten before the phase began, has this content.
    fn recovered(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        promised: Stamp,
        ballot: Stamp,
        state: Base,
    ) {
        if active.recover.is_some_and(|step| step < active.since) {
            active.recover = None;
            self.recovering.remove(&active.key);
            adopt(cx, &active.key, Report { promised, ballot, state, countdown: None });
            self.pager.on_recovered_key(cx, &active.key);
        }
    }

    /// A majority promised. An attempt whose fate is open comes before new commands.
    fn promised(&mut self, cx: &mut Cx<'_>, active: &mut Active, mut found: Highest) {
        let Phase::Preparing(it) = std::mem::take(&mut active.phase) else { return };
        let ballot = it.ballot;
        if mutation::is(Mutation::IgnoreLowerVotes) {
            (found.ballot, found.state, found.is_chosen) = (Stamp::NONE, None, true);
        }
        if let Some(mut tried) = active.tried.take() {
            let is_done = is_done(&found.state, &tried);
            let is_dead = found.is_chosen && found.ballot > tried.ballot;
            let is_same_base = op_of(&found.state) == op_of(&tried.base);
            if is_done && found.is_chosen {
                self.answer(cx, active, tried);
                active.tries = 0;
                return self.recovered(cx, active, ballot, found.ballot, found.state);
            } else if is_done {
                active.tried = Some(tried);
                return self.accept_found(cx, active, ballot, found.state);
            } else if mutation::is(Mutation::RecomputeAttempt) || is_dead {
                active.put_back(tried.attempt.ops.into_iter().map(|(operation, _)| operation));
            } else if is_same_base {
                tried.ballot = ballot;
                let state = tried.attempt.state.clone();
                active.tried = Some(tried);
                return self.accept(cx, active, ballot, state);
            } else {
                // Once this state is chosen under the higher ballot, the attempt is dead.
                active.tried = Some(tried);
                return self.accept_found(cx, active, ballot, found.state);
            }
        }
        let id = found.state.as_ref().and_then(|state| state.expiry_id());
        let (over, rest) = id.map_or((0, None), |id| it.reports.votes(cx.replicas, id));
        let is_over = cx.replicas.set.is_quorum_of(over)
            || (over != 0 && mutation::is(Mutation::ExpireByOne));
        let voted = active.voted.take().or(id.filter(|_| is_over));
        let mut batch = Batch::on(&found.state, rest);
        if let Some(voted) = voted {
            batch.expire(voted);
        }
        self.counters.expired += u64::from(batch.is_changed());
        let ops = run(cx, active, &mut batch);
        if batch.is_changed() {
            active.look_until = None;
            return self.propose(cx, active, ballot, batch, ops);
        }
        if !found.is_chosen {
            active.put_back(ops.into_iter().map(|(operation, _)| operation));
            return self.accept_found(cx, active, ballot, found.state);
        }
        (active.look_until, active.help, active.tries) = (None, false, 0);
        self.answer_unchanged(cx, active, ops);
        self.recovered(cx, active, ballot, found.ballot, found.state);
    }

    /// This state was the newest when the phase began. Later operations need another look.
    fn answer_unchanged(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        mut ops: Vec<(Operation, Outcome)>,
    ) {
        let is_late = |(it, _): &(Operation, Outcome)| it.step >= active.since;
        let late = match mutation::is(Mutation::AnswerNewer) {
            true => None,
            false => ops.iter().position(is_late),
        };
        let later = ops.split_off(late.unwrap_or(ops.len()));
        ops.into_iter().for_each(|(operation, outcome)| cx.fx.reply(operation.tag, outcome));
        active.put_back(later.into_iter().map(|(operation, _)| operation));
    }

    /// Proposes under a granted ballot, without phase 1.
    fn propose_directly(&mut self, cx: &mut Cx<'_>, active: &mut Active, granted: Granted) {
        active.since = self.next_step();
        let mut batch = Batch::on(&granted.base, None);
        let ops = run(cx, active, &mut batch);
        if batch.is_changed() {
            self.counters.direct += 1;
            return self.propose(cx, active, granted.ballot, batch, ops);
        }
        // Another proposer may have changed the key meanwhile.
        active.put_back(ops.into_iter().map(|(operation, _)| operation));
        self.prepare(cx, active);
    }

    fn propose(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        ballot: Stamp,
        batch: Batch<'_>,
        ops: Vec<(Operation, Outcome)>,
    ) {
        let base = batch.base().clone();
        let state = self.finish(cx, batch);
        self.counters.proposals += 1;
        let deadline = cx.now + self.env.request_timeout;
        let attempt = Attempt { state: state.clone(), ops, deadline };
        active.tried = Some(Tried { attempt, base, ballot });
        self.accept(cx, active, ballot, state);
    }

    fn finish(&mut self, cx: &Cx<'_>, batch: Batch<'_>) -> Arc<State> {
        self.seq += 1;
        let (node, incarnation) = (self.env.me, self.env.incarnation);
        let peers = cx.replicas.peers;
        let op = OpId { node, incarnation, seq: self.seq };
        batch.finish(op, |node| peers.get(node).is_some())
    }

    /// Has a state chosen as it is. A key without one gets a tombstone.
    fn accept_found(&mut self, cx: &mut Cx<'_>, active: &mut Active, ballot: Stamp, found: Base) {
        self.counters.helped += 1;
        let state = match &found {
            Some(state) => state.clone(),
            None => self.finish(cx, Batch::on(&found, None)),
        };
        self.accept(cx, active, ballot, state);
    }

    fn accept(&mut self, cx: &mut Cx<'_>, active: &mut Active, ballot: Stamp, state: Arc<State>) {
        let next = self.mint(active.seen.max(ballot));
        active.seen = next;
        let (acks, refused) = Default::default();
        let phase = Accepting { ballot, next, state, acks, refused };
        self.begin_part(cx, active, Phase::Accepting(Box::new(phase)));
    }

    pub(super) fn on_accepted(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let Phase::Accepting(it) = &mut active.phase else { return };
        it.acks.add(cx.replicas, from.node, from.amnesia);
        if cx.replicas.is_quorum(&it.acks) {
            self.chosen(cx, active);
        }
    }

    /// A majority accepted: the state is chosen.
    fn chosen(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Accepting(it) = std::mem::take(&mut active.phase) else { return };
        let Accepting { ballot, next, state, acks, .. } = *it;
        let base = Some(state);
        active.tries = 0;
        active.help = false;
        if let Some(tried) = active.tried.take() {
            if is_done(&base, &tried) {
                self.answer(cx, active, tried);
            } else {
                // All later states follow this one, which does not contain the attempt.
                active.put_back(tried.attempt.ops.into_iter().map(|(operation, _)| operation));
            }
        }
        if base.as_ref().is_some_and(|state| state.expiry.is_none()) {
            answer_reads(cx, &mut active.queue, active.since, &base, None);
        }
        let epoch = cx.replicas.epoch();
        let granted = Granted { ballot: next, base: base.clone(), promises: acks, epoch };
        self.grant(&active.key, granted);
        self.recovered(cx, active, next, ballot, base);
    }

    fn answer(&mut self, cx: &mut Cx<'_>, active: &Active, tried: Tried) {
        self.schedule_expiry(cx, &active.key, &tried.attempt.state);
        for (operation, outcome) in tried.attempt.ops {
            cx.fx.reply(operation.tag, outcome);
        }
    }

    pub(super) fn on_refused(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        promised: Stamp,
    ) {
        active.seen = active.seen.max(promised);
        let Some(refused) = active.refused() else { return };
        refused.add(cx.replicas, from.node, from.amnesia);
        if !cx.replicas.may_win(refused) {
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

    /// The timer of a proposer is due.
    pub(super) fn on_active_due(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        self.end_overdue(cx, active);
        self.give_up(cx, active);
        if cx.now < active.wake_at {
            return;
        }
        let replicas = cx.replicas;
        let is_refused = |it: &mut Tally| it.places(replicas.set, replicas.peers) != 0;
        if active.refused().is_some_and(is_refused) {
            return self.back_off(cx, active);
        }
        match &active.phase {
            Phase::Idle => return,
            Phase::Pausing => return self.advance(cx, active),
            Phase::Reading(reports) => match reports.highest(cx.replicas) {
                Some(found) if is_answer(&found) => return self.settle_read(cx, active, found),
                Some(_) => return need_help(active),
                None => {}
            },
            Phase::Preparing(_) | Phase::Accepting(_) => {}
        }
        active.wake_at = active.resend.next(cx.now);
        ask_missing(cx, active);
    }
}

/// True if the promises still count, and phase 1 is not needed for a deadline.
fn can_use(cx: &Cx<'_>, granted: &Granted) -> bool {
    // Only phase 1 asks whether a time to live is over.
    let expires = granted.base.as_ref().is_some_and(|state| state.expiry.is_some());
    !expires && granted.epoch == cx.replicas.epoch() && cx.replicas.is_quorum(&granted.promises)
}

/// True if the state is the attempt, or was computed from it.
fn is_done(state: &Base, tried: &Tried) -> bool {
    let has_it = |state: &Arc<State>| state.done.has(tried.attempt.op());
    state.as_ref().is_some_and(has_it) && !mutation::is(Mutation::NoRegistry)
}

/// The operation that made a state names it.
fn op_of(base: &Base) -> Option<OpId> {
    base.as_ref().map(|state| state.op)
}

fn is_answer(found: &Highest) -> bool {
    found.is_chosen || mutation::is(Mutation::NoWriteBack)
}

/// Only a proposal decides.
fn need_help(active: &mut Active) {
    active.help = true;
    active.phase = Phase::Idle;
}

/// Runs the queue.
fn run(cx: &mut Cx<'_>, active: &mut Active, batch: &mut Batch<'_>) -> Vec<(Operation, Outcome)> {
    let count = active.queue.len().min(BATCH_MAX);
    let run = |operation: Operation| {
        let clock = clock(cx);
        let outcome = batch.run(cx.update, &operation.command, clock);
        (operation, outcome)
    };
    active.queue.drain(..count).map(run).collect()
}

/// Sends the phase's message to every replica whose answer is missing, this node included.
fn ask_missing(cx: &mut Cx<'_>, active: &Active) {
    let replicas = cx.replicas;
    for node in replicas.all().filter(|&node| active.lacks(replicas, node)) {
        ask(cx, active, node);
    }
}

fn ask(cx: &mut Cx<'_>, active: &Active, node: NodeId) {
    let body = match &active.phase {
        Phase::Idle | Phase::Pausing => return,
        Phase::Reading(_) => Body::Read,
        Phase::Preparing(it) => Body::Prepare { ballot: it.ballot },
        Phase::Accepting(it) => {
            let Accepting { ballot, next, ref state, .. } = **it;
            Body::Accept { ballot, next, state: state.clone() }
        }
    };
    let key: Key = active.key.clone();
    cx.fx.send_now(node, Message::About { id: active.id, key, body });
}
