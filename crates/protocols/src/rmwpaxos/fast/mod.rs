//! Shorter paths: an owner continues without phase 1, both phases take one round trip, deltas
//! replace states.
//!
//! They are offered to the core first. Without them it takes two round trips with whole states.

pub(crate) mod combined;
pub(crate) mod delta;
pub(crate) mod resumed;
