//! Floor 3: frames and links between nodes.
//!
//! [`frame`] draws the bytes, [`handshake`] proves who is at the other end, [`connection`] puts both together into
//! one conversation with keep-alive and a bounded buffer: all three are free of sockets and clocks. [`link`] is what
//! a transport has to offer (a byte pipe that an event loop can wait for); [`tcp`] and [`local`] offer it.
//!
//! No algorithm lives here: payloads are opaque, and who may talk to whom is decided above.

// Output goes through `tracing`: a print panics if its stream takes nothing.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod backoff;
pub mod connection;
pub mod frame;
pub mod handshake;
pub mod keep_alive;
pub mod link;
pub mod local;
pub mod tcp;

pub use backoff::Backoff;
pub use connection::{Connection, Happening, Reset};
pub use frame::{FrameError, Kind};
pub use handshake::{ClusterId, Hello, Nonce, Refusal};
pub use link::{Acceptor, Network, Pipe};
