//! Changes of some fields of a hash.

use std::cmp::Reverse;
use std::ops::Range;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::encoding::{SMALL_BLOB_LEN_MAX, SMALL_LEN_MAX};
use super::{Encoding, Field, Hash, head};

/// Up to as many names are compared one by one.
const FEW: usize = 8;

/// A hash and changes of fields that were named before. All bytes are read once, and the bytes of
/// other fields stay as they are.
#[derive(Debug)]
pub struct Draft<'a> {
    old: Hash<'a>,
    encoding: Encoding,
    len: usize,
    names: Names<'a>,
    slots: Vec<Slot<'a>>,
    moves: usize,
    is_changed: bool,
}

/// A field that may change.
#[derive(Debug)]
struct Slot<'a> {
    name: &'a [u8],
    /// Its place in the old hash.
    place: Option<Range<usize>>,
    now: Option<Field<'a>>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Same,
    /// It keeps its place.
    Changed,
    /// It leaves its place, or is new. The number counts such fields.
    Moved(usize),
}

/// Numbers of the distinct names.
#[derive(Debug)]
enum Names<'a> {
    Few,
    Many(HashMap<&'a [u8], usize, FixedState>),
}

impl<'a> Draft<'a> {
    /// Begins a change of the fields called `names`, which may repeat. A seed that clients cannot
    /// guess keeps them from choosing names whose hashes collide.
    #[must_use]
    pub fn new<'n: 'a, N>(old: Hash<'a>, names: N, seed: u64) -> Draft<'a>
    where
        N: ExactSizeIterator<Item = &'n [u8]>,
    {
        let map = match names.len() {
            ..=FEW => Names::Few,
            count => {
                let state = FixedState::with_seed(seed);
                Names::Many(HashMap::with_capacity_and_hasher(count, state))
            }
        };
        let (encoding, len) = (old.encoding, old.len);
        let slots = Vec::with_capacity(names.len());
        let is_changed = false;
        let mut draft = Draft { old, encoding, len, names: map, slots, moves: 0, is_changed };
        names.for_each(|name| draft.add_slot(name));
        let mut missing = draft.slots.len();
        for (place, field) in old.places() {
            // Damaged bytes may name a field twice: the first one counts.
            let slot = draft.find(field.name).filter(|&slot| draft.slots[slot].place.is_none());
            if let Some(slot) = slot {
                draft.slots[slot].place = Some(place);
                draft.slots[slot].now = Some(field);
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        draft
    }

    fn add_slot(&mut self, name: &'a [u8]) {
        if self.find(name).is_some() {
            return;
        }
        if let Names::Many(map) = &mut self.names {
            map.insert(name, self.slots.len());
        }
        self.slots.push(Slot { name, place: None, now: None, state: State::Same });
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        match &self.names {
            Names::Few => self.slots.iter().position(|slot| slot.name == name),
            Names::Many(map) => map.get(name).copied(),
        }
    }

    fn slot(&mut self, name: &[u8]) -> &mut Slot<'a> {
        let slot = self.find(name).expect("a change names its fields first");
        &mut self.slots[slot]
    }

    /// The field as it is now. It must be one of the names.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<Field<'a>> {
        self.slots[self.find(name).expect("a change names its fields first")].now
    }

    /// A command that sets so many fields makes a table even if they repeat, as in Redis.
    pub fn expect_fields(&mut self, count: usize) {
        if count > SMALL_LEN_MAX {
            self.encoding = self.encoding.as_table();
        }
    }

    /// Sets a field, which loses its end. True when it is new.
    pub fn set(&mut self, name: &'a [u8], value: &'a [u8]) -> bool {
        let is_new = self.get(name).is_none();
        match self.get(name) {
            Some(Field { end: None, .. }) => {
                self.put(Field { name, value, end: None }, State::Changed);
            }
            _ => self.place_anew(Field { name, value, end: None }),
        }
        is_new
    }

    /// Sets the value of a field, which keeps its end.
    pub fn set_value(&mut self, name: &'a [u8], value: &'a [u8]) {
        match self.get(name) {
            Some(Field { end, .. }) => self.put(Field { name, value, end }, State::Changed),
            None => self.place_anew(Field { name, value, end: None }),
        }
    }

    /// Sets or removes the end of a field. An end needs an encoding with ends.
    pub fn set_end(&mut self, name: &[u8], end: Option<u64>) {
        assert!(end.is_none() || self.encoding.has_ends(), "{:?} has no ends", self.encoding);
        if let Some(field) = self.get(name) {
            self.place_anew(Field { end, ..field });
        }
    }

    /// Removes a field. False when there is none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let slot = self.slot(name);
        let is_there = slot.now.take().is_some();
        if is_there {
            slot.state = State::Changed;
            self.len -= 1;
            self.is_changed = true;
        }
        is_there
    }

