//! Large collections with an index, for many commands on single elements: hashes without ends of
//! fields, sets and sorted sets.
//!
//! A command runs on a part: a small value with the elements that it names. The part then replaces
//! these elements. So commands need no second form, and no command decodes all elements.

use std::collections::BTreeMap;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use crate::set::Encoding as SetEncoding;
use crate::sorted_set::Encoding as SortedSetEncoding;
use crate::{Hash, Kind, SortedSet, blobs, hash, set, sorted_set};

/// Bytes in front of the elements: the type and the encoding.
const HEAD_LEN: usize = 2;

/// The place of an element: its score or its turn, then its name.
type Place = (u64, Bytes);

#[derive(Clone, Debug)]
pub struct Indexed {
    kind: Kind,
    head: [u8; HEAD_LEN],
    /// The encoded elements in order.
    elements: BTreeMap<Place, Bytes>,
    /// The first half of each place, by name.
    places: HashMap<Bytes, u64, FixedState>,
    /// The turn of the next new field or member.
    next: u64,
    /// Bytes of all elements.
    len: usize,
}

impl Indexed {
    /// Indexes a collection. A seed that clients cannot guess keeps them from choosing names whose
    /// hashes collide.
    ///
    /// `None` for a value of another type, in an encoding that may change, or damaged.
    #[must_use]
    pub fn of(value: &Bytes, seed: u64) -> Option<Indexed> {
        let kind = Kind::of(value).ok()?;
        let is_indexed = match kind {
            Kind::Hash => Hash::decode(value).ok()?.encoding() == hash::Encoding::Table,
            Kind::Set => set::decode(value).ok()?.encoding() == SetEncoding::Hashtable,
            Kind::SortedSet => {
                SortedSet::decode(value).ok()?.encoding() == SortedSetEncoding::Skiplist
            }
            _ => false,
        };
        if !is_indexed {
            return None;
        }
        let head = *value.first_chunk()?;
        let places = HashMap::with_hasher(FixedState::with_seed(seed));
        let mut indexed =
            Indexed { kind, head, elements: BTreeMap::new(), places, next: 0, len: 0 };
        let mut all = Vec::new();
        for (score, name, element) in elements(kind, value) {
            let place = indexed.place_of_new(score);
            if indexed.places.insert(name.clone(), place).is_some() {
                return None;
            }
            indexed.len += element.len();
            all.push(((place, name), element));
        }
        indexed.elements = all.into_iter().collect();
        Some(indexed)
    }

    /// The number of elements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.elements.len()
    }

    /// Bytes of the value.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEAD_LEN + self.len
    }

    /// A value with those of the elements called `names` that exist, and with the first element of
    /// all. So it has the type and the encoding of the whole.
    #[must_use]
    pub fn part(&self, names: &[&[u8]]) -> Bytes {
        let mut part: BTreeMap<&Place, &Bytes> = self.elements.iter().take(1).collect();
        for name in names {
            if let Some((name, place)) = self.places.get_key_value(*name) {
                part.extend(self.elements.get_key_value(&(*place, name.clone())));
            }
        }
        self.encode(part.values().copied())
    }

    /// Replaces the elements called `names` by those of a part.
    pub fn replace(&mut self, names: &[&[u8]], part: Option<&Bytes>) {
        let kind = self.kind;
        let new = || part.into_iter().flat_map(move |part| elements(kind, part));
        let mut kept = HashSet::with_hasher(self.places.hasher().clone());
        kept.extend(new().map(|(_, name, _)| name));
        let first = self.elements.keys().next().map(|(_, name)| name.clone());
        for name in names.iter().copied().chain(first.as_deref()) {
            if !kept.contains(name) {
                self.remove(name);
            }
        }
        for (score, name, element) in new() {
            self.put(score, name, element);
        }
    }

    /// The value, `None` without elements.
    #[must_use]
    pub fn value(&self) -> Option<Bytes> {
        (!self.elements.is_empty()).then(|| self.encode(self.elements.values()))
    }

    fn encode<'a>(&self, elements: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
        let len: usize = elements.clone().map(Bytes::len).sum();
        let mut value = Vec::with_capacity(HEAD_LEN + len);
        value.extend(self.head);
        elements.for_each(|element| value.extend_from_slice(element));
        value.into()
    }

    fn place_of_new(&mut self, score: Option<u64>) -> u64 {
        score.unwrap_or_else(|| {
            self.next += 1;
            self.next
        })
    }

    /// A field keeps its place, and so does a member without a score.
    fn put(&mut self, score: Option<u64>, name: Bytes, element: Bytes) {
        let old = self.places.get(&name).copied();
        let place = match (old, score) {
            (Some(old), None) => old,
            (_, score) => self.place_of_new(score),
        };
        if old.is_some_and(|old| old != place) {
            self.remove(&name);
        }
        self.len += element.len();
        self.places.insert(name.clone(), place);
        if let Some(before) = self.elements.insert((place, name), element) {
            self.len -= before.len();
        }
    }

    fn remove(&mut self, name: &[u8]) {
        let Some((name, place)) = self.places.remove_entry(name) else { return };
        if let Some(element) = self.elements.remove(&(place, name)) {
            self.len -= element.len();
        }
    }
}

