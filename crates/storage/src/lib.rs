//! Storage in place.

pub mod data_dir;
pub mod identity;
pub mod store;
pub mod volatile;

pub use store::{Completion, Load, Place, Store};
