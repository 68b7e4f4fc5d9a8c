//! Reports of replicas on one key, and which state they show to be chosen.

use std::collections::BTreeMap;

use base::Millis;
use types::{AmnesiaCount, NodeId};

use super::register::Report;
use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::replicas::{Places, ReplicaSet, Replicas, place};
use crate::toolkit::countdown::Countdown;
use crate::toolkit::stamp::Stamp;
use crate::toolkit::state::{Base, ExpiryId};

/// The highest vote that a quorum of reports shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Highest {
    pub ballot: Stamp,
    pub state: Base,
    /// The highest promise reported.
    pub promised: Stamp,
    /// A quorum has this vote, or none has any: no state was chosen after it.
    pub is_chosen: bool,
}

/// Reports of distinct replicas.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    pub tally: Tally,
    by_place: BTreeMap<usize, Report>,
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
            |old: &Report| (report.ballot, report.promised) >= (old.ballot, old.promised);
        if is_new || self.by_place.get(&index).is_none_or(is_later) {
            self.by_place.insert(index, report);
        }
    }

    /// `None` without a quorum.
    #[must_use]
    pub fn highest(&self, replicas: Replicas<'_>) -> Option<Highest> {
        let counted = self.tally.places(replicas.set, replicas.peers);
        highest(replicas.set, counted, &self.by_place)
    }

    /// Replicas whose reported vote is lower.
    pub fn lagging<'a>(
        &'a self,
        replicas: Replicas<'a>,
        ballot: Stamp,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let reports = replicas.all().enumerate();
        let lags = move |index| self.by_place.get(&index).is_some_and(|it| it.ballot < ballot);
        reports.filter(move |&(index, _)| lags(index)).map(|(_, node)| node)
    }

    /// The votes for the end of this deadline, and the largest rest reported for it.
    #[must_use]
    pub fn votes(&self, replicas: Replicas<'_>, id: ExpiryId) -> (Places, Option<Millis>) {
        let counted = self.tally.places(replicas.set, replicas.peers);
        let (mut over, mut rest) = (0, None);
        for (&index, report) in &self.by_place {
            let has_it = report.state.as_ref().is_some_and(|it| it.expiry_id() == Some(id));
            let Some(countdown) = report.countdown.filter(|_| has_it) else { continue };
            if counted & place(index) == 0 {
                continue;
            }
            rest = rest.max(countdown.rest());
            if countdown == Countdown::Over {
                over |= place(index);
            }
        }
        (over, rest)
    }
}

/// The highest vote in the reports of these places; a place without one has no register.
#[must_use]
pub fn highest(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Option<Highest> {
    if !set.is_quorum_of(counted) {
        return None;
    }
    let absent = Report::default();
    let reports = || {
        let places = (0..set.nodes().len()).filter(|&index| counted & place(index) != 0);
        places.map(|index| (index, at.get(&index).unwrap_or(&absent)))
    };
    let (_, newest) = reports().max_by_key(|(_, report)| report.ballot)?;
    let promised = reports().map(|(_, report)| report.promised).max()?;
    let voters = reports().filter(|(_, report)| report.ballot == newest.ballot);
    let voters = voters.fold(0, |set, (index, _)| set | place(index));
    let is_chosen =
        set.is_quorum_of(voters) || newest.state.is_none() || mutation::is(Mutation::AdoptMinority);
    Some(Highest { ballot: newest.ballot, state: newest.state.clone(), promised, is_chosen })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use types::Epoch;

    use super::super::register::tests::ballot;
    use super::*;
    use crate::toolkit::state::tests::state;

    fn of(numbers: &[(usize, u64)]) -> Option<(u64, bool)> {
        let nodes = [NodeId(1), NodeId(2), NodeId(3)];
        let set = ReplicaSet::new(Epoch(1), NodeId(1), &nodes);
        let report = |number| match number {
            0 => Report::default(),
            _ => Report {
                ballot: ballot(number),
                promised: ballot(number),
                state: Some(Arc::new(state(number, Some(b"v")))),
                countdown: None,
            },
        };
        let at = numbers.iter().map(|&(index, number)| (index, report(number))).collect();
        let counted = numbers.iter().fold(0, |set, (index, _)| set | place(*index));
        highest(&set, counted, &at).map(|it| (it.ballot.number, it.is_chosen))
    }

    #[test]
    fn only_a_quorum_of_equal_ballots_is_chosen() {
        assert_eq!(of(&[(0, 3)]), None);
        assert_eq!(of(&[(0, 3), (1, 3)]), Some((3, true)));
        assert_eq!(of(&[(0, 3), (2, 4)]), Some((4, false)));
        assert_eq!(of(&[(0, 4), (1, 3), (2, 4)]), Some((4, true)));
        assert_eq!(of(&[(0, 0), (2, 4)]), Some((4, false)));
        assert_eq!(of(&[(0, 0), (2, 0)]), Some((0, true)));
    }
}
