//! Quorum reads [spec 9.5]: one round trip that changes no register.
//!
//! They answer reads, and commands without effect on a chosen state. They learn whether an expiry
//! is over, and the fate of attempts.

use base::Nanos;
use types::{Absence, Access, Key, NodeId, Outcome, Round, SessionId};

use super::ancestry::{Ancestry, fate, outcome_of};
use super::hooks::Hooks;
use super::instance::Core;
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::rmwpaxos::context::{Cx, clock, held};
use crate::rmwpaxos::expiry;
use crate::rmwpaxos::message::{Message, Report};
use crate::rmwpaxos::once::table::EntryId;
use crate::rmwpaxos::once::window;
use crate::rmwpaxos::progress::active::{Active, LockedOut, Purpose, ReadRound};
use crate::rmwpaxos::progress::operation::{Operation, Source};
use crate::rmwpaxos::progress::reports::Reports;
use crate::rmwpaxos::record::state::State;
use crate::rmwpaxos::record::state_builder::StateBuilder;

/// Reads of one quorum before a proposal decides. [spec 9.5, read 3]
const POLLS_MAX: u32 = 3;
/// An acceptor that lags behind a decided round this old is repaired by readers.
const REPAIR_AFTER: Nanos = Nanos::from_millis(50);

const PATIENCE_MIN: Nanos = Nanos::from_millis(2);
const PATIENCE_MAX: Nanos = Nanos::from_millis(40);

/// The result of the reports of a quorum.
enum Decision {
    /// This round is chosen; `None` stands for nil.
    Chosen(Round, Option<State>),
    /// Not enough reports, or they disagree.
    Open,
}

impl Core {
    /// Starts the next quorum read for the waiting reads. One runs at a time; later reads share the
    /// next one.
    pub(crate) fn start_read(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if active.read.is_none() && !active.read_queue.is_empty() {
            let operations = std::mem::take(&mut active.read_queue);
            self.read_quorum(cx, active, Purpose::Answer, operations);
        }
    }

    pub(crate) fn read_quorum(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        purpose: Purpose,
        operations: Vec<Operation>,
    ) {
        self.counters.reads += 1;
        let round = ReadRound {
            id: self.next_id(),
            purpose,
            operations,
            reports: Reports::default(),
            polls: 1,
            patient_until: cx.now + self.patience(),
            sent: cx.now,
            resend_at: cx.now + self.round_trip.resend_after(0),
            resends: 0,
        };
        ask_all(cx, &active.key, &round);
        active.read = Some(round);
    }

    /// How long to wait for members that did not answer yet: twice as long as proposals take.
    pub(crate) fn patience(&self) -> Nanos {
        self.round_trip.times(2).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    /// Repeats a quorum read that another node's proposals left undecided.
    fn poll_again(&mut self, cx: &mut Cx<'_>, key: &Key, mut round: ReadRound) -> ReadRound {
        round.id = self.next_id();
        round.polls += 1;
        round.reports = Reports::default();
        round.sent = cx.now;
        round.resend_at = cx.now + self.round_trip.resend_after(0);
        ask_all(cx, key, &round);
        round
    }

    pub(crate) fn on_state(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, id): (&Key, u64),
        mut report: Report,
        hooks: &mut dyn Hooks,
    ) {
        let asked = |active: &Active| active.read.as_ref().is_some_and(|round| round.id == id);
        if !self.actives.get(key).is_some_and(asked) {
            return;
        }
        let mut active = self.take_active(cx, key);
        if let Some(mut round) = active.read.take() {
            if report.state.is_none() && !report.accepted.is_none() {
                report.state = known_state(cx, key, &round.reports, report.accepted);
            }
            let accepted = report.accepted;
            round.reports.add(cx.replicas, from.node, from.amnesia, report);
            if hooks.disputes(cx, from.node, key, accepted) {
                round.reports.dispute(cx.replicas, from.node);
            }
            if round.resends > 0 && from.node != self.env.me {
                // A node that only reads learns from this that others are far away.
                self.round_trip.observe(cx.now.since(round.sent));
            }
            self.settle_read(cx, &mut active, round);
        }
        self.put_active(active);
    }

    /// Checks whether the reports decide. Otherwise waits, polls again or has a proposal decide.
    pub(crate) fn settle_read(&mut self, cx: &mut Cx<'_>, active: &mut Active, round: ReadRound) {
        if !round.reports.is_quorum(cx.replicas) {
            active.read = Some(round);
            return;
        }
        if round.purpose == Purpose::Vote {
            return self.settle_vote(cx, active, round);
        }
        match decide(cx, &round.reports) {
            Decision::Chosen(chosen, state) if chosen.is_none() || state.is_some() => {
                self.on_decided(cx, active, round, chosen, state);
            }
            _ => self.on_undecided(cx, active, round),
        }
    }

