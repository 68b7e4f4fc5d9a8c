//! Transactions over lists: each appends to some and reads some, all at once.
//!
//! What `serializable.rs` judges by its own method; as a [`Model`] it serves to ask the search the
//! same of short histories.

use std::collections::BTreeMap;

use super::{Calls, Model};

/// Names a list; all are empty at first.
pub type Key = u64;
/// What lists hold. No two appends of one history may add the same element to one list.
pub type Element = u64;

/// One step of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    Append { key: Key, element: Element },
    Read { key: Key },
}

/// What a client asks for: its steps, one after the other, with nothing in between.
pub type Transaction = Vec<Step>;

/// What the reads of a transaction saw, in their order: all elements of the list, oldest first.
pub type Seen = Vec<Vec<Element>>;

/// The model; lists that are empty are left out of the state.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lists;

impl Lists {
    /// What a transaction sees in a state, and the state after it.
    #[must_use]
    pub fn run(
        &self,
        state: &BTreeMap<Key, Vec<Element>>,
        transaction: &Transaction,
    ) -> (Seen, BTreeMap<Key, Vec<Element>>) {
        let (mut seen, mut lists) = (Seen::new(), state.clone());
        for step in transaction {
            match *step {
                Step::Append { key, element } => lists.entry(key).or_default().push(element),
                Step::Read { key } => seen.push(lists.get(&key).cloned().unwrap_or_default()),
            }
        }
        (seen, lists)
    }
}

impl Model for Lists {
    type State = BTreeMap<Key, Vec<Element>>;
    type Input = Transaction;
    type Output = Seen;
    type Successors = Option<Self::State>;
    type Mark = ();
    type Scoped = Lists;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn scoped(&self, _: Calls<'_, Transaction, Seen>) -> Lists {
        *self
    }

    fn step(
        &self,
        state: &Self::State,
        transaction: &Transaction,
        observed: Option<&Seen>,
    ) -> Option<Self::State> {
        let (seen, next) = self.run(state, transaction);
        observed.is_none_or(|observed| *observed == seen).then_some(next)
    }

    fn is_pure(&self, transaction: &Transaction, _: Option<&Seen>) -> bool {
        transaction.iter().all(|step| matches!(step, Step::Read { .. }))
    }
}
