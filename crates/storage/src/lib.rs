//! Storage in place.

pub mod store;

pub use store::{Completion, Load, Place, Store};
