//! Recovery of lost memory: of single registers on access, of whole shards by listing.

pub(crate) mod keys;
mod shard;
mod shards;