    fn on_undecided(&mut self, cx: &mut Cx<'_>, active: &mut Active, round: ReadRound) {
        if let Some(until) = self.awaits_until(cx, &round) {
            self.retry.back_off(cx, until, active.key.clone());
            active.read = Some(round);
        } else if round.polls < POLLS_MAX && !round.reports.is_contested(cx.replicas) {
            active.read = Some(self.poll_again(cx, &active.key.clone(), round));
        } else {
            self.have_decided(active, round);
        }
    }

    /// No report shows which round is chosen. The operations go through a proposal, which decides.
    fn have_decided(&mut self, active: &mut Active, round: ReadRound) {
        base::sometimes!("a quorum read stays undecided and a proposal decides");
        propose_all(active, round.operations);
        if round.purpose == Purpose::Resolve {
            for operation in &mut active.queue {
                operation.must_propose = true;
            }
        }
    }

    fn on_decided(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        round: ReadRound,
        chosen: Round,
        state: Option<State>,
    ) {
        match &state {
            Some(state) => self.repair(cx, &active.key, &round.reports, chosen, state),
            None if round.reports.is_contested(cx.replicas) => {
                self.tell_contested(cx, &active.key, &round.reports);
            }
            None => {}
        }
        if round.purpose == Purpose::Resolve {
            return self.resolve_on_chosen(cx, active, chosen, state.as_ref());
        }
        let id = state.as_ref().and_then(|state| state.expiry_id());
        let (over, rest) = expiry::count_votes(&round.reports, cx.replicas, id);
        if let Some(id) = id.filter(|_| expiry::is_voted(cx.replicas, over)) {
            // Once one client saw it gone, all must: the tombstone comes first.
            propose_all(active, round.operations);
            active.queue.push_front(Operation::internal(Source::Expire(id), self.step));
            return;
        }
        let droppable = window::droppable(&round.reports, cx.replicas, state.as_ref());
        let (mut writers, mut waiting): (Vec<SessionId>, Vec<SessionId>) = Default::default();
        let is_locked = state.as_ref().is_some_and(State::has_lock);
        for mut operation in round.operations {
            if writers.contains(&operation.session) {
                active.queue.push_back(operation);
                continue;
            }
            match evaluate(cx, &operation, state.as_ref(), (rest, &droppable)) {
                Some(Outcome::Locked(locked)) if operation.waits_for_locks() => {
                    waiting.push(operation.session);
                    self.lock_out(cx, active, locked.lock, vec![operation]);
                }
                Some(mut outcome) => {
                    if let (Outcome::Held(found), None) = (&mut outcome, &state) {
                        found.absent = Some(absence(cx, &round.reports));
                    }
                    // A settle of another transaction succeeds, too, and leaves the lock.
                    if operation.command.is_about_locks() && !is_locked {
                        LockedOut::let_in(&mut active.locked_out, Vec::new(), &mut active.queue);
                    }
                    self.answer(cx, &operation, outcome);
                }
                None => {
                    writers.push(operation.session);
                    operation.must_propose = true;
                    active.queue.push_back(operation);
                }
            }
        }
        follow(active, &writers);
        follow(active, &waiting);
    }

    /// The fate of attempts, seen from a chosen state. [spec 9.4, E5]
    fn resolve_on_chosen(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        chosen: Round,
        state: Option<&State>,
    ) {
        // Absent says too little: only a proposal of our own excludes the attempts.
        let Some(state) = state else {
            active.queue.iter_mut().for_each(|operation| operation.must_propose = true);
            return;
        };
        let queue = std::mem::take(&mut active.queue);
        for mut operation in queue {
            if operation.attempts.is_empty() {
                active.queue.push_back(operation);
                continue;
            }
            let excluded = operation.attempts.iter().all(|attempt| attempt.round < chosen)
                || mutation::is(Mutation::LowExclusion);
            match fate(&operation.attempts, state.version(), Some(state)) {
                Ancestry::In => {
                    let outcome = outcome_of(&operation.attempts, state.version(), Some(state));
                    self.answer(cx, &operation, outcome);
                }
                Ancestry::Ambiguous if operation.may_run_again() => {
                    base::sometimes!("a possible earlier run is repeated, and the table decides");
                    active.queue.push_back(operation.doubted());
                }
                Ancestry::Ambiguous => self.answer(cx, &operation, Outcome::Unknown),
                Ancestry::NotIn if excluded && operation.source == Source::Answered => {}
                Ancestry::NotIn => {
                    if excluded {
                        base::sometimes!("an attempt is excluded by a chosen state");
                        operation.attempts.clear();
                    } else {
                        operation.must_propose = true;
                    }
                    active.queue.push_back(operation);
                }
            }
        }
    }

