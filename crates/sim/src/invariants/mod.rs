//! Invariants of every run, one per file.
//!
//! A [`Watcher`] sees every message when it is sent, even if it is lost later.

pub mod one_value_per_version;
pub mod registers;
pub mod session_order;

use protocols::Protocol;
use protocols::abd::Abd;
use protocols::rmwpaxos::RmwPaxos;
use types::{AmnesiaCount, Incarnation, NodeId};

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    pub at: u64,
    pub from: NodeId,
    pub to: NodeId,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    /// As the protocol encodes it.
    pub bytes: &'a [u8],
}

/// Checks every message.
pub trait Watcher {
    /// # Errors
    /// One line that describes the violation.
    fn on_message(&mut self, sent: &Sent<'_>) -> Result<(), String>;

    /// All is healed and idle: replicas stay equal until the next write.
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
