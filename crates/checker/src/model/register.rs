//! A register of one `u64`, absent at first: read, write, compare and swap.

use super::{Calls, MarksAfter, Model};

/// A request to a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterInput {
    Read,
    Write(u64),
    /// Writes `new` if the register holds `expected` (`None`: if it is absent).
    Cas {
        expected: Option<u64>,
        new: u64,
    },
}

/// An answer of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterOutput {
    /// Answer of a read.
    Value(Option<u64>),
    /// Answer of a write.
    Written,
    /// Answer of a compare and swap: whether it wrote.
    Swapped(bool),
}

/// The model; its state is the value, if any.
#[derive(Clone, Copy, Default, Debug)]
pub struct Register;

impl Model for Register {
    type State = Option<u64>;
    type Input = RegisterInput;
    type Output = RegisterOutput;
    type Successors = Option<Self::State>;
    type Mark = Option<u64>;
    type Scoped = Register;

    fn initial(&self) -> Self::State {
        None
    }

    fn scoped(&self, _: Calls<'_, Self::Input, Self::Output>) -> Self {
        *self
    }

    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        observed: Option<&Self::Output>,
    ) -> Self::Successors {
        let (next, output) = match *input {
            RegisterInput::Read => (*state, RegisterOutput::Value(*state)),
            RegisterInput::Write(value) => (Some(value), RegisterOutput::Written),
            RegisterInput::Cas { expected, new } if *state == expected => {
                (Some(new), RegisterOutput::Swapped(true))
            }
            RegisterInput::Cas { .. } => (*state, RegisterOutput::Swapped(false)),
        };
        observed.is_none_or(|seen| *seen == output).then_some(next)
    }

    fn is_pure(&self, input: &Self::Input, observed: Option<&Self::Output>) -> bool {
        matches!(input, RegisterInput::Read)
            || matches!(observed, Some(RegisterOutput::Swapped(false)))
    }

    fn is_blind(&self, input: &Self::Input, observed: Option<&Self::Output>) -> bool {
        matches!((input, observed), (RegisterInput::Write(_), None | Some(RegisterOutput::Written)))
    }

    fn marks(&self, state: &Self::State, _: &Self::Input, into: &mut Vec<Self::Mark>) {
        into.push(*state);
    }

    fn mark_before(&self, input: &Self::Input, observed: &Self::Output) -> Option<Self::Mark> {
        match (input, observed) {
            (RegisterInput::Read, RegisterOutput::Value(seen)) => Some(*seen),
            (RegisterInput::Cas { expected, .. }, RegisterOutput::Swapped(true)) => Some(*expected),
            _ => None,
        }
    }

    fn marks_after(
        &self,
        input: &Self::Input,
        observed: Option<&Self::Output>,
    ) -> MarksAfter<Self::Mark> {
        match (input, observed) {
            (RegisterInput::Read, _) | (_, Some(RegisterOutput::Swapped(false))) => {
                MarksAfter::Only(Vec::new())
            }
            (RegisterInput::Write(value) | RegisterInput::Cas { new: value, .. }, _) => {
                MarksAfter::Only(vec![Some(*value)])
            }
        }
    }
}
