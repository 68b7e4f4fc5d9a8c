//! The content of a dump, before it is a value.

use bytes::Bytes;

use super::listpack;
use crate::hash::{self, Field};
use crate::sorted_set::{self, Element};
use crate::{blobs, list, set, string};

/// Bytes of a list that redis-server keeps in one piece (`list-max-listpack-size`).
pub(super) const LISTPACK_LEN_MAX: usize = 8192;

/// A value with elements in the order of its dump. All are checked: elements that must differ do,
/// scores are numbers, no collection is empty.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    String(Vec<u8>),
    List {
        elements: Elements,
        /// They came in one piece.
        is_whole: bool,
    },
    Set(Elements),
    SortedSet {
        members: Elements,
        scores: Vec<f64>,
    },
    /// Fields, each before its value.
    Hash {
        pairs: Elements,
        /// The end of each field in milliseconds of Unix time, 0 for never. Empty for a form
        /// without such ends.
        ends: Vec<u64>,
    },
}

impl Content {
    /// The value, with the encoding that its content asks for.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Content::String(text) => string::encode(text),
            Content::List { elements, is_whole } => {
                let is_small = *is_whole && listpack::fits(elements.iter(), LISTPACK_LEN_MAX);
                let encoding =
                    if is_small { list::Encoding::Listpack } else { list::Encoding::Quicklist };
                list::encode_parts(encoding, &[&elements.bytes])
            }
            Content::Set(members) => {
                let mut growth = set::Growth::new(set::Encoding::Intset);
                members.iter().for_each(|member| growth.push(member));
                growth.encode()
            }
            Content::SortedSet { members, scores } => encode_sorted_set(members, scores),
            Content::Hash { pairs, ends } => encode_hash(pairs, ends),
        }
    }
}

fn encode_sorted_set(members: &Elements, scores: &[f64]) -> Bytes {
    let longest = members.iter().map(<[u8]>::len).max().unwrap_or_default();
    let encoding = sorted_set::Encoding::fitting(members.len(), longest);
    let element = |(member, &score)| Element { score: encoding.keep(score), member };
    let mut elements: Vec<Element<'_>> = members.iter().zip(scores).map(element).collect();
    elements.sort_by(Element::order);
    let mut builder = sorted_set::Builder::new(encoding);
    elements.into_iter().for_each(|element| builder.push(element));
    builder.finish()
}

fn encode_hash(pairs: &Elements, ends: &[u64]) -> Bytes {
    let names = pairs.iter().step_by(2);
    let values = pairs.iter().skip(1).step_by(2);
    let all_ends = ends.iter().copied().chain(std::iter::repeat(0));
    let field = |((name, value), end)| Field { name, value, end: (end != 0).then_some(end) };
    let fields = names.zip(values).zip(all_ends).map(field).collect();
    hash::encode(fields, !ends.is_empty())
}

/// Byte strings, one behind the other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Elements {
    bytes: Vec<u8>,
    len: usize,
}

impl Elements {
    pub(super) fn push(&mut self, element: &[u8]) {
        blobs::put(&mut self.bytes, element);
        self.len += 1;
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, encoded as [`Blobs`](crate::Blobs).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut rest = self.bytes.as_slice();
        std::iter::repeat_with(move || blobs::take(&mut rest)).map_while(|element| element)
    }

    /// True if the elements at every `step`th index differ from each other.
    pub(super) fn differ(&self, step: usize) -> bool {
        let mut names: Vec<&[u8]> = self.iter().step_by(step).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
    }
}
