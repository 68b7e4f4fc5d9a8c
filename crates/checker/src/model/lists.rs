//! Transactions over lists: each appends to some and reads some, all at once.
//!
//! `serializable.rs` judges them by its own method. As a [`Model`] they let the search answer the
//! same question for short histories.

use std::collections::BTreeMap;

use super::{Calls, Model};

/// Names a list; all are empty at first.
pub type Key = u64;
/// An element of a list. No two appends of one history may add the same element to one list.
pub type Element = u64;

/// One step of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ListStep {
    Append { key: Key, element: Element },
    Read { key: Key },
}

/// A request of a client: its steps, executed atomically and in order.
pub type Transaction = Vec<ListStep>;

/// The reads of a transaction, in their order: all elements of the list, oldest first.
pub type Seen = Vec<Vec<Element>>;

/// The model; lists that are empty are left out of the state.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lists;

impl Lists {
    /// The reads of a transaction in a state, and the state after it.
    #[must_use]
    pub fn run(
        &self,
        state: &BTreeMap<Key, Vec<Element>>,
        transaction: &Transaction,
    ) -> (Seen, BTreeMap<Key, Vec<Element>>) {
        let (mut seen, mut lists) = (Seen::new(), state.clone());
        for step in transaction {
            match *step {
                ListStep::Append { key, element } => lists.entry(key).or_default().push(element),
                ListStep::Read { key } => seen.push(lists.get(&key).cloned().unwrap_or_default()),
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
        transaction.iter().all(|step| matches!(step, ListStep::Read { .. }))
    }
}
