//! Requests of a service to its worker.

use crate::program::{Computation, Transaction};
use types::{Command, Database, Key, Outcome, Tag, Txid};

/// The word of a coordinator's node about a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It is in progress.
    Alive,
    /// It will not be committed by this node any more, unless it is already.
    Finished,
}

#[derive(Clone, Debug)]
pub enum Effect {
    /// Run a command on a register; [`Service::on_outcome`](crate::Service::on_outcome) brings the
    /// end of it.
    Run { token: u64, database: Database, key: Key, command: Command },
    /// Answer a client.
    Reply { tag: Tag, outcome: Outcome },
    /// Ask the coordinator, the worker that the id names, for its status.
    Ask { txid: Txid },
    /// Begin a transaction at the worker of its first key, which is known now.
    Begin { tag: Tag, transaction: Transaction },
    /// Run a program where it holds up no worker.
    Compute(Computation),
}
