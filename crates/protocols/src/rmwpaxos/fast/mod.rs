//! Shorter ways: an owner that goes on without phase 1, both phases in one round trip, changes in
//! place of states.
//!
//! The core is offered to them first. Without them it takes two round trips with whole states.

pub(crate) mod combined;
pub(crate) mod delta;
pub(crate) mod resumed;
