//! Fences: a majority of acceptors durably shuts out earlier incarnations of a node. [transactions
//! T1, T2]
//!
//! An aborted record is forgotten though its coordinator may live, cut off from the others. It may
//! yet try to commit, under any later ballot, once the locks are gone.
//!
//! # Invariant
//! *Let a proposal [`Under::Fence`] be chosen under ballot `b`. No majority ever promises a ballot
//! above `b` of an incarnation that its fence shuts out.*
//!
//! 1. The fence travels in the `Prepare` of `b`. An acceptor raises it in the same change as its
//!    promise, which waits until both are durable. So a majority did both.
//! 2. An acceptor that promised a shut-out ballot above `b` before refuses `b`. One that promised
//!    `b` refuses such a ballot, by the fence. Two majorities meet.
//! 3. A command [`Under::Incarnation`] is proposed only under ballots of that incarnation. A later
//!    incarnation of the node refuses it.
//! 4. Below `b` the promises themselves decide, as for any other ballot.
//! 5. An acceptor that lost its memory learns the fences with each register and shard that it
//!    recovers. A member that promised `b` before answers with the fence. One that promises `b`
//!    later knows of the loss, and that voids the lost promise.
//!
//! Late deliveries (`Repair`) pass a fence: a majority promised a ballot before any acceptor held a
//! round of it.
//!
//! A fence shuts out proposals of its shard of one database: those of records, in a hidden
//! keyspace. A shut-out proposer is always told, and takes a later incarnation.

use types::{Ballot, Fence, Incarnation, Key, Outcome, Refusal, Round, Under};

use super::instance::Core;
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::progress::active::{Active, Phase};
use crate::rmwpaxos::progress::operation::Operation;

/// Why an acceptor does not promise a ballot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// It has promised this one.
    Promised(Ballot),
    /// A fence shuts out incarnations below this one.
    ShutOut(Incarnation),
}

/// The fence that shuts out a ballot, if one does.
pub(super) fn shut_out(cx: &Cx<'_>, key: &Key, ballot: Ballot) -> Option<Incarnation> {
    let fences = &cx.metas.get(key.shard()).fences;
    if fences.is_empty() {
        return None;
    }
    let below = fences.of(ballot.node());
    (ballot.incarnation() < below).then_some(below)
}

/// The ballot of this fence was refused.
pub(super) fn refused(cx: &mut Cx<'_>, key: &Key, fence: Option<Fence>) {
    if mutation::is(Mutation::FenceApart)
        && let Some(Fence { node, below }) = fence
    {
        cx.metas.get_mut(key.shard()).fences.raise(node, below);
        cx.metas.persist(key.shard());
    }
}

impl Core {
    /// Raises a fence with the promise of `ballot`, which waits for the ticket of the shard's
    /// fields.
    pub(super) fn raise(&self, cx: &mut Cx<'_>, key: &Key, fence: Fence, ballot: Ballot) {
        let is_own = ballot.node() == self.env.me;
        if mutation::is(Mutation::FenceApart) && is_own
            || mutation::is(Mutation::FenceOnOne) && !is_own
        {
            return;
        }
        let Fence { node, below } = fence;
        // No other node mints ballots, and only those of records are fenced.
        if !self.env.transient || cx.replicas.peers.get(node).is_none() {
            return;
        }
        let is_new = cx.metas.get_mut(key.shard()).fences.raise(node, below);
        if is_new && !mutation::is(Mutation::FenceNotDurable) {
            base::sometimes!("a fence shuts out a silent node");
            cx.metas.persist(key.shard());
        }
    }

    /// The fence that the next phase 1 carries.
    pub(super) fn fence_of(&self, active: &Active) -> Option<Fence> {
        if !self.env.transient {
            return None;
        }
        active.queue.iter().filter_map(fence_of).max_by_key(|fence| fence.below)
    }

    /// A queued operation relies on a fence that the promises of this ballot did not raise.
    pub(super) fn lacks_fence(&self, active: &Active) -> bool {
        if !self.env.transient || mutation::is(Mutation::FenceUnderAnyBallot) {
            return false;
        }
        let raised = active.owner().and_then(|two| two.fence);
        let is_covered = |fence: Fence| raised.is_some_and(|raised| raised.covers(fence));
        active.queue.iter().filter_map(fence_of).any(|fence| !is_covered(fence))
    }

    /// True if a ballot that is minted now may propose it.
    pub(crate) fn may_propose_now(&self, operation: &Operation) -> bool {
        match operation.command.under_ballots() {
            Under::Any => true,
            Under::Incarnation(incarnation) => incarnation == self.env.incarnation,
            Under::Fence(_) => false,
        }
    }

    /// Ends queued operations that only another incarnation's ballots may propose. One that was
    /// proposed before may yet turn out to be chosen.
    pub(super) fn end_shut_out(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        if !self.env.transient || mutation::is(Mutation::ProposedByLaterIncarnation) {
            return;
        }
        let Phase::Owner(two) = &active.phase else { return };
        let mine = two.ballot.incarnation();
        let is_out = |operation: &Operation| match operation.command.under_ballots() {
            Under::Incarnation(incarnation) => incarnation != mine,
            Under::Any | Under::Fence(_) => false,
        };
        if !active.queue.iter().any(is_out) {
            return;
        }
        base::sometimes!("a command of an earlier incarnation is not proposed any more");
        for operation in std::mem::take(&mut active.queue) {
            if !is_out(&operation) {
                active.queue.push_back(operation);
                continue;
            }
            let outcome = match operation.has_attempts() {
                true => Outcome::Unknown,
                false => Outcome::Refused(Refusal::Conflict),
            };
            self.answer(cx, &operation, outcome);
        }
    }

    /// A fence shuts out this node's ballot. A later incarnation may go on.
    pub(super) fn on_fenced(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        key: &Key,
        tried: Round,
        below: Incarnation,
    ) {
        if below > self.env.incarnation {
            cx.fx.fenced(below);
        }
        self.on_nack(cx, from, key, (tried, tried.ballot()), false);
    }

    /// All ballots name this incarnation from now on.
    pub(crate) fn renew(&mut self, incarnation: Incarnation) {
        self.env.incarnation = self.env.incarnation.max(incarnation);
    }
}

fn fence_of(operation: &Operation) -> Option<Fence> {
    match operation.command.under_ballots() {
        Under::Fence(fence) => Some(fence),
        Under::Any | Under::Incarnation(_) => None,
    }
}
