//! What clients do: commands with obvious semantics, and the mixes in which they are drawn.

pub mod mix;
pub mod redis;
pub mod retries;
pub mod script;
pub mod update;
