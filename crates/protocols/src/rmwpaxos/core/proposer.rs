//! The proposer [spec 9.5]: phase 1, proposals, their acknowledgement, and losing.

use base::Nanos;
use smallvec::SmallVec;
use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Ballot, Key, NodeId, Outcome, Round};

use super::ancestry::{Ancestry, fate, outcome_of};
use super::hooks::{Hooks, Notice};
use super::in_sync;
use super::instance::Core;
use super::send;
use crate::effects::Violation;
use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::protocol::Peer;
use crate::replicas::{Places, place};
use crate::rmwpaxos::context::{Cx, held};
use crate::rmwpaxos::expiry;
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::once::table::EntryId;
use crate::rmwpaxos::once::window;
use crate::rmwpaxos::progress::active::{
    Active, DEPTH, InFlight, Phase, PhaseOne, PhaseTwo, Refusals, Resend, Tip,
};
use crate::rmwpaxos::progress::operation::{Attempt, Operation, Place, Source};
use crate::rmwpaxos::progress::reports::Reports;
use crate::rmwpaxos::record::state::{ExpiryId, State};

/// The base of the proposals to come, by a majority of promises.
struct Base {
    round: Round,
    is_chosen: bool,
    expired: Option<ExpiryId>,
    droppable: Vec<EntryId>,
    rest: Option<base::Millis>,
    version_floor: u64,
}

impl Core {
    /// Continues with a key: proposes as owner, returns the ownership, reads.
    pub(crate) fn advance(&mut self, cx: &mut Cx<'_>, active: &mut Active, hooks: &mut dyn Hooks) {
        if let Phase::Owner(_) = active.phase {
            self.propose(cx, active, hooks);
        }
        let is_over = |two: &PhaseTwo| two.is_done();
        if active.queue.is_empty() && active.owner().is_some_and(is_over) {
            self.end_ownership(cx, active);
        }
        self.start_read(cx, active);
    }

    /// Starts on a queue without work in progress: a read first, or phase 1.
    pub(crate) fn lead(&mut self, cx: &mut Cx<'_>, active: &mut Active, hooks: &mut dyn Hooks) {
        if !self.try_read_first(cx, active) {
            self.prepare(cx, active, hooks);
        }
    }

    /// P1. The ballot is fresh. Each acceptor that promises it reports its register.
    pub(crate) fn prepare(&mut self, cx: &mut Cx<'_>, active: &mut Active, hooks: &mut dyn Hooks) {
        let Some(ballot) = self.mint(cx, &active.key) else { return };
        self.counters.phase_ones += 1;
        active.leave();
        let own = held(cx, &active.key);
        active.phase = Phase::Preparing(PhaseOne {
            ballot,
            have: own.and_then(|own| own.state.clone().map(|state| (own.accepted, state))),
            promises: active.take_spare(),
            fence: self.fence_of(active),
            prepared_at: self.step,
            refusals: Refusals::default(),
            ask_rest_at: None,
            contested_until: None,
            resend: Resend { at: cx.now + self.round_trip.resend_after(0), count: 0 },
        });
        if self.takes_short_ways() {
            self.ask_some(cx, active);
        } else {
            ask_rest(cx, active);
        }
        self.prepare_own(cx, active, hooks);
        self.try_win(cx, active);
    }

    /// Asks as many others as a majority needs: first those that answer soon. Among them the last
    /// proposer comes first, since it holds the newest round. The rest is asked if one refuses or
    /// is silent.
    fn ask_some(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let last = held(cx, &active.key).map(|register| register.accepted.ballot().node());
        let is_up = |node: &NodeId| cx.replicas.member(*node).is_some_and(|member| member.up);
        let mut others: SmallVec<[NodeId; MEMBERS_MAX]> =
            cx.replicas.others().filter(is_up).collect();
        // The member that replaces the last proposer differs from key to key.
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
        let until = cx.now + self.patience();
        let Phase::Preparing(one) = &mut active.phase else { return };
        one.ask_rest_at = Some(until);
        for &node in &others[..needed] {
            send::prepare(cx, &active.key, one, node);
        }
    }

