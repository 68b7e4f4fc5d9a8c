//! Reports of replicas on one key, and which state they show to be decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Millis;

use super::message::Body;
use super::register::{Decided, Register, Report};
use crate::mutation::{self, Mutation};
use crate::replicas::{Places, ReplicaSet, place};
use crate::toolkit::countdown::{Countdown, Started};
use crate::toolkit::report;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, ExpiryId, State};
use crate::uptime::Uptime;

/// The conclusion from reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// There is no quorum yet.
    Wait,
    /// A vote behind the newest committed state may be decided, or not: only a proposal tells.
    Undecided,
    Decided(Decided),
}

impl report::Report for Report {
    type Record = Register;
    type Found = Decided;
    type Body = Body;

    fn of(register: &Register, uptime: &dyn Uptime, unix: Millis) -> Report {
        let left = |state: &State, started| match state.ttl() {
            Some(ttl) => Countdown::of(ttl, started, uptime, unix),
            None => Countdown::None,
        };
        let Register { committed, started, promised, accepted } = register;
        let vote = accepted.as_ref();
        Report {
            committed: committed.clone(),
            countdown: committed.as_ref().map_or(Countdown::None, |state| left(state, *started)),
            promised: *promised,
            accepted: vote.map(|it| (it.ballot, it.state.clone(), left(&it.state, it.started))),
        }
    }

    fn without_values(&self) -> Report {
        let bare = |state: &Arc<State>| Arc::new(state.without_value());
        let accepted = self.accepted.as_ref();
        Report {
            committed: self.committed.as_ref().map(bare),
            accepted: accepted.map(|(ballot, state, left)| (*ballot, bare(state), *left)),
            ..*self
        }
    }

    fn latest(register: &Register) -> Base {
        register.latest()
    }

    fn value_len(register: &Register) -> usize {
        register.value_len()
    }

    fn age(&self) -> impl Ord {
        (self.slot(), self.promised)
    }

    fn countdown_of(&self, id: ExpiryId) -> Countdown {
        let has = |state: &Arc<State>| state.expiry_id() == Some(id);
        match (&self.committed, &self.accepted) {
            (Some(state), _) if has(state) => self.countdown,
            (_, Some((_, state, countdown))) if has(state) => *countdown,
            _ => Countdown::None,
        }
    }

    fn newest(&self) -> Option<(String, &Arc<State>, Countdown)> {
        match (&self.accepted, &self.committed) {
            (Some((ballot, state, countdown)), _) => {
                let round = format!("{}:{}.{}", state.slot, ballot.number, ballot.writer.0);
                Some((round, state, *countdown))
            }
            (None, Some(state)) => Some((format!("{}", state.slot), state, self.countdown)),
            (None, None) => None,
        }
    }

