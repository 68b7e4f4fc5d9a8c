//! Storage in place.

pub mod data_dir;
pub mod disk;
pub mod identity;
pub mod log;
pub mod mutation;
pub mod pmem;
pub mod probe;
pub mod progress;
pub mod store;
pub mod volatile;

pub use progress::{Note, Progress};
pub use store::{Completion, Load, Place, Room, ScrubScope, Scrubbed, Share, Staging, Store};
