//! One instance of the core: the keys it works on, ballots, and the interface for services.

use base::Nanos;
use types::limits::MEMBERS_MAX;
use types::{Ballot, Incarnation, Key, Lock, NodeId, Outcome, Shard, Tag};

use super::hooks::Notice;
use crate::mutation::{self, Mutation};
use crate::protocol::Env;
use crate::register_cache::CachedRegister;
use crate::rmwpaxos::context::Cx;
use crate::rmwpaxos::progress::active::{Active, Phase};
use crate::rmwpaxos::progress::actives::Actives;
use crate::rmwpaxos::progress::counters::Counters;
use crate::rmwpaxos::progress::operation::{Operation, Place, Source};
use crate::rmwpaxos::progress::retry_timer::RetryTimer;
use crate::rmwpaxos::progress::round_trip::RoundTrip;

/// A node mints no ballots above this number. Reconfiguration restarts the count. [corrections F13]
const NUMBER_LIMIT: u64 = 1 << 35;

/// Acceptor, proposer and reader of the registers of one database and worker.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) env: Env,
    pub(super) actives: Actives,
    /// Keys to check when the turn ends.
    touched: Vec<Key>,
    /// Counts events: gives the events of a turn an order.
    pub(super) step: Place,
    /// Smoothed time from a proposal to its choice.
    pub(super) round_trip: RoundTrip,
    next_id: u64,
    /// The first event of the process.
    pub(super) started: Option<Nanos>,
    /// When the link to each node ended last.
    pub(super) left_at: [Option<Nanos>; MEMBERS_MAX],
    /// Sparing pauses until then, because the other members did not answer.
    pub(super) spares_nobody_until: Nanos,
    pub(super) retry: RetryTimer,
    pub(super) notices: Vec<Notice>,
    pub(super) counters: Counters,
    /// The own acceptor is asked by messages, which may be late.
    #[cfg(test)]
    pub(crate) by_message: bool,
}

impl Core {
    pub(crate) fn open(env: Env) -> Core {
        Core {
            next_id: first_id(env.incarnation),
            env,
            actives: Actives::default(),
            touched: Vec::new(),
            step: Place(0),
            round_trip: RoundTrip::default(),
            started: None,
            left_at: [None; MEMBERS_MAX],
            spares_nobody_until: Nanos::ZERO,
            retry: RetryTimer::default(),
            notices: Vec::new(),
            counters: Counters::default(),
            #[cfg(test)]
            by_message: false,
        }
    }

    /// Starts an event.
    pub(crate) fn begin_step(&mut self, now: Nanos) {
        self.step.0 += 1;
        self.started.get_or_insert(now);
    }

    pub(crate) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Takes the notices of the last steps. The list is given back for its memory.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    pub(crate) fn give_back_notices(&mut self, notices: Vec<Notice>) {
        if notices.is_empty() && self.notices.is_empty() {
            self.notices = notices;
        }
    }

    /// Queues an operation. Operations of one session keep their order: a read behind writes
    /// follows them. Reads of the session that are in progress are taken back in front of it.
    /// [corrections B10]
    pub(crate) fn enqueue(&mut self, cx: &mut Cx<'_>, key: &Key, operation: Operation) {
        let mut active = self.take_active(cx, key);
        if !operation.is_read() || active.has_writes() {
            active.enqueue(operation);
        } else {
            active.read_queue.push(operation);
        }
        self.put_active(active);
    }

    /// Proposes the state of a key once more, or has a majority vote on the entries of its table.
    pub(crate) fn propose_internal(&mut self, cx: &mut Cx<'_>, key: &Key, source: Source) {
        let mut active = self.take_active(cx, key);
        active.queue.push_back(Operation::internal(source, self.step));
        self.put_active(active);
    }

    /// The same, unless a write is in progress.
    pub(crate) fn propose_if_free(&mut self, cx: &mut Cx<'_>, key: &Key, source: Source) {
        if !self.has_writes(key) {
            self.propose_internal(cx, key, source);
        }
    }

