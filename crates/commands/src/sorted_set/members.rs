//! The elements that a request names.

use types::wire::{Malformed, Reader};
use values::sorted_set::Found;
use values::{SortedSet, lookup};

use crate::operation::Sink;

/// Names up to this number are compared one by one.
const FEW: usize = 8;

/// The distinct names of a request.
pub(super) struct Named<'a> {
    pub(super) slots: Vec<Slot<'a>>,
    /// The slot of each name, in the order of the request.
    pub(super) slot_of: Vec<usize>,
}

/// A name, and its element.
pub(super) struct Slot<'a> {
    pub(super) member: &'a [u8],
    pub(super) found: Option<Found>,
}

impl<'a> Named<'a> {
    /// Looks all names up in one pass over `set`. `seed`: of hashes.
    pub(super) fn find(
        set: &SortedSet<'_>,
        members: impl Iterator<Item = &'a [u8]>,
        seed: u64,
    ) -> Named<'a> {
        let mut named = Named { slots: Vec::new(), slot_of: Vec::new() };
        let mut index = lookup::index(seed);
        for member in members {
            let next = named.slots.len();
            let slot = *index.entry(member).or_insert(next);
            if slot == next {
                named.slots.push(Slot { member, found: None });
            }
            named.slot_of.push(slot);
        }
        let mut left = named.slots.len();
        for (rank, element) in set.iter().enumerate() {
            let slot = if named.slots.len() <= FEW {
                named.slots.iter().position(|slot| slot.member == element.member)
            } else {
                index.get(element.member).copied()
            };
            if let Some(slot) = slot {
                named.slots[slot].found = Some(Found { rank, score: element.score });
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        named
    }

    /// Ranks of the elements that are there, in order.
    pub(super) fn ranks(&self) -> Vec<usize> {
        let mut ranks: Vec<usize> =
            self.slots.iter().filter_map(|slot| Some(slot.found?.rank)).collect();
        ranks.sort_unstable();
        ranks
    }
}

/// Writes names, the last fields of a body.
pub(super) fn encode(out: &mut impl Sink, members: &[&[u8]]) {
    members.iter().for_each(|member| out.blob(member));
}

/// Reads at least one name, up to the end.
pub(super) fn decode<'a>(fields: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, Malformed> {
    let mut members = Vec::new();
    while !fields.is_empty() {
        members.push(fields.blob(types::limits::RECORD_LEN_MAX)?);
    }
    if members.is_empty() { Err(Malformed) } else { Ok(members) }
}

#[cfg(test)]
mod tests {
    use values::sorted_set::{Builder, Element, Encoding};

    use super::*;

    #[test]
    fn few_and_many_names_are_found_alike() {
        let names: Vec<String> = (0..40).map(|n| format!("m{n:02}")).collect();
        let mut builder = Builder::new(Encoding::Listpack);
        for (score, name) in names.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
            builder.push(Element { score: score as f64, member: name.as_bytes() });
        }
        let value = builder.finish();
        let set = SortedSet::decode(&value).unwrap();
        let wanted: Vec<&[u8]> =
            names.iter().chain(&names[..5]).map(|name| name.as_bytes()).collect();
        let many = Named::find(&set, wanted.iter().copied(), 7);
        assert_eq!((many.slots.len(), many.slot_of.len()), (40, 45));
        for (at, name) in wanted.iter().enumerate() {
            let few = Named::find(&set, [*name, *name].into_iter(), 7);
            assert_eq!((few.slots.len(), &few.slot_of[..]), (1, &[0, 0][..]));
            assert_eq!(few.slots[0].found, many.slots[many.slot_of[at]].found);
            assert_eq!(
                few.slots[0].found.is_some(),
                at % 2 == 0 || at == 40 || at == 42 || at == 44
            );
        }
        assert_eq!(many.ranks(), (0..20).collect::<Vec<_>>());
    }
}
