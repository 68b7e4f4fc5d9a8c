//! Which calls may come next, given those already placed.
//!
//! One implementation per precedence order; each also names what has been placed in as few bytes
//! as it can, for the table of dead configurations.

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
