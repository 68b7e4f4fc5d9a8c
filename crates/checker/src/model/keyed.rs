//! Many independent objects of one model, told apart by a key.
//!
//! For criteria that do not compose: sequential consistency of every key alone does not make the
//! whole sequentially consistent. Linearizability does compose; there, check each key by itself
//! ([`crate::linearizable::check_partitioned`]), which is far cheaper.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use super::{Calls, MarksAfter, Model};

/// The model; inputs are `(key, input)`. A key in its initial state takes no room.
#[derive(Clone, Copy, Debug)]
pub struct Keyed<K, M> {
    object: M,
    key: PhantomData<K>,
}

impl<K, M> Keyed<K, M> {
    /// Objects that each follow `object`.
    #[must_use]
    pub fn new(object: M) -> Self {
        Keyed { object, key: PhantomData }
    }
}

impl<K: Clone + Ord + Hash + Debug, M: Model> Model for Keyed<K, M> {
    type State = BTreeMap<K, M::State>;
    type Input = (K, M::Input);
    type Output = M::Output;
    type Successors = Vec<Self::State>;
    type Mark = (K, M::Mark);
    type Scoped = Keyed<K, M::Scoped>;

    /// Objects share one scope: of the calls of all keys.
    fn scoped(&self, calls: Calls<'_, Self::Input, Self::Output>) -> Self::Scoped {
        let calls: Vec<_> = calls.iter().map(|((_, input), output)| (input, *output)).collect();
        Keyed::new(self.object.scoped(&calls))
    }

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(
        &self,
        state: &Self::State,
        (key, input): &Self::Input,
        observed: Option<&Self::Output>,
    ) -> Self::Successors {
        let initial = self.object.initial();
        let before = state.get(key).unwrap_or(&initial);
        let with = |after: M::State| {
            let mut next = state.clone();
            if after == initial {
                next.remove(key);
            } else {
                next.insert(key.clone(), after);
            }
            next
        };
        self.object.step(before, input, observed).into_iter().map(with).collect()
    }

    fn is_pure(&self, (_, input): &Self::Input, observed: Option<&Self::Output>) -> bool {
        self.object.is_pure(input, observed)
    }

    fn can_lead_to(
        &self,
        state: &Self::State,
        (key, input): &Self::Input,
        observed: &Self::Output,
    ) -> bool {
        match state.get(key) {
            Some(object) => self.object.can_lead_to(object, input, observed),
            None => self.object.can_lead_to(&self.object.initial(), input, observed),
        }
    }

    fn marks(&self, state: &Self::State, (key, input): &Self::Input, into: &mut Vec<Self::Mark>) {
        let mut marks = Vec::new();
        match state.get(key) {
            Some(object) => self.object.marks(object, input, &mut marks),
            None => self.object.marks(&self.object.initial(), input, &mut marks),
        }
        into.extend(marks.into_iter().map(|mark| (key.clone(), mark)));
    }

    fn mark_before(
        &self,
        (key, input): &Self::Input,
        observed: &Self::Output,
    ) -> Option<Self::Mark> {
        self.object.mark_before(input, observed).map(|mark| (key.clone(), mark))
    }

    fn marks_after(
        &self,
        (key, input): &Self::Input,
        observed: Option<&Self::Output>,
    ) -> MarksAfter<Self::Mark> {
        match self.object.marks_after(input, observed) {
            MarksAfter::Only(marks) => {
                MarksAfter::Only(marks.into_iter().map(|mark| (key.clone(), mark)).collect())
            }
            MarksAfter::Several => MarksAfter::Several,
        }
    }

    fn mark_to_make(
        &self,
        (key, input): &Self::Input,
        observed: Option<&Self::Output>,
        (_, made): &Self::Mark,
    ) -> Option<Self::Mark> {
        self.object.mark_to_make(input, observed, made).map(|mark| (key.clone(), mark))
    }

    fn may_grow_to(&self, state: &Self::State, (key, mark): &Self::Mark) -> bool {
        match state.get(key) {
            Some(object) => self.object.may_grow_to(object, mark),
            None => self.object.may_grow_to(&self.object.initial(), mark),
        }
    }

    fn are_alike(&self, (key, input): &Self::Input, (of, other): &Self::Input) -> bool {
        key == of && self.object.are_alike(input, other)
    }

    fn may_make(
        &self,
        (key, input): &Self::Input,
        observed: Option<&Self::Output>,
        (of, mark): &Self::Mark,
    ) -> bool {
        key == of && self.object.may_make(input, observed, mark)
    }
}
