//! Inputs and effects of the service.

use std::fmt;

use base::Nanos;
use bytes::Bytes;
use types::{Configuration, Database, Epoch, ImageId, Incarnation, NodeId, Role};

use crate::local::LocalRecord;
use crate::message::Message;
use crate::value::Decree;

/// The outcome of an operation on a group's register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterResult {
    /// The value at some time after the read began; `None` if the register is absent.
    Read(Option<Bytes>),
    /// Whether the swap took effect, and the value after it.
    Swapped { done: bool, value: Option<Bytes> },
    /// The operation may take effect now, later or never.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The first input. The data directory is locked, and `records` is all that is kept there.
    Start {
        records: Vec<(Database, LocalRecord)>,
    },
    /// A control link to a peer stands.
    PeerUp {
        node: NodeId,
        incarnation: Incarnation,
    },
    PeerDown {
        node: NodeId,
    },
    Message {
        from: NodeId,
        incarnation: Incarnation,
        message: Message,
    },
    /// Exactly one for every [`Effect::ReadRegister`] and [`Effect::SwapRegister`].
    Register {
        group: Database,
        token: u64,
        result: RegisterResult,
    },
    /// All workers have sealed as [`Effect::Wedge`] asked, each with the frames before it done.
    Sealed {
        group: Database,
        epoch: Epoch,
        summary: Bytes,
    },
    /// All workers have completed and flushed the copy of a shadow in this epoch.
    Copied {
        group: Database,
        epoch: Epoch,
    },
    /// All workers have erased and flushed as [`Effect::Erase`] asked.
    Erased {
        group: Database,
        image: ImageId,
    },
    /// Part of the group's stores on this node is damaged or forgotten. The worker that found it
    /// takes no part in the group until [`Effect::Keep`] or [`Effect::Erase`].
    Lost {
        group: Database,
    },
    /// A member has not acknowledged for longer than [`crate::Timing::stall`].
    Suspect {
        group: Database,
        node: NodeId,
    },
    /// An operator's act on a group without a full member. `epoch` names the active configuration
    /// that it ends.
    Operator {
        group: Database,
        epoch: Epoch,
        decree: Decree,
    },
    Tick,
}

/// To be carried out in order. A failure to persist stops the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Over the control link; may be lost.
    Send {
        to: NodeId,
        message: Message,
    },
    /// A linearizable read of the group's register.
    ReadRegister {
        group: Database,
        token: u64,
    },
    /// Write `new` if the register holds exactly `expected`.
    SwapRegister {
        group: Database,
        token: u64,
        expected: Option<Bytes>,
        new: Bytes,
    },
    /// Make this durable before any later effect.
    Persist {
        group: Database,
        record: LocalRecord,
    },
    /// All workers stop acknowledging, proposing and reading in epochs below; then
    /// [`Input::Sealed`]. To be answered as well by workers that are sealed already.
    Wedge {
        group: Database,
        epoch: Epoch,
    },
    /// All workers start this configuration. With no role here they pass requests on, even if the
    /// configuration names this node: it then means an earlier process or image.
    Install {
        group: Database,
        configuration: Configuration,
        role: Option<Role>,
    },
    /// All workers erase their records of the group, then [`Input::Erased`].
    Erase {
        group: Database,
        image: ImageId,
    },
    /// After a loss, all workers take the rest as an image of its own, in which this process has no
    /// role. Lost records count as absent from here on.
    Keep {
        group: Database,
    },
    SetLease {
        group: Database,
        epoch: Epoch,
        until: Nanos,
    },
    ClearLease {
        group: Database,
    },
    Report(Report),
}

/// Events for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A configuration became active.
    Configured { group: Database, epoch: Epoch, joined: Vec<NodeId>, removed: Vec<NodeId> },
    /// No node with all that was committed is reachable. The group waits for one, or the operator.
    Lost { group: Database, epoch: Epoch },
    /// A node with everything has come back.
    Found { group: Database },
    /// The image of this node is out of date or damaged, and is erased.
    Erasing { group: Database },
    /// Part of the image of this node is lost. The rest is kept until a full member is heard.
    Damaged { group: Database },
    /// An operator's act was refused.
    Refused { group: Database, reason: &'static str },
    /// An operator's act was written to the register.
    Decreed { group: Database, epoch: Epoch },
    /// The register holds less than it held, or no value of this version. The group stands still.
    Unreadable { group: Database },
    /// A change is due, and the numbers of epochs are used up. The group stays as it is.
    UsedUp { group: Database },
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Configured { group, epoch, joined, removed } => {
                write!(f, "database {group}: epoch {epoch} begins")?;
                list(f, "; joined: ", joined)?;
                list(f, "; removed: ", removed)
            }
            Report::Lost { group, epoch } => {
                write!(f, "database {group}: no full member of epoch {epoch} is reachable")
            }
            Report::Found { group } => write!(f, "database {group}: a full member is back"),
            Report::Erasing { group } => {
                write!(f, "database {group}: this node's copy is out of date and is erased")
            }
            Report::Damaged { group } => {
                write!(f, "database {group}: part of this node's copy is lost, the rest is kept")
            }
            Report::Refused { group, reason } => write!(f, "database {group}: {reason}"),
            Report::Decreed { group, epoch } => {
                write!(f, "database {group}: restarts from epoch {epoch} by the operator's order")
            }
            Report::Unreadable { group } => {
                write!(f, "database {group}: the register of its configuration is unreadable")
            }
            Report::UsedUp { group } => {
                write!(f, "database {group}: no epoch is left, so its members stay as they are")
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, nodes: &[NodeId]) -> fmt::Result {
    for (at, node) in nodes.iter().enumerate() {
        write!(f, "{}{node}", if at == 0 { title } else { ", " })?;
    }
    Ok(())
}
