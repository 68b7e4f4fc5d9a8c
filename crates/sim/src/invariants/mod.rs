//! What must hold in every run, one property per file.
//!
//! A [`Watcher`] sees every message at the moment it is sent, whatever becomes of it.

pub mod one_value_per_version;
pub mod registers;
pub mod session_order;

use protocols::Protocol;
use protocols::abd::Abd;
use protocols::rmwpaxos::RmwPaxos;
use types::{Incarnation, Loss, NodeId};

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    pub at: u64,
    pub from: NodeId,
    pub to: NodeId,
    pub incarnation: Incarnation,
    pub loss: Loss,
    /// As the protocol encodes it.
    pub bytes: &'a [u8],
}

/// Looks at every message and objects to what must not be.
pub trait Watcher {
    /// # Errors
    /// One line that names what must not be.
    fn on_message(&mut self, sent: &Sent<'_>) -> Result<(), String>;

    /// All is healed and idle: replicas hold the same until somebody writes.
    fn on_rest(&mut self) {}
}

/// The watchers that know this protocol.
#[must_use]
pub fn watchers(protocol: &str) -> Vec<Box<dyn Watcher>> {
    let mut watchers: Vec<Box<dyn Watcher>> = Vec::new();
    if protocol == Abd::NAME {
        watchers.push(Box::new(one_value_per_version::OneValuePerVersion::default()));
    }
    if protocol == RmwPaxos::NAME {
        watchers.push(Box::new(registers::Registers::default()));
    }
    watchers
}
