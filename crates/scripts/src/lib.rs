//! Scripts in Lua 5.1, on the states of keys.
//!
//! A script is a pure function: of its source, its keys and arguments, the states of keys, and a
//! clock with a seed. It may run any number of times. It calls commands on a
//! [`Space`](commands::Space). A key that the space lacks ends the run without effect. So does a
//! budget that is spent.
//!
//! Each thread has one Lua state for all its runs. No run changes a later one: globals and
//! libraries are read-only.

mod arguments;
mod bits;
mod call;
mod convert;
mod current;
mod engine;
mod json;
mod message_pack;
mod number;
mod packed;
mod pattern;
mod raise;
mod random;
mod redis_api;
mod sandbox;
mod shebang;
mod source;
mod strings;

pub use current::set_timer;
pub use engine::{ENGINE, digest};
pub use shebang::is_read_only;
