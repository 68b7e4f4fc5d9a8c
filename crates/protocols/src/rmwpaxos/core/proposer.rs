//! The proposer [spec 9.5]: phase 1, batches of commands as proposals, their acknowledgement, and losing.

use base::Nanos;
use smallvec::SmallVec;
use types::limits::MEMBERS_MAX;
use types::{Ballot, Key, Loss, NodeId, Outcome, Round};

use crate::cells::Cell;
use crate::effects::Violation;
use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::protocol::Peer;
use crate::quorum::{Acks, Tally};
use crate::replicas::place;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::DEPTH;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::ancestry::{Ancestry, ancestry};
use crate::rmwpaxos::core::in_sync;
use crate::rmwpaxos::core::operation::{Active, InFlight, Operation, Phase, Place, Source};
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::core::reports::Reports;
use crate::rmwpaxos::core::state::ExpiryId;
use crate::rmwpaxos::expiry;
use crate::rmwpaxos::fast::combined;
use crate::rmwpaxos::message::{Message, Report};
use crate::rmwpaxos::once::table::EntryId;
use crate::rmwpaxos::once::window;
use crate::rmwpaxos::register::Countdown;

/// What a majority of promises says of the base of the proposals to come.
struct Base {
    round: Round,
    is_chosen: bool,
    expired: Option<ExpiryId>,
    droppable: Vec<EntryId>,
    rest: Option<base::Millis>,
    version_floor: u64,
}

impl RmwPaxos {
    /// Does what can be done for a key now.
    pub(crate) fn pump(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if active.phase == Phase::Idle && !active.queue.is_empty() {
            self.choose_way(cx, active);
        }
        if active.phase == Phase::Owner {
            self.propose(cx, active);
            if active.phase == Phase::Owner
                && active.in_flight.is_empty()
                && active.queue.is_empty()
                && active.carried.is_empty()
                && active.collecting.is_none()
            {
                self.end_ownership(cx, active);
            }
        }
        self.start_read(cx, active);
    }

    /// Nothing is under way and something is queued: go on as owner, forward, read first, or prepare.
    fn choose_way(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if !active.has_attempts() && self.resume_ownership(cx, active) {
            return;
        }
        let has_way = self.try_forward(cx, active)
            || self.try_read_first(cx, active)
            || self.try_joint(cx, active);
        if has_way {
            return;
        }
        self.prepare(cx, active);
    }

    /// An owner that paused goes on under its ballot. [spec 2.4]
    fn resume_ownership(&mut self, cx: &mut Cx<'_>, active: &mut Active) -> bool {
        let epoch = cx.replicas.epoch();
        let Some(register) = cx.cells.get_mut(&active.key) else { return false };
        let ballot = register.accepted.ballot();
        if !register.owned || register.promised != ballot || ballot.epoch() != epoch {
            return false;
        }
        if register.accepted.k() == u32::MAX {
            return false;
        }
        // Taken: from here on the proposer knows the last proposal, the register no longer does.
        register.owned = false;
        active.ballot = ballot;
        active.k = register.accepted.k();
        active.chosen_k = active.k;
        active.tip = register.state.clone();
        active.tip_round = register.accepted;
        active.tip_version = active.tip.as_ref().map_or(0, |state| state.version());
        active.abreast = self.addressees(cx);
        active.rest = None;
        active.base_decided = true;
        active.fresh_before = Place(0);
        active.acks = Acks::default();
        active.refused = Tally::default();
        active.phase = Phase::Owner;
        true
    }

    /// P1. The ballot is fresh; whoever promises it reports what it accepted.
    pub(crate) fn prepare(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some(ballot) = self.mint(cx, &active.key) else { return };
        self.counters.phase_ones += 1;
        active.phase = Phase::Preparing;
        active.ballot = ballot;
        active.k = 0;
        active.chosen_k = 0;
        active.prepared_at = self.step;
        active.promises.clear();
        active.refused = Tally::default();
        active.have = replies::held(cx, &active.key)
            .and_then(|register| register.state.clone().map(|state| (register.accepted, state)));
        active.resends = 0;
        active.resend_at = cx.now + self.round_trip.resend_after(0);
        active.ask_rest_at = Nanos::ZERO;
        active.contested_until = Nanos::ZERO;
        if self.takes_short_ways() {
            self.ask_some(cx, active);
        } else {
            ask_rest(cx, active);
        }
        self.prepare_own(cx, active);
        self.try_win(cx, active);
    }

