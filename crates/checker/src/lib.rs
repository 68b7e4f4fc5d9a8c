//! Histories and sequential specifications; knows nothing else.
//!
//! A test records what clients asked and what they were told ([`History`]), names a sequential
//! specification ([`Model`]) and asks whether some order of the operations explains every answer:
//! [`linearizable::check`] for real-time order, [`sequential::check`] for program order. Transactions
//! over several keys are judged by what their reads reveal of each other: [`serializable::check`].
//!
//! The crate does not run anything, does not read a clock, and never guesses: a search that meets
//! its [`Limit`] says [`Verdict::Undecided`]. Start reading at `history.rs`, then `model.rs`; the
//! search itself is `search.rs`.

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