    pub(crate) fn on_promise(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, ballot): (&Key, Ballot),
        report: Report,
        hooks: &mut dyn Hooks,
    ) {
        let Some(mut active) = self.actives.take(key) else { return };
        if let Phase::Preparing(one) = &mut active.phase
            && one.ballot == ballot
        {
            let accepted = report.accepted;
            count_promise(cx, key, one, (from.node, from.amnesia), report);
            if hooks.disputes(cx, from.node, key, accepted) {
                one.promises.dispute(cx.replicas, from.node);
            }
            self.try_win(cx, &mut active);
        }
        self.put_active(active);
    }

    /// P2: a majority promised. Adopts the highest report and finds out the fate of earlier
    /// attempts.
    pub(crate) fn try_win(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let is_quorum = |one: &PhaseOne| one.promises.is_quorum(cx.replicas);
        if !active.preparing().is_some_and(is_quorum) || self.awaits_others(cx, active) {
            return;
        }
        let Phase::Preparing(one) = &mut active.phase else { return };
        let base = read_base(cx, &one.promises);
        let state = one.promises.state_of(base.round);
        if state.is_none() && !base.round.is_none() {
            // The report omits a state that this node does not have after all. Ask again without
            // `have`.
            one.have = None;
            one.promises.clear();
            for node in cx.replicas.all() {
                send::prepare(cx, &active.key, one, node);
            }
            return;
        }
        let addressees = base.is_chosen.then(|| self.addressees(cx));
        let version = state.as_ref().map_or(base.version_floor, State::version);
        let two = PhaseTwo {
            fence: one.fence,
            in_sync: in_sync::reporters(cx, &one.promises, base.round, addressees),
            base_decided: base.is_chosen,
            fresh_before: if base.is_chosen { one.prepared_at } else { Place(0) },
            refusals: one.refusals,
            rest: base.rest,
            droppable: base.droppable,
            resend: one.resend,
            ..PhaseTwo::new(one.ballot, Tip { state, version, round: base.round })
        };
        active.leave();
        active.differed = false;
        active.phase = Phase::Owner(two);
        self.resolve_on_base(cx, active);
        if let Some(id) = base.expired {
            active.queue.push_front(Operation::internal(Source::Expire(id), self.step));
        }
    }

    /// Looks for every open attempt in the base. [spec 9.4, E1 to E3]
    fn resolve_on_base(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Owner(two) = &mut active.phase else { return };
        let (version, base) = (two.tip.version, two.tip.state.clone());
        let base = base.as_ref();
        let queue = std::mem::take(&mut active.queue);
        for mut operation in queue {
            match fate(&operation.attempts, version, base) {
                Ancestry::NotIn if operation.source == Source::Answered => {}
                Ancestry::NotIn => active.queue.push_back(operation),
                Ancestry::In => {
                    operation.outcome = outcome_of(&operation.attempts, version, base);
                    if mutation::is(Mutation::EarlyOk) {
                        self.answer(cx, &operation, operation.outcome.clone());
                        operation.source = Source::Answered;
                    }
                    two.carried.push(operation);
                }
                Ancestry::Ambiguous if operation.may_run_again() => {
                    base::sometimes!("a possible earlier run is repeated, and the table decides");
                    active.queue.push_back(operation.doubted());
                }
                Ancestry::Ambiguous => self.answer(cx, &operation, Outcome::Unknown),
            }
        }
    }

    /// Step 4: makes proposals while there are writes and room for them.
    fn propose(&mut self, cx: &mut Cx<'_>, active: &mut Active, hooks: &mut dyn Hooks) {
        while let Phase::Owner(two) = &active.phase
            && two.in_flight.len() < DEPTH
            && two.unproven.is_none()
        {
            if self.lacks_fence(active) {
                if !two.in_flight.is_empty() {
                    return;
                }
                abandon_proposals(active);
                self.prepare(cx, active, hooks);
                continue;
            }
            self.end_shut_out(cx, active);
            let Phase::Owner(two) = &active.phase else { return };
            if active.queue.is_empty() && two.carried.is_empty() {
                return;
            }
            let is_refused = two.refusals.is_any();
            if is_refused && !two.in_flight.is_empty() {
                return;
            }
            if is_refused || two.k == u32::MAX {
                return self.lose(cx, active);
            }
            if self.try_vote(cx, active) || !self.propose_batch(cx, active, hooks) {
                return;
            }
        }
    }

    pub(crate) fn on_accepted(&mut self, cx: &mut Cx<'_>, from: Peer, key: &Key, round: Round) {
        let Some(mut active) = self.actives.take(key) else { return };
        let mut follows = false;
        if let (Phase::Owner(two), Some(index)) = (&mut active.phase, cx.replicas.index(from.node))
        {
            // Only an acknowledgement of this very ballot counts. [corrections B1]
            let counts = round.ballot() == two.ballot
                || (mutation::is(Mutation::AckOfHigherBallot) && round.ballot() > two.ballot);
            if counts {
                let before = (two.in_flight.len(), two.collecting, two.unproven.is_some());
                let k = if round.ballot() == two.ballot { round.k() } else { two.k };
                two.acks.add(index, k, from.amnesia);
                self.prove(cx, key, two);
                self.settle_chosen(cx, &mut active);
                let after =
                    |two: &PhaseTwo| (two.in_flight.len(), two.collecting, two.unproven.is_some());
                follows = active.owner().map(after) != Some(before);
            }
        }
        if follows {
            self.put_active(active);
        } else {
            // One acknowledgement more decides no proposal yet.
            self.actives.put_back(active);
        }
    }

    /// Another member has accepted an unproven proposal, so phase 1 is won: the own acceptor
    /// follows, and so may others.
    fn prove(&mut self, cx: &mut Cx<'_>, key: &Key, two: &mut PhaseTwo) {
        if two.unproven.is_none() || two.acks.at_least(cx.replicas, 1) == 0 {
            return;
        }
        let Some(unproven) = two.unproven.take() else { return };
        self.accept_own(cx, key, two);
        for node in cx.replicas.others() {
            if unproven.differing.has(cx.replicas, node) {
                send::accept(cx, key, two, 0, node);
            }
        }
    }

    /// Step 5: answers proposals that a majority has accepted.
    pub(super) fn settle_chosen(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Owner(two) = &mut active.phase else { return };
        let chosen_before = two.chosen_k;
        while let Some(front) = two.in_flight.first() {
            let acked = two.acks.at_least(cx.replicas, front.k);
            if !cx.replicas.set.is_quorum_of(acked) {
                break;
            }
            let chosen = two.in_flight.remove(0);
            two.chosen_k = chosen.k;
            active.losses /= 2;
            let took = cx.now.since(chosen.sent);
            self.judge_sparing(cx, two, chosen.k, took);
            self.round_trip.observe(took);
            two.resend = Resend { at: cx.now + self.round_trip.resend_after(0), count: 0 };
            let round = two.round(chosen.k);
            if let Some(register) = cx.cache.get_mut(&active.key) {
                register.chosen |= register.accepted == round;
            }
            if chosen.state.has_expiry() || chosen.state.is_tombstone() || chosen.state.has_once() {
                let key = active.key.clone();
                self.notices.push(Notice::Chosen { key, state: chosen.state });
            }
            for operation in chosen.carried.iter().chain(&chosen.operations) {
                self.answer(cx, operation, operation.outcome.clone());
            }
        }
        if two.chosen_k != chosen_before {
            self.exclude_attempts(cx, active);
        }
        self.settle_collection(cx, active);
    }

    /// All replicas hold exactly the tombstone that is to be collected, and no proposal came after
    /// it. The ownership ends, so commands that wait start anew. Replicas that have removed the
    /// register refuse its ballot, and a refused command could end unknown.
    fn settle_collection(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Owner(two) = &mut active.phase else { return };
        let Some(k) = two.collecting else { return };
        if k != two.k {
            two.collecting = None;
            return;
        }
        let replicas = cx.replicas;
        let is_held_by_all = replicas.set.is_all_of(two.acks.exactly(replicas, k));
        let by_majority = mutation::is(Mutation::CollectByMajority)
            && replicas.set.is_quorum_of(two.acks.at_least(replicas, k));
        if is_held_by_all || by_majority {
            let round = two.round(k);
            active.leave();
            self.notices.push(Notice::HeldByAll { key: active.key.clone(), round });
        }
    }

    /// A refusal. The proposals in flight may still be chosen by the others.
    pub(crate) fn on_nack(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: &Key,
        (tried, promised): (Round, Ballot),
        recovering: bool,
    ) {
        cx.metas.get_mut(key.shard()).saw(promised);
        let Some(mut active) = self.actives.take(key) else {
            if !recovering {
                disown(cx, key, tried, promised);
            }
            return;
        };
        let ours = match &mut active.phase {
            Phase::Preparing(one) if tried.k() == 0 => Some((one.ballot, &mut one.refusals)),
            Phase::Owner(two) if tried.k() > 0 => Some((two.ballot, &mut two.refusals)),
            _ => None,
        };
        let ours = ours.filter(|(ballot, _)| *ballot == tried.ballot());
        // An accept is refused by an equal floor, too: the register it belonged to was collected.
        if let Some((_, refusals)) = ours.filter(|(own, _)| recovering || promised >= *own) {
            if !recovering {
                refusals.by.add(cx.replicas, from.node, from.amnesia);
                refusals.at = cx.now;
                let highest = active.lost_to.map_or(promised, |(known, _)| known.max(promised));
                active.lost_to = Some((highest, cx.now));
            }
            if active.preparing().is_some_and(|one| one.ask_rest_at.is_some()) {
                ask_rest(cx, &mut active);
            } else if cannot_win(cx, &active) {
                self.lose(cx, &mut active);
            } else {
                self.retry.back_off(cx, cx.now + self.patience(), active.key.clone());
            }
        }
        self.put_active(active);
    }

    /// Step 6: another node prepared. Proposals in flight become attempts; the queue waits for its
    /// turn.
    pub(super) fn lose(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        self.counters.conflicts += 1;
        abandon_proposals(active);
        active.losses = (active.losses + 1).min(16);
        let spread = self.round_trip.times(1 << active.losses.min(5)).0;
        let until = cx.now + Nanos(cx.rng.below(spread.max(1)));
        active.phase = Phase::BackingOff(until);
        self.retry.back_off(cx, until, active.key.clone());
    }

    /// The queue is empty and everything proposed is chosen.
    fn end_ownership(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Owner(two) = &active.phase else { return };
        if two.k > 0 && two.chosen_k == two.k {
            leave_ownership(cx, &active.key, two);
            let missing = missing(cx, two);
            if missing != 0 && cx.replicas.set.has_me() {
                let (key, round) = (active.key.clone(), two.round(two.k));
                self.notices.push(Notice::Missed { key, round, missing });
            }
        }
        active.leave();
    }
}

