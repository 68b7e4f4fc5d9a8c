//! The proposer: both phases, help for others, and the fate of its attempt.

use std::sync::Arc;

use types::Key;

use super::acceptor;
use super::grants::{Granted, Grants};
use super::message::{About, Body, Message};
use super::register::Report;
use super::reports::{Highest, highest};
use super::rounds::{Accepting, Active, Attempt, Basis, Cx, Machine, Phase, Preparing, Round};
use crate::mutation::{self, Mutation};
use crate::protocol::{Peer, Stats};
use crate::register_cache::CachedRegister;
use crate::replicas::Replicas;
use crate::toolkit::batch::Batch;
use crate::toolkit::operation::answer_reads;
use crate::toolkit::proposers::{Counters, Ops, Rules, is_over, settle_look};
use crate::toolkit::report::Reports;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, OpId, Registry, State};

impl Rules for Grants {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn advance(machine: &mut Machine, cx: &mut Cx<'_>, active: &mut Active) {
        machine.next_phase(cx, active);
    }

    fn on_body(machine: &mut Machine, cx: &mut Cx<'_>, from: Peer, about: (u64, &Key), body: Body) {
        acceptor::on_body(machine, cx, from, about, body);
    }

    fn on_report(
        machine: &mut Machine,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        report: Report,
    ) {
        machine.on_promise(cx, active, from, report);
    }

    fn read(reports: &Reports<Report>, replicas: Replicas<'_>) -> Option<Report> {
        let highest = highest(replicas.set, reports.counted(replicas), &reports.by_place)?;
        let is_answer = highest.is_chosen || mutation::is(Mutation::NoWriteBack);
        is_answer.then_some(highest.report)
    }

    /// Repeats the proposer's message to replicas that missed it.
    fn on_read(cx: &mut Cx<'_>, active: &mut Active, reports: &Reports<Report>, found: &Report) {
        let Some(state) = &found.state else { return };
        let ballot = found.ballot;
        for node in reports.replicas_with(cx.replicas, |it| it.ballot < ballot) {
            let body = About::Own(Body::Accept { ballot, next: ballot, state: state.clone() });
            cx.fx.send_now(node, Message::About { id: 0, key: active.key.clone(), body });
        }
    }

    fn stats(&self, counters: &Counters, stats: &mut Stats) {
        stats.add("caspaxos_proposals", counters.proposals);
        stats.add("caspaxos_direct", self.used);
        stats.add("caspaxos_helped", counters.helped);
        stats.add("caspaxos_duels", counters.duels);
    }
}

impl Machine {
    /// Begins the next phase.
    fn next_phase(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if !active.is_wanted() {
            return;
        }
        let is_busy = active.attempt.is_some() || active.voted.is_some() || active.help;
        if active.only_reads() {
            return self.begin_read(cx, active);
        }
        match self.rules.take(&active.key) {
            Some(it) if !is_busy && it.is_usable(cx.replicas) => {
                self.propose_directly(cx, active, it);
            }
            _ => self.prepare(cx, active),
        }
    }

    fn prepare(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if let CachedRegister::Present(register) = cx.cache.get(&active.key) {
            active.seen = active.seen.max(register.promised);
        }
        let ballot = self.mint(active.seen);
        active.seen = ballot;
        let (reports, refused) = Default::default();
        let round = Round::Preparing(Box::new(Preparing { ballot, reports, refused }));
        self.begin(cx, active, Phase::Asking(round));
    }

    fn on_promise(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer, report: Report) {
        let Phase::Asking(Round::Preparing(it)) = &mut active.phase else { return };
        if report.promised != it.ballot {
            return;
        }
        it.reports.add(cx.replicas, (from.node, from.amnesia), report);
        let counted = it.reports.counted(cx.replicas);
        if let Some(found) = highest(cx.replicas.set, counted, &it.reports.by_place) {
            self.promised(cx, active, found);
        }
    }

    /// A majority promised. An attempt whose fate is open comes before new commands.
    fn promised(&mut self, cx: &mut Cx<'_>, active: &mut Active, found: Highest) {
        let phase = std::mem::take(&mut active.phase);
        let Phase::Asking(Round::Preparing(it)) = phase else { return };
        let Highest { report: mut found, mut is_chosen } = found;
        found.promised = it.ballot;
        if mutation::is(Mutation::IgnoreLowerVotes) {
            (found.ballot, found.state, is_chosen) = (Stamp::NONE, None, true);
        }
        if let Some(mut attempt) = active.attempt.take() {
            let is_done = is_done(&found.state, &attempt);
            let is_later =
                found.ballot > attempt.basis.ballot || mutation::is(Mutation::LowExclusion);
            let is_dead = is_chosen && is_later;
            let is_same_base = op_of(&found.state) == op_of(&attempt.basis.base);
            if is_done && (is_chosen || mutation::is(Mutation::EarlyOk)) {
                self.answer_attempt(cx, active, attempt);
                active.tries = 0;
                return self.recovered(cx, active, found);
            } else if is_done {
                active.attempt = Some(attempt);
                return self.accept_found(cx, active, found);
            } else if mutation::is(Mutation::RecomputeAttempt) || is_dead {
                active.put_back(attempt.ops);
            } else if is_same_base {
                attempt.basis.ballot = it.ballot;
                let state = attempt.state.clone();
                active.attempt = Some(attempt);
                return self.accept(cx, active, it.ballot, state);
            } else {
                // Once this state is chosen under the higher ballot, the attempt is dead.
                active.attempt = Some(attempt);
                return self.accept_found(cx, active, found);
            }
        }
        let id = found.state.as_ref().and_then(|state| state.expiry_id());
        let (over, rest) = id.map_or((0, None), |id| it.reports.votes(cx.replicas, id));
        let is_over = is_over(cx.replicas, over);
        if !is_over && active.voted.is_none() {
            self.end_look(cx, active, (id, rest));
        }
        let time = (is_over, rest);
        let (batch, ops) = self.run(cx, active, &found.state, time);
        if batch.is_changed() {
            return self.propose(cx, active, it.ballot, (batch, ops));
        }
        if !is_chosen && !mutation::is(Mutation::AnswersUnchosen) {
            active.put_back(ops);
            return self.accept_found(cx, active, found);
        }
        (active.help, active.tries) = (false, 0);
        self.answer_unchanged(cx, active, ops);
        self.recovered(cx, active, found);
    }

