//! Combined prepare-accept: both phases in one round trip, if any two members are a majority [spec
//! 9.5, P0].
//!
//! A proposer that is one of three is a majority together with either of the others. It promises
//! its ballot to itself and computes the first proposal from the state that it holds. The message
//! names the round of that state. An acceptor that holds the same round and has promised no higher
//! ballot concludes that phase 1 is won with this base, and accepts. An acceptor that holds another
//! round does not accept. It promises the ballot and asks for the whole proposal.
//!
//! The proposer's own acceptor accepts last, because phase 1 is not won until another one has
//! accepted. If none can, phase 1 follows under another ballot. If every member asked holds another
//! round, the proposal was never an attempt. Otherwise it is an attempt with an open fate.
//!
//! An acceptor must not count the proposer's promise once it knows that the proposer has lost its
//! memory since, like any promise [DISC17].

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Ballot, Key, NodeId, Round, Ticket};

use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::protocol::Peer;
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::rmwpaxos::context::{Cx, gate, held, is_lost};
use crate::rmwpaxos::core::acceptor::{Proposal, effective_promise};
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::core::proposer;
use crate::rmwpaxos::core::replies::refuse;
use crate::rmwpaxos::core::retry;
use crate::rmwpaxos::fast::delta::Deltas;
use crate::rmwpaxos::message::{Message, Payload};
use crate::rmwpaxos::once::table;
use crate::rmwpaxos::progress::active::{Active, Phase, PhaseTwo, Resend, Tip, Unproven};
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::progress::operation::{Operation, Source};
use crate::rmwpaxos::record::register::{Register, ShardMeta};
use crate::rmwpaxos::record::state::State;

/// A longer state waits for phase 1, which shows the members that hold its base, unless a delta
/// replaces it.
const STATE_LEN_MAX: usize = 4096;

/// Figures of first proposals sent together with phase 1.
#[derive(Default, Debug)]
pub(crate) struct Combined {
    pub(crate) sent: Figure,
    /// Given up because the other members held another round.
    pub(crate) failed: Figure,
}

impl Combined {
    /// Proposes on top of the state held here, together with phase 1. False if there was no
    /// proposal.
    pub(crate) fn try_propose(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        active: &mut Active,
        deltas: &Deltas,
    ) -> bool {
        if !may_combine(core, cx, active) {
            return false;
        }
        let Some(ballot) = core.mint(cx, &active.key) else { return false };
        let own = held(cx, &active.key);
        let base = own.map_or(Round::NONE, |register| register.accepted);
        let state = own.and_then(|register| register.state.clone());
        let version = match &state {
            Some(state) => state.version(),
            None => cx.metas.get(active.key.shard()).floor_version,
        };
        active.phase = Phase::Owner(PhaseTwo::new(ballot, Tip { state, version, round: base }));
        let mut batch = core.run_batch(cx, active);
        let Phase::Owner(two) = &mut active.phase else { return false };
        let fitting = batch.state.take().and_then(|state| payload(deltas, &two.tip, state));
        let promised = fitting
            .and_then(|fitting| Some((fitting, core.promise(cx, &active.key, ballot, None).ok()?)));
        let Some(((state, payload), after)) = promised else {
            active.leave();
            active.put_back(batch.operations);
            return false;
        };
        core.push_proposal(cx, two, batch, state);
        self.send_first(core, cx, &active.key, two, (base, payload, after));
        true
    }

    fn send_first(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        key: &Key,
        two: &mut PhaseTwo,
        (base, payload, after): (Round, Payload, Ticket),
    ) {
        base::sometimes!("a first proposal travels with phase 1");
        self.sent.add(1);
        let amnesia =
            cx.replicas.member(core.me()).map_or(AmnesiaCount(0), |member| member.amnesia);
        two.unproven = Some(Unproven {
            base,
            payload,
            amnesia,
            asked: [None; MEMBERS_MAX],
            is_asked_anew: false,
            differing: Tally::default(),
            until: Nanos::MAX,
        });
        two.in_sync = core.addressees(cx);
        let replicas = cx.replicas;
        for member in replicas.members().filter(|it| it.up && it.node != replicas.me()) {
            match core.spares(cx, member.node) {
                true => core.spare(cx, two, member.node),
                false => send(cx, key, two, member.node, after),
            }
        }
        if mutation::is(Mutation::FirstAcceptedByProposer) {
            core.accept_own(cx, key, two);
        }
    }

    /// Gives up a proposal after the time that others had to prove it.
    pub(crate) fn lose_patience(&mut self, cx: &Cx<'_>, active: &mut Active) {
        if active.unproven().is_some_and(|unproven| cx.now >= unproven.until) {
            self.give_up(active);
        }
    }

