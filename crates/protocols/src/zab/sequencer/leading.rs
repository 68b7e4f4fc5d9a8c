//! A leader proposes entries and counts the nodes that have them. [ZAB, B1, B3, B5]

use base::Nanos;
use types::NodeId;
use types::limits::MEMBERS_MAX;

use super::super::context::{Cx, replicas, tell};
use super::super::epoch::Epoch;
use super::super::message::{ENTRIES_MAX, ToSequencer};
use super::role::{Leading, Phase, Role};
use super::{SILENCE, Sequencer};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;
use crate::replicas::{Replicas, place};

/// The time for the promises of a majority.
const DISCOVERY: Nanos = Nanos::from_secs(2);
/// Entries under way to one follower.
const UNDER_WAY_MAX: u64 = 4_096;
/// When entries without an acknowledgement are sent again.
const RESEND: Nanos = Nanos::from_millis(100);
/// Bytes of one proposal; one entry may be longer.
const PROPOSAL_LEN: u64 = 256 << 10;

impl Sequencer {
    pub(super) fn on_ack(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        (epoch, attempt): (Epoch, u64),
        upto: u64,
    ) {
        let last = self.history.last();
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.epoch != epoch {
            return;
        }
        let Some(follower) = leading.followers.get_mut(&from.node) else { return };
        // It lost its memory, and will join anew.
        if follower.amnesia == from.amnesia && follower.attempt == attempt {
            follower.heard_at = cx.now;
            if follower.acked < upto.min(last) {
                (follower.acked, follower.moved_at) = (upto.min(last), cx.now);
            }
            follower.sent = follower.sent.max(follower.acked);
        }
    }

    /// At the end of a turn: proposes new entries, and commits those that a majority has.
    pub(super) fn lead(&mut self, cx: &mut Cx<'_>) {
        let replicas = replicas(cx);
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.phase == Phase::Discovery {
            return;
        }
        let epoch = leading.epoch;
        let history = &self.history;
        leading.followers.retain(|_, follower| follower.sent + 1 >= history.first());
        for (&node, follower) in &mut leading.followers {
            if follower.sent == follower.acked {
                follower.moved_at = cx.now;
            }
            while follower.sent < history.last() && follower.sent - follower.acked < UNDER_WAY_MAX {
                let first = follower.sent + 1;
                let entries = history.page(first, ENTRIES_MAX, PROPOSAL_LEN);
                follower.sent += entries.len() as u64;
                tell(cx, node, ToSequencer::Propose { epoch, first, entries });
            }
        }
        if leading.phase != Phase::Broadcast {
            return;
        }
        let acked = acked_by_majority(leading, replicas, self.me, self.durable);
        self.committed = self.committed.max(acked);
        if leading.told < self.committed {
            leading.told = self.committed;
            let upto = self.committed;
            for &node in leading.followers.keys() {
                tell(cx, node, ToSequencer::Commit { epoch, upto });
            }
        }
    }

    /// Steps down without a majority. Sends entries again to followers that made no progress.
    pub(super) fn watch_majority(&mut self, cx: &mut Cx<'_>) {
        let replicas = replicas(cx);
        let Role::Leading(leading) = &mut self.role else { return };
        let is_near = |at| cx.now.since(at) <= SILENCE;
        let near = leading.followers.iter().filter(|(_, it)| is_near(it.heard_at));
        let near = near.filter_map(|(node, _)| replicas.index(*node));
        let near = near.fold(replicas.set.own_place(), |set, index| set | place(index));
        let patience = match leading.phase {
            // Its promise and those of others have to be durable first.
            Phase::Discovery => DISCOVERY,
            Phase::Sync | Phase::Broadcast => SILENCE,
        };
        if !replicas.set.is_quorum_of(near) && cx.now.since(leading.since) > patience {
            return self.look(cx);
        }
        // They look for a leader themselves once they hear no more.
        leading.followers.retain(|_, follower| is_near(follower.heard_at));
        for follower in leading.followers.values_mut() {
            if follower.moved_at + RESEND <= cx.now {
                (follower.sent, follower.moved_at) = (follower.acked, cx.now);
            }
        }
    }

    /// A sign of life to the others.
    pub(super) fn beat(&mut self, cx: &mut Cx<'_>) {
        let Role::Leading(leading) = &self.role else { return self.beat_as_follower(cx) };
        if leading.phase == Phase::Discovery {
            return self.ask_to_join(cx);
        }
        let (epoch, committed, stands) =
            (leading.epoch, self.committed, leading.phase == Phase::Broadcast);
        let followers: Vec<(NodeId, bool)> =
            leading.followers.iter().map(|(&node, it)| (node, it.is_joined)).collect();
        for (node, is_joined) in followers {
            tell(
                cx,
                node,
                match stands {
                    true if is_joined => ToSequencer::UpToDate { epoch, committed },
                    true => ToSequencer::Commit { epoch, upto: committed },
                    false => ToSequencer::Commit { epoch, upto: 0 },
                },
            );
        }
    }
}

/// The last entry that a majority has durably. Only those count that have joined: the copies of
/// others may be outranked by worse ones.
fn acked_by_majority(leading: &Leading, replicas: Replicas<'_>, me: NodeId, durable: u64) -> u64 {
    let mut acked = [0; MEMBERS_MAX];
    for (index, member) in replicas.members().enumerate() {
        acked[index] = match leading.followers.get(&member.node) {
            _ if member.node == me => durable,
            Some(it) if mutation::is(Mutation::ZabCountsUnjoined) => it.acked,
            Some(it) if it.is_joined && it.amnesia >= member.amnesia => it.acked,
            Some(_) | None => 0,
        };
    }
    replicas.set.reached_by_quorum(&acked)
}
