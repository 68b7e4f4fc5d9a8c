//! Typed states and their bytes: the content of a register whose key has a value.
//!
//! The first byte names the type; the rest belongs to it.
//! These bytes go to disk and wire, so they never change. A new form gets a new first byte.
//! The crate `commands` decides the effect of commands.

pub mod blobs;
pub mod double;
pub mod float;
pub mod hash;
mod indexed;
mod kind;
pub mod list;
pub mod lookup;
pub mod rdb;
pub mod set;
pub mod sorted_set;
pub mod string;
mod unsigned;

pub use blobs::Blobs;
pub use float::Extended;
pub use hash::Hash;
pub use indexed::Indexed;
pub use kind::{DecodeError, Kind, check};
pub use list::List;
pub use lookup::Lookup;
pub use sorted_set::SortedSet;
