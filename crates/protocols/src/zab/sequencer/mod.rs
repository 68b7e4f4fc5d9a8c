//! The keeper of the log at worker 0: elections, synchronisation, broadcast.

mod electing;
mod following;
mod handing_over;
mod leading;
mod looks;
mod outlets;
mod places;
mod recalling;
mod role;
mod syncing;
mod taking;

use base::Nanos;
use types::{LogImage, NodeId, Shard, Ticket, Wire};

use self::looks::{Look, Looks};
use self::outlets::Outlets;
use self::role::{Promise, Role, Step};
use super::context::{Cx, tell_own, tell_worker};
use super::epoch::{Epoch, Zxid};
use super::history::History;
use super::message::{ToSequencer, ToWorker, View};
use super::register::Meta;
use super::txn::Entry;
use crate::effects::Violation;
use crate::mutation::{self, Mutation};
use crate::protocol::{Env, Peer, Stats};

/// The time without a sign of life after which a leader or a majority counts as lost.
const SILENCE: Nanos = Nanos::from_millis(300);
/// The interval between signs of life.
pub const BEAT: Nanos = Nanos::from_millis(50);

#[derive(Debug)]
pub struct Sequencer {
    me: NodeId,
    env: Env,
    /// The fields of shard 0 are known.
    is_ready: bool,
    meta: Meta,
    /// When the last change of the fields is durable.
    meta_after: Ticket,
    /// Counts the roles of this process. Steps of an earlier one are void.
    generation: u64,
    role: Role,
    looks: Looks,
    history: History,
    /// When the last change of the log is durable.
    log_after: Ticket,
    /// Changes of the log, and how many were durable at the last report. Then it was durable up to
    /// here.
    changes: u64,
    changes_asked: u64,
    changes_durable: u64,
    durable: u64,
    /// The change that cut the end off last.
    truncated: u64,
    committed: u64,
    outlets: Outlets,
    /// The leaders' states that this process has copied.
    copies: u64,
    /// The workers do not know that the copy is whole.
    owes_whole: bool,
    /// Registers were lost before the start.
    is_lost_early: bool,
    beat_at: Nanos,
    /// As told to the workers.
    view: View,
}

