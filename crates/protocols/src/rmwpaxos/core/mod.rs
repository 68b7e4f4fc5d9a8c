//! The core: every rule on which safety rests.

pub(crate) mod acceptor;
pub(crate) mod actives;
pub(crate) mod ancestry;
pub(crate) mod batch;
pub(crate) mod in_sync;
pub(crate) mod operation;
pub(crate) mod proposer;
pub(crate) mod reader;
pub(crate) mod replies;
pub(crate) mod reports;
pub(crate) mod retry;
pub(crate) mod round_trip;
pub(crate) mod state;
pub(crate) mod state_builder;
