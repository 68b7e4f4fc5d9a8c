//! Records: the state that the replicas of a key agree on, and the register that an acceptor keeps.

pub(crate) mod fences;
pub(crate) mod register;
pub(crate) mod state;
pub(crate) mod state_builder;
