//! The clients' workload: commands with obvious semantics, and mixes that draw them.

pub mod mix;
pub mod redis;
pub mod retries;
pub mod script;
pub mod update;
