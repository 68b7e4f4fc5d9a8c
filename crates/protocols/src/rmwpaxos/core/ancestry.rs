//! Whether an attempt is part of a state's past, by evidence in the register itself. [spec 9.4]

use types::Outcome;

use crate::mutation::{self, Mutation};
use crate::rmwpaxos::progress::operation::Attempt;
use crate::rmwpaxos::record::state::State;

/// The relation of an attempt to a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ancestry {
    In,
    NotIn,
    /// The state has forgotten that far back.
    Ambiguous,
}

/// Looks for `attempt` among the ancestors of a state with this version and ring. An absent
/// register has no `state`, and its version floor as `version`.
#[must_use]
pub fn ancestry(attempt: &Attempt, version: u64, state: Option<&State>) -> Ancestry {
    if mutation::is(Mutation::NoAncestry) || version <= attempt.base_version {
        return Ancestry::NotIn;
    }
    let age = version - attempt.base_version - 1;
    match state.and_then(|state| state.ring().birth(age)) {
        Some(birth) if birth == attempt.round.ballot() => Ancestry::In,
        Some(_) => Ancestry::NotIn,
        None => Ancestry::Ambiguous,
    }
}

/// The common fate of all attempts of an operation.
#[must_use]
pub fn fate(attempts: &[Attempt], version: u64, state: Option<&State>) -> Ancestry {
    let mut fate = Ancestry::NotIn;
    for attempt in attempts {
        match ancestry(attempt, version, state) {
            Ancestry::In => return Ancestry::In,
            Ancestry::Ambiguous => fate = Ancestry::Ambiguous,
            Ancestry::NotIn => {}
        }
    }
    fate
}

/// The outcome computed by the attempt that is in the chain. [spec 9.4, E4]
#[must_use]
pub fn outcome_of(attempts: &[Attempt], version: u64, state: Option<&State>) -> Outcome {
    let is_in = |attempt: &&Attempt| ancestry(attempt, version, state) == Ancestry::In;
    attempts.iter().find(is_in).map_or(Outcome::Unknown, |attempt| attempt.outcome.clone())
}

#[cfg(test)]
mod tests {
    use types::{Ballot, Epoch, Incarnation, NodeId};

    use super::*;
    use crate::rmwpaxos::record::state::{Ring, StateFields};

    fn ballot(number: u64) -> Ballot {
        Ballot::new(Epoch(1), number, NodeId(1), Incarnation(1))
    }

    fn chain(births: &[u64]) -> State {
        let mut ring = Ring::default();
        births.iter().for_each(|&number| ring.push(ballot(number)));
        let version = births.len() as u64;
        State::new(&StateFields {
            version,
            mod_version: version,
            ring,
            expiry: None,
            once: None,
            lock: None,
            value: None,
        })
    }

    fn attempt(number: u64, base_version: u64) -> Attempt {
        Attempt { round: ballot(number).round(1), base_version, outcome: Outcome::Unknown }
    }

    fn look(attempt: &Attempt, state: &State) -> Ancestry {
        ancestry(attempt, state.version(), Some(state))
    }

    #[test]
    fn attempt_is_found_by_slot_and_ballot() {
        let state = chain(&[1, 2, 3]);
        assert_eq!(look(&attempt(2, 1), &state), Ancestry::In);
        assert_eq!(look(&attempt(9, 1), &state), Ancestry::NotIn, "another was born there");
        assert_eq!(look(&attempt(2, 3), &state), Ancestry::NotIn, "the state is not that far");
    }

    #[test]
    fn beyond_the_ring_ancestry_is_ambiguous() {
        let state = chain(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(look(&attempt(2, 1), &state), Ancestry::Ambiguous);
        let state = chain(&[1, 2, 3, 3, 3, 3]);
        assert_eq!(look(&attempt(2, 1), &state), Ancestry::In, "one owner's births take one place");
        assert_eq!(look(&attempt(3, 2), &state), Ancestry::In);
    }

    #[test]
    fn absent_register_has_only_its_floor() {
        assert_eq!(ancestry(&attempt(1, 4), 4, None), Ancestry::NotIn);
        assert_eq!(ancestry(&attempt(1, 3), 4, None), Ancestry::Ambiguous);
    }
}