    /// Proposes under a granted ballot, without phase 1.
    fn propose_directly(&mut self, cx: &mut Cx<'_>, active: &mut Active, granted: Granted) {
        active.since = self.next_step();
        let (batch, ops) = self.run(cx, active, &granted.base, (false, None));
        if batch.is_changed() {
            self.rules.used += 1;
            return self.propose(cx, active, granted.ballot, (batch, ops));
        }
        // Another proposer may have changed the key meanwhile.
        active.put_back(ops);
        self.prepare(cx, active);
    }

    fn propose(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        ballot: Stamp,
        (batch, ops): (Batch<'_>, Ops),
    ) {
        let basis = Basis { base: batch.base().clone(), ballot };
        let state = self.attempt(cx, active, (batch, ops), basis);
        self.accept(cx, active, ballot, state);
    }

    /// Has a state chosen as it is, under the ballot promised. A key without one gets a tombstone.
    fn accept_found(&mut self, cx: &mut Cx<'_>, active: &mut Active, found: Report) {
        self.counters.helped += 1;
        let state = match &found.state {
            Some(state) => state.clone(),
            None => self.tombstone(cx),
        };
        self.accept(cx, active, found.promised, state);
    }

    /// The first state of a key, without a value. It has a name of this node, and contains none of
    /// the node's earlier attempts.
    fn tombstone(&mut self, cx: &Cx<'_>) -> Arc<State> {
        let named = self.finish(cx, Batch::on(&None, None));
        match mutation::is(Mutation::TombstoneCovers) {
            true => named,
            false => Arc::new(State { done: Registry::default(), ..State::clone(&named) }),
        }
    }

    fn accept(&mut self, cx: &mut Cx<'_>, active: &mut Active, ballot: Stamp, state: Arc<State>) {
        let next = self.mint(active.seen.max(ballot));
        active.seen = next;
        let (acks, refused) = Default::default();
        let round = Accepting { ballot, next, state, acks, refused };
        self.continue_with(cx, active, Phase::Asking(Round::Accepting(Box::new(round))));
    }

    pub(super) fn on_accepted(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let Phase::Asking(Round::Accepting(it)) = &mut active.phase else { return };
        it.acks.add(cx.replicas, from.node, from.amnesia);
        if cx.replicas.is_quorum(&it.acks) {
            self.chosen(cx, active);
        }
    }

    /// A majority accepted: the state is chosen.
    fn chosen(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let phase = std::mem::take(&mut active.phase);
        let Phase::Asking(Round::Accepting(it)) = phase else { return };
        let Accepting { ballot, next, state, acks, .. } = *it;
        let base = Some(state);
        active.tries = 0;
        active.help = false;
        if let Some(attempt) = active.attempt.take() {
            if is_done(&base, &attempt) {
                self.answer_attempt(cx, active, attempt);
            } else {
                // All later states follow this one, which does not contain the attempt.
                active.put_back(attempt.ops);
            }
        }
        if base.as_ref().is_some_and(|state| state.expiry.is_none()) {
            answer_reads(cx, &mut active.queue, active.since, &base, None);
        }
        let epoch = cx.replicas.epoch();
        let granted = Granted { ballot: next, base: base.clone(), promises: acks, epoch };
        self.rules.put(&active.key, granted);
        let found = Report { promised: next, ballot, state: base, countdown: None };
        self.recovered(cx, active, found);
    }

    fn answer_attempt(&mut self, cx: &mut Cx<'_>, active: &mut Active, attempt: Attempt) {
        settle_look(active, &attempt.state);
        for (operation, outcome) in attempt.ops {
            cx.fx.reply(operation.tag, outcome);
        }
    }
}

/// True if the state is the attempt, or was computed from it.
fn is_done(state: &Base, attempt: &Attempt) -> bool {
    let has_it = |state: &Arc<State>| state.done.has(attempt.op());
    state.as_ref().is_some_and(has_it) && !mutation::is(Mutation::NoRegistry)
}

/// The operation that made a state names it.
fn op_of(base: &Base) -> Option<OpId> {
    base.as_ref().map(|state| state.op)
}
