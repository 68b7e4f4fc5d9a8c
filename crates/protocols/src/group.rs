//! Configured groups as protocols and workers see them: changes of the configuration, and leases.
//!
//! The membership service decides; a protocol obeys and reports.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use types::{Configuration, Database, Epoch, ImageId, Role};

/// An order of the membership service.
#[derive(Clone, Debug)]
pub enum GroupEvent {
    /// The epoch that runs ends: from here on acknowledge none of its messages. Answered by
    /// [`GroupReport::Sealed`].
    Wedge { epoch: Epoch },
    /// This epoch begins. Without a role this process is no member, even if the configuration
    /// names its node.
    Install { configuration: Arc<Configuration>, role: Option<Role> },
    /// All registers here are void: remove them, for this image. Answered by
    /// [`GroupReport::Erased`].
    Erase { image: ImageId },
    /// The rest after a loss is an image of its own from here on, and this process is no member
    /// with it. Lost registers are absent in it.
    Keep,
}

/// The answer of a worker to the membership service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupReport {
    /// No message of an epoch below leaves any more.
    Sealed { epoch: Epoch, summary: Bytes },
    /// This shadow durably has everything that was committed before its epoch.
    Copied { epoch: Epoch },
    /// No register is left, and that is durable.
    Erased { image: ImageId },
    /// Storage has lost registers: this node's image is not whole any more.
    Lost,
}

/// The leases of this node, which another thread renews.
pub trait Leases: Send + Sync + Debug {
    /// True if the node holds the lease of this epoch now: reads the word, then the clock. Call it
    /// after the value was taken that the lease is to cover.
    fn holds(&self, database: Database, epoch: Epoch) -> bool;
}

/// For nodes without configured groups.
#[derive(Clone, Copy, Debug)]
pub struct NoLeases;

impl Leases for NoLeases {
    fn holds(&self, _database: Database, _epoch: Epoch) -> bool {
        false
    }
}

/// The lease of one database.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    pub leases: &'a dyn Leases,
    pub database: Database,
}

impl Lease<'_> {
    /// Of nodes without configured groups.
    pub const NONE: Lease<'static> = Lease { leases: &NoLeases, database: Database(0) };

    /// See [`Leases::holds`].
    #[must_use]
    pub fn holds(self, epoch: Epoch) -> bool {
        self.leases.holds(self.database, epoch)
    }
}
