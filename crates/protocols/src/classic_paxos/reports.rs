//! Reports of replicas on one key, and which state they show to be decided.

use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, NodeId};

use base::Millis;

use super::register::Report;
use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::replicas::{Places, ReplicaSet, Replicas, place};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, ExpiryId, State};

/// The conclusion from reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// There is no quorum yet.
    Wait,
    /// A vote behind this committed state may be decided, or not: only a proposal tells.
    Undecided { base: Base },
    /// The newest state that was decided before the reports were asked for, or a later one.
    /// `promised`: the highest promise reported for the slot behind it.
    Decided { base: Base, promised: Stamp },
}

/// Reports of distinct replicas.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    pub tally: Tally,
    by_place: [Option<Report>; MEMBERS_MAX],
}

impl Reports {
    pub fn add(
        &mut self,
        replicas: Replicas<'_>,
        (node, amnesia): (NodeId, AmnesiaCount),
        report: Report,
    ) {
        let Some(index) = replicas.index(node) else { return };
        let is_new = self.tally.add(replicas, node, amnesia);
        let is_later =
            |old: &Report| (report.slot(), report.promised) >= (old.slot(), old.promised);
        if is_new || self.by_place[index].as_ref().is_none_or(is_later) {
            self.by_place[index] = Some(report);
        }
    }

    #[must_use]
    pub fn decide(&self, replicas: Replicas<'_>) -> Decision {
        let counted = self.tally.places(replicas.set, replicas.peers);
        decide(replicas.set, counted, |index| self.by_place[index].as_ref())
    }

    /// Replicas that neither committed this state nor voted for it.
    pub fn lagging<'a>(
        &'a self,
        replicas: Replicas<'a>,
        state: &'a State,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let lags = |report: &Report| {
            let has_voted = report.accepted.as_ref().is_some_and(|vote| *vote.1 == *state);
            report.slot() < state.slot && !has_voted
        };
        let reports = replicas.all().zip(&self.by_place);
        reports.filter(move |(_, it)| it.as_ref().is_some_and(lags)).map(|(node, _)| node)
    }

    /// The votes for the end of this deadline, and the largest rest reported for it.
    #[must_use]
    pub fn votes(&self, replicas: Replicas<'_>, id: ExpiryId) -> (Places, Option<Millis>) {
        let counted = self.tally.places(replicas.set, replicas.peers);
        let mut over = 0;
        let mut rest = None;
        for (index, report) in self.by_place.iter().enumerate() {
            let Some(report) = report.as_ref().filter(|_| counted & place(index) != 0) else {
                continue;
            };
            let countdown = report.countdown_of(id);
            rest = rest.max(countdown.rest());
            if countdown == Countdown::Over {
                over |= place(index);
            }
        }
        (over, rest)
    }
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
    let reports = || {
        let places = (0..set.nodes().len()).filter(|&index| counted & place(index) != 0);
        places.map(|index| (index, at(index).unwrap_or(&Report::ABSENT)))
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
        return Decision::Decided { base: newest.committed.clone(), promised };
    };
    if mutation::is(Mutation::ReadCommittedOnly) {
        return Decision::Decided { base: newest.committed.clone(), promised: newest.promised };
    }
    let voters = votes().filter(|(_, ballot, _)| *ballot == highest);
    let voters = voters.fold(0, |set, (index, ..)| set | place(index));
    let is_enough = set.is_quorum_of(voters) || mutation::is(Mutation::AdoptMinority);
    match is_enough {
        true => Decision::Decided { base: Some(state.clone()), promised: Stamp::NONE },
        false => Decision::Undecided { base: newest.committed.clone() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use types::{Epoch, Incarnation};

    use super::*;
    use crate::toolkit::state::tests::state;

    const SET: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn ballot(number: u64) -> Stamp {
        Stamp { number, writer: NodeId(1), incarnation: Incarnation(1) }
    }

    fn committed(slot: u64, promised: u64) -> Report {
        let committed = (slot > 0).then(|| Arc::new(state(slot, Some(b"v"))));
        let promised = if promised == 0 { Stamp::NONE } else { ballot(promised) };
        Report { committed, promised, ..Report::ABSENT }
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
        let decided = Decision::Decided { base, promised: ballot(7) };
        // The vote for slot 4 is older than the commit of it.
        assert_eq!(of([Some(committed(4, 7)), Some(voted(3, 9)), None]), decided);
    }

    #[test]
    fn votes_of_a_minority_are_undecided() {
        let undecided = |slot| Decision::Undecided { base: committed(slot, 0).committed };
        assert_eq!(of([Some(committed(4, 0)), Some(voted(4, 9)), None]), undecided(4));
        assert_eq!(of([Some(voted(4, 8)), Some(voted(4, 9)), None]), undecided(4));
        assert_eq!(of([Some(voted(0, 8)), Some(committed(0, 0)), None]), undecided(0));
    }

    #[test]
    fn equal_ballots_of_a_majority_are_decided() {
        let base = Some(Arc::new(state(5, Some(b"w"))));
        let decided = Decision::Decided { base, promised: Stamp::NONE };
        assert_eq!(of([Some(voted(4, 9)), Some(voted(4, 9)), None]), decided);
        assert_eq!(of([Some(voted(4, 9)), Some(voted(4, 8)), Some(voted(4, 9))]), decided);
    }
}