    /// Sends a decided state to those whose reports lag behind it. [spec 9.7]
    fn repair(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        reports: &Reports,
        chosen: Round,
        state: &State,
    ) {
        let quiet =
            held(cx, key).is_none_or(|register| cx.now.since(register.foreign_at) > REPAIR_AFTER);
        if !quiet {
            return;
        }
        let lagging: Vec<_> = reports
            .counted(cx.replicas)
            .filter(|(_, report)| report.accepted < chosen)
            .map(|(node, _)| node)
            .collect();
        for node in lagging {
            self.counters.repairs += 1;
            let message = Message::Repair { key: key.clone(), round: chosen, state: state.clone() };
            cx.fx.send_now(node, message);
        }
    }

    /// Evaluates commands without effect on the held state by a quorum read first. A failed
    /// condition then costs one round trip and ends no ownership.
    pub(crate) fn try_read_first(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let eligible = |operation: &Operation| {
            operation.command.access != Access::Write
                && operation.attempts.is_empty()
                && !operation.must_propose
        };
        if active.read.is_some() || !active.queue.iter().all(eligible) {
            return false;
        }
        let Some(register) = held(cx, &active.key) else {
            // Absence here is no proof of absence, but the best guess.
            return self.read_first_on(cx, active, None);
        };
        let state = register.state.clone();
        self.read_first_on(cx, active, state)
    }

    fn read_first_on(
        &mut self,
        cx: &mut Cx<'_>,
        active: &mut Active,
        state: Option<State>,
    ) -> bool {
        let changes = active
            .queue
            .iter()
            .any(|operation| evaluate(cx, operation, state.as_ref(), (None, &[])).is_none());
        if changes {
            return false;
        }
        let operations = std::mem::take(&mut active.queue).into();
        self.read_quorum(cx, active, Purpose::Answer, operations);
        true
    }

    /// Asks a quorum whether an expired key is gone. No client need read it.
    pub(crate) fn read_for_expiry(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let mut active = self.take_active(cx, key);
        if active.read.is_none() {
            self.read_quorum(cx, &mut active, Purpose::Answer, Vec::new());
        }
        self.put_active(active);
    }

    /// Resolves attempts of a contended key by a read, so that the rest may be forwarded. True
    /// while that is in progress.
    pub(crate) fn try_resolve(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let is_resolving = |round: &ReadRound| round.purpose == Purpose::Resolve;
        if active.read.as_ref().is_some_and(is_resolving) {
            return true;
        }
        let unresolved =
            |operation: &Operation| !operation.attempts.is_empty() && !operation.must_propose;
        if active.read.is_some() || !active.queue.iter().any(unresolved) {
            return false;
        }
        self.read_quorum(cx, active, Purpose::Resolve, Vec::new());
        true
    }
}

/// Has a proposal decide these, ahead of the queue.
fn propose_all(active: &mut Active, operations: Vec<Operation>) {
    let sessions: Vec<SessionId> = operations.iter().map(|operation| operation.session).collect();
    for mut operation in operations.into_iter().rev() {
        operation.must_propose = true;
        active.queue.push_front(operation);
    }
    follow(active, &sessions);
}

/// Waiting reads go behind the queued operations of their session: a quorum read would answer them
/// from the state before those. [corrections B10]
fn follow(active: &mut Active, sessions: &[SessionId]) {
    if sessions.is_empty() {
        return;
    }
    let (behind, others) = std::mem::take(&mut active.read_queue)
        .into_iter()
        .partition(|operation| sessions.contains(&operation.session));
    active.read_queue = others;
    active.queue.extend::<Vec<Operation>>(behind);
}

fn ask_all(cx: &mut Cx<'_>, key: &Key, round: &ReadRound) {
    for node in cx.replicas.all() {
        ask(cx, key, round, node);
    }
}

pub(crate) fn ask(cx: &mut Cx<'_>, key: &Key, round: &ReadRound, node: NodeId) {
    let have = match held(cx, key) {
        Some(register) if node != cx.replicas.me() => register.accepted,
        _ => Round::NONE,
    };
    cx.fx.send_now(node, Message::Read { key: key.clone(), id: round.id, have });
}