    /// Asks as many others as a majority needs, those who soon answer first, and of them the last proposer: it holds what
    /// was accepted last. The rest is asked when one of them refuses or is silent.
    fn ask_some(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let last = replies::held(cx, &active.key).map(|register| register.accepted.ballot().node());
        let is_up = |node: &NodeId| cx.replicas.member(*node).is_some_and(|member| member.up);
        let mut others: SmallVec<[NodeId; MEMBERS_MAX]> =
            cx.replicas.others().filter(is_up).collect();
        // The member asked instead of the last proposer differs from key to key.
        let first = active.key.hash() as usize % others.len().max(1);
        others.rotate_left(first);
        let is_steady = |node| cx.replicas.member(node).is_some_and(Member::is_steady);
        others.sort_by_key(|&node| (!is_steady(node), Some(node) != last));
        let mut asked = cx.replicas.set.own_place();
        let needed = others.iter().take_while(|&&node| {
            let is_short = !cx.replicas.set.is_quorum_of(asked);
            asked |= cx.replicas.index(node).map_or(0, place);
            is_short
        });
        let needed = needed.count();
        if needed == others.len() {
            return ask_rest(cx, active);
        }
        active.ask_rest_at = cx.now + self.patience();
        for &node in &others[..needed] {
            send_prepare(cx, active, node);
        }
    }

    pub(crate) fn on_promise(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: &Key,
        ballot: Ballot,
        report: Report,
    ) {
        if self.on_slow_promise(cx, from, key, ballot, &report) {
            return;
        }
        let Some(mut active) = self.actives.take(key) else { return };
        if active.phase == Phase::Preparing && active.ballot == ballot {
            let accepted = report.accepted;
            count_promise(cx, &mut active, (from.node, from.loss), report);
            self.dispute_impossible(cx, from.node, key, accepted, &mut active.promises);
            self.try_win(cx, &mut active);
        }
        self.put_active(active);
    }

    /// P2: a majority promised. Adopts the highest report and finds out what became of earlier attempts.
    pub(crate) fn try_win(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if active.phase != Phase::Preparing
            || !active.promises.is_quorum(cx.replicas)
            || self.awaits_others(cx, active)
        {
            return;
        }
        let base = read_base(cx, &active.promises);
        let tip = active.promises.state_of(base.round);
        if tip.is_none() && !base.round.is_none() {
            // Its reporter left it out for a state that we do not have after all: ask again without.
            active.have = None;
            active.promises.clear();
            for node in cx.replicas.all() {
                send_prepare(cx, active, node);
            }
            return;
        }
        active.ask_rest_at = Nanos::ZERO;
        active.contested_until = Nanos::ZERO;
        active.differed = false;
        active.tip_version = tip.as_ref().map_or(base.version_floor, |state| state.version());
        active.tip = tip;
        active.tip_round = base.round;
        let addressees = base.is_chosen.then(|| self.addressees(cx));
        active.abreast = in_sync::reporters(cx, &active.promises, base.round, addressees);
        active.rest = base.rest;
        active.droppable = base.droppable;
        active.base_decided = base.is_chosen;
        active.fresh_before = if base.is_chosen { active.prepared_at } else { Place(0) };
        active.phase = Phase::Owner;
        active.acks = Acks::default();
        active.have = None;
        self.resolve_on_base(cx, active);
        if let Some(id) = base.expired {
            active.queue.push_front(Operation::internal(Source::Expire(id), self.step));
        }
    }

    /// Looks for every open attempt in the base. [spec 9.4, E1 to E3]
    fn resolve_on_base(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let queue = std::mem::take(&mut active.queue);
        for mut operation in queue {
            match fate(&operation, active.tip_version, active.tip.as_ref()) {
                Ancestry::NotIn if operation.source == Source::Answered => {}
                Ancestry::NotIn => active.queue.push_back(operation),
                Ancestry::In => {
                    operation.outcome =
                        outcome_of(&operation, active.tip_version, active.tip.as_ref());
                    if mutation::is(Mutation::EarlyOk) {
                        self.answer(cx, &operation, operation.outcome.clone());
                        operation.source = Source::Answered;
                    }
                    active.carried.push(operation);
                }
                Ancestry::Ambiguous if operation.may_run_again() => {
                    base::sometimes!("what may have run is run again, and its table decides");
                    active.queue.push_back(operation.doubted());
                }
                Ancestry::Ambiguous => self.answer(cx, &operation, Outcome::Unknown),
            }
        }
    }

