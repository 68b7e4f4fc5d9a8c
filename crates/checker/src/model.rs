//! Sequential specifications: the possible effects of one operation on one state.
//!
//! A model is free of time, clients and concurrency. This folder has the models that the project
//! needs; any other type may implement [`Model`] too.

use std::fmt::Debug;
use std::hash::Hash;

pub mod append;
pub mod collection;
pub mod counter;
pub mod keyed;
pub mod kv;
pub mod lists;
pub mod register;

/// The calls of a history that may have had an effect, each with its answer if one was observed.
pub type Calls<'a, I, O> = &'a [(&'a I, Option<&'a O>)];

/// A sequential specification.
///
/// Only `initial` and `step` define right answers. The rest are hints that let the search skip
/// work; each must be a true statement about `step`, or verdicts are wrong. A model without hints
/// is complete with `type Mark = ()`.
///
/// A *mark* is a property of states that calls need to find and leave behind: of a register, its
/// value. A call may change no marks but those that [`Model::marks`] returns for its own input.
pub trait Model {
    /// A state; equal states have equal futures.
    type State: Clone + Eq + Hash + Debug;
    /// A request of a client. Equal inputs have equal steps.
    type Input: Eq + Hash + Debug;
    /// The answer to a client.
    type Output: Debug;
    /// The states one step may lead to: `Option` for a deterministic model, `Vec` otherwise.
    type Successors: IntoIterator<Item = Self::State>;
    /// A property of a state that calls need.
    type Mark: Clone + Eq + Hash;
    /// This model for one history; often `Self`.
    type Scoped: Model<Input = Self::Input, Output = Self::Output>;

    /// A model that takes the steps this one takes in a history of these calls and no others, in
    /// any order and number. It may have one state for several that no such call tells apart.
    fn scoped(&self, calls: Calls<'_, Self::Input, Self::Output>) -> Self::Scoped;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// Every state in which `input` may leave `state` after it answered `observed`; none if that
    /// answer would be wrong. `None` means an unobserved answer: any will do.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        observed: Option<&Self::Output>,
    ) -> Self::Successors;

    /// True only if `input`, having answered `observed` (`None`: any answer), never changes the
    /// state.
    ///
    /// It must have one successor in every state in which it is right.
    fn is_pure(&self, input: &Self::Input, observed: Option<&Self::Output>) -> bool {
        let _ = (input, observed);
        false
    }

    /// True only if `input` may answer `observed` in every state and always leaves the same one,
    /// which shows the same marks to every input.
    fn is_blind(&self, input: &Self::Input, observed: Option<&Self::Output>) -> bool {
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

    /// Adds the marks of `state`, or of the part of it that `input` deals with.
    fn marks(&self, state: &Self::State, input: &Self::Input, into: &mut Vec<Self::Mark>) {
        let _ = (state, input, into);
    }

    /// A mark that every state has in which `input` may answer `observed`; `None` if there is none.
    fn mark_before(&self, input: &Self::Input, observed: &Self::Output) -> Option<Self::Mark> {
        let _ = (input, observed);
        None
    }

    /// The marks that a step may add to those of the state before it.
    fn marks_after(
        &self,
        input: &Self::Input,
        observed: Option<&Self::Output>,
    ) -> MarksAfter<Self::Mark> {
        let _ = (input, observed);
        MarksAfter::Several
    }

    /// A mark that every state has in which `input`, having answered `observed`, adds `made`;
    /// `None` if there is none.
    fn mark_to_make(
        &self,
        input: &Self::Input,
        observed: Option<&Self::Output>,
        made: &Self::Mark,
    ) -> Option<Self::Mark> {
        let _ = (input, observed, made);
        None
    }

    /// False only if all steps from `state` to a state with `mark` use a call that is blind without
    /// an observed answer.
    fn may_grow_to(&self, state: &Self::State, mark: &Self::Mark) -> bool {
        let _ = (state, mark);
        true
    }

    /// True only if `one` and `other` have equal steps when their answers are unobserved. An
    /// equivalence.
    fn are_alike(&self, one: &Self::Input, other: &Self::Input) -> bool {
        one == other
    }

    /// Asked only where `marks_after` says `Several`: false only if no step adds `mark`.
    fn may_make(
        &self,
        input: &Self::Input,
        observed: Option<&Self::Output>,
        mark: &Self::Mark,
    ) -> bool {
        let _ = (input, observed, mark);
        true
    }
}

/// The marks that a step may add to those of the state before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MarksAfter<K> {
    /// No others than these.
    Only(Vec<K>),
    /// Those that [`Model::may_make`] allows.
    Several,
}
