//! The clients' workload: commands with obvious semantics, and mixes that draw them.

pub mod collection;
pub mod mix;
pub mod operation;
pub mod redis;
pub mod retries;
pub mod script;
pub mod scripted;
pub mod transactions;
pub mod update;
