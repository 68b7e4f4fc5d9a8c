//! The state of rounds that remove tombstones (`collection.rs`).

use std::collections::BTreeMap;

use base::Nanos;
use types::Key;

use super::version::{Era, Version};
use crate::replicas::Places;

/// The rounds of some tombstones of one shard.
#[derive(Debug)]
pub(super) struct Round {
    pub era: Era,
    pub batch: BTreeMap<Key, Burial>,
    pub deadline: Nanos,
}

#[derive(Debug)]
pub(super) struct Burial {
    pub version: Version,
    /// The members that hold it, or no register, and have begun the era.
    pub raised: Places,
}
