//! Histories and sequential specifications, independent of the other crates.
//!
//! A test records calls and their outcomes ([`History`]) and names a sequential specification
//! ([`Model`]). A check looks for an order of the operations that explains every answer.
//! [`linearizable::check`] uses real-time order, [`sequential::check`] program order.
//! [`serializable::check`] judges transactions over several keys by their reads.
//!
//! The crate runs no system, reads no clock, and never guesses.
//! A search that meets its [`Limit`] returns [`Verdict::Undecided`].
//! Start reading at `history.rs`, then `model.rs`; the search is in `search.rs`.

mod bitset;
mod dead;
mod demand;
mod frontier;
pub mod history;
mod inference;
pub mod linearizable;
mod makers;
pub mod model;
mod prepared;
mod search;
pub mod sequential;
pub mod serializable;
mod timeline;
pub mod verdict;

pub use history::{ClientId, History, OpId, Operation, Outcome};
pub use model::Model;
pub use verdict::{Criterion, Limit, Verdict, Violation};
