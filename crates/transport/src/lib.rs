//! Floor 3: frames and links between nodes.
//!
//! [`frame`] lays out bytes, [`handshake`] identifies the other end, [`connection`] puts both
//! together into one conversation with keep-alive and a bounded buffer. All three are free of
//! sockets and clocks. [`link`] is the interface of a transport: a byte pipe that an event loop can
//! wait for. [`tcp`] and [`local`] implement it.
//!
//! No algorithm lives here: payloads are opaque, and the layer above decides which nodes may talk.

// Output goes through `tracing`: a print panics if its stream takes nothing.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod backoff;
pub mod connection;
pub mod frame;
pub mod handshake;
pub mod keep_alive;
pub mod link;
pub mod local;
mod names;
pub mod tcp;

pub use backoff::Backoff;
pub use connection::{Connection, Happening, Reset};
pub use frame::{FrameError, Kind};
pub use handshake::{ClusterId, Hello, Nonce, Refusal};
pub use link::{Acceptor, Network, Pipe};
