//! A follower takes in its leader's history, and then its proposals. [ZAB, S2, B2, B5]

use base::Nanos;
use types::{NodeId, Ticket, Wire};

use super::super::context::{Cx, tell, tell_own, tell_worker};
use super::super::epoch::{Epoch, Zxid};
use super::super::history::History;
use super::super::message::{ToSequencer, ToWorker, View};
use super::super::register::Meta;
use super::super::txn::Entry;
use super::role::{Following, Role, Step};
use super::{SILENCE, Sequencer};
use crate::effects::Violation;
use crate::mutation::{self, Mutation};

impl Sequencer {
    /// This node as a follower of that leader in that epoch.
    fn following(&mut self, from: NodeId, epoch: Epoch, now: Nanos) -> Option<&mut Following> {
        match &mut self.role {
            Role::Following(following) if following.epoch == epoch && following.leader == from => {
                following.heard_at = now;
                Some(following)
            }
            _ => None,
        }
    }

    fn step_to(&mut self, cx: &Cx<'_>, step: Step) {
        if let Role::Following(following) = &mut self.role {
            (following.step, following.step_at) = (step, cx.now);
        }
    }

    pub(super) fn on_sync(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (epoch, attempt): (Epoch, u64),
        (keep, last): (u64, u64),
        committed: u64,
    ) {
        let Some(following) = self.following(from, epoch, cx.now) else { return };
        if following.step != Step::Promised || following.attempt != attempt {
            return;
        }
        let handed = self.outlets.handed();
        if keep < handed || keep > self.history.last() {
            let text = format!("zab: {from:?} keeps {keep} of {handed} applied entries");
            return cx.fx.fail(Violation(text));
        }
        self.truncate(cx, keep);
        self.committed = self.committed.max(committed);
        self.step_to(cx, Step::Syncing { last });
        self.on_durable(cx);
    }

    pub(super) fn on_snap(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (epoch, attempt): (Epoch, u64),
        base: Zxid,
        last: u64,
    ) {
        let Some(following) = self.following(from, epoch, cx.now) else { return };
        if following.step != Step::Promised || following.attempt != attempt {
            return;
        }
        if base.index.max(1) < self.history.first() {
            // It was cut since the promise.
            return self.look(cx);
        }
        self.outlets.hold();
        self.persist(cx, Meta { is_partial: true, ..self.meta });
        self.step_to(cx, Step::Clearing { base, last });
        let generation = self.generation;
        tell_own(cx, ToSequencer::Persisted { generation }, self.meta_after);
    }

    /// That the state is partial is durable, or that the node has joined.
    pub(super) fn on_step_durable(&mut self, cx: &mut Cx<'_>) {
        let Role::Following(following) = &self.role else { return };
        let Following { epoch, leader, .. } = *following;
        match following.step {
            Step::Clearing { base, last } => {
                self.clear(cx, base);
                let copy = self.outlets.begin_copy(base.index);
                for worker in 0..self.env.workers {
                    let base = base.index;
                    tell_worker(cx, worker, ToWorker::Copy { copy, epoch, donor: leader, base });
                }
                self.step_to(cx, Step::Copying { last });
            }
            Step::Noting => {
                self.end_copy(cx);
                self.step_to(cx, Step::Joined);
                self.beat(cx);
            }
            _ => {}
        }
    }

    /// The log goes on behind the leader's state.
    fn clear(&mut self, cx: &mut Cx<'_>, base: Zxid) {
        self.changes += 1;
        self.truncated = self.changes;
        self.owes_whole = false;
        self.durable = base.index.saturating_sub(1);
        if base.index == 0 {
            self.log_after = cx.fx.truncate_log(self.history.first());
            self.history = History::new();
            return;
        }
        let entry = Entry { epoch: base.epoch, txn: None };
        cx.fx.cut_log(base.index);
        self.log_after = cx.fx.append(base.index, entry.to_bytes());
        self.history = History::after(base);
    }

    pub(super) fn on_copied(&mut self, cx: &mut Cx<'_>, copy: u64, worker: usize) {
        if !self.outlets.on_copied(copy, worker) {
            return;
        }
        if let Role::Following(following) = &self.role
            && let Step::Copying { last } = following.step
        {
            self.copies += 1;
            self.owes_whole = true;
            self.step_to(cx, Step::Syncing { last });
            self.on_durable(cx);
        }
    }

    /// Tells the workers that their copy is whole.
    pub(super) fn end_copy(&mut self, cx: &mut Cx<'_>) {
        if std::mem::take(&mut self.owes_whole) {
            let copy = self.outlets.copy();
            for worker in 0..self.env.workers {
                tell_worker(cx, worker, ToWorker::Whole { copy });
            }
        }
    }

