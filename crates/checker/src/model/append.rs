//! A list to which items are appended; a read reveals all of it.
//!
//! The strongest cheap witness there is: one read fixes the order of every append before it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Calls, Model};

/// A request to the list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AppendInput<T> {
    Append(T),
    Read,
}

/// An answer of the list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AppendOutput<T> {
    /// Answer of an append: the length with the new item.
    Length(u64),
    /// Answer of a read: all items, oldest first.
    Content(Vec<T>),
}

/// The model; a state shares all but its last item with the state before it.
#[derive(Clone, Copy, Debug)]
pub struct Append<T>(PhantomData<T>);

impl<T> Append<T> {
    /// The model of an empty list.
    #[must_use]
    pub fn new() -> Self {
        Append(PhantomData)
    }
}

impl<T> Default for Append<T> {
    fn default() -> Self {
        Append::new()
    }
}

impl<T: Clone + Eq + Hash + fmt::Debug> Model for Append<T> {
    type State = Chain<T>;
    type Input = AppendInput<T>;
    type Output = AppendOutput<T>;
    type Successors = Option<Chain<T>>;
    // `can_lead_to` is exact: a list never goes back.
    type Mark = ();
    type Scoped = Append<T>;

    fn initial(&self) -> Chain<T> {
        Chain { last: None }
    }

    fn scoped(&self, _: Calls<'_, Self::Input, Self::Output>) -> Self {
        Append::new()
    }

    fn step(
        &self,
        state: &Chain<T>,
        input: &AppendInput<T>,
        observed: Option<&AppendOutput<T>>,
    ) -> Option<Chain<T>> {
        let is_right = match (input, observed) {
            (_, None) => true,
            (AppendInput::Append(_), Some(AppendOutput::Length(seen))) => *seen == state.len() + 1,
            (AppendInput::Read, Some(AppendOutput::Content(seen))) => {
                seen.len() as u64 == state.len() && state.is_prefix_of(seen)
            }
            _ => false,
        };
        is_right.then(|| match input {
            AppendInput::Append(item) => state.with(item.clone()),
            AppendInput::Read => state.clone(),
        })
    }

    fn is_pure(&self, input: &AppendInput<T>, _: Option<&AppendOutput<T>>) -> bool {
        matches!(input, AppendInput::Read)
    }

    fn can_lead_to(
        &self,
        state: &Chain<T>,
        _: &AppendInput<T>,
        observed: &AppendOutput<T>,
    ) -> bool {
        match observed {
            AppendOutput::Length(seen) => state.len() < *seen,
            AppendOutput::Content(seen) => state.is_prefix_of(seen),
        }
    }
}

/// An immutable list that shares its older items with the lists it grew from.
pub struct Chain<T> {
    last: Option<Arc<ChainLink<T>>>,
}

// Not derived: items need not be cloned.
impl<T> Clone for Chain<T> {
    fn clone(&self) -> Self {
        Chain { last: self.last.clone() }
    }
}

struct ChainLink<T> {
    item: T,
    before: Chain<T>,
    len: u64,
    // Of all items up to this one; equal chains have equal digests.
    digest: u64,
}

impl<T> Chain<T> {
    /// Number of items.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.last.as_ref().map_or(0, |link| link.len)
    }

    /// True for an empty list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// The items, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &T> {
        let mut at = self;
        std::iter::from_fn(move || {
            let link = at.last.as_deref()?;
            at = &link.before;
            Some(&link.item)
        })
    }

    fn digest(&self) -> u64 {
        self.last.as_ref().map_or(0, |link| link.digest)
    }
}

impl<T: Eq + Hash> Chain<T> {
    fn with(&self, item: T) -> Chain<T> {
        let mut hasher = std::hash::DefaultHasher::new();
        self.digest().hash(&mut hasher);
        item.hash(&mut hasher);
        let link =
            ChainLink { item, before: self.clone(), len: self.len() + 1, digest: hasher.finish() };
        Chain { last: Some(Arc::new(link)) }
    }

    fn is_prefix_of(&self, items: &[T]) -> bool {
        let Some(prefix) = usize::try_from(self.len()).ok().and_then(|len| items.get(..len)) else {
            return false;
        };
        self.newest_first().eq(prefix.iter().rev())
    }
}

impl<T: Eq> PartialEq for Chain<T> {
    fn eq(&self, other: &Self) -> bool {
        let (mut left, mut right) = (self, other);
        loop {
            match (&left.last, &right.last) {
                (None, None) => return true,
                (Some(a), Some(b)) if Arc::ptr_eq(a, b) => return true,
                (Some(a), Some(b))
                    if a.digest == b.digest && a.len == b.len && a.item == b.item =>
                {
                    (left, right) = (&a.before, &b.before);
                }
                _ => return false,
            }
        }
    }
}

impl<T: Eq> Eq for Chain<T> {}

impl<T> Hash for Chain<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Chain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut items: Vec<&T> = self.newest_first().collect();
        items.reverse();
        f.debug_list().entries(items).finish()
    }
}

impl<T> Drop for Chain<T> {
    // The derived drop would recurse once per item.
    fn drop(&mut self) {
        let mut at = self.last.take();
        while let Some(mut link) = at.and_then(Arc::into_inner) {
            at = link.before.last.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(items: impl IntoIterator<Item = u32>) -> Chain<u32> {
        items.into_iter().fold(Chain { last: None }, |chain, item| chain.with(item))
    }

    #[test]
    fn chains_with_equal_items_are_equal() {
        assert_eq!(chain(0..50), chain(0..50));
        assert_ne!(chain(0..50), chain(0..49));
        assert_ne!(chain([1, 2, 3]), chain([2, 1, 3]));
    }

    #[test]
    fn prefix_is_recognised() {
        assert!(chain([]).is_prefix_of(&[]));
        assert!(chain([1, 2]).is_prefix_of(&[1, 2, 3]));
        assert!(!chain([1, 3]).is_prefix_of(&[1, 2, 3]));
        assert!(!chain([1, 2, 3]).is_prefix_of(&[1, 2]));
    }

    #[test]
    fn long_chain_drops_without_recursion() {
        let long = chain(0..200_000);
        let shorter = long.clone();
        drop(long);
        assert_eq!(shorter.len(), 200_000);
    }
}
