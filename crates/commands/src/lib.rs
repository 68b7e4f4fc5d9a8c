//! The Redis commands: their rows, and their effect on the state of a key.
//!
//! [`table`] finds the row of a command. [`plan()`] turns arguments into a [`Plan`]: a session
//! executes a [`SessionVerb`], a register runs a [`types::Command`] through the [`Interpreter`].
//! All of it is pure: it has no clock, randomness or I/O, and no bytes make it panic.
//!
//! Each command has one file in the folder of its group: row, plan, codec, effect. The file of the
//! folder lists them. `ARCHITECTURE.md` says how to add one.
//!
//! Sources: redis-server 7.0.15, compared reply by reply (`tests/conformance`); the documentation
//! and tests of Redis 8.4 for `IFEQ`, `DELEX` and `DIGEST`. Departures: `GETEX` and `INCRBYFLOAT`
//! refuse bad arguments before they read the key, and `max-value-size` limits values.

mod bitmap;
mod cluster;
mod connection;
mod context;
pub mod docs;
mod elements;
pub mod errors;
pub mod glob;
mod hash;
pub mod hash_slot;
mod help;
mod hyperloglog;
mod interpreter;
mod keys;
mod lapse;
mod list;
mod module;
mod monitoring;
mod operation;
pub mod permission;
mod plan;
mod refused;
mod row;
mod scripting;
mod server;
mod session_verb;
mod set;
mod sorted_set;
pub mod space;
pub mod spec;
mod string;
pub mod table;
pub mod trace;
mod transactions;
mod work;

/// The version whose behaviour clients may expect.
pub const REDIS_VERSION: &str = "7.4.0";

pub use errors::ErrorReply;
pub use interpreter::Interpreter;
pub use permission::Permission;
pub use plan::{Combine, Execution, ONCE_ARGUMENTS, Plan};
pub use scripting::{
    BYTES_PER_INSTRUCTION, Budget, DIGEST_LEN, Interrupt, ScriptCall, ScriptEngine, is_by_digest,
};
pub use session_verb::SessionVerb;
pub use space::{Halt, Space};
pub use spec::CommandSpec;
pub use table::{find, lookup, lookup_full, plan, resolve};
pub use trace::Trace;
pub use transactions::{REPLIES_LEN_MAX, lines_on_one_key, traced_lines_on_one_key};
pub use work::WORK_MAX;