    /// More of the log is durable.
    pub(super) fn on_durable(&mut self, cx: &mut Cx<'_>) {
        match &self.role {
            Role::Leading(_) => self.note_epoch(cx),
            Role::Following(following) => {
                let Following { epoch, attempt, leader, step, .. } = *following;
                let is_cut = self.changes_durable >= self.truncated;
                let is_whole = match step {
                    Step::Syncing { last } => self.durable >= last && is_cut,
                    _ => false,
                };
                if is_whole || (mutation::is(Mutation::ZabNotesEpochEarly) && step.is_syncing()) {
                    self.note_joined(cx, epoch);
                } else if step.takes_entries() && is_cut {
                    tell(cx, leader, ToSequencer::Ack { epoch, attempt, upto: self.durable });
                }
            }
            Role::Looking | Role::Recalling(_) => {}
        }
    }

    /// The leader's history is here, durably. [ZOOKEEPER-4643]
    fn note_joined(&mut self, cx: &mut Cx<'_>, current: Epoch) {
        let meta = Meta { current, is_partial: false, has_no_vote: false, ..self.meta };
        self.persist(cx, meta);
        self.step_to(cx, Step::Noting);
        let generation = self.generation;
        let after = match mutation::is(Mutation::ZabNotesEpochEarly) {
            true => Ticket::DURABLE,
            false => self.meta_after,
        };
        tell_own(cx, ToSequencer::Persisted { generation }, after);
    }

    pub(super) fn on_up_to_date(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        epoch: Epoch,
        committed: u64,
    ) {
        let upto = self.history.last();
        let Some(following) = self.following(from, epoch, cx.now) else { return };
        match following.step {
            Step::Joined => {
                self.committed = self.committed.max(committed);
                self.step_to(cx, Step::Serving);
                let leader = Some(from);
                self.show(
                    cx,
                    View { epoch, leader, upto, committed, copies: self.copies, len_max: 0 },
                );
            }
            Step::Serving => self.committed = self.committed.max(committed),
            _ => {}
        }
    }

    pub(super) fn on_propose(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        epoch: Epoch,
        first: u64,
        entries: Vec<Entry>,
    ) {
        let Some(following) = self.following(from, epoch, cx.now) else { return };
        let Following { attempt, step, .. } = *following;
        if !step.takes_entries() {
            return;
        }
        let end = (first + entries.len() as u64).saturating_sub(1);
        for (index, entry) in (first..).zip(entries) {
            let next = self.history.last() + 1;
            // Its log has to be cut first. The epoch stands only with those of its beginning.
            let is_full = self.history.bytes() > self.env.log.capacity && !step.needs_entry(index);
            if index > next || is_full {
                break;
            }
            if index == next {
                self.append(cx, entry);
            } else if self.history.zxid(index).is_some_and(|held| held.epoch != entry.epoch) {
                let text = format!("zab: entry {index} is another one at {from:?}");
                return cx.fx.fail(Violation(text));
            }
        }
        if mutation::is(Mutation::AckPastGap) {
            tell(cx, from, ToSequencer::Ack { epoch, attempt, upto: end });
        } else if self.changes_durable == self.changes {
            // They came before: the leader has not heard of it.
            self.on_durable(cx);
        }
    }

    pub(super) fn on_commit(&mut self, cx: &mut Cx<'_>, from: NodeId, epoch: Epoch, upto: u64) {
        let Some(following) = self.following(from, epoch, cx.now) else { return };
        // In front of them the log may hold other entries.
        if following.step.takes_entries() {
            self.committed = self.committed.max(upto);
        }
    }

    pub(super) fn watch_leader(&mut self, cx: &mut Cx<'_>) {
        let Role::Following(following) = &self.role else { return };
        let is_silent = cx.now.since(following.heard_at) > SILENCE;
        let is_stuck =
            following.step == Step::Promised && cx.now.since(following.step_at) > SILENCE;
        if is_silent || is_stuck {
            let leader = following.leader;
            cx.fx.suspect(leader);
            self.look(cx);
        }
    }

    /// A sign of life to the leader.
    pub(super) fn beat_as_follower(&mut self, cx: &mut Cx<'_>) {
        let Role::Following(following) = &self.role else { return };
        let Following { epoch, attempt, leader, step, .. } = *following;
        // The leader may have missed the first one.
        if matches!(step, Step::Joined | Step::Serving) {
            tell(cx, leader, ToSequencer::AckLeader { epoch, attempt });
        }
        let is_cut = self.changes_durable >= self.truncated;
        let upto = if step.takes_entries() && is_cut { self.durable } else { 0 };
        tell(cx, leader, ToSequencer::Ack { epoch, attempt, upto });
    }
}
