//! Recovery of lost memory: of registers when they are touched, of whole shards by listing.

pub(crate) mod keys;
mod shard;
mod shards;
