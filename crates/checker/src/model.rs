//! Sequential specifications: what one operation may do to one state.
//!
//! A model knows nothing of time, clients or concurrency. Those of this folder are the ones the
//! project needs; any other type may implement [`Model`] too.

use std::fmt::Debug;
use std::hash::Hash;

pub mod append;
pub mod counter;
pub mod keyed;
pub mod kv;
pub mod register;

/// A sequential specification.
///
/// Only `initial` and `step` define what is right. `is_pure` and `can_lead_to` are hints that let
/// the search skip work; they must be true statements about `step`, or verdicts are wrong.
pub trait Model {
    /// A state; equal states have equal futures.
    type State: Clone + Eq + Hash + Debug;
    /// What a client asks for. Equal inputs have equal steps.
    type Input: Eq + Hash + Debug;
    /// What a client is told.
    type Output: Debug;
    /// The states one step may lead to: `Option` for a deterministic model, `Vec` otherwise.
    type Successors: IntoIterator<Item = Self::State>;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// Every state in which `input` may leave `state` having answered `observed`; none if that
    /// answer would be wrong. `None` stands for an answer nobody saw: any answer will do.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        observed: Option<&Self::Output>,
    ) -> Self::Successors;

    /// True only if `input`, having answered `observed` (`None`: whatever it answers), leaves
    /// every state in which it is right as it was, and has one successor there.
    fn is_pure(&self, input: &Self::Input, observed: Option<&Self::Output>) -> bool {
        let _ = (input, observed);
        false
    }

    /// False only if from `state` no sequence of steps leads to a state in which `input` may
    /// answer `observed`.
    fn can_lead_to(
        &self,
        state: &Self::State,
        input: &Self::Input,
        observed: &Self::Output,
    ) -> bool {
        let _ = (state, input, observed);
        true
    }
}
