//! Settings of the service: the servers, the groups, and the times.

use base::{Nanos, Prng};
use bytes::Bytes;
use types::{Database, Incarnation, NodeId};

/// Makes [`types::Configuration::extra`] out of the summaries of all members that stay full.
pub type Combine = fn(&[(NodeId, Bytes)]) -> Bytes;

/// Times of failure detection and leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between two heartbeats.
    pub heartbeat: Nanos,
    /// How long a lease lasts from the sending of its heartbeat on.
    pub lease: Nanos,
    /// Silence after which a node is suspected.
    pub suspect: Nanos,
    /// How long acknowledgements or a seal may be missing.
    pub stall: Nanos,
    /// Granters count spans longer by this many parts per million. With clock rates that are wrong
    /// by at most `d`, it must reach `(1 + d) / (1 - d) - 1`. The default allows `d` = 1 %.
    pub drift_ppm: u32,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            heartbeat: Nanos::from_millis(50),
            lease: Nanos::from_millis(400),
            suspect: Nanos::from_millis(300),
            stall: Nanos::from_millis(500),
            drift_ppm: 20_300,
        }
    }
}

impl Timing {
    /// The span as a granter counts it: no holder's clock measures a longer one.
    #[must_use]
    pub fn stretched(&self, span: Nanos) -> Nanos {
        let drift = u128::from(span.0) * u128::from(self.drift_ppm) / 1_000_000;
        span + Nanos(u64::try_from(drift).unwrap_or(u64::MAX)) + Nanos(1)
    }

    /// How long a full member may take to seal. It flushes its promise before it answers.
    #[must_use]
    pub fn seal(&self) -> Nanos {
        Nanos(2 * self.stall.0)
    }

    /// Silence of a peer that is forgiven while this process stands still, until it is heard.
    #[must_use]
    pub fn excused_max(&self) -> Nanos {
        Nanos(3 * self.suspect.0)
    }

    /// How long a node that has just started waits for peers that it has not heard yet, from when
    /// it heard a majority.
    #[must_use]
    pub fn patience(&self) -> Nanos {
        Nanos(10 * self.suspect.0)
    }

    /// For how long a node stays suspected whose seal or acknowledgements were missing.
    #[must_use]
    pub fn distrust(&self) -> Nanos {
        Nanos(4 * self.suspect.0.max(self.stall.0))
    }
}

/// One group.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// The database whose keys the group holds; names the group.
    pub group: Database,
    /// Members wanted; more than there are servers means all of them.
    pub replicas: usize,
    /// The stores are empty after every start.
    pub is_volatile: bool,
    pub combine: Combine,
}

impl GroupSettings {
    #[must_use]
    pub fn new(group: Database, replicas: usize) -> GroupSettings {
        GroupSettings { group, replicas, is_volatile: false, combine: |_| Bytes::new() }
    }
}

/// The settings of one node's service.
#[derive(Clone, Debug)]
pub struct Settings {
    pub me: NodeId,
    pub incarnation: Incarnation,
    /// All servers, this one included: quorums are majorities of them.
    pub servers: Vec<NodeId>,
    pub groups: Vec<GroupSettings>,
    pub timing: Timing,
    /// Image ids are drawn from it: another one for every start of the process.
    pub random: Prng,
}

impl Settings {
    /// Servers that make a quorum. Never derived from a group's members.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }
}
