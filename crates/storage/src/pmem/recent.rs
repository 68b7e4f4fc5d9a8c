//! Where a handle last saw registers: a bounded table that saves looking them up again.
//!
//! It only ever says where a slot is and which of its versions this handle knows to be the newest,
//! from having verified or written it. Bytes that are read through it are verified all the same. It
//! forgets everything as soon as any damage is found.

use types::{Database, Key};

use super::slot::Home;

// One entry per place, chosen by hash. With segments of 64 MiB: about 4 MiB per worker, and the short keys.
const PLACES_BITS_MAX: u32 = 16;
const PLACES_BITS_MIN: u32 = 4;
// Bytes of a segment for each place: a medium of small segments is a small one.
const SEGMENT_LEN_PER_PLACE: u64 = 1024;
// Longer keys are not worth keeping alive.
const KEY_LEN_MAX: usize = 64;

/// A slot, and which of its versions is the newest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    pub home: Home,
    pub newest: usize,
    pub sequence: u32,
}

impl Spot {
    /// The version to write next, and its sequence.
    #[must_use]
    pub fn next_version(&self) -> (usize, u32) {
        (1 - self.newest, self.sequence.wrapping_add(1))
    }
}

/// The table; empty until the first register is seen.
#[derive(Debug)]
pub struct Recent {
    bits: u32,
    places: Vec<Option<(Key, Spot)>>,
}

impl Recent {
    /// A table for a medium with segments of so many bytes.
    #[must_use]
    pub fn new(segment_len: u64) -> Recent {
        let places = (segment_len / SEGMENT_LEN_PER_PLACE).max(1);
        let bits = places.ilog2().clamp(PLACES_BITS_MIN, PLACES_BITS_MAX);
        Recent { bits, places: Vec::new() }
    }

    fn place(&self, key: &Key) -> usize {
        (key.hash().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.bits)) as usize
    }

    #[must_use]
    pub fn find(&self, database: Database, key: &Key) -> Option<Spot> {
        let (known, spot) = self.places.get(self.place(key))?.as_ref()?;
        let is_it = spot.home.shard.database == database && is_same(known, key);
        is_it.then_some(*spot)
    }

    pub fn remember(&mut self, key: &Key, spot: Spot) {
        if key.bytes().len() > KEY_LEN_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(1 << self.bits, || None);
        }
        let place = self.place(key);
        match &mut self.places[place] {
            Some((known, old)) if is_same(known, key) => *old = spot,
            other => *other = Some((key.clone(), spot)),
        }
    }

    pub fn forget(&mut self, key: &Key) {
        let place = self.place(key);
        if let Some(known) = self.places.get_mut(place) {
            *known = None;
        }
    }

    pub fn forget_all(&mut self) {
        self.places.fill(None);
    }
}

/// Mostly they are clones of one key: then their bytes need not be looked at.
fn is_same(one: &Key, two: &Key) -> bool {
    std::ptr::eq(one.bytes(), two.bytes()) || one == two
}
