//! The acceptor's handlers [spec 9.3]: pure steps on one register and its shard.
//!
//! Each returns its change, so that the caller persists it and lets the reply wait for it. The
//! caller decides whether a register takes part at all: it may be forgotten.

use base::{Millis, Nanos};
use types::{Ballot, Epoch, NodeId, Round};

use crate::mutation::{self, Mutation};
use crate::rmwpaxos::message::{Payload, Report};
use crate::rmwpaxos::once::starts::Starts;
use crate::rmwpaxos::record::register::{Countdown, Register, ShardMeta, Started};
use crate::rmwpaxos::record::state::State;
use crate::uptime::Uptime;

/// First raise of a shard's promise ceiling, in ballot numbers.
const CEILING_STEP_MIN: u64 = 256;
const CEILING_STEP_MAX: u64 = 1 << 20;

/// The promise of an acceptor for a register: `eff` of the specification. A promise alone counts no
/// less than the floor, which stands for an absent register. So no absent register accepts at or
/// below a floor that was told.
#[must_use]
pub fn effective_promise(register: Option<&Register>, meta: &ShardMeta, epoch: Epoch) -> Ballot {
    let own = match register {
        Some(register) if register.accepted.is_none() => register.promised.max(meta.floor_ballot),
        Some(register) => register.promised,
        None => meta.floor_ballot,
    };
    let restart =
        if mutation::is(Mutation::VolatilePromises) { Ballot::ZERO } else { meta.restart_floor };
    own.max(restart).max(Ballot::new(epoch, 0, NodeId(0), types::Incarnation(0)))
}

/// May `ballot` be promised or accepted? Equality counts only against a register's own promise,
/// never a floor.
fn permits(register: Option<&Register>, meta: &ShardMeta, epoch: Epoch, ballot: Ballot) -> bool {
    let effective = effective_promise(register, meta, epoch);
    // For an absent register a floor forbids an equal ballot: it may have risen after the promise.
    let is_free = |register: &Register| !register.accepted.is_none() || ballot > meta.floor_ballot;
    let is_own = |register: &Register| register.promised == ballot && is_free(register);
    ballot > effective || (ballot == effective && register.is_some_and(is_own))
}

/// The result of `on_prepare`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepared {
    /// Promised. `raised_ceiling`: the shard's fields must be durable before the promise is given.
    Promised {
        raised_ceiling: bool,
    },
    Refused {
        promised: Ballot,
    },
}

/// H2: promises `ballot` or refuses it.
pub fn on_prepare(
    register: &mut Option<Register>,
    meta: &mut ShardMeta,
    epoch: Epoch,
    ballot: Ballot,
    durable: bool,
) -> Prepared {
    if !permits(register.as_ref(), meta, epoch, ballot) {
        return Prepared::Refused { promised: effective_promise(register.as_ref(), meta, epoch) };
    }
    let register = register.get_or_insert_with(|| Register::promise_only(ballot));
    if ballot > register.promised {
        register.owned = false;
    }
    register.promised = register.promised.max(ballot);
    assert!(
        register.accepted.ballot() <= register.promised,
        "accepted {:?} above promise {:?}",
        register.accepted,
        register.promised
    );
    let raised_ceiling = durable && ballot.number() > meta.ceiling;
    if raised_ceiling {
        let step = meta.ceiling_step.clamp(CEILING_STEP_MIN, CEILING_STEP_MAX);
        meta.ceiling = (ballot.number() + step).min(Ballot::NUMBER_MAX);
        meta.ceiling_step = step * 2;
    }
    Prepared::Promised { raised_ceiling }
}

/// The result of `on_accept`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// The register holds this round now, or held it or a later one of the ballot before.
    Yes {
        round: Round,
        changed: bool,
    },
    Refused {
        promised: Ballot,
    },
    /// The delta does not fit the held state. Neither the state nor the promise changed, as if the
    /// message had been lost.
    NeedFull,
}

/// One proposal as it arrives.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub round: Round,
    pub chosen_k: u32,
    pub payload: Payload,
}

/// The times of an event by this node's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    pub now: Nanos,
    pub uptime: &'a dyn Uptime,
}

/// H3: accepts or refuses a proposal. A delta is resolved only if its state would be accepted.
pub fn on_accept(
    register: &mut Option<Register>,
    meta: &ShardMeta,
    epoch: Epoch,
    proposal: Proposal,
    moment: Moment<'_>,
) -> Accepted {
    let Proposal { round, chosen_k, payload } = proposal;
    let ballot = round.ballot();
    let below = !permits(register.as_ref(), meta, epoch, ballot);
    if below && !mutation::is(Mutation::AcceptBelowPromise) {
        return Accepted::Refused { promised: effective_promise(register.as_ref(), meta, epoch) };
    }
    let changed = register.as_ref().is_none_or(|register| round > register.accepted);
    let state = if changed { payload.resolve(register.as_ref()) } else { None };
    if changed && state.is_none() {
        return Accepted::NeedFull;
    }
    let register = register.get_or_insert_with(|| Register::promise_only(ballot));
    register.promised = register.promised.max(ballot);
    if let Some(state) = state {
        take(register, round, state, moment);
    }
    // `chosen_k` speaks of this ballot's proposals only. [corrections B2]
    if register.accepted.ballot() == ballot && register.accepted.k() <= chosen_k {
        register.chosen = true;
    }
    Accepted::Yes { round: register.accepted, changed }
}