    /// Step 4: makes proposals while there is something to write and room for them.
    fn propose(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        while active.in_flight.len() < DEPTH && active.unproven.is_none() {
            if active.queue.is_empty() && active.carried.is_empty() {
                return;
            }
            let is_refused = active.refused != Tally::default();
            if is_refused && !active.in_flight.is_empty() {
                return;
            }
            if is_refused || active.k == u32::MAX {
                return self.lose(cx, active);
            }
            if self.try_vote(cx, active) {
                return;
            }
            if !self.propose_batch(cx, active) {
                return;
            }
        }
    }

    pub(crate) fn on_accepted(&mut self, cx: &mut Cx<'_>, from: Peer, key: &Key, round: Round) {
        if self.on_slow_accepted(cx, from, key, round) {
            return;
        }
        if let Some(member) = cx.replicas.index(from.node) {
            self.owed.on_accepted(member, key, round);
        }
        let Some(mut active) = self.actives.take(key) else { return };
        let before = (active.in_flight.len(), active.collecting, active.unproven.is_some());
        // Only an acknowledgement of this very ballot counts. [corrections B1]
        let counts = round.ballot() == active.ballot
            || (mutation::is(Mutation::AckOfHigherBallot) && round.ballot() > active.ballot);
        if let (true, Some(index)) = (counts, cx.replicas.index(from.node)) {
            let k = if round.ballot() == active.ballot { round.k() } else { active.k };
            active.acks.add(index, k, from.loss);
            self.prove(cx, &mut active);
            self.settle_chosen(cx, &mut active);
        }
        if (active.in_flight.len(), active.collecting, active.unproven.is_some()) == before {
            // One acknowledgement more and nothing follows from it yet.
            self.actives.put_back(active);
        } else {
            self.put_active(active);
        }
    }

    /// Step 5: answers what a majority has accepted.
    pub(crate) fn settle_chosen(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        while let Some(front) = active.in_flight.front() {
            let acked = active.acks.at_least(cx.replicas, front.k);
            if !cx.replicas.set.is_quorum_of(acked) {
                break;
            }
            let Some(chosen) = active.in_flight.pop_front() else { break };
            active.chosen_k = chosen.k;
            active.losses /= 2;
            let took = cx.now.since(chosen.sent);
            self.judge_sparing(cx, active, chosen.k, took);
            self.round_trip.observe(took);
            active.resend_at = cx.now + self.round_trip.resend_after(0);
            active.resends = 0;
            let round = active.ballot.round(chosen.k);
            if let Some(register) = cx.cells.get_mut(&active.key) {
                register.chosen |= register.accepted == round;
            }
            self.note_chosen(cx, &active.key, &chosen.state);
            for operation in chosen.carried.iter().chain(&chosen.operations) {
                self.answer(cx, operation, operation.outcome.clone());
            }
        }
        self.settle_collection(cx, active);
    }

    /// A refusal. The proposals in flight may still be chosen by the others.
    pub(crate) fn on_nack(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: &Key,
        tried: Round,
        promised: Ballot,
        recovering: bool,
    ) {
        cx.metas.get_mut(key.shard()).saw(promised);
        if self.on_slow_nack(cx, key, tried) {
            return;
        }
        let Some(mut active) = self.actives.take(key) else {
            if !recovering {
                disown(cx, key, tried, promised);
            }
            return;
        };
        let is_ours = tried.ballot() == active.ballot
            && match active.phase {
                Phase::Preparing => tried.k() == 0,
                Phase::Owner => tried.k() > 0,
                _ => false,
            };
        // An accept is refused by an equal floor, too: the register it belonged to was collected.
        if is_ours && (recovering || promised >= active.ballot) {
            if !recovering {
                active.refused.add(cx.replicas, from.node, from.loss);
                active.refused_at = cx.now;
                let highest = active.lost_to.map_or(promised, |(known, _)| known.max(promised));
                active.lost_to = Some((highest, cx.now));
            }
            if active.phase == Phase::Preparing && active.ask_rest_at > Nanos::ZERO {
                ask_rest(cx, &mut active);
            } else if self.cannot_win(cx, &active) || combined::is_hopeless(cx, &active) {
                self.lose(cx, &mut active);
            } else {
                self.sweep.back_off(cx, cx.now + self.patience(), active.key.clone());
            }
        }
        self.put_active(active);
    }

