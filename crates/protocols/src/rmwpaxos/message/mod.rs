//! Messages between nodes about a key or a shard, and their bytes.

mod codec;
pub(crate) mod delta;
mod kind;
mod messages;
mod parts;

pub(crate) use messages::Due;
pub use messages::Message;
pub use parts::{
    BUCKETS, Digests, FORWARD_COMMANDS_MAX, Forward, Held, LISTING_KEYS_MAX, Listing, ListingEntry,
    Payload, Report, Verdict,
};
