//! Transactions over any keys of a database, strictly serializable.
//!
//! A coordinator takes all keys, each by one transition of its register, and finds their states.
//! It computes the changes, and writes them to a record: that is the commit. Then it replies, and
//! settles each key: the change is installed and the lock cleared, in one transition.
//! A command that meets a lock waits in its register's proposer. The [`Service`] of that node reads
//! the record and settles the key. Where the record is undecided and the coordinator silent, it
//! writes that the transaction is aborted: the record's first decision counts.
//!
//! `docs/design/transactions.md` has the rules. T1 to T15 name the faults that they exclude.
//! Wound-wait is of Rosenkrantz, Stearns and Lewis (1978), records are those of Peng and Dabek,
//! "Large-scale Incremental Processing" (OSDI 2010).
//!
//! # Invariants
//! 1. A record leaves absence once, until it is forgotten.
//! 2. It is committed only after all keys of the transaction were taken under its id.
//! 3. Under a lock, only the end of its transaction changes the value.
//! 4. A committed record is forgotten once no key carries its lock. An aborted one goes once its
//!    coordinator can commit it no more.
//! 5. No reply claims an effect before the record is committed.

mod conflict;
mod coordinator;
mod effects;
pub mod mutation;
mod patrol;
mod program;
pub mod record;
mod resolver;
mod service;
mod snapshot;
#[cfg(test)]
mod tests;

pub use effects::{Effect, Status};
pub use program::{Computation, Mode, Program, Ran, States, Stop, Transaction};
pub use record::{Record, RecordUpdate};
pub use service::{Cx, Holder, Service};