fn take(register: &mut Register, round: Round, state: State, moment: Moment<'_>) {
    let goes_on = register.expiry_id() == state.expiry_id()
        || (mutation::is(Mutation::CountdownKept) && register.countdown.is_some());
    register.countdown = if goes_on && state.has_expiry() {
        register.countdown
    } else {
        Started::anew(state.ttl(), moment.uptime)
    };
    register.once_starts = if state.has_once() {
        Starts::going_on(register.starts(), &state, moment.uptime)
    } else {
        None
    };
    register.accepted = round;
    register.state = Some(state);
    register.chosen = false;
    register.owned = false;
}

/// Marks the round held as chosen if it is of this very ballot and not above `round`. [corrections
/// B2]
pub fn on_chosen(register: &mut Register, round: Round) {
    let is_same =
        register.accepted.ballot() == round.ballot() || mutation::is(Mutation::HintOfAnotherBallot);
    let is_covered =
        register.accepted.k() <= round.k() || mutation::is(Mutation::HintOfAnEarlierRound);
    register.chosen |= is_same && is_covered && !register.accepted.is_none();
}

/// H4: the report of this acceptor, for an asker that holds the state of round `have`.
#[must_use]
pub fn report(
    register: Option<&Register>,
    meta: &ShardMeta,
    have: Round,
    uptime: &dyn Uptime,
    unix: Millis,
) -> Report {
    let accepted = register.map_or(Round::NONE, |register| register.accepted);
    let state = register.and_then(|register| register.state.clone()).filter(|_| accepted != have);
    Report {
        accepted,
        state,
        chosen: register.is_some_and(|register| register.chosen),
        floor_ballot: meta.floor_ballot.max(meta.restart_floor),
        floor_version: meta.floor_version,
        countdown: register.map_or(Countdown::None, |register| register.countdown(uptime, unix)),
        windows_over: register.map_or(0, |register| register.windows_over(uptime)),
        denies: false,
        witnessed: 0,
    }
}

/// H5: forgets a tombstone that every member has accepted. True when the register is gone and the
/// floors stand for it.
pub fn on_remove(register: &mut Option<Register>, meta: &mut ShardMeta, round: Round) -> bool {
    let Some(held) = register.as_ref() else { return false };
    let Some(state) = held.state.as_ref().filter(|_| held.accepted == round) else { return false };
    // A client that repeats a command must find that it ran.
    let remembers = state.has_once() && !mutation::is(Mutation::OnceCollected);
    if !state.is_tombstone() || remembers || state.has_lock() {
        return false;
    }
    if !mutation::is(Mutation::NoBallotFloor) {
        meta.floor_ballot = meta.floor_ballot.max(held.promised).max(round.ballot());
    }
    if !mutation::is(Mutation::NoVersionFloor) {
        meta.floor_version = meta.floor_version.max(state.version());
    }
    *register = None;
    true
}

#[cfg(test)]
mod tests {
    use types::{Incarnation, TimeToLive};

    use super::*;
    use crate::rmwpaxos::record::state::{Expiry, ExpiryId, Ring, StateFields};

    const EPOCH: Epoch = Epoch(1);
    const MOMENT: Moment<'_> = Moment { now: Nanos(1), uptime: &Millis(7) };

    fn ballot(number: u64, node: u16) -> Ballot {
        Ballot::new(EPOCH, number, NodeId(node), Incarnation(1))
    }

    fn made_of(version: u64, value: Option<&'static str>, expiry: Option<Expiry>) -> State {
        let value = value.map(str::as_bytes);
        let ring = Ring::default();
        State::new(&StateFields {
            version,
            mod_version: version,
            ring,
            expiry,
            once: None,
            lock: None,
            value,
        })
    }

    fn state(version: u64, value: Option<&'static str>) -> State {
        made_of(version, value, None)
    }

    fn expiring(version: u64, id: u64) -> State {
        let id = ExpiryId { version: id, birth: ballot(1, 1) };
        made_of(
            version,
            Some("v"),
            Some(Expiry { id, ttl: TimeToLive::After(Millis(5)), ends: Millis(5) }),
        )
    }

    fn accept(
        register: &mut Option<Register>,
        meta: &ShardMeta,
        round: Round,
        state: State,
    ) -> Accepted {
        let payload = Payload::Whole(state);
        on_accept(register, meta, EPOCH, Proposal { round, chosen_k: 0, payload }, MOMENT)
    }

