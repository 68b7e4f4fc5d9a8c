//! Where a handle last saw registers: a bounded table that saves looking them up again.
//!
//! It only ever says where a slot is and which of its versions this handle knows to be the newest, from having
//! verified or written it. What is read through it is verified all the same. It forgets everything as soon as
//! any damage is found.

use types::{Database, Key};

use super::slot::Home;

// One entry per place, chosen by hash: about 4 MiB per worker, and the short keys.
const PLACES_BITS: u32 = 16;
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
#[derive(Debug, Default)]
pub struct Recent {
    places: Vec<Option<(Key, Spot)>>,
}

impl Recent {
    #[must_use]
    pub fn find(&self, database: Database, key: &Key) -> Option<Spot> {
        let (known, spot) = self.places.get(place(key))?.as_ref()?;
        let is_it = spot.home.shard.database == database && is_same(known, key);
        is_it.then_some(*spot)
    }

    pub fn remember(&mut self, key: &Key, spot: Spot) {
        if key.bytes().len() > KEY_LEN_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(1 << PLACES_BITS, || None);
        }
        match &mut self.places[place(key)] {
            Some((known, old)) if is_same(known, key) => *old = spot,
            other => *other = Some((key.clone(), spot)),
        }
    }

    pub fn forget(&mut self, key: &Key) {
        if let Some(known) = self.places.get_mut(place(key)) {
            *known = None;
        }
    }

    pub fn forget_all(&mut self) {
        self.places.fill(None);
    }
}

fn place(key: &Key) -> usize {
    (key.hash().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACES_BITS)) as usize
}

/// Mostly they are clones of one key: then their bytes need not be looked at.
fn is_same(one: &Key, two: &Key) -> bool {
    std::ptr::eq(one.bytes(), two.bytes()) || one == two
}
