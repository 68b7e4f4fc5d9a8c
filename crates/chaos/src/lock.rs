//! The model of a lock with a time to live: taken by a token, released by the same token, or
//! expired.
//!
//! Time is not modelled. The history has a [`LockInput::Expire`] for each token that may have held
//! the lock. It is invoked at the earliest end of that hold, and never completed.

use checker::model::{Calls, MarksAfter, Model};

/// Names one attempt to take a lock; never used twice.
pub type Token = u64;

/// A request to the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockInput {
    /// `SET k token NX PX ..`: `Granted`.
    Acquire(Token),
    /// `DELIFEQ k token`: `Granted` if the token held it.
    Release(Token),
    /// `GET k`: `Holder`.
    Holder,
    /// The time to live of this token's hold is over.
    Expire(Token),
}

/// An answer of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockOutput {
    /// Whether the lock granted the request.
    Granted(bool),
    /// The token that holds it.
    Holder(Option<Token>),
}

/// The model; its state is the token that holds the lock.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lock;

impl Model for Lock {
    type State = Option<Token>;
    type Input = LockInput;
    type Output = LockOutput;
    type Successors = Option<Self::State>;
    type Mark = Option<Token>;
    type Scoped = Lock;

    fn initial(&self) -> Self::State {
        None
    }

    fn scoped(&self, _: Calls<'_, LockInput, LockOutput>) -> Lock {
        *self
    }

    fn step(
        &self,
        state: &Self::State,
        input: &LockInput,
        observed: Option<&LockOutput>,
    ) -> Self::Successors {
        let (next, output) = match *input {
            LockInput::Acquire(token) if state.is_none() => {
                (Some(token), LockOutput::Granted(true))
            }
            LockInput::Acquire(_) => (*state, LockOutput::Granted(false)),
            LockInput::Release(token) if *state == Some(token) => (None, LockOutput::Granted(true)),
            LockInput::Release(_) => (*state, LockOutput::Granted(false)),
            LockInput::Holder => (*state, LockOutput::Holder(*state)),
            LockInput::Expire(token) => {
                (state.filter(|held| *held != token), LockOutput::Granted(true))
            }
        };
        observed.is_none_or(|seen| *seen == output).then_some(next)
    }

    fn is_pure(&self, input: &LockInput, observed: Option<&LockOutput>) -> bool {
        matches!(input, LockInput::Holder) || observed == Some(&LockOutput::Granted(false))
    }

    fn marks(&self, state: &Self::State, _: &LockInput, into: &mut Vec<Self::Mark>) {
        into.push(*state);
    }

    fn mark_before(&self, input: &LockInput, observed: &LockOutput) -> Option<Self::Mark> {
        match (input, observed) {
            (LockInput::Holder, LockOutput::Holder(seen)) => Some(*seen),
            (LockInput::Acquire(_), LockOutput::Granted(true)) => Some(None),
            (LockInput::Release(token), LockOutput::Granted(true)) => Some(Some(*token)),
            _ => None,
        }
    }

    fn marks_after(
        &self,
        input: &LockInput,
        observed: Option<&LockOutput>,
    ) -> MarksAfter<Self::Mark> {
        if self.is_pure(input, observed) {
            return MarksAfter::Only(Vec::new());
        }
        MarksAfter::Only(vec![match input {
            LockInput::Acquire(token) => Some(*token),
            LockInput::Release(_) | LockInput::Expire(_) | LockInput::Holder => None,
        }])
    }

    fn mark_to_make(
        &self,
        input: &LockInput,
        _: Option<&LockOutput>,
        _: &Self::Mark,
    ) -> Option<Self::Mark> {
        match input {
            LockInput::Acquire(_) => Some(None),
            LockInput::Release(token) | LockInput::Expire(token) => Some(Some(*token)),
            LockInput::Holder => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use checker::{ClientId, History, Limit, Outcome, linearizable};

    use super::*;
    use LockInput::{Acquire, Expire, Holder, Release};

    /// Calls one after another, and an expiry of token 1 that may happen from `expires_at` on.
    fn holds(expires_at: Option<u64>, calls: &[(LockInput, LockOutput)]) -> bool {
        let mut history = History::new();
        for (number, (input, output)) in (0..).zip(calls) {
            let op = history.invoke(ClientId(1), *input, number * 10);
            history.complete(op, Outcome::Returned(*output), number * 10 + 5);
        }
        if let Some(at) = expires_at {
            history.invoke(ClientId(2), Expire(1), at);
        }
        linearizable::check(&Lock, &history, Limit::default()).holds()
    }

    #[test]
    fn lock_has_one_holder_until_it_is_released() {
        let (yes, no) = (LockOutput::Granted(true), LockOutput::Granted(false));
        assert!(holds(
            None,
            &[
                (Acquire(1), yes),
                (Acquire(2), no),
                (Release(2), no),
                (Release(1), yes),
                (Acquire(2), yes),
                (Holder, LockOutput::Holder(Some(2))),
            ]
        ));
        assert!(!holds(None, &[(Acquire(1), yes), (Acquire(2), yes)]));
        assert!(!holds(None, &[(Acquire(1), yes), (Release(2), yes)]));
    }

    #[test]
    fn lock_passes_on_only_after_expiry() {
        let yes = LockOutput::Granted(true);
        assert!(holds(Some(4), &[(Acquire(1), yes), (Acquire(2), yes)]));
        assert!(!holds(Some(16), &[(Acquire(1), yes), (Acquire(2), yes)]));
        let free = LockOutput::Holder(None);
        assert!(holds(Some(7), &[(Acquire(1), yes), (Holder, free)]));
        assert!(!holds(Some(17), &[(Acquire(1), yes), (Holder, free), (Release(1), yes)]));
    }

    #[test]
    fn earlier_expiry_keeps_later_hold() {
        let yes = LockOutput::Granted(true);
        let calls = [
            (Acquire(1), yes),
            (Release(1), yes),
            (Acquire(2), yes),
            (Holder, LockOutput::Holder(None)),
        ];
        assert!(!holds(Some(0), &calls));
    }
}
