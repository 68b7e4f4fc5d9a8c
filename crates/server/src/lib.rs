//! Floor 5: RESP sessions over a node.
//!
//! A [`Session`](session::Session) turns a client's bytes into requests for registers and their
//! outcomes into replies, in the order the client asked. It owns no socket and reads no clock; what
//! a command means is in `commands`, what a register does with it is in `protocols`. Start reading
//! at [`session`], then [`pipeline`] for the order of replies.

// Output goes through `tracing`: a print panics if its stream takes nothing.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod access;
mod budget;
mod client_command;
mod clients;
mod cluster_command;
mod config_command;
mod consistency;
mod counts;
mod cursor;
mod encoding;
mod endpoints;
mod errors;
mod exec;
mod explain;
mod histogram;
mod info;
mod key_reads;
mod latency;
mod limits;
mod memory_command;
mod monitor;
mod opening;
mod outcomes;
mod pause;
mod pipeline;
mod program;
mod rates;
mod recorder;
mod redact;
mod script_cache;
mod script_calls;
mod script_command;
mod sentinel;
mod session;
mod session_factory;
mod slow;
mod slowlog;
mod sparkline;
mod transaction;
mod wait;
mod walk;
mod watching;
mod words;

pub use scripts::set_timer as set_timer_of_scripts;
pub use session_factory::{RespSessionFactory, SENTINEL_NAME_DEFAULT, ServerConfig};

#[cfg(test)]
mod tests;
