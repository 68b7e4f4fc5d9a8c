//! Typed states and their bytes: what stands in a register when a key has a value.
//!
//! The first byte names the type, the rest belongs to it. These bytes go to disk and wire, so they never
//! change; a new form gets a new first byte. What commands do to a value is not decided here.

pub mod float;
mod kind;
pub mod string;
mod unsigned;

pub use float::Extended;
pub use kind::{DecodeError, Kind};
