//! The core: acceptor, proposer and reader, a complete and safe protocol of its own.
//!
//! It calls no service: parts around it are told of events by [`hooks::Notice`] and take part in
//! few decisions by [`hooks::Hooks`]. Services install registers and raise floors through [`lost`].
//!
//! Safety also rests on rules of the parts: resumed ballots (U1), combined prepare-accepts (P0),
//! deltas (B3), forwarding (F6 to F8), recovery, listing and rollback detection.

pub(crate) mod acceptor;
pub(crate) mod ancestry;
pub(crate) mod batch;
pub(crate) mod dispatch;
pub(crate) mod fencing;
pub(crate) mod hooks;
pub(crate) mod in_sync;
pub(crate) mod instance;
pub(crate) mod locked_out;
pub(crate) mod lost;
pub(crate) mod presence;
pub(crate) mod proposer;
pub(crate) mod reader;
pub(crate) mod replies;
pub(crate) mod retry;
pub(crate) mod send;
pub(crate) mod voting;
