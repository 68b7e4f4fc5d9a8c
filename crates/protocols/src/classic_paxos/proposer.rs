//! The proposer: both phases of a slot, help for others, and the fate of its attempt. [spec 3.5]

use std::sync::Arc;

use types::{Key, NodeId};

use super::acceptor;
use super::message::{About, Body, Message};
use super::register::{Decided, Report};
use super::reports::{lacks, newest_committed};
use super::rounds::{Accepting, Active, Attempt, Cx, Machine, Phase, Preparing, Round, Slots};
use crate::mutation::{self, Mutation};
use crate::protocol::{Peer, Stats};
use crate::quorum::Tally;
use crate::register_cache::CachedRegister;
use crate::replicas::Replicas;
use crate::toolkit::back_off::Resend;
use crate::toolkit::countdown::Countdown;
use crate::toolkit::operation::answer_reads;
use crate::toolkit::proposers::{Counters, Ops, Rules, is_over, settle_look};
use crate::toolkit::report::Reports;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, State, slot_of};

/// The pause of a proposer that finds another one at work, as attempts in vain.
const BUSY: u32 = 2;

impl Rules for Slots {
    fn name(&self) -> &'static str {
        self.name
    }

    fn advance(machine: &mut Machine, cx: &mut Cx<'_>, active: &mut Active) {
        machine.next_phase(cx, active);
    }

    fn on_body(machine: &mut Machine, cx: &mut Cx<'_>, from: Peer, about: (u64, &Key), body: Body) {
        acceptor::on_body(machine, cx, from, about, body);
    }

    /// Replicas that lag count the time to live from now on.
    fn on_read(cx: &mut Cx<'_>, active: &mut Active, reports: &Reports<Report>, found: &Decided) {
        active.notes.base = Some(found.base.clone());
        let Some(state) = &found.base else { return };
        for node in reports.replicas_with(cx.replicas, |it| lacks(it, state)) {
            let body = About::Own(Body::Commit { state: state.clone(), answer: false });
            cx.fx.send_now(node, Message::About { id: 0, key: active.key.clone(), body });
        }
    }

    fn on_undecided(active: &mut Active, reports: &Reports<Report>, replicas: Replicas<'_>) {
        active.notes.base = Some(newest_committed(&reports.by_place, reports.counted(replicas)));
    }

    fn stats(&self, counters: &Counters, stats: &mut Stats) {
        stats.add("classic_proposals", counters.proposals);
        stats.add("classic_helped", counters.helped);
        stats.add("classic_duels", counters.duels);
    }
}