    /// Takes the key's proposer out to work on it; it must be put back.
    pub(crate) fn take_active(&mut self, cx: &mut Cx<'_>, key: &Key) -> Box<Active> {
        cx.about(key.shard());
        self.actives.take(key).unwrap_or_else(|| {
            cx.cache.pin(key);
            self.retry.arm(cx);
            self.actives.start(key)
        })
    }

    /// Takes out the proposer of a key that is worked on.
    pub(crate) fn find_active(&mut self, cx: &mut Cx<'_>, key: &Key) -> Option<Box<Active>> {
        let active = self.actives.take(key)?;
        cx.about(key.shard());
        Some(active)
    }

    /// Puts it back, and has it checked when the turn ends.
    pub(crate) fn put_active(&mut self, mut active: Box<Active>) {
        if !active.touched {
            active.touched = true;
            self.touched.push(active.key.clone());
        }
        self.actives.put_back(active);
    }

    /// Puts it back unchanged.
    pub(crate) fn put_untouched(&mut self, active: Box<Active>) {
        self.actives.put_back(active);
    }

    /// Keys that were touched since the last end of a turn.
    pub(crate) fn take_touched(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.touched)
    }

    /// Gives the memory of the list back. Keys that were touched meanwhile stay for the next turn.
    pub(crate) fn give_back_touched(&mut self, mut touched: Vec<Key>) {
        touched.clear();
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    /// Puts a proposer back after the end of a turn, or ends it.
    pub(crate) fn put_or_retire(&mut self, cx: &mut Cx<'_>, active: Box<Active>) {
        if !active.is_done() {
            return self.actives.put_back(active);
        }
        cx.cache.unpin(&active.key);
        self.actives.end(active);
    }

    /// The only source of ballots. [spec 0.2, U2] `None`: the numbers are used up.
    pub(crate) fn mint(&mut self, cx: &mut Cx<'_>, key: &Key) -> Option<Ballot> {
        let promised = match cx.cache.get(key) {
            CachedRegister::Present(register) => register.promised,
            CachedRegister::Absent | CachedRegister::Lost => Ballot::ZERO,
        };
        let epoch = cx.replicas.epoch();
        let meta = cx.metas.get_mut(key.shard());
        meta.saw(promised);
        if meta.number >= NUMBER_LIMIT {
            return None;
        }
        meta.number += 1;
        let incarnation = if mutation::is(Mutation::NoIncarnation) {
            Incarnation(0)
        } else {
            self.env.incarnation
        };
        Some(Ballot::new(epoch, meta.number, self.env.me, incarnation))
    }

    /// True if the own acceptor is asked without messages, and only as many others as needed.
    pub(crate) fn takes_short_ways(&self) -> bool {
        #[cfg(test)]
        return !self.by_message;
        #[cfg(not(test))]
        true
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Ends an operation.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, operation: &Operation, mut outcome: Outcome) {
        if operation.doubtful && denies_effect(&outcome) {
            outcome = Outcome::Unknown;
        }
        if outcome == Outcome::Unknown {
            self.counters.unknowns += 1;
        }
        match operation.source {
            Source::Client(tag) => self.reply(cx, tag, outcome),
            Source::Forwarded { forward, index } => {
                self.notices.push(Notice::ForwardedDone { forward, index, outcome });
            }
            Source::Expire(_) | Source::Collect | Source::Forget | Source::Answered => {}
        }
    }

    pub(crate) fn reply(&mut self, cx: &mut Cx<'_>, tag: Tag, outcome: Outcome) {
        cx.fx.reply(tag, outcome);
    }

    /// The outcome without a quorum. This node may know the reason.
    pub(crate) fn unavailable(&self, cx: &Cx<'_>, shard: Shard) -> Outcome {
        if cx.cache.is_forgotten(shard) { Outcome::Loading } else { Outcome::NoQuorum }
    }
}

