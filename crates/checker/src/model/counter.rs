//! A counter that starts at zero and goes up by one.

use super::{Calls, Model};

/// A request to a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CounterInput {
    /// Adds one; answers the new value.
    Increment,
    /// Answers the value.
    Read,
}

/// The model; state and answers are the value.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counter;

impl Model for Counter {
    type State = u64;
    type Input = CounterInput;
    type Output = u64;
    type Successors = Option<u64>;
    // `can_lead_to` is exact: a counter never goes back.
    type Mark = ();
    type Scoped = Counter;

    fn initial(&self) -> u64 {
        0
    }

    fn scoped(&self, _: Calls<'_, CounterInput, u64>) -> Self {
        *self
    }

    fn step(&self, state: &u64, input: &CounterInput, observed: Option<&u64>) -> Option<u64> {
        let next = match input {
            CounterInput::Increment => state.checked_add(1)?,
            CounterInput::Read => *state,
        };
        observed.is_none_or(|seen| *seen == next).then_some(next)
    }

    fn is_pure(&self, input: &CounterInput, _: Option<&u64>) -> bool {
        matches!(input, CounterInput::Read)
    }

    fn can_lead_to(&self, state: &u64, input: &CounterInput, observed: &u64) -> bool {
        match input {
            CounterInput::Increment => state < observed,
            CounterInput::Read => state <= observed,
        }
    }
}