    /// Sends the proposal again to the members that did not answer, if that is due.
    pub(crate) fn resend(&mut self, core: &Core, cx: &mut Cx<'_>, active: &mut Active) {
        let Phase::Owner(two) = &mut active.phase else { return };
        if two.unproven.is_none() || cx.now < two.resend.at {
            return;
        }
        let count = two.resend.count + 1;
        two.resend = Resend { at: cx.now + core.round_trip().resend_after(count), count };
        if is_void(core, cx, two) {
            return self.give_up(active);
        }
        for node in cx.replicas.others() {
            if retry::may_resend(cx, two, node) {
                let after = gate(cx, &active.key);
                send(cx, &active.key, two, node, after);
            }
        }
    }

    /// Sends a proposal again that a dead connection to this member may have lost.
    pub(crate) fn on_peer_up(&mut self, core: &mut Core, cx: &mut Cx<'_>, node: NodeId) {
        for key in core.actives().keys_of(|active| active.unproven().is_some()) {
            let mut active = core.take_active(cx, &key);
            if let Phase::Owner(two) = &mut active.phase
                && node != core.me()
                && !is_void(core, cx, two)
            {
                let after = gate(cx, &key);
                send(cx, &key, two, node, after);
            }
            core.put_active(active);
        }
    }

    /// A member holds another round than the base. False if it does not answer an unproven
    /// proposal.
    pub(crate) fn on_need_full(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (key, round): (&Key, Round),
    ) -> bool {
        let is_of_it = |active: &Active| {
            let is_of_it = |two: &PhaseTwo| two.unproven.is_some() && two.ballot == round.ballot();
            active.owner().is_some_and(is_of_it)
        };
        if !core.actives().get(key).is_some_and(is_of_it) {
            return false;
        }
        let mut active = core.take_active(cx, key);
        let until = cx.now + core.patience();
        if let Phase::Owner(two) = &mut active.phase
            && let Some(unproven) = &mut two.unproven
        {
            unproven.differing.add(cx.replicas, from.node, from.amnesia);
            unproven.until = unproven.until.min(until);
            if is_dead(unproven, cx.replicas) {
                base::sometimes!("a first proposal that travels with phase 1 never was one");
                take_back(two);
                self.give_up(&mut active);
            } else if two.is_hopeless(cx.replicas) {
                self.give_up(&mut active);
            } else {
                core.look_again(cx, until, key);
            }
        }
        core.put_active(active);
        true
    }

    /// Leaves the phase: phase 1 must find the base.
    fn give_up(&mut self, active: &mut Active) {
        base::sometimes!("a first proposal that travels with phase 1 does not fit");
        self.failed.add(1);
        proposer::abandon_proposals(active);
        active.differed = true;
    }
}

/// H2 and H3 in one, at the acceptor. Phase 1 is won only if the proposer's own promise still
/// stands and makes a majority with this acceptor's. Otherwise the acceptor only promises. The
/// proposer then knows that this message will never be accepted here.
pub(crate) fn on_prepare_accept(
    core: &mut Core,
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
    let own = held(cx, &key);
    let is_refused = effective_promise(own, meta, cx.replicas.epoch()) > ballot;
    let is_won = completes_phase_one(own, meta, (round, base), &payload);
    if is_refused || is_won || is_lost(cx, &key) {
        return core.on_accept(cx, from, key, Proposal { round, chosen_k: 0, payload });
    }
    match core.promise(cx, &key, ballot, None) {
        Err(refused) => refuse(cx, from.node, key, round, refused),
        Ok(after) => cx.fx.send(from.node, Message::NeedFull { key, round }, after),
    }
}

/// The proposer's promise of its own ballot counts here.
fn has_promised(cx: &Cx<'_>, from: Peer, ballot: Ballot) -> bool {
    // Its ballots may name a later incarnation than its links do.
    let is_proposer = from.node == ballot.node() && from.incarnation <= ballot.incarnation();
    // It may have waited here for its register to be read while the amnesia became known.
    let is_current =
        cx.replicas.member(from.node).is_some_and(|member| from.amnesia >= member.amnesia)
            || mutation::is(Mutation::FirstFromBeforeLoss);
    let set = cx.replicas.set;
    is_proposer && is_current && set.is_quorum_of_any_two() && ballot.epoch() == set.epoch()
}