/// Hints for forwarding, and operations that a service holds.
impl Core {
    /// Hands the head of a queue to a service. The key waits until the service gives it back.
    pub(crate) fn hand_over(&mut self, active: &mut Active, count: usize) -> Vec<Operation> {
        active.phase = Phase::Waiting;
        active.queue.drain(..count).collect()
    }

    /// Takes a key back from a service, with the operations that are still to be run. A `lock` kept
    /// them from running.
    pub(crate) fn take_over(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        lock: Option<Lock>,
        operations: Vec<Operation>,
    ) {
        let mut active = self.take_active(cx, key);
        assert!(matches!(active.phase, Phase::Waiting), "{key:?} waits for no service");
        active.leave();
        match lock {
            Some(lock) => self.lock_out(cx, &mut active, lock, operations),
            None => active.put_back(operations),
        }
        self.put_active(active);
    }

    /// Counts forwards in a row from one node, this one included.
    pub(crate) fn count_forward(&mut self, cx: &mut Cx<'_>, key: &Key, from: NodeId) -> u16 {
        let Some(register) = cx.cache.get_mut(key) else { return 0 };
        let (node, count) = register.forwards;
        register.forwards = if node == from { (from, count.saturating_add(1)) } else { (from, 1) };
        register.forwards.1
    }

    /// The busy owner offers the key: this node proposes next.
    pub(crate) fn forget_contention(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if let Some(register) = cx.cache.get_mut(key) {
            register.foreign_at = Nanos::ZERO;
        }
    }
}

/// Facts for the parts around the core.
impl Core {
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    #[cfg(test)]
    pub(crate) fn env_mut(&mut self) -> &mut Env {
        &mut self.env
    }

    pub(crate) fn me(&self) -> NodeId {
        self.env.me
    }

    /// The place of the present event among all.
    pub(crate) fn step(&self) -> Place {
        self.step
    }

    pub(crate) fn round_trip(&self) -> RoundTrip {
        self.round_trip
    }

    pub(crate) fn actives(&self) -> &Actives {
        &self.actives
    }

    #[cfg(test)]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a late delivery of an accept by another part.
    pub(crate) fn count_repair(&mut self) {
        self.counters.repairs += 1;
    }

    /// A ballot was seen: this node mints higher ones.
    pub(crate) fn saw(&self, cx: &mut Cx<'_>, shard: Shard, ballot: Ballot) {
        cx.metas.get_mut(shard).saw(ballot);
    }

    pub(crate) fn has_writes(&self, key: &Key) -> bool {
        self.actives.get(key).is_some_and(Active::has_writes)
    }

    /// Arms the retry timer, which then repeats as long as there is work.
    pub(crate) fn arm_retries(&mut self, cx: &mut Cx<'_>) {
        self.retry.arm(cx);
    }

    /// Has the key checked at `until`.
    pub(crate) fn look_again(&mut self, cx: &mut Cx<'_>, until: Nanos, key: &Key) {
        self.retry.back_off(cx, until, key.clone());
    }
}

/// The first number of questions and forwards. An answer to an earlier start of this process must
/// not count for a later one.
pub(crate) fn first_id(incarnation: Incarnation) -> u64 {
    if mutation::is(Mutation::StaleAnswers) { 0 } else { u64::from(incarnation.0) << 40 }
}

/// True if the outcome claims that this transmission had no effect. Never claim that of a command
/// that may have run. [corrections F5]
fn denies_effect(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused(_) => !mutation::is(Mutation::OnceRefusalStays),
        Outcome::NoQuorum | Outcome::Loading | Outcome::Locked(_) => true,
        Outcome::Reply(_)
        | Outcome::Held(_)
        | Outcome::AlreadyDone
        | Outcome::Unknown
        | Outcome::Listed { .. }
        | Outcome::Explained(_)
        | Outcome::Unsupported(_)
        | Outcome::NoTransactions(_)
        | Outcome::NoRetries(_)
        | Outcome::NoUncommittedReads(_) => false,
    }
}
