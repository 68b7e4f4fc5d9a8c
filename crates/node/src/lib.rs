//! Workers, turns, timers, routing.
//!
//! [`worker::Worker`] is the heart: sans-IO, one per thread, the owner of its registers. The
//! server's shell and the simulator both drive it.

// Output goes through `tracing`: a print panics if its stream is closed.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod client_settings;
pub mod config;
pub mod dev;
mod engine;
pub mod events;
pub mod formation;
pub mod frame_payload;
pub mod group_view;
pub mod groups;
pub mod long_runs;
pub mod node;
pub mod registry;
pub mod session;
pub mod settings;
mod shell;
pub mod status;
pub mod summary;
pub mod uptime;
pub mod worker;

pub use engine::REGISTER_OVERHEAD;
pub use registry::Registration;
pub use shell::monotonic;
pub use worker::{DatabaseSpec, Input, Outputs, UnknownProtocol, Worker, WorkerConfig};
