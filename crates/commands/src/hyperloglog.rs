//! HyperLogLogs: strings that estimate how many different elements were added to them.
//!
//! The bytes are those of Redis, so values may move between both:
//!
//! ```text
//! "HYLL" | form: 0 dense, 1 sparse | 3 bytes | the last count: 8 bytes | registers
//! ```
//!
//! An element's hash selects one of 16,384 registers, which keeps the greatest rank of its
//! elements. The highest bit of the last count says that it is out of date. This store answers a
//! valid one, but never writes one: counting is a read.
//!
//! Sources: the values of redis-server 7.4.1; Otmar Ertl, "New cardinality estimation algorithms
//! for HyperLogLog sketches", arXiv:1702.01284.

mod dense;
mod element;
mod estimate;
mod sketch;
mod sparse;

use crate::errors::{self, ErrorReply};

crate::module::modules! {
    pfadd,
    pfcount,
    pfmerge,
}

const REGISTERS: usize = 1 << element::INDEX_BITS;

const HEADER_LEN: usize = 16;

const INVALID: ErrorReply =
    errors::fixed(b"WRONGTYPE Key is not a valid HyperLogLog string value.");

const CORRUPTED: ErrorReply = errors::fixed(b"INVALIDOBJ Corrupted HLL object detected");