    fn place_anew(&mut self, field: Field<'a>) {
        self.moves += 1;
        self.put(field, State::Moved(self.moves));
    }

    fn put(&mut self, field: Field<'a>, state: State) {
        let slot = self.slot(field.name);
        // A moved field that changes stays where it was moved to.
        if state != State::Changed || slot.state == State::Same {
            slot.state = state;
        }
        let is_new = slot.now.replace(field).is_none();
        self.len += usize::from(is_new);
        self.is_changed = true;
        let is_long = field.name.len().max(field.value.len()) > SMALL_BLOB_LEN_MAX;
        if is_long || self.len > SMALL_LEN_MAX {
            self.encoding = self.encoding.as_table();
        }
    }

    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The new value, `None` when no field is left.
    #[must_use]
    pub fn finish(&self) -> Option<Bytes> {
        if self.len == 0 {
            return None;
        }
        let fields = self.slots.iter().filter_map(|slot| slot.now);
        let added: usize = fields.map(|field| field.encoded_len()).sum();
        let mut out = head(self.encoding, self.old.bytes.len() + added);
        let mut at = 0;
        for (place, field) in self.edits() {
            out.extend_from_slice(&self.old.bytes[at..place.start]);
            if let Some(field) = field {
                field.put(self.encoding, &mut out);
            }
            at = place.end;
        }
        out.extend_from_slice(&self.old.bytes[at..]);
        // `Bytes` would move a vector with spare room.
        out.shrink_to_fit();
        Some(out.into())
    }

    /// Places in the old bytes, each with the field that replaces it, in order.
    fn edits(&self) -> Vec<(Range<usize>, Option<Field<'a>>)> {
        let mut edits = self.insertions();
        for slot in &self.slots {
            let Some(place) = slot.place.clone() else { continue };
            match slot.state {
                State::Same => {}
                State::Changed => edits.push((place, slot.now)),
                State::Moved(_) => edits.push((place, None)),
            }
        }
        // The sort is stable, and an insertion goes before the field at its place.
        edits.sort_by_key(|(place, _)| (place.start, place.end));
        edits
    }

    /// Moved fields at empty places. A new end goes before its equals, as in Redis; a field that
    /// stays goes behind all others.
    fn insertions(&self) -> Vec<(Range<usize>, Option<Field<'a>>)> {
        let mut moved: Vec<(usize, Field<'a>)> = Vec::new();
        for slot in &self.slots {
            if let (State::Moved(order), Some(field)) = (slot.state, slot.now) {
                moved.push((order, field));
            }
        }
        moved.sort_by_key(|&(order, field)| match field.end {
            Some(end) => (end, Reverse(order)),
            None => (u64::MAX, Reverse(usize::MAX - order)),
        });
        let mut old = self.old.places().peekable();
        let mut insertions = Vec::with_capacity(moved.len());
        for (_, field) in moved {
            let ends_earlier = |(_, other): &(Range<usize>, Field<'_>)| match (other.end, field.end)
            {
                (Some(other), Some(end)) => other < end,
                (_, None) => true,
                (None, Some(_)) => false,
            };
            while old.next_if(ends_earlier).is_some() {}
            let at = old.peek().map_or(self.old.bytes.len(), |(place, _)| place.start);
            insertions.push((at..at, Some(field)));
        }
        insertions
    }
}
