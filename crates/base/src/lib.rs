//! Floor 0: additions to the standard library.
//!
//! The crate does not know replication. It is deterministic: the caller reads the time, randomness
//! has a seed, hashes do not depend on the process.

pub mod assertions;
pub mod checksum;
pub mod decimal;
pub mod double;
pub mod histogram;
mod mutation;
pub mod prng;
pub mod time;
pub mod varint;

pub use prng::Prng;
pub use time::{Micros, Millis, Nanos};
