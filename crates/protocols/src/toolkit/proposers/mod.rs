//! Proposers: one for each key with operations in progress, and the instance that has them.
//!
//! A node proposes changes of a register to its replicas, as in Paxos. [`Kinds`] names the types of
//! a protocol, [`Rules`] its rules. The rest is common:
//!
//! | file | subject |
//! |---|---|
//! | [`active`] | the proposer of one key: commands that wait, and the phase in progress |
//! | [`machine`] | the instance: its proposers, its numbers, and the dispatch of time |
//! | `events` | the dispatch of events and messages |
//! | `acceptor` | the answers of this replica; its register |
//! | `requests` | commands of clients, until they are in a phase, and after their time |
//! | `expiry` | times to live of keys that no client touches |
//! | `reading` | a majority reports its registers, and none is changed |
//! | `proposing` | commands run on a state; rounds begin, are refused, and are repeated |
//! | `recovery` | forgotten registers |
//!
//! A protocol adds methods to its `Machine`: the answers of its acceptor, and the ends of its
//! rounds.

mod acceptor;
pub mod active;
mod events;
mod expiry;
pub mod machine;
mod proposing;
mod reading;
mod recovery;
mod requests;

pub use acceptor::{change, is_lost, report};
pub use active::{Active, Kinds, Phase, Round};
pub use expiry::settle_look;
pub use machine::{Counters, Cx, Machine, Rules};
pub use proposing::{Ops, is_over};
