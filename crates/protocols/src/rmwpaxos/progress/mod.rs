//! Work in progress on a key: plain data for the rules of the core.

pub(crate) mod active;
pub(crate) mod actives;
pub(crate) mod counters;
pub(crate) mod operation;
pub(crate) mod reports;
pub(crate) mod retry_timer;
pub(crate) mod round_trip;