    fn started(uptime: u64) -> Option<Started> {
        Some(Started::at(Millis(uptime)))
    }

    #[test]
    fn prepare_needs_at_least_the_promise() {
        let (mut register, mut meta) = (None, ShardMeta::default());
        let promised = Prepared::Promised { raised_ceiling: false };
        assert_eq!(on_prepare(&mut register, &mut meta, EPOCH, ballot(5, 2), false), promised);
        assert_eq!(on_prepare(&mut register, &mut meta, EPOCH, ballot(5, 2), false), promised);
        assert_eq!(
            on_prepare(&mut register, &mut meta, EPOCH, ballot(5, 1), false),
            Prepared::Refused { promised: ballot(5, 2) }
        );
    }

    #[test]
    fn a_promise_above_the_ceiling_raises_it_first() {
        let (mut register, mut meta) = (None, ShardMeta::default());
        let first = on_prepare(&mut register, &mut meta, EPOCH, ballot(1, 2), true);
        assert_eq!(first, Prepared::Promised { raised_ceiling: true });
        let second = on_prepare(&mut register, &mut meta, EPOCH, ballot(2, 2), true);
        assert_eq!(second, Prepared::Promised { raised_ceiling: false });
        assert!(meta.ceiling >= 2);
    }

    #[test]
    fn restart_refuses_every_possible_earlier_promise() {
        let mut meta = ShardMeta { ceiling: 10, ..ShardMeta::default() };
        meta.restarted(EPOCH);
        let mut register = None;
        assert!(matches!(
            on_prepare(&mut register, &mut meta, EPOCH, ballot(10, 3), true),
            Prepared::Refused { .. }
        ));
        let refused = accept(&mut register, &meta, ballot(9, 1).round(1), state(1, Some("v")));
        assert!(matches!(refused, Accepted::Refused { .. }));
        assert!(matches!(
            on_prepare(&mut register, &mut meta, EPOCH, ballot(11, 1), true),
            Prepared::Promised { .. }
        ));
    }

    #[test]
    fn later_proposals_of_a_ballot_overtake_earlier_ones() {
        let (mut register, meta) = (None, ShardMeta::default());
        let round = |k| ballot(1, 1).round(k);
        let yes = |k, changed| Accepted::Yes { round: round(k), changed };
        assert_eq!(accept(&mut register, &meta, round(2), state(2, Some("b"))), yes(2, true));
        assert_eq!(accept(&mut register, &meta, round(1), state(1, Some("a"))), yes(2, false));
        assert_eq!(accept(&mut register, &meta, round(2), state(2, Some("b"))), yes(2, false));
        assert_eq!(register.and_then(|register| register.state), Some(state(2, Some("b"))));
    }

    #[test]
    fn a_floor_is_strict() {
        let mut register = None;
        let meta = ShardMeta { floor_ballot: ballot(4, 1), ..ShardMeta::default() };
        let refused = accept(&mut register, &meta, ballot(4, 1).round(9), state(1, Some("v")));
        assert_eq!(refused, Accepted::Refused { promised: ballot(4, 1) });
        assert_eq!(register, None);
    }

    #[test]
    fn remove_takes_the_very_tombstone_and_raises_floors() {
        let (mut register, mut meta) = (None, ShardMeta::default());
        let round = ballot(3, 1).round(1);
        accept(&mut register, &meta, round, state(7, None));
        assert!(!on_remove(&mut register, &mut meta, ballot(2, 1).round(1)));
        assert!(on_remove(&mut register, &mut meta, round));
        assert_eq!((meta.floor_ballot, meta.floor_version), (ballot(3, 1), 7));
        assert!(!on_remove(&mut register, &mut meta, round));
        accept(&mut register, &meta, ballot(5, 1).round(1), state(8, Some("again")));
        assert!(!on_remove(&mut register, &mut meta, ballot(5, 1).round(1)), "it is alive");
    }

    #[test]
    fn countdown_restarts_only_with_another_expiry_id() {
        let (mut register, meta) = (None, ShardMeta::default());
        accept(&mut register, &meta, ballot(1, 1).round(1), expiring(1, 1));
        let later = Moment { uptime: &Millis(20), ..MOMENT };
        let proposal =
            |round, state| Proposal { round, chosen_k: 0, payload: Payload::Whole(state) };
        on_accept(
            &mut register,
            &meta,
            EPOCH,
            proposal(ballot(1, 1).round(2), expiring(2, 1)),
            later,
        );
        assert_eq!(register.as_ref().and_then(|register| register.countdown), started(7));
        on_accept(
            &mut register,
            &meta,
            EPOCH,
            proposal(ballot(1, 1).round(3), expiring(3, 3)),
            later,
        );
        assert_eq!(register.and_then(|register| register.countdown), started(20));
    }
}
