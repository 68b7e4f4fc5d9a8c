//! Changes of sorted sets. Elements that stay are copied as runs of bytes.

use bytes::Bytes;

use super::{Element, Encoding, HEADER_LEN, SortedSet};
use crate::Kind;

/// A place of an element: the number of lower ones, and its score.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Found {
    pub rank: usize,
    pub score: f64,
}

impl<'a> SortedSet<'a> {
    #[must_use]
    pub fn find(&self, member: &[u8]) -> Option<Found> {
        let at = |(rank, element): (usize, Element<'a>)| {
            (element.member == member).then_some(Found { rank, score: element.score })
        };
        self.iter().enumerate().find_map(at)
    }

    /// The value without the elements of the ranks `removed`, which ascend, and with those of
    /// `added`, which are in order. No added member is among those that stay.
    #[must_use]
    pub fn changed(
        &self,
        encoding: Encoding,
        removed: impl IntoIterator<Item = usize>,
        added: &[Element<'_>],
    ) -> Bytes {
        let room: usize = added.iter().map(Element::encoded_len).sum();
        let mut out = Vec::with_capacity(self.encoded_len() + room);
        out.extend_from_slice(&header(encoding));
        let (mut removed, mut added) = (removed.into_iter().peekable(), added.iter().peekable());
        let mut elements = self.iter();
        // The elements up to here are in `out`.
        let mut copied = 0;
        for rank in 0..self.len {
            if removed.peek().is_none() && added.peek().is_none() {
                break;
            }
            let start = self.elements.len() - elements.rest.len();
            let Some(element) = elements.next() else { break };
            while let Some(new) = added.next_if(|new| new.order(&element).is_lt()) {
                out.extend_from_slice(&self.elements[copied..start]);
                copied = start;
                new.put(&mut out);
            }
            if removed.next_if(|&it| it == rank).is_some() {
                out.extend_from_slice(&self.elements[copied..start]);
                copied = self.elements.len() - elements.rest.len();
            }
        }
        out.extend_from_slice(&self.elements[copied..]);
        added.for_each(|new| new.put(&mut out));
        bytes_of(out)
    }
}

/// Builds a value out of elements in order.
#[derive(Clone, Debug)]
pub struct Builder {
    value: Vec<u8>,
}

impl Builder {
    #[must_use]
    pub fn new(encoding: Encoding) -> Builder {
        Builder { value: header(encoding).to_vec() }
    }

    /// Appends the next higher element.
    pub fn push(&mut self, element: Element<'_>) {
        element.put(&mut self.value);
    }

    #[must_use]
    pub fn finish(self) -> Bytes {
        bytes_of(self.value)
    }
}

/// `Bytes` takes over a vector without spare room; it would move any other one.
fn bytes_of(mut value: Vec<u8>) -> Bytes {
    value.shrink_to_fit();
    value.into()
}

fn header(encoding: Encoding) -> [u8; HEADER_LEN] {
    [Kind::SortedSet as u8, encoding as u8]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn build(elements: &BTreeMap<Vec<u8>, i32>) -> Bytes {
        let mut all: Vec<Element<'_>> = elements
            .iter()
            .map(|(member, score)| Element { score: f64::from(*score), member })
            .collect();
        all.sort_by(Element::order);
        let mut builder = Builder::new(Encoding::Listpack);
        all.into_iter().for_each(|element| builder.push(element));
        builder.finish()
    }

    fn elements() -> impl Strategy<Value = BTreeMap<Vec<u8>, i32>> {
        let member = prop::collection::vec(b'a'..b'd', 0..3);
        prop::collection::btree_map(member, -3..3_i32, 0..12)
    }

    proptest! {
        #[test]
        fn changes_are_those_of_a_map(mut all in elements(), new in elements(), gone in elements()) {
            let value = build(&all);
            let set = SortedSet::decode(&value).unwrap_or(SortedSet::EMPTY);
            let named = |it: &Element<'_>| new.contains_key(it.member) || gone.contains_key(it.member);
            let ranks: Vec<usize> = set.iter().enumerate().filter(|(_, it)| named(it)).map(|(rank, _)| rank).collect();
            let mut added: Vec<Element<'_>> =
                new.iter().map(|(member, score)| Element { score: f64::from(*score), member }).collect();
            added.sort_by(Element::order);
            let changed = set.changed(Encoding::Listpack, ranks, &added);
            all.retain(|member, _| !gone.contains_key(member));
            all.extend(new.clone());
            prop_assert_eq!(&changed, &build(&all));
            let set = SortedSet::decode(&changed);
            prop_assert_eq!(set.is_err(), all.is_empty());
            let set = set.unwrap_or(SortedSet::EMPTY);
            for (member, score) in &all {
                let found = set.find(member).unwrap();
                prop_assert_eq!(found.score, f64::from(*score));
                prop_assert_eq!(set.iter().nth(found.rank).unwrap().member, &member[..]);
            }
        }
    }

    #[test]
    fn one_element_changes_one_run_of_bytes() {
        let all = (0..100).map(|n| (format!("m{n:02}").into_bytes(), n)).collect();
        let value = build(&all);
        let set = SortedSet::decode(&value).unwrap();
        let moved = Element { score: 51.5, member: b"m50" };
        let changed = set.changed(Encoding::Listpack, [50], &[moved]);
        let same = value.iter().zip(&changed).take_while(|(a, b)| a == b).count();
        let tail = value.iter().rev().zip(changed.iter().rev()).take_while(|(a, b)| a == b).count();
        assert!(changed.len() - same - tail <= 9 + 4 + 6, "{} bytes", changed.len() - same - tail);
    }
}
