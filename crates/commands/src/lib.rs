//! What each Redis command does to a state.
//!
//! [`table`] says which commands there are; [`plan()`] turns arguments into what must be done, which is
//! either the session's business ([`SessionVerb`]) or a [`types::Command`] for the register of a key;
//! [`Interpreter`] runs such a command on what the register holds. All of it is pure: no clock, no
//! randomness, no I/O, and no panic whatever the bytes.
//!
//! Sources: the behaviour of redis-server 7.0.15, compared command by command (`tests/conformance`), and
//! for `IFEQ`, `DELEX` and `DIGEST` the documentation and tests of Redis 8.4. Departures: `GETEX` and
//! `INCRBYFLOAT` refuse bad arguments before they look at the key; values are limited by `max-value-size`.

pub mod docs;
pub mod errors;
pub mod glob;
mod interpreter;
pub mod introspect;
mod keys;
mod once;
mod operation;
pub mod plan;
mod replies;
pub mod spec;
mod string;
pub mod table;

pub use errors::ErrorReply;
pub use interpreter::Interpreter;
pub use plan::{Combine, Execution, Plan, SessionVerb};
pub use spec::CommandSpec;
pub use table::{find, lookup, lookup_full, plan, resolve};
