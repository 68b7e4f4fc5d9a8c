//! A leader brings others to its history. [ZAB, D4, S1, S3, S4]

use types::{NodeId, Ticket};

use super::super::context::{Cx, replicas, tell, tell_own};
use super::super::epoch::Epoch;
use super::super::message::{ToSequencer, View};
use super::super::register::Meta;
use super::Sequencer;
use super::looks::Look;
use super::places::Places;
use super::role::{Follower, Phase, Promise, Role};
use crate::mutation::{self, Mutation};
use crate::protocol::Peer;

impl Sequencer {
    pub(super) fn on_ack_epoch(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        epoch: Epoch,
        promise: Promise,
        votes: bool,
    ) {
        let replicas = replicas(cx);
        let (current, last) = self.current();
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.epoch != epoch || replicas.index(from).is_none() {
            return;
        }
        let known = leading.waiting.get(&from).map(|it| it.attempt);
        let known = known.max(leading.attempts.get(&from).copied());
        if known >= Some(promise.attempt) {
            return;
        }
        if votes {
            leading.promised.add(replicas, from, promise.amnesia);
        }
        if leading.phase != Phase::Discovery {
            return self.bring(cx, from, &promise);
        }
        let theirs = promise.ends.as_ref().map(|ends| {
            let last = ends.last().copied().unwrap_or_default();
            match mutation::is(Mutation::ZabComparesZxidsOnly) {
                true => (Epoch::default(), last),
                false => (promise.current, last),
            }
        });
        let own = match mutation::is(Mutation::ZabComparesZxidsOnly) {
            true => (Epoch::default(), last),
            false => (current, last),
        };
        if let Some((_, last)) = theirs.filter(|theirs| *theirs > own) {
            // Its node will found the epoch: an earlier look of it must not let this one do so.
            let current = promise.current;
            let look = Look { accepted: epoch, current, last, is_looking: true, votes };
            self.looks.by_node.insert(from, (look, cx.now));
            return self.look(cx);
        }
        leading.waiting.insert(from, promise);
        if replicas.is_quorum(&leading.promised) {
            leading.phase = Phase::Sync;
            leading.since = cx.now;
            let waiting = std::mem::take(&mut leading.waiting);
            // Followers may copy the state of workers: a copy of this node itself is whole by now.
            self.end_copy(cx);
            self.show(cx, View { epoch, ..View::default() });
            for (node, promise) in waiting {
                self.bring(cx, node, &promise);
            }
            self.on_durable(cx);
        }
    }

    /// Begins to bring a node to the leader's history.
    fn bring(&mut self, cx: &mut Cx<'_>, node: NodeId, promise: &Promise) {
        let (me, last) = (self.me, self.history.last());
        let Role::Leading(leading) = &mut self.role else { return };
        if node == me {
            return;
        }
        let (epoch, attempt) = (leading.epoch, promise.attempt);
        // An entry that was cut off anywhere was committed, and so is the first kept one.
        let cut = |first: u64| if first > 1 { first } else { 0 };
        let first = cut(self.history.first()).max(cut(promise.first));
        let index = self.outlets.kept().max(first).min(last);
        self.committed = self.committed.max(index);
        let committed = self.committed;
        let shared = promise.ends.as_ref().and_then(|ends| self.history.shared_with(ends));
        let (sent, order) = match shared {
            Some(keep) => (keep, ToSequencer::Sync { epoch, attempt, keep, last, committed }),
            None => {
                let base = self.history.zxid(index).unwrap_or_default();
                (base.index, ToSequencer::Snap { epoch, attempt, base, last })
            }
        };
        let follower = Follower {
            attempt,
            amnesia: promise.amnesia,
            sent,
            acked: sent,
            moved_at: cx.now,
            heard_at: cx.now,
            is_joined: false,
        };
        leading.attempts.insert(node, attempt);
        leading.followers.insert(node, follower);
        tell(cx, node, order);
    }

