//! What fuzzers do.
//!
//! A [`Target`] is a function of bytes that panics when something does not hold, with seeds that the project's own code
//! makes. `fuzz/` hands the targets to libFuzzer; tests run them on bytes that [`mutate`] draws from a number, on any
//! toolchain. [`redis`] compares whole command sequences with redis-server. Nothing here is part of the product.

pub mod input;
pub mod mutate;
pub mod redis;
pub mod targets;

pub use targets::{TARGETS, Target, find, run};
