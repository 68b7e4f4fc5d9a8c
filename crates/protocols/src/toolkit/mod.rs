//! Parts that several protocols share. None of them knows a protocol.
//!
//! - [`stamp`]: names that nodes mint once, and their order.
//! - [`asks`]: numbered messages without an answer. [`acks`]: one message acknowledges or commits a
//!   range of them.
//! - [`due`]: one timer for many deadlines. [`back_off`]: pauses between attempts.
//! - [`lanes`]: work in progress by key, and requests behind others of their session.
//! - [`countdown`]: times to live that replicas count for themselves. [`content`]: values with
//!   them, where one member decides. [`ends`] waits for their ends.
//! - [`looks`]: keys that a node looks at, few at a time. [`stalls`]: members that hold work up.
//! - [`sweep`]: a paced walk over all registers, for those that no message names.
//! - [`pager`]: listings and recovery of shards; [`walk`] collects pages, [`pages`] serves them.
//! - [`burials`]: deleted keys until their registers go. [`eras`] date the operations of a shard.
//! - [`proposers`]: nodes propose changes of single keys by ballots. [`message`] has their
//!   messages, [`body`] those of one protocol, [`report`] the conclusions from a quorum.
//! - [`state`]: the value of a key, its deadline and the operations done. [`batch`] computes the
//!   next one from the commands of [`operation`].
//! - [`fields`]: bytes of messages from a list of their fields.
//! - [`no_meta`]: the fields of a shard, for protocols without any.
//!
//! [`explainer`] asks replicas for explanations. Quorums are counted by [`crate::quorum`].

pub mod acks;
pub mod asks;
pub mod back_off;
pub mod batch;
pub mod body;
pub mod burials;
pub mod content;
pub mod countdown;
pub mod due;
pub mod ends;
pub mod eras;
pub mod explainer;
pub mod fields;
pub mod lanes;
pub mod looks;
pub mod message;
pub mod no_meta;
pub mod operation;
pub mod pager;
pub mod pages;
pub mod proposers;
pub mod report;
pub mod stalls;
pub mod stamp;
pub mod state;
pub mod sweep;
pub mod walk;
