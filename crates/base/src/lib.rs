//! Floor 0: what the standard library lacks.
//!
//! Nothing here knows about replication. Everything is deterministic: time is an integer that the caller
//! has read, randomness has a seed, hashes do not depend on the process.

pub mod assertions;
pub mod checksum;
pub mod decimal;
pub mod histogram;
mod mutation;
pub mod prng;
pub mod time;

pub use prng::Prng;
pub use time::{Micros, Millis, Nanos};