/// True if this acceptor may accept the first proposal of a ballot. Its proposer has promised the
/// ballot and accepted no round above `base`, and the two are a majority. False if this acceptor
/// has already promised the ballot without accepting, because the proposer relies on that answer.
/// [spec 9.5, P0]
fn completes_phase_one(
    register: Option<&Register>,
    meta: &ShardMeta,
    (round, base): (Round, Round),
    payload: &Payload,
) -> bool {
    let accepted = register.map_or(Round::NONE, |register| register.accepted);
    // Proven before: this is a copy, or another acceptor has proven it.
    let is_proven = accepted.ballot() == round.ballot();
    let is_first = effective_promise(register, meta, round.ballot().epoch()) < round.ballot();
    let is_same = accepted == base || mutation::is(Mutation::FirstOnAnyBase);
    let is_above_floor = match payload {
        Payload::Whole(state) if base.is_none() => {
            state.version() > meta.floor_version || mutation::is(Mutation::FirstBelowFloor)
        }
        _ => true,
    };
    is_proven || (is_first && is_same && is_above_floor)
}

/// True if the other members probably hold the same round.
fn may_combine(core: &Core, cx: &Cx<'_>, active: &Active) -> bool {
    let is_plain = |operation: &Operation| {
        let is_asked = matches!(operation.source, Source::Client(_) | Source::Forwarded { .. });
        // A long command would often run in vain.
        is_asked
            && operation.attempts.is_empty()
            && operation.command.body.len() <= STATE_LEN_MAX
            && core.may_propose_now(operation)
    };
    let waits = |operation: &Operation| !operation.command.is_about_locks();
    let is_locked = |state: &State| state.has_lock() && active.queue.iter().any(waits);
    // Only phase 1 finds out whether a time to live is over.
    let expires = |state: &State| state.has_expiry();
    let own = held(cx, &active.key);
    // A full table may have room once a majority was asked.
    let table = own.and_then(|register| register.state.as_ref()?.once());
    let lacks_room = |operation: &Operation| {
        let once = operation.remembered_by();
        table.zip(once).is_some_and(|(table, once)| table::is_full_for(table, &once.session))
    };
    cx.replicas.set.me().is_some()
        && cx.replicas.set.is_quorum_of_any_two()
        && (table.is_none() || !active.queue.iter().any(lacks_room))
        && core.takes_short_ways()
        && active.losses == 0
        && !active.differed
        && active.queue.iter().all(is_plain)
        && !is_lost(cx, &active.key)
        && !own
            .and_then(|register| register.state.as_ref())
            .is_some_and(|state| expires(state) || is_locked(state))
        && cx.replicas.members().any(|member| member.up && member.node != cx.replicas.me())
}

/// The payload for a state. `None` for a long one without a delta.
fn payload(deltas: &Deltas, tip: &Tip, state: State) -> Option<(State, Payload)> {
    let base = tip.state.as_ref().filter(|_| !tip.round.is_none());
    if let Some(delta) = base.and_then(|base| deltas.between((tip.round, base), &state)) {
        return Some((state, Payload::Delta(delta)));
    }
    let is_short = state.bytes().len() <= STATE_LEN_MAX;
    is_short.then(|| (state.clone(), Payload::Whole(state)))
}

/// The proposal rests on a promise from before an amnesia, which must not be repeated after it.
fn is_void(core: &Core, cx: &Cx<'_>, two: &PhaseTwo) -> bool {
    let is_void = |unproven: &Unproven| {
        cx.replicas.member(core.me()).is_none_or(|member| member.amnesia != unproven.amnesia)
    };
    two.unproven.as_ref().is_some_and(is_void) && !mutation::is(Mutation::FirstRepeatedAfterLoss)
}

/// True if no member has accepted the proposal or ever will. Each member that could accept it has
/// promised its ballot, holds another round, and has lost no memory since it was asked.
fn is_dead(unproven: &Unproven, replicas: Replicas<'_>) -> bool {
    let is_out = |(member, asked): (&Member, &Option<AmnesiaCount>)| {
        asked.is_none_or(|amnesia| {
            amnesia == member.amnesia && unproven.differing.has(replicas, member.node)
        })
    };
    !unproven.is_asked_anew && replicas.members().zip(&unproven.asked).all(is_out)
}

/// The proposal is no attempt of its operations.
fn take_back(two: &mut PhaseTwo) {
    for operation in two.in_flight.iter_mut().flat_map(|it| it.operations.iter_mut()) {
        operation.effective = false;
    }
}

fn send(cx: &mut Cx<'_>, key: &Key, two: &mut PhaseTwo, node: NodeId, after: Ticket) {
    let round = two.round(1);
    let (Some(unproven), Some(index)) = (&mut two.unproven, cx.replicas.index(node)) else {
        return;
    };
    let amnesia = cx.replicas.at(index).amnesia;
    let known = *unproven.asked[index].get_or_insert(amnesia);
    unproven.is_asked_anew |= known != amnesia;
    let message = Message::PrepareAccept {
        key: key.clone(),
        round,
        base: unproven.base,
        payload: unproven.payload.clone(),
    };
    cx.fx.send(node, message, after);
}