    /// No majority can be reached any more with those that are up and have not refused.
    fn cannot_win(&self, cx: &Cx<'_>, active: &Active) -> bool {
        let waiting = active.in_flight.front().map(|front| front.k);
        if active.phase == Phase::Owner && waiting.is_none() {
            return active.refused != Tally::default();
        }
        let replicas = cx.replicas;
        let answered = match waiting {
            Some(k) if active.phase == Phase::Owner => active.acks.at_least(replicas, k),
            _ => active.promises.tally.places(replicas.set, replicas.peers),
        };
        let refused = active.refused.places(replicas.set, replicas.peers);
        let possible = answered | (replicas.places(|member| member.up) & !refused);
        active.refused != Tally::default() && !replicas.set.is_quorum_of(possible)
    }

    /// Step 6: somebody else prepared. What was in flight becomes attempts; the queue waits for its turn.
    pub(crate) fn lose(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        self.counters.conflicts += 1;
        abandon_proposals(active);
        active.losses = (active.losses + 1).min(16);
        let spread = self.round_trip.times(1 << active.losses.min(5)).0;
        let until = cx.now + Nanos(cx.rng.below(spread.max(1)));
        active.phase = Phase::BackingOff { until };
        active.resend_at = Nanos::MAX;
        self.sweep.back_off(cx, until, active.key.clone());
    }

    /// The queue is empty and everything proposed is chosen.
    fn end_ownership(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        settle_ownership(cx, active);
        self.owe(cx, active);
        active.phase = Phase::Idle;
        active.resend_at = Nanos::MAX;
        if active.k > 0 {
            active.promises.clear();
        }
    }
}

/// Leaves the ownership to the register, if the own acceptor holds the last proposal and nobody has prepared since.
pub(crate) fn settle_ownership(cx: &mut Cx<'_>, active: &Active) {
    if active.phase != Phase::Owner || active.k == 0 || active.chosen_k != active.k {
        return;
    }
    let round = active.ballot.round(active.k);
    if active.refused != Tally::default() {
        return;
    }
    if let Some(register) = cx.cells.get_mut(&active.key) {
        register.owned = register.accepted == round && register.promised == round.ballot();
    }
}

/// A refusal that came after the others had chosen: who goes on under this ballot leaves a member behind for good.
fn disown(cx: &mut Cx<'_>, key: &Key, tried: Round, promised: Ballot) {
    if let Some(register) = cx.cells.get_mut(key) {
        let is_of_it = register.accepted.ballot() == tried.ballot();
        register.owned &= !(is_of_it && promised >= tried.ballot());
    }
}

/// What changed nothing shares the fate of its proposal all the same if its session wrote behind it: evaluated anew
/// on a state that holds that write, it would show what came later. [corrections B10]
fn tie_to_later_writes(proposals: &mut [InFlight]) {
    let mut writers = Vec::new();
    for operation in proposals.iter_mut().rev().flat_map(|it| it.operations.iter_mut().rev()) {
        if operation.effective {
            writers.push(operation.session);
        } else if operation.source != Source::Answered {
            operation.effective = writers.contains(&operation.session);
        }
    }
}

/// Puts what was in flight back into the queue, as attempts whose fate is open.
pub(crate) fn abandon_proposals(active: &mut Active) {
    let mut operations = Vec::new();
    let mut proposals: Vec<_> = active.in_flight.drain(..).collect();
    tie_to_later_writes(&mut proposals);
    for proposal in proposals {
        let round = active.ballot.round(proposal.k);
        operations.extend(proposal.carried);
        for mut operation in proposal.operations {
            if operation.is_internal() {
                continue;
            }
            if operation.effective {
                operation.attempts.push(crate::rmwpaxos::core::ancestry::Attempt {
                    round,
                    base_version: proposal.base_version,
                    outcome: operation.outcome.clone(),
                });
            } else if operation.source == Source::Answered {
                continue;
            }
            operations.push(operation);
        }
    }
    operations.append(&mut active.carried);
    for operation in operations.into_iter().rev() {
        active.queue.push_front(operation);
    }
    active.queue.retain(|operation| !operation.is_internal());
    active.unproven = None;
    active.collecting = None;
    active.droppable.clear();
    active.tip = None;
    active.tip_round = Round::NONE;
    active.k = 0;
    active.chosen_k = 0;
    active.refused = Tally::default();
}