impl Sequencer {
    pub fn new(env: Env) -> Sequencer {
        Sequencer {
            me: env.me,
            is_ready: false,
            meta: Meta::default(),
            meta_after: Ticket::DURABLE,
            generation: 0,
            role: Role::Looking,
            looks: Looks::default(),
            history: History::new(),
            log_after: Ticket::DURABLE,
            changes: 0,
            changes_asked: 0,
            changes_durable: 0,
            durable: 0,
            truncated: 0,
            committed: 0,
            outlets: Outlets::new(env.workers),
            copies: 0,
            owes_whole: false,
            is_lost_early: false,
            beat_at: Nanos::ZERO,
            view: View::default(),
            env,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Begins with the state that the start finds.
    fn start(&mut self, cx: &mut Cx<'_>) {
        if self.is_ready {
            return;
        }
        self.is_ready = true;
        self.meta = *cx.metas.get(Shard(0));
        let image = std::mem::replace(&mut self.env.log, LogImage::empty(0));
        self.env.log = LogImage { records: Vec::new(), ..image.clone() };
        match History::open(&image) {
            Some(history) => {
                self.durable = history.last();
                self.outlets.restart(history.first() - 1);
                self.history = history;
            }
            None => {
                self.history = History::lost(image.first);
                cx.fx.forget(Shard(0));
            }
        }
        match self.meta.has_no_vote {
            // The event that says so is still on its way, perhaps.
            _ if self.is_lost_early || cx.cache.is_forgotten(Shard(0)) => self.on_lost(cx),
            true => self.recall(cx),
            false => self.look(cx),
        }
    }

    pub fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, body: ToSequencer) {
        let is_own = from.node == self.me;
        match body {
            ToSequencer::Start {} if is_own => self.start(cx),
            ToSequencer::Lost {} if is_own && !self.is_ready => self.is_lost_early = true,
            _ if !self.is_ready => {}
            ToSequencer::Look { accepted, current, last, is_looking, votes, asks } => {
                let look = Look { accepted, current, last, is_looking, votes };
                self.on_look(cx, from, look, asks);
            }
            ToSequencer::NewEpoch { epoch } => self.on_new_epoch(cx, from.node, epoch),
            ToSequencer::AckEpoch { epoch, current, votes, attempt, first, ends } => {
                let promise = Promise { attempt, amnesia: from.amnesia, current, first, ends };
                self.on_ack_epoch(cx, from.node, epoch, promise, votes);
            }
            ToSequencer::Sync { epoch, attempt, keep, last, committed } => {
                self.on_sync(cx, from.node, (epoch, attempt), (keep, last), committed);
            }
            ToSequencer::Snap { epoch, attempt, base, last } => {
                self.on_snap(cx, from.node, (epoch, attempt), base, last);
            }
            ToSequencer::AckLeader { epoch, attempt } => {
                self.on_ack_leader(cx, from, epoch, attempt);
            }
            ToSequencer::UpToDate { epoch, committed } => {
                self.on_up_to_date(cx, from.node, epoch, committed);
            }
            ToSequencer::Propose { epoch, first, entries } => {
                self.on_propose(cx, from.node, epoch, first, entries);
            }
            ToSequencer::Ack { epoch, attempt, upto } => {
                self.on_ack(cx, from, (epoch, attempt), upto);
            }
            ToSequencer::Commit { epoch, upto } => self.on_commit(cx, from.node, epoch, upto),
            ToSequencer::Recall { id } => self.on_recall(cx, from.node, id),
            ToSequencer::Recalled { id, accepted } => self.on_recalled(cx, from, id, accepted),
            ToSequencer::Write { epoch, stream, number, .. } => {
                self.on_write(cx, from, epoch, stream, number, body);
            }
            _ if !is_own => {}
            ToSequencer::Start {} => {}
            ToSequencer::Logged { generation, changes, upto } => {
                self.on_logged(cx, generation, changes, upto);
            }
            ToSequencer::Persisted { generation } => self.on_persisted(cx, generation),
            ToSequencer::Executed { epoch, index, txn } => {
                self.on_executed(cx, epoch, index, txn);
            }
            ToSequencer::Kept { copy, worker, upto } => {
                self.outlets.on_kept(copy, worker as usize, upto);
            }
            ToSequencer::Erased { copy, worker } => self.outlets.on_erased(copy, worker as usize),
            ToSequencer::Copied { copy, worker } => self.on_copied(cx, copy, worker as usize),
            ToSequencer::Lost {} => self.on_lost(cx),
            ToSequencer::Dropped {} => self.on_amnesia(cx),
        }
    }

    /// The turn's events are handled.
    pub fn on_turn(&mut self, cx: &mut Cx<'_>) {
        if !self.is_ready {
            return;
        }
        self.append_executed(cx);
        self.take_early(cx);
        self.lead(cx);
        self.ask_logged(cx);
        self.hand_over(cx);
        self.cut(cx);
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if !self.is_ready {
            return;
        }
        // Messages that wait for storage may be dropped.
        self.changes_asked = self.changes_durable;
        self.repeat_step(cx);
        match &self.role {
            Role::Looking => self.look_again(cx),
            Role::Recalling(_) => self.recall_again(cx),
            Role::Leading(_) => self.watch_majority(cx),
            Role::Following(_) => self.watch_leader(cx),
        }
        if self.beat_at <= cx.now {
            self.beat_at = cx.now + BEAT;
            self.beat(cx);
            self.tell_view(cx);
        }
    }

    /// The connection to a node ended.
    pub fn on_reset(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if self.is_ready && matches!(&self.role, Role::Following(it) if it.leader == node) {
            self.look(cx);
        }
    }

    /// A connection to a node stands.
    pub fn on_up(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if self.is_ready && matches!(self.role, Role::Looking) {
            self.send_look(cx, node, true);
        }
    }

    /// Takes another role. Answers to the one before are void.
    fn turn_to(&mut self, cx: &mut Cx<'_>, role: Role) {
        self.generation += 1;
        self.role = role;
        self.changes_asked = self.changes_durable;
        self.show(cx, View::default());
    }

    /// Tells the workers where the node stands.
    fn show(&mut self, cx: &mut Cx<'_>, view: View) {
        if self.view != view {
            self.view = view;
            self.tell_view(cx);
        }
    }

    fn tell_view(&mut self, cx: &mut Cx<'_>) {
        let len_max = self.env.log.record_len_max as u64;
        for worker in 0..self.env.workers {
            let view = View { len_max, ..self.view };
            tell_worker(cx, worker, ToWorker::View { view });
        }
    }

    fn persist(&mut self, cx: &mut Cx<'_>, meta: Meta) -> Ticket {
        self.meta = meta;
        *cx.metas.get_mut(Shard(0)) = meta;
        self.meta_after = cx.metas.persist(Shard(0));
        self.meta_after
    }

    fn append(&mut self, cx: &mut Cx<'_>, entry: Entry) {
        let index = self.history.last() + 1;
        self.log_after = cx.fx.append(index, entry.to_bytes());
        self.changes += 1;
        self.history.push(entry);
    }

    /// Drops entries behind `keep`.
    fn truncate(&mut self, cx: &mut Cx<'_>, keep: u64) {
        if self.history.truncate(keep) {
            self.log_after = cx.fx.truncate_log(keep + 1);
            self.changes += 1;
            self.truncated = self.changes;
            self.durable = self.durable.min(keep);
        }
    }

    /// Asks to hear when the log is durable.
    fn ask_logged(&mut self, cx: &mut Cx<'_>) {
        let (generation, changes, upto) = (self.generation, self.changes, self.history.last());
        if self.changes_asked < changes {
            self.changes_asked = changes;
            let after = match mutation::is(Mutation::ZabAcksBeforeDurable) {
                true => Ticket::DURABLE,
                false => self.log_after,
            };
            tell_own(cx, ToSequencer::Logged { generation, changes, upto }, after);
        }
    }

    fn on_logged(&mut self, cx: &mut Cx<'_>, generation: u64, changes: u64, upto: u64) {
        if generation != self.generation {
            return;
        }
        self.changes_durable = self.changes_durable.max(changes);
        // A later change may have cut the entries off.
        if changes >= self.truncated {
            self.durable = self.durable.max(upto);
        }
        self.on_durable(cx);
    }

    /// The history as the node tells of it: none while it copies.
    fn current(&self) -> (Epoch, Zxid) {
        match self.meta.is_partial {
            true => (Epoch::default(), Zxid::default()),
            false => (self.meta.current, self.history.last_zxid()),
        }
    }

    pub fn check(&self) -> Result<(), Violation> {
        let handed = self.outlets.handed();
        let limit = self.committed.min(self.durable).max(self.outlets.start());
        if handed > limit {
            let text = format!("zab: {handed} handed over, {} committed", self.committed);
            return Err(Violation(text));
        }
        if self.meta.current > self.meta.accepted {
            return Err(Violation(format!("zab: fields {:?}", self.meta)));
        }
        Ok(())
    }

    pub fn is_idle(&self) -> bool {
        let is_settled = match &self.role {
            Role::Looking | Role::Recalling(_) => false,
            Role::Leading(it) => it.is_idle(self.history.last()),
            Role::Following(it) => it.step == Step::Serving,
        };
        is_settled
            && self.changes_durable == self.changes
            && self.outlets.handed() == self.history.last()
    }

    pub fn stats(&self, stats: &mut Stats) {
        stats.add("entries_applied", self.outlets.handed());
        stats.add("entries_waiting", self.history.last().saturating_sub(self.outlets.handed()));
        stats.add("leads", u64::from(self.view.leader == Some(self.me)));
        let is_recovering = matches!(self.role, Role::Recalling(_)) || self.meta.is_partial;
        if is_recovering {
            stats.add("shards_recovering", 256);
        }
    }
}