    fn found(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Option<Decided> {
        match decide(set, counted, |index| at.get(&index)) {
            Decision::Decided(decided) => Some(decided),
            Decision::Undecided | Decision::Wait => None,
        }
    }

    fn state(found: &Decided) -> &Base {
        &found.base
    }

    fn restore(found: Decided, uptime: &dyn Uptime) -> Register {
        let Decided { base, promised } = found;
        let started = Started::anew(base.as_ref().and_then(|state| state.ttl()), uptime);
        Register { committed: base, started, promised, accepted: None }
    }
}

/// True for a replica that neither committed this state nor voted for it.
#[must_use]
pub fn lacks(report: &Report, state: &State) -> bool {
    let has_voted = report.accepted.as_ref().is_some_and(|vote| *vote.1 == *state);
    report.slot() < state.slot && !has_voted
}

/// The state of the highest slot that a counted replica has committed.
#[must_use]
pub fn newest_committed(at: &BTreeMap<usize, Report>, counted: Places) -> Base {
    let counted = at.iter().filter(|(index, _)| counted & place(**index) != 0);
    let newest = counted.map(|(_, report)| report).max_by_key(|report| report.slot())?;
    newest.committed.clone()
}

/// Decides by the reports of these places; a place without one has no register.
///
/// A state is decided once a quorum has voted for it. So a quorum of reports meets such a vote, or
/// a replica that knows more. Without a vote behind the highest committed slot, that slot is the
/// newest. Equal ballots of a quorum are a decision.
pub fn decide<'a>(
    set: &ReplicaSet,
    counted: Places,
    at: impl Fn(usize) -> Option<&'a Report>,
) -> Decision {
    if !set.is_quorum_of(counted) {
        return Decision::Wait;
    }
    let absent = Report::default();
    let reports = || {
        let places = (0..set.nodes().len()).filter(|&index| counted & place(index) != 0);
        places.map(|index| (index, at(index).unwrap_or(&absent)))
    };
    let Some((_, newest)) = reports().max_by_key(|(_, report)| report.slot()) else {
        return Decision::Wait;
    };
    let of_slot = || reports().filter(|(_, report)| report.slot() == newest.slot());
    let votes = || {
        let votes = of_slot().filter_map(|(index, it)| Some((index, it.accepted.as_ref()?)));
        votes.map(|(index, (ballot, state, _))| (index, *ballot, state))
    };
    let Some((_, highest, state)) = votes().max_by_key(|(_, ballot, _)| *ballot) else {
        let promised = of_slot().map(|(_, report)| report.promised).max();
        let promised = promised.unwrap_or(Stamp::NONE);
        return Decision::Decided(Decided { base: newest.committed.clone(), promised });
    };
    if mutation::is(Mutation::ReadCommittedOnly) {
        let (base, promised) = (newest.committed.clone(), newest.promised);
        return Decision::Decided(Decided { base, promised });
    }
    let voters = votes().filter(|(_, ballot, _)| *ballot == highest);
    let voters = voters.fold(0, |set, (index, ..)| set | place(index));
    let is_enough = set.is_quorum_of(voters) || mutation::is(Mutation::AdoptMinority);
    match is_enough {
        true => {
            let base = Some(state.clone());
            Decision::Decided(Decided { base, promised: Stamp::NONE })
        }
        false => Decision::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Malformed, NodeId, TimeToLive, Wire};

    use super::super::register::tests::{ballot, held};
    use super::*;
    use crate::toolkit::report::Report as _;
    use crate::toolkit::state::Expiry;
    use crate::toolkit::state::tests::{op, state};

    const SET: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn committed(slot: u64, promised: u64) -> Report {
        let committed = (slot > 0).then(|| Arc::new(state(slot, Some(b"v"))));
        let promised = if promised == 0 { Stamp::NONE } else { ballot(promised) };
        Report { committed, promised, ..Report::default() }
    }

    fn voted(slot: u64, number: u64) -> Report {
        let vote = (ballot(number), Arc::new(state(slot + 1, Some(b"w"))), Countdown::None);
        Report { accepted: Some(vote), ..committed(slot, number) }
    }

    fn of(reports: [Option<Report>; 3]) -> Decision {
        let set = ReplicaSet::new(Epoch(1), NodeId(1), &SET);
        let counted = (0..3).filter(|&at| reports[at].is_some()).fold(0, |all, at| all | place(at));
        decide(&set, counted, |at| reports[at].as_ref())
    }

    #[test]
    fn minority_decides_nothing() {
        assert_eq!(of([Some(committed(3, 0)), None, None]), Decision::Wait);
    }

    #[test]
    fn highest_committed_slot_wins_without_votes() {
        let base = committed(4, 0).committed;
        let decided = Decision::Decided(Decided { base, promised: ballot(7) });
        // The vote for slot 4 is older than the commit of it.
        assert_eq!(of([Some(committed(4, 7)), Some(voted(3, 9)), None]), decided);
    }

    #[test]
    fn votes_of_a_minority_are_undecided() {
        let undecided = Decision::Undecided;
        assert_eq!(of([Some(committed(4, 0)), Some(voted(4, 9)), None]), undecided);
        assert_eq!(of([Some(voted(4, 8)), Some(voted(4, 9)), None]), undecided);
        assert_eq!(of([Some(voted(0, 8)), Some(committed(0, 0)), None]), undecided);
    }

    #[test]
    fn help_starts_from_the_newest_committed_state() {
        let at = BTreeMap::from([(0, committed(4, 0)), (1, voted(3, 9)), (2, committed(5, 0))]);
        assert_eq!(newest_committed(&at, 0b011), committed(4, 0).committed);
        assert_eq!(newest_committed(&at, 0b111), committed(5, 0).committed);
        assert_eq!(newest_committed(&at, 0b000), None);
    }

    #[test]
    fn equal_ballots_of_a_majority_are_decided() {
        let base = Some(Arc::new(state(5, Some(b"w"))));
        let decided = Decision::Decided(Decided { base, promised: Stamp::NONE });
        assert_eq!(of([Some(voted(4, 9)), Some(voted(4, 9)), None]), decided);
        assert_eq!(of([Some(voted(4, 9)), Some(voted(4, 8)), Some(voted(4, 9))]), decided);
    }

    #[test]
    fn countdown_goes_on_over_states_with_its_deadline() {
        let expiring = |slot, id, span| {
            let id = ExpiryId { slot: id, op: op(1, id) };
            let ttl = TimeToLive::After(Millis(span));
            let expiry = Some(Expiry { id, ttl, ends: Millis(0) });
            Arc::new(State { expiry, ..state(slot, Some(b"v")) })
        };
        let mut register = held(4);
        assert_eq!(register.accept(ballot(1), &expiring(5, 5, 50), &Millis(100)), Ok(()));
        register.commit_accepted(5, ballot(1), &Millis(130));
        assert_eq!(register.accept(ballot(1), &expiring(6, 5, 50), &Millis(140)), Ok(()));
        let report = |register: &Register, uptime| Report::of(register, &Millis(uptime), Millis(0));
        let id = ExpiryId { slot: 5, op: op(1, 5) };
        assert_eq!(report(&register, 151).countdown_of(id), Countdown::Over);
        assert_eq!(register.accept(ballot(2), &expiring(6, 6, 50), &Millis(151)), Ok(()));
        register.commit_accepted(6, ballot(2), &Millis(151));
        assert_eq!(report(&register, 160).countdown_of(id), Countdown::None);
        assert!(matches!(report(&register, 160).countdown, Countdown::Running(_)));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Ok(register));
    }

    #[test]
    fn reports_come_back() {
        let mut register = held(4);
        let next = Arc::new(state(5, None));
        assert_eq!(register.accept(ballot(4), &next, &Millis(7)), Ok(()));
        let report = Report::of(&register, &Millis(7), Millis(7));
        assert_eq!(report.accepted, Some((ballot(4), next, Countdown::None)));
        for len in 0..report.to_bytes().len() {
            assert_eq!(Report::from_bytes(&report.to_bytes()[..len]), Err(Malformed));
        }
        assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
    }
}