/// The state of a round that a report left out because this node had it when it asked. A round has
/// one state, from whichever replica.
fn known_state(cx: &Cx<'_>, key: &Key, reports: &Reports, round: Round) -> Option<State> {
    held(cx, key)
        .filter(|register| register.accepted == round)
        .and_then(|register| register.state.clone())
        .or_else(|| reports.state_of(round))
}

/// [spec 9.5, read 2]
fn decide(cx: &Cx<'_>, reports: &Reports) -> Decision {
    let counted: Vec<&Report> = reports.counted(cx.replicas).map(|(_, report)| report).collect();
    for report in &counted {
        let equal = reports.places(cx.replicas, |other| is_equal(reports, report, other));
        let lost = if report.accepted.is_none() { reports.lost(cx.replicas) } else { 0 };
        if cx.replicas.set.is_quorum_of(equal & !lost) {
            return Decision::Chosen(report.accepted, reports.state_of(report.accepted));
        }
    }
    let highest = counted.iter().map(|report| report.accepted).max().unwrap_or(Round::NONE);
    for report in &counted {
        let is_highest = report.accepted == highest || mutation::is(Mutation::AnyChosen);
        // An absent report may hide a newer tombstone that was removed. [spec 11, S22b]
        let above_floors = counted.iter().all(|other| {
            !other.accepted.is_none()
                || other.floor_ballot < report.accepted.ballot()
                || mutation::is(Mutation::ChosenIgnoresFloor)
        });
        if report.chosen && is_highest && above_floors && !report.accepted.is_none() {
            base::sometimes!("a read believes the chosen mark");
            return Decision::Chosen(report.accepted, reports.state_of(report.accepted));
        }
    }
    Decision::Open
}

/// The members that report no register, with their floors.
fn absence(cx: &Cx<'_>, reports: &Reports) -> Absence {
    let absent = reports.counted(cx.replicas).filter(|(_, report)| report.accepted.is_none());
    let at: Vec<_> = absent.map(|(node, report)| (node, report.floor_ballot)).collect();
    Absence { at, quorum: cx.replicas.all().count() / 2 + 1 }
}

/// Equal rounds, never equal values. [spec 0.5]
fn is_equal(reports: &Reports, one: &Report, other: &Report) -> bool {
    if one.accepted == other.accepted {
        return true;
    }
    let value = |report: &Report| {
        reports.state_of(report.accepted).and_then(|state| state.value().map(<[u8]>::to_vec))
    };
    if mutation::is(Mutation::EqualValues) && !one.accepted.is_none() && !other.accepted.is_none() {
        return value(one).is_some() && value(one) == value(other);
    }
    mutation::is(Mutation::NilFromMixed) && value(one).is_none() && value(other).is_none()
}

/// The outcome, if the command has no effect on this state. `rest` is the remaining time to live;
/// `droppable` entries of the table are ignored.
fn evaluate(
    cx: &mut Cx<'_>,
    operation: &Operation,
    state: Option<&State>,
    (rest, droppable): (Option<base::Millis>, &[EntryId]),
) -> Option<Outcome> {
    let clock = clock(cx);
    let mut builder = StateBuilder::on(state, rest);
    builder.ignore_over(droppable);
    let (outcome, changes) = builder.run(cx.update, &operation.command, clock);
    (!changes).then_some(outcome)
}

impl Core {
    /// Ends a quorum read whose majority has disagreed for long enough.
    pub(crate) fn settle_late_read(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let is_late = |round: &mut ReadRound| {
            cx.now >= round.patient_until && round.reports.is_quorum(cx.replicas)
        };
        if let Some(round) = active.read.take_if(is_late) {
            self.settle_read(cx, active, round);
        }
    }

    /// A quorum read's resend: members whose report is missing.
    pub(crate) fn resend_read(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some(round) = active.read.as_mut().filter(|round| cx.now >= round.resend_at) else {
            return;
        };
        round.resends += 1;
        round.resend_at = cx.now + self.round_trip.resend_after(round.resends);
        let is_disputed = |round: &mut ReadRound| {
            round.reports.has_disputes() && !round.reports.is_quorum(cx.replicas)
        };
        if let Some(round) = active.read.take_if(is_disputed) {
            // A register that was denied may have been removed since it was reported.
            active.read = Some(self.poll_again(cx, &active.key, round));
            return;
        }
        let Some(round) = &active.read else { return };
        for node in cx.replicas.all() {
            if !round.reports.tally.has(cx.replicas, node) {
                ask(cx, &active.key, round, node);
            }
        }
    }
}