    /// The leader's own history is durable: it notes the epoch.
    pub(super) fn note_epoch(&mut self, cx: &mut Cx<'_>) {
        let Role::Leading(leading) = &self.role else { return };
        // Also if others made the epoch stand before: a worse history might outrank this one.
        let is_in_time = match mutation::is(Mutation::ZabNeverNotes) {
            true => leading.phase == Phase::Sync,
            false => leading.phase != Phase::Discovery,
        };
        let is_due = is_in_time && self.meta.current != leading.epoch;
        if is_due && self.durable >= leading.initial && self.changes_durable >= self.truncated {
            let current = leading.epoch;
            self.persist(cx, Meta { current, ..self.meta });
            let generation = self.generation;
            tell_own(cx, ToSequencer::Persisted { generation }, self.meta_after);
        }
    }

    pub(super) fn on_ack_leader(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        epoch: Epoch,
        attempt: u64,
    ) {
        let replicas = replicas(cx);
        let committed = self.committed;
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.epoch != epoch {
            return;
        }
        if from.node != self.me {
            let Some(follower) = leading.followers.get_mut(&from.node) else { return };
            if follower.attempt != attempt || follower.amnesia != from.amnesia {
                return;
            }
            follower.heard_at = cx.now;
            follower.is_joined = true;
        }
        match leading.phase {
            Phase::Discovery => {}
            Phase::Broadcast if from.node == self.me => {}
            Phase::Broadcast => tell(cx, from.node, ToSequencer::UpToDate { epoch, committed }),
            Phase::Sync => {
                leading.joined.add(replicas, from.node, from.amnesia);
                let stands =
                    replicas.is_quorum(&leading.joined) && replicas.is_quorum(&leading.promised);
                if stands || mutation::is(Mutation::ZabStandsAlone) {
                    self.stand(cx);
                }
            }
        }
    }

    /// A majority has the initial history: all of it is committed.
    fn stand(&mut self, cx: &mut Cx<'_>) {
        let Role::Leading(leading) = &mut self.role else { return };
        leading.phase = Phase::Broadcast;
        // Entries of this epoch begin behind it.
        leading.places = Places::after(self.history.last());
        let (epoch, upto) = (leading.epoch, leading.initial);
        let joined = leading.followers.iter().filter(|(_, follower)| follower.is_joined);
        let joined: Vec<NodeId> = joined.map(|(&node, _)| node).collect();
        self.committed = self.committed.max(upto);
        let committed = self.committed;
        for node in joined {
            tell(cx, node, ToSequencer::UpToDate { epoch, committed });
        }
        let leader = Some(self.me);
        self.end_copy(cx);
        let copies = self.copies;
        self.show(cx, View { epoch, leader, upto, committed, copies, len_max: 0 });
    }

    /// The change that a step waited for is durable.
    pub(super) fn on_persisted(&mut self, cx: &mut Cx<'_>, generation: u64) {
        if generation != self.generation {
            return;
        }
        match &self.role {
            Role::Leading(leading) if self.meta.current == leading.epoch => {
                let (epoch, attempt) = (leading.epoch, 0);
                tell_own(cx, ToSequencer::AckLeader { epoch, attempt }, Ticket::DURABLE);
            }
            Role::Following(_) => self.on_step_durable(cx),
            Role::Leading(_) | Role::Looking | Role::Recalling(_) => {}
        }
    }

    /// Asks again to hear of a step: messages that wait for storage may be dropped.
    pub(super) fn repeat_step(&mut self, cx: &mut Cx<'_>) {
        let waits = match &self.role {
            Role::Leading(leading) => {
                leading.phase == Phase::Sync && self.meta.current == leading.epoch
            }
            Role::Following(following) => following.step.waits_for_fields(),
            Role::Looking | Role::Recalling(_) => false,
        };
        if waits {
            let generation = self.generation;
            tell_own(cx, ToSequencer::Persisted { generation }, self.meta_after);
        }
    }
}
