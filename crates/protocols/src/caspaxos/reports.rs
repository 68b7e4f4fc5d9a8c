//! Reports of replicas on one key, and which state they show to be chosen.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Millis;

use super::message::Body;
use super::register::{Register, Report};
use crate::mutation::{self, Mutation};
use crate::replicas::{Places, ReplicaSet, place};
use crate::toolkit::countdown::{Countdown, Started};
use crate::toolkit::report;
use crate::toolkit::state::{Base, ExpiryId, State};
use crate::uptime::Uptime;

/// The highest vote that a quorum of reports shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Highest {
    /// The vote, and the highest promise reported.
    pub report: Report,
    /// A quorum has this vote, or none has any: no state was chosen after it.
    pub is_chosen: bool,
}

impl report::Report for Report {
    type Record = Register;
    type Found = Report;
    type Body = Body;

    fn of(register: &Register, uptime: &dyn Uptime, unix: Millis) -> Report {
        let ttl = register.state.as_ref().and_then(|state| state.ttl());
        let countdown = ttl.map(|ttl| Countdown::of(ttl, register.started, uptime, unix));
        let Register { promised, ballot, ref state, .. } = *register;
        Report { promised, ballot, state: state.clone(), countdown }
    }

    fn without_values(&self) -> Report {
        let state = self.state.as_ref().map(|state| Arc::new(state.without_value()));
        Report { state, ..*self }
    }

    fn latest(register: &Register) -> Base {
        register.state.clone()
    }

    fn value_len(register: &Register) -> usize {
        register.state.as_ref().map_or(0, |state| state.value_len())
    }

    fn age(&self) -> impl Ord {
        (self.ballot, self.promised)
    }

    fn countdown_of(&self, id: ExpiryId) -> Countdown {
        let has_it = self.state.as_ref().is_some_and(|it| it.expiry_id() == Some(id));
        self.countdown.filter(|_| has_it).unwrap_or(Countdown::None)
    }

    fn newest(&self) -> Option<(String, &Arc<State>, Countdown)> {
        let round = format!("{}.{}", self.ballot.number, self.ballot.writer.0);
        Some((round, self.state.as_ref()?, self.countdown.unwrap_or(Countdown::None)))
    }

    fn found(set: &ReplicaSet, counted: Places, at: &BTreeMap<usize, Report>) -> Option<Report> {
        let highest = highest(set, counted, at)?;
        highest.is_chosen.then_some(highest.report)
    }

    fn state(found: &Report) -> &Base {
        &found.state
    }

    fn restore(found: Report, uptime: &dyn Uptime) -> Register {
        let Report { mut promised, ballot, state, .. } = found;
        if mutation::is(Mutation::RecoversNoPromise) {
            promised = ballot;
        }
        let started = Started::anew(state.as_ref().and_then(|it| it.ttl()), uptime);
        Register { promised: promised.max(ballot), ballot, state, started }
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
    let report = Report { promised, countdown: None, ..newest.clone() };
    Some(Highest { report, is_chosen })
}

#[cfg(test)]
mod tests {
    use types::{Epoch, NodeId};

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
        highest(&set, counted, &at).map(|it| (it.report.ballot.number, it.is_chosen))
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