/// Leaves the ownership to the register, if the own acceptor holds the last proposal and no other
/// has prepared since.
fn leave_ownership(cx: &mut Cx<'_>, key: &Key, two: &PhaseTwo) {
    if two.refusals.is_any() {
        return;
    }
    let round = two.round(two.k);
    if let Some(register) = cx.cache.get_mut(key) {
        register.owned = register.accepted == round && register.promised == round.ballot();
    }
}

/// Replicas that have not acknowledged the last proposal; none, if it is not by these
/// acknowledgements that it is chosen.
fn missing(cx: &Cx<'_>, two: &PhaseTwo) -> Places {
    let set = cx.replicas.set;
    let acked = two.acks.at_least(cx.replicas, two.k);
    if set.is_quorum_of(acked) { set.all_places() & !acked } else { 0 }
}

/// Ends an ownership after a refusal that came after the others had chosen. To go on under this
/// ballot would leave a member behind for good.
fn disown(cx: &mut Cx<'_>, key: &Key, tried: Round, promised: Ballot) {
    if let Some(register) = cx.cache.get_mut(key) {
        let is_of_it = register.accepted.ballot() == tried.ballot();
        register.owned &= !(is_of_it && promised >= tried.ballot());
    }
}

/// No majority can be reached any more with those that are up and have not refused.
fn cannot_win(cx: &Cx<'_>, active: &Active) -> bool {
    let replicas = cx.replicas;
    let (answered, refusals) = match &active.phase {
        Phase::Preparing(one) => {
            (one.promises.tally.places(replicas.set, replicas.peers), &one.refusals)
        }
        Phase::Owner(two) => match two.in_flight.first() {
            None => return two.refusals.is_any(),
            Some(_) if two.is_hopeless(replicas) => return true,
            Some(front) => (two.acks.at_least(replicas, front.k), &two.refusals),
        },
        _ => return false,
    };
    let refused = refusals.by.places(replicas.set, replicas.peers);
    let possible = answered | (replicas.places(|member| member.up) & !refused);
    refusals.is_any() && !replicas.set.is_quorum_of(possible)
}

