//! Candidates for the next call, given the placed ones.
//!
//! One implementation per precedence order; each also encodes the placed calls compactly, for the
//! table of dead configurations.

use std::hash::Hash;

mod program_order;
mod real_time;
mod response_cut;

pub(crate) use program_order::ProgramOrder;
pub(crate) use real_time::RealTime;

/// Calls are named by their index in `Prepared::required` and `Prepared::optional`.
pub(crate) trait Frontier {
    /// Equal exactly when the same required calls have been placed.
    type Key: Clone + Eq + Hash;

    fn key(&self) -> Self::Key;

    /// Places a required call that `candidates` names.
    fn place(&mut self, required: usize);

    /// Takes back the call placed last.
    fn unplace(&mut self, required: usize);

    /// The required calls that may be placed next, earliest response first.
    fn candidates(&self, into: &mut Vec<u32>);

    /// Whether an optional call may be placed next.
    fn admits_optional(&self, optional: usize) -> bool;

    /// The required calls not placed, earliest response first.
    fn upcoming(&self) -> impl Iterator<Item = usize> + '_;

    /// The required call with the earliest response of those not placed; `None` when all are.
    fn focus(&self) -> Option<usize> {
        self.upcoming().next()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::history::{ClientId, History, Outcome};
    use crate::model::register::{Register, RegisterInput, RegisterOutput};
    use crate::prepared::Prepared;
    use crate::sequential::WriteOrder;

    /// A multiplicative generator is random enough to choose a way through a frontier.
    struct Steps(u64);

    impl Steps {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % bound
        }
    }

    fn writes(steps: &mut Steps) -> History<RegisterInput, RegisterOutput> {
        let mut history = History::new();
        for at in 0..40 {
            let client = ClientId(steps.below(80) as u64);
            let invoked = at + steps.below(20) as u64;
            let op = history.invoke(client, RegisterInput::Write(at), invoked);
            let responded = invoked + steps.below(30) as u64;
            history.complete(op, Outcome::Returned(RegisterOutput::Written), responded);
        }
        history
    }

    /// Wanders forth and back; a key must stand for one set of placed calls, a set for one key.
    fn check<F: Frontier>(frontier: impl Fn(&Prepared<'_, Register>) -> F) {
        for seed in 0..50 {
            let mut steps = Steps(seed);
            let history = writes(&mut steps);
            let prepared = Prepared::new(&Register, history.operations(), |input| input);
            let mut frontier = frontier(&prepared);
            let mut placed: Vec<usize> = Vec::new();
            let mut key_of: BTreeMap<BTreeSet<usize>, F::Key> = BTreeMap::new();
            for _ in 0..2_000 {
                let mut candidates = Vec::new();
                frontier.candidates(&mut candidates);
                let is_forth = !candidates.is_empty() && steps.below(100) < 55;
                if is_forth {
                    let next = candidates[steps.below(candidates.len())] as usize;
                    frontier.place(next);
                    placed.push(next);
                } else if let Some(last) = placed.pop() {
                    frontier.unplace(last);
                }
                let set = placed.iter().copied().collect();
                let key = key_of.entry(set).or_insert_with(|| frontier.key());
                assert!(*key == frontier.key(), "seed {seed}: {placed:?} has two keys");
                assert_eq!(frontier.upcoming().count() + placed.len(), history.len());
            }
            let keys: hashbrown::HashSet<&F::Key> = key_of.values().collect();
            assert_eq!(keys.len(), key_of.len(), "seed {seed}: two sets share a key");
        }
    }

    #[test]
    fn key_of_real_time_names_placed_calls() {
        check(RealTime::new);
        check(RealTime::in_sessions);
    }

    #[test]
    fn key_of_program_order_names_placed_calls() {
        let ordered = BTreeSet::new();
        check(|prepared| ProgramOrder::new(prepared, WriteOrder::Free, &ordered));
        check(|prepared| ProgramOrder::new(prepared, WriteOrder::RealTime, &ordered));
    }
}
