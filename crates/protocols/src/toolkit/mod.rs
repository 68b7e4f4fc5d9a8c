//! Parts that several protocols share. None of them knows a protocol.
//!
//! - [`stamp`]: names that nodes mint once, and their order.
//! - [`due`]: one timer for many deadlines. [`back_off`]: pauses between attempts.
//! - [`countdown`]: times to live that replicas count for themselves.
//! - [`walk`]: pages of a shard from a quorum, for listings and recovery. [`pages`] serves them.
//! - [`no_meta`]: the fields of a shard, for protocols without any.
//!
//! Quorums are counted by [`crate::quorum`], explanations by [`crate::explaining`].

pub mod back_off;
pub mod countdown;
pub mod due;
pub mod no_meta;
pub mod pages;
pub mod stamp;
pub mod walk;
