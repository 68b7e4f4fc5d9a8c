//! Storage in place.

// Output goes through `tracing`: a print panics if its stream is closed.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod data_dir;
pub mod disk;
pub mod identity;
pub mod log;
pub mod mutation;
pub mod pmem;
pub mod probe;
pub mod progress;
pub mod store;
pub mod usage;
pub mod volatile;

pub use progress::{Note, Progress};
pub use store::{Completion, Lack, Load, Place, Room, ScrubScope, Scrubbed, Share, Staging, Store};