/// An operation without effect shares the fate of its proposal all the same if its session wrote
/// behind it. Evaluated anew on a state that holds that write, it would show a later value.
/// [corrections B10]
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

/// Leaves the phase. Proposals in flight go back into the queue, as attempts whose fate is open.
pub(crate) fn abandon_proposals(active: &mut Active) {
    let mut operations = Vec::new();
    if let Phase::Owner(two) = &mut active.phase {
        let mut proposals = std::mem::take(&mut two.in_flight);
        tie_to_later_writes(&mut proposals);
        for proposal in proposals {
            let round = two.ballot.round(proposal.k);
            operations.extend(proposal.carried);
            for mut operation in proposal.operations {
                if operation.is_internal() {
                    continue;
                }
                if operation.effective {
                    operation.attempts.push(Attempt {
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
        operations.append(&mut two.carried);
    }
    active.put_back_abandoned(operations);
    active.queue.retain(|operation| !operation.is_internal());
    active.leave();
}

/// Asks every other member whose promise is missing.
pub(super) fn ask_rest(cx: &mut Cx<'_>, active: &mut Active) {
    let Phase::Preparing(one) = &mut active.phase else { return };
    one.ask_rest_at = None;
    for node in cx.replicas.others() {
        if !one.promises.tally.has(cx.replicas, node) {
            send::prepare(cx, &active.key, one, node);
        }
    }
}

/// Adds a promise of the ballot that is being prepared.
pub(super) fn count_promise(
    cx: &mut Cx<'_>,
    key: &Key,
    one: &mut PhaseOne,
    (node, amnesia): (NodeId, AmnesiaCount),
    mut report: Report,
) {
    let ballot = one.ballot;
    if report.accepted.ballot() == ballot && !mutation::is(Mutation::NoIncarnation) {
        cx.fx.fail(Violation(format!("{key:?}: ballot {ballot:?} was used before")));
    }
    if report.state.is_none() && !report.accepted.is_none() {
        let known = one.have.as_ref().filter(|(round, _)| *round == report.accepted);
        report.state = known.map(|(_, state)| state.clone());
    }
    one.promises.add(cx.replicas, node, amnesia, report);
}

fn read_base(cx: &Cx<'_>, promises: &Reports) -> Base {
    let set = cx.replicas.set;
    let counted = || promises.counted(cx.replicas).map(|(_, report)| report);
    let highest = counted().map(|report| report.accepted).max().unwrap_or(Round::NONE);
    let absent = promises.places(cx.replicas, |report| report.accepted.is_none());
    // A majority without the register has promised: a round that one alone holds is not chosen, and
    // never will be.
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