/// The elements of a sound value: score, name and bytes of each.
fn elements(kind: Kind, value: &Bytes) -> impl Iterator<Item = (Option<u64>, Bytes, Bytes)> {
    let mut rest = &value[HEAD_LEN..];
    std::iter::from_fn(move || {
        let before = rest;
        let (score, name) = match kind {
            Kind::Hash => (None, hash::take(&mut rest, false)?.name),
            Kind::Set => (None, blobs::take(&mut rest)?),
            _ => {
                let element = sorted_set::take(&mut rest)?;
                (Some(ascending(element.score)), element.member)
            }
        };
        let element = &before[..before.len() - rest.len()];
        Some((score, value.slice_ref(name), value.slice_ref(element)))
    })
}

/// A number that ascends with the score. Zeros are equal.
fn ascending(score: f64) -> u64 {
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sorted_set::{Builder, Element};

    #[test]
    fn scores_ascend() {
        let all = [f64::NEG_INFINITY, -1e300, -2.0, -1e-300, 0.0, 1e-300, 0.5, 2.0, f64::INFINITY];
        assert!(all.iter().map(|score| ascending(*score)).is_sorted_by(|a, b| a < b));
        assert_eq!(ascending(-0.0), ascending(0.0));
    }

    #[test]
    fn other_values_are_not_indexed() {
        let mut listpack = Builder::new(SortedSetEncoding::Listpack);
        listpack.push(Element { score: 1.0, member: b"m" });
        for value in [
            crate::string::encode(b"text"),
            listpack.finish(),
            Bytes::from_static(b"\x02\x02\x01f\x01v\x01f\x01w"),
        ] {
            assert!(Indexed::of(&value, 0).is_none(), "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_make_up_the_value(
            all in prop::collection::btree_map(0..40_u8, -2..3_i8, 1..20),
            named in prop::collection::vec(0..40_u8, 0..50),
        ) {
            let mut builder = Builder::new(SortedSetEncoding::Skiplist);
            let mut sorted: Vec<(f64, [u8; 1])> =
                all.iter().map(|(name, score)| (f64::from(*score), [*name])).collect();
            sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
            for (score, member) in &sorted {
                builder.push(Element { score: *score, member });
            }
            let value = builder.finish();
            let mut indexed = Indexed::of(&value, 7).unwrap();
            prop_assert_eq!(indexed.value(), Some(value.clone()));
            prop_assert_eq!((indexed.encoded_len(), indexed.count()), (value.len(), all.len()));
            let names: Vec<&[u8]> = named.iter().map(std::slice::from_ref).collect();
            let part = indexed.part(&names);
            let len = SortedSet::decode(&part).unwrap().len();
            prop_assert!((1..=names.len() + 1).contains(&len));
            indexed.replace(&names, Some(&part));
            prop_assert_eq!(indexed.value(), Some(value));
            indexed.replace(&names, None);
            let left = indexed.value().map_or(0, |value| SortedSet::decode(&value).unwrap().len());
            prop_assert_eq!(left, indexed.count());
            prop_assert_eq!(indexed.encoded_len(), indexed.value().map_or(2, |value| value.len()));
        }
    }
}