impl Machine {
    /// Begins the next phase.
    fn next_phase(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let base = known_base(cx, active);
        if let Some(base) = &base
            && let Some(done) = resolve(active, base)
        {
            settle_look(active, &done.state);
            if self.end(cx, active, done.state, done.ops, None) {
                return;
            }
        }
        if !active.is_wanted() {
            return;
        }
        match base {
            Some(base) if !active.only_reads() => self.prepare_or_pause(cx, active, base),
            _ => self.begin_read(cx, active),
        }
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
            return self.pause(cx, active, BUSY);
        }
        self.prepare(cx, active, base);
    }

    fn prepare(&mut self, cx: &mut Cx<'_>, active: &mut Active, base: Base) {
        if let CachedRegister::Present(register) = cx.cache.get(&active.key) {
            active.seen = active.seen.max(register.promised);
        }
        let ballot = self.mint(active.seen);
        active.seen = ballot;
        let round = Round::Preparing(Box::new(Preparing {
            slot: slot_of(&base) + 1,
            base,
            ballot,
            promises: Tally::default(),
            refused: Tally::default(),
            highest: None,
            over: Tally::default(),
            rest: None,
        }));
        self.begin(cx, active, Phase::Asking(round));
    }

    pub(super) fn on_promise(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        from: Peer,
        accepted: Option<(Stamp, Arc<State>)>,
        countdown: Countdown,
    ) {
        let Phase::Asking(Round::Preparing(it)) = &mut active.phase else { return };
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
        let phase = std::mem::take(&mut active.phase);
        let Phase::Asking(Round::Preparing(it)) = phase else { return };
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
        let over = over.places(cx.replicas.set, cx.replicas.peers);
        if let Some(attempt) = active.attempt.take() {
            active.put_back(attempt.ops);
        }
        let is_over = is_over(cx.replicas, over);
        if !is_over && active.voted.is_none() {
            let id = base.as_ref().and_then(|state| state.expiry_id());
            self.end_look(cx, active, (id, rest));
        }
        let (batch, ops) = self.run(cx, active, &base, (is_over, rest));
        active.help = false;
        if batch.is_changed() {
            let state = self.attempt(cx, active, (batch, ops), ());
            return self.accept(cx, active, base, ballot, state);
        }
        // The promises show the committed state to be the newest at a moment after they were asked
        // for.
        active.tries = 0;
        self.answer_unchanged(cx, active, ops);
        self.recovered(cx, active, Decided { base, promised: ballot });
    }

    fn accept(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        base: Base,
        ballot: Stamp,
        state: Arc<State>,
    ) {
        let (acks, refused) = Default::default();
        let round = Round::Accepting(Accepting { base, ballot, state, acks, refused });
        self.continue_with(cx, active, Phase::Asking(round));
    }

    pub(super) fn on_accepted(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let Phase::Asking(Round::Accepting(it)) = &mut active.phase else { return };
        it.acks.add(cx.replicas, from.node, from.amnesia);
        if cx.replicas.is_quorum(&it.acks) {
            self.decided(cx, active);
        }
    }

    /// A majority accepted: the state is decided.
    fn decided(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let phase = std::mem::take(&mut active.phase);
        let Phase::Asking(Round::Accepting(it)) = phase else { return };
        let base = Some(it.state.clone());
        active.notes.base = Some(base.clone());
        active.tries = 0;
        active.help = false;
        let found = Decided { base: base.clone(), promised: Stamp::NONE };
        self.recovered(cx, active, found);
        let is_own = |attempt: &mut Attempt| attempt.state.op == it.state.op;
        let own = active.attempt.take_if(is_own).or_else(|| resolve(active, &base));
        let is_own = own.is_some();
        if let Some(attempt) = &own {
            settle_look(active, &attempt.state);
        }
        let ops = own.map_or_else(Vec::new, |attempt| attempt.ops);
        self.end(cx, active, it.state, ops, Some((it.ballot, it.acks)));
        // Only reports of a quorum tell how much of a time to live is left.
        let expires = base.as_ref().is_some_and(|state| state.expiry.is_some());
        if !is_own && active.is_idle() && !expires {
            answer_reads(cx, &mut active.queue, active.since, &base, None);
        }
    }

    /// Answers the clients of a decided state and tells the replicas. True under rule Y5: the
    /// answers wait for a majority of commits.
    fn end(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        state: Arc<State>,
        ops: Ops,
        votes: Option<(Stamp, Tally)>,
    ) -> bool {
        let waits = self.rules.waits && !ops.is_empty();
        let id = if waits { self.next_id() } else { 0 };
        for node in cx.replicas.all() {
            let body = match &votes {
                Some((ballot, acks)) if acks.has(cx.replicas, node) => {
                    Body::CommitThin { slot: state.slot, ballot: *ballot, answer: waits }
                }
                None if !waits => continue,
                _ => Body::Commit { state: state.clone(), answer: waits },
            };
            cx.fx.send_now(
                node,
                Message::About { id, key: active.key.clone(), body: About::Own(body) },
            );
        }
        if waits {
            active.id = id;
            active.resend = Resend::default();
            active.wake_at = active.resend.next(cx.now);
            let acks = Tally::default();
            active.phase = Phase::Asking(Round::Committing { state, ops, acks });
        } else {
            ops.into_iter().for_each(|(operation, outcome)| cx.fx.reply(operation.tag, outcome));
        }
        waits
    }

    pub(super) fn on_committed(&mut self, cx: &mut Cx<'_>, active: &mut Active, from: Peer) {
        let Phase::Asking(Round::Committing { ops, acks, .. }) = &mut active.phase else { return };
        acks.add(cx.replicas, from.node, from.amnesia);
        if cx.replicas.is_quorum(acks) {
            let ops = std::mem::take(ops);
            ops.into_iter().for_each(|(operation, outcome)| cx.fx.reply(operation.tag, outcome));
            active.phase = Phase::Idle;
        }
    }

    /// The slot is decided: this state or a later one is.
    pub(super) fn on_slot_low(&mut self, cx: &mut Cx<'_>, active: &mut Active, state: Arc<State>) {
        let Phase::Asking(round) = &active.phase else { return };
        if round.slot().is_some_and(|slot| state.slot >= slot) {
            acceptor::learn(cx, &active.key, &state);
            self.watch(cx, &active.key);
            active.notes.base = Some(Some(state));
            active.phase = Phase::Idle;
        }
    }

    /// Sends the question of the phase again, with the slot before, to a replica that lacks that.
    pub(super) fn ask_with_base(&self, cx: &mut Cx<'_>, active: &Active, node: NodeId) {
        if let Phase::Asking(round) = &active.phase {
            let body = About::Own(round.question_with_base());
            cx.fx.send_now(node, Message::About { id: active.id, key: active.key.clone(), body });
        }
    }
}

/// Decides the fate of the attempt by a decided state of its slot or a later one. Returns it if it
/// is done.
fn resolve(active: &mut Active, base: &Base) -> Option<Attempt> {
    let is_over = |attempt: &mut Attempt| slot_of(base) >= attempt.state.slot;
    let attempt = active.attempt.take_if(is_over)?;
    let is_done = base.as_ref().is_some_and(|state| state.done.has(attempt.op()));
    if is_done && !mutation::is(Mutation::NoRegistry) {
        return Some(attempt);
    }
    // It will never take effect: its commands run anew.
    active.put_back(attempt.ops);
    None
}

/// The newest state that this node knows to be decided; `None`: it must ask.
fn known_base(cx: &Cx<'_>, active: &Active) -> Option<Base> {
    let own = match cx.cache.get(&active.key) {
        _ if !cx.replicas.set.has_me() => None,
        CachedRegister::Present(register) => Some(register.committed.clone()),
        CachedRegister::Absent => Some(None),
        CachedRegister::Lost if mutation::is(Mutation::NoRecovery) => Some(None),
        CachedRegister::Lost => None,
    };
    match (own, &active.notes.base) {
        (Some(own), Some(seen)) if slot_of(seen) > slot_of(&own) => Some(seen.clone()),
        (Some(own), _) => Some(own),
        (None, seen) => seen.clone(),
    }
}
