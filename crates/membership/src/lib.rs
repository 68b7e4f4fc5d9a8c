//! Configurations, failure detection and leases of replicated groups.
//!
//! A group is one data set on some of the servers. Its protocol needs one agreed sequence of
//! configurations, proof that the members of an old one have stopped, and leases for local reads.
//! The configuration is the value of a linearizable register of the system database. Nodes watch
//! each other by heartbeats. A change takes two swaps of the register. After `Wedging` all nodes
//! seal the epochs below. After `Active` members install the new configuration.
//!
//! One [`Membership`] runs on each node and holds all groups. It is a pure state machine: the shell
//! gives it inputs with a clock reading and carries out its effects in order. Safety depends on
//! durable promises and on bounded clock *rates*, never on the failure detector.
//!
//! # Clocks
//! `now` of an input must be read after the input came in: for a message, after its last byte left
//! the socket. A step is then one unit: it compares a heartbeat with the promise, and counts the
//! grant from a time after the heartbeat was sent. Leases count from `now` of the step that sends
//! the heartbeat. The clock must count time in which the machine is suspended.
//!
//! # Invariants
//! F1. Active configurations have rising epochs, and one value each.
//! F2. No lease of an epoch is valid once a later one is active.
//! F3. Some full member of a configuration holds all that was committed before it.
//! F4. A node that reported the epochs below one as sealed acknowledges in none of them.
//! F5. A node's promise never falls.
//!
//! `docs/protocols/membership.md` has the rules and their reasons.

mod choice;
mod group;
pub mod invariants;
mod io;
mod lease_word;
mod leases;
mod local;
pub mod message;
pub mod mutation;
mod orders;
mod peers;
mod proposer;
mod register;
mod service;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod value;

pub use group::GroupStatus;
pub use io::{Effect, Input, RegisterResult, Report};
pub use lease_word::LeaseWord;
pub use local::{Content, LocalRecord};
pub use message::Message;
pub use service::Membership;
pub use settings::{Combine, GroupSettings, Settings, Timing};
pub use value::{Decree, GroupValue, Phase};