/// Where all attempts of an operation stand together.
pub(crate) fn fate(
    operation: &Operation,
    version: u64,
    state: Option<&crate::rmwpaxos::core::state::State>,
) -> Ancestry {
    let mut fate = Ancestry::NotIn;
    for attempt in &operation.attempts {
        match ancestry(attempt, version, state) {
            Ancestry::In => return Ancestry::In,
            Ancestry::Ambiguous => fate = Ancestry::Ambiguous,
            Ancestry::NotIn => {}
        }
    }
    fate
}

/// The outcome computed at the attempt that is in. [spec 9.4, E4]
pub(crate) fn outcome_of(
    operation: &Operation,
    version: u64,
    state: Option<&crate::rmwpaxos::core::state::State>,
) -> Outcome {
    operation
        .attempts
        .iter()
        .find(|attempt| ancestry(attempt, version, state) == Ancestry::In)
        .map_or(Outcome::Unknown, |attempt| attempt.outcome.clone())
}

/// Asks every other member whose promise is missing.
pub(crate) fn ask_rest(cx: &mut Cx<'_>, active: &mut Active) {
    active.ask_rest_at = Nanos::ZERO;
    for node in cx.replicas.others() {
        if !active.promises.tally.has(cx.replicas, node) {
            send_prepare(cx, active, node);
        }
    }
}

/// Adds a promise of the ballot that is being prepared.
pub(crate) fn count_promise(
    cx: &mut Cx<'_>,
    active: &mut Active,
    (node, loss): (NodeId, Loss),
    mut report: Report,
) {
    let (key, ballot) = (&active.key, active.ballot);
    if report.accepted.ballot() == ballot && !mutation::is(Mutation::NoIncarnation) {
        cx.fx.fail(Violation(format!("{key:?}: ballot {ballot:?} was used before")));
    }
    if report.state.is_none() && !report.accepted.is_none() {
        let known = active.have.as_ref().filter(|(round, _)| *round == report.accepted);
        report.state = known.map(|(_, state)| state.clone());
    }
    active.promises.add(cx.replicas, node, loss, report);
}

fn read_base(cx: &Cx<'_>, promises: &Reports) -> Base {
    let set = cx.replicas.set;
    let counted = || promises.counted(cx.replicas).map(|(_, report)| report);
    let highest = counted().map(|report| report.accepted).max().unwrap_or(Round::NONE);
    let absent = promises.places(cx.replicas, |report| report.accepted.is_none());
    // A majority that holds nothing has promised: what one alone holds is not chosen, and never will be.
    let is_removed = set.is_quorum_of(absent & !promises.lost(cx.replicas))
        && promises.is_contested(cx.replicas);
    let round = if is_removed { Round::NONE } else { highest };
    let equal = promises.places(cx.replicas, |report| report.accepted == round);
    let state = promises.state_of(round);
    let id = state.as_ref().and_then(|state| state.expiry_id());
    let (over, rest) = expiry::count_votes(promises, cx.replicas, id);
    Base {
        round,
        is_chosen: set.is_quorum_of(equal),
        expired: id.filter(|_| expiry::is_voted(cx.replicas, over)),
        droppable: window::droppable(promises, cx.replicas, state.as_ref()),
        rest,
        version_floor: counted().map(|report| report.floor_version).max().unwrap_or(0),
    }
}

pub(crate) fn send_prepare(cx: &mut Cx<'_>, active: &Active, to: NodeId) {
    let have = match &active.have {
        Some((round, _)) if to != cx.replicas.me() => *round,
        _ => Round::NONE,
    };
    let message = Message::Prepare { key: active.key.clone(), ballot: active.ballot, have };
    cx.fx.send_now(to, message);
}

pub(crate) fn send_accept(cx: &mut Cx<'_>, active: &Active, index: usize, to: NodeId) {
    let proposal = &active.in_flight[index];
    let message = Message::Accept {
        key: active.key.clone(),
        round: active.ballot.round(proposal.k),
        chosen_k: active.chosen_k,
        state: proposal.state.clone(),
    };
    cx.fx.send_now(to, message);
}

/// This acceptor's own countdown of the state it holds, if that state has the expiry `id`.
pub(crate) fn own_countdown(cx: &Cx<'_>, key: &Key, id: ExpiryId) -> Countdown {
    match cx.cells.get(key) {
        Cell::Present(register) if register.expiry_id() == Some(id) => {
            register.countdown(cx.uptime, cx.unix)
        }
        _ => Countdown::None,
    }
}
