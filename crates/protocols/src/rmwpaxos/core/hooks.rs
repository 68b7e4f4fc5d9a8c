//! The edge of the core: decisions that other parts may influence, and notices for them.
//!
//! Without any part the core is a complete protocol: every hook has a default, and every notice may
//! be dropped.

use std::sync::Arc;

use types::{Key, NodeId, Outcome, Round, Shard};

use crate::replicas::Places;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::message::Report;
use crate::rmwpaxos::message::delta::Delta;
use crate::rmwpaxos::progress::operation::ForwardKey;
use crate::rmwpaxos::record::state::State;

/// Decisions of the core that other parts may influence.
pub(crate) trait Hooks {
    /// Adds to the own report for the node `to`, which holds the round `have`.
    fn complete_report(
        &mut self,
        _cx: &mut Cx<'_>,
        _to: NodeId,
        _key: &Key,
        _have: Round,
        _report: &mut Report,
    ) {
    }

    /// True if this member's report of the accepted round must not count.
    fn disputes(&mut self, _cx: &mut Cx<'_>, _from: NodeId, _key: &Key, _accepted: Round) -> bool {
        false
    }

    /// The change from `base` to `state`, if it should be sent instead of the state.
    fn delta(&self, _base: (Round, &State), _state: &State) -> Option<Arc<Delta>> {
        None
    }
}

/// The hooks without any part.
#[derive(Debug)]
pub(crate) struct NoParts;

impl Hooks for NoParts {}

/// An event of the core for the other parts. The core does not depend on its use.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A state was accepted here.
    Accepted(Shard),
    /// A state was accepted here that the end of a transaction changes.
    Lingers { key: Key },
    /// That end was accepted here.
    Ended { key: Key },
    /// A collected tombstone was removed here.
    Removed(Shard),
    /// A state that expires, is a tombstone or remembers commands was chosen by a proposal of this
    /// node.
    Chosen { key: Key, state: State },
    /// This node's last proposal is chosen, and these replicas have not acknowledged it.
    Missed { key: Key, round: Round, missing: Places },
    /// All replicas hold exactly this tombstone.
    HeldByAll { key: Key, round: Round },
    /// The proposal of a tombstone to all replicas was given up.
    NotCollected { key: Key },
    /// A read found that these replicas differ from this node about the presence of a register.
    Contested { shard: Shard, with: Places },
    /// A command of another node's forward has ended.
    ForwardedDone { forward: ForwardKey, index: usize, outcome: Outcome },
}
