//! RESP2 and RESP3, shared by server, client and benchmarks: bytes in, requests or replies out, and
//! back.
//!
//! The crate reads no socket and knows no command. Start at [`Parser`] for requests, at [`encode`]
//! for replies, at [`ReplyParser`] for the client's side. Sources: the RESP specification
//! (redis.io, "Redis serialization protocol specification") and the behaviour of redis-server
//! 7.0.15, whose error texts are kept byte by byte.

pub mod encode;
mod inline;
mod reply;
mod request;
mod scan;
mod translate;

pub use inline::split_args;
pub use reply::{Reply, ReplyError, ReplyParser};
pub use request::{Limits, Parser, Progress, ProtocolError, Request};
pub use scan::Scanner;
pub use translate::translate_to_resp2;
