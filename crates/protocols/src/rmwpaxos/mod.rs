//! RMWPaxos: one in-place consensus register per key; replicas agree on a sequence of states. No log, no leader.
//!
//! Sources: Skrzypczak, Schintke and Schütt, "RMWPaxos: Fault-Tolerant In-Place Consensus Sequences" [RMW];
//! Rystsov, "CASPaxos: Replicated State Machines without logs" [CAS]; Michael et al., "Recovering Shared Objects
//! Without Stable Storage" [DISC17].
//!
//! # Round trips
//! A read of a quiet key takes one and changes nothing. A write takes two, or one where this node won phase 1
//! before ([`register::Register::owned`]) or holds what another of three members holds ([`fast::combined`]). Commands queued on a key are one proposal.
//!
//! # Words
//! *Owner*: whoever the acceptors promised last; a hint, never a lease. *Tip*: the state after the last proposal.
//! *Carried*: an operation found in the base of a phase 1; it succeeds with the next proposal chosen.
//!
//! | message | answer | says |
//! |---|---|---|
//! | `Read` | `State` | what an acceptor holds; changes nothing |
//! | `Prepare` | `Promise`, `Nack` | phase 1 |
//! | `Accept` | `Accepted`, `Nack` | phase 2; one ballot numbers its proposals `(b,1)`, `(b,2)`, … |
//! | `AcceptDelta` | `Accepted`, `Nack`, `NeedFull` | the same, told by what changed since the proposal before |
//! | `PrepareAccept` | `Accepted`, `Nack`, `NeedFull` | both phases at once, of three members |
//! | `Repair`, `Remove` | | a late accept; forgetting a collected tombstone |
//! | `Chosen` | | a hint that a round is chosen, batched and late |
//! | `Compare`, `Want` | `Compared`, `Repair` | what replicas hold of a range of keys, in the background |
//! | `Older`, `OlderFloor` | | the receiver held more than it does now: its medium has gone back |
//! | `Forward` | `Forwarded` | commands for the owner of a contended key |
//! | `Recover`, `List` | `Recovered`, `Listed` | what a replica without memory asks |
//!
//! # Invariants
//! 1. One payload per round, for ever: ballots name the incarnation that minted them, all minting of a shard goes
//!    through [`RmwPaxos::mint`], `k` only grows under a ballot.
//! 2. `accepted.ballot() <= promised`; neither ever decreases, nor does the effective promise across a restart.
//! 3. Every accept of a ballot follows promises from a crash-consistent majority and extends the highest report; for
//!    its first proposal an acceptor may be what completes that majority.
//! 4. An operation is in the chain at most once: it is attempted again only on a base without its attempts.
//! 5. A result is released only once a state that contains it is chosen, or, for one that changed nothing, once the
//!    state it was computed from is, and every attempt of it is excluded.
//! 6. A command that is safe to repeat is in the chain at most once within its window: the state remembers it ([`once`]),
//!    and only a majority forgets it ([`once::window`]).
//! 7. A reply leaves only when all that it reflects is durable here.
//!
//! # Departures from [RMW]
//! An inconsistent phase 1 adopts the highest report and proposes on top of it at once [CAS 2.2]: two round trips
//! under contention instead of up to five. Exactly-once rests on the ring of birth ballots inside the state, not on
//! notifications. Start reading at [`core::proposer`].

mod core;
mod deletion;
mod expiry;
mod fast;
mod message;
mod once;
mod register;
mod services;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use base::{Millis, Nanos};
use types::limits::MEMBERS_MAX;
use types::{Ballot, Key, Outcome, Shard, Tag};

use crate::cells::{Cell, Cells, Weight};
use crate::effects::{TimerId, Violation};
use crate::mutation::{self, Mutation};
use crate::protocol::{
    Consistency, Context, Env, Event, Peer, Properties, Protocol, Request, Stats,
};
use crate::replicas::Replicas;

pub use self::core::acceptor::Payload;
pub use self::core::state::{Expiry, ExpiryId, Ring, State, StateFields};
pub use message::delta::Delta;
pub use message::{Entry, Forward, Listing, Message, Report, Verdict};
pub use once::table::EntryId;
pub use once::window::Starts;
pub use register::{Countdown, Register, ShardMeta, Started};
pub use services::anti_entropy::comparison::{BUCKETS, Folds, Held};

use self::core::operation::{Active, Operation, Source};
use self::core::{acceptor, actives, operation, proposer, reader, retry, round_trip};
use services::anti_entropy::{comparison, patrol, pending_repairs, ranges};
use services::{explaining, forwarding, listing, recovery, rollback_detector};

/// Proposals of one key under way at a time.
const DEPTH: usize = 2;
/// Commands of one proposal.
const BATCH_MAX: usize = 512;
/// Above this number a node mints no ballots; reconfiguration starts the count anew. [corrections F13]
const NUMBER_LIMIT: u64 = 1 << 35;

type Cx<'a> = Context<'a, RmwPaxos>;

/// What has happened says nothing of what comes next.
impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

/// The default protocol.
#[derive(Debug)]
pub struct RmwPaxos {
    env: Env,
    actives: actives::Actives,
    /// Keys to look at when the turn ends.
    touched: Vec<Key>,
    /// Counts events: orders what happens within one turn.
    step: operation::Place,
    /// Smoothed time from a proposal to its choice.
    round_trip: round_trip::RoundTrip,
    next_id: u64,
    forwarder: forwarding::Forwarder,
    recovery: recovery::Recovery,
    collector: deletion::Collector,
    expirer: expiry::Expirer,
    lists: listing::Lists,
    explanations: explaining::Explanations,
    /// Those who should stand in for slow members did not.
    spares_nobody_until: Nanos,
    owed: pending_repairs::Owed,
    ranges: ranges::Ranges,
    patrol: patrol::Patrol,
    denied: rollback_detector::Denied,
    told: rollback_detector::Told,
    /// When the link to each member ended last.
    left_at: [Option<Nanos>; MEMBERS_MAX],
    /// Comparisons of others, waiting for the scan of that number.
    answering: BTreeMap<u64, comparison::Answering>,
    sweep: retry::Sweep,
    counters: Counters,
    /// Everybody is asked, the own acceptor by messages too, which are then as late as anybody's.
    #[cfg(test)]
    by_message: bool,
    /// Every proposal on a base with a value is sent as a delta, however short.
    #[cfg(test)]
    always_deltas: bool,
}

#[derive(Default)]
struct Counters {
    reads: u64,
    proposals: u64,
    phase_ones: u64,
    conflicts: u64,
    forwards: u64,
    unknowns: u64,
    recovered_keys: u64,
    collected: u64,
    expired: u64,
    /// First proposals sent together with phase 1, and those given up because the others held something else.
    joint: u64,
    joint_failed: u64,
    /// Accepts sent once more to those who may have missed them.
    repairs: u64,
    /// Accepts of that kind that changed something here.
    repaired: u64,
    hints: u64,
    shards_compared: u64,
    shards_different: u64,
    /// Registers that walks have read.
    keys_compared: u64,
    keys_different: u64,
    /// Registers of this node that another one knew to be older than they were.
    older: u64,
    /// Tombstones met that another node left.
    found: u64,
    /// Proposals that a slow member was not sent.
    spared: u64,
    /// Proposals sent to a member as a delta, and those that one could not apply.
    deltas: u64,
    needed_full: u64,
    /// States that this acceptor took with something that is counted in uptime.
    expiring_states: u64,
}

impl Protocol for RmwPaxos {
    const NAME: &'static str = "rmwpaxos";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::Linearizable,
        read_modify_write: true,
        total_order: false,
        needs_config: false,
        needs_lease: false,
    };

    type Message = Message;
    type Record = Register;
    type Meta = ShardMeta;

    fn open(env: Env) -> RmwPaxos {
        let first_id = first_id(env.incarnation);
        RmwPaxos {
            env,
            actives: actives::Actives::default(),
            touched: Vec::new(),
            step: operation::Place(0),
            round_trip: round_trip::RoundTrip::default(),
            next_id: first_id,
            forwarder: forwarding::Forwarder::starting_at(first_id),
            recovery: recovery::Recovery::default(),
            collector: deletion::Collector::default(),
            expirer: expiry::Expirer::default(),
            lists: listing::Lists::default(),
            explanations: explaining::Explanations::default(),
            spares_nobody_until: Nanos::ZERO,
            owed: pending_repairs::Owed::default(),
            ranges: ranges::Ranges::default(),
            patrol: patrol::Patrol::default(),
            denied: rollback_detector::Denied::default(),
            told: rollback_detector::Told::default(),
            left_at: [None; MEMBERS_MAX],
            answering: BTreeMap::new(),
            sweep: retry::Sweep::default(),
            counters: Counters::default(),
            #[cfg(test)]
            by_message: false,
            #[cfg(test)]
            always_deltas: false,
        }
    }

    fn on(&mut self, cx: &mut Cx<'_>, event: Event<RmwPaxos>) {
        self.step.0 += 1;
        self.start_comparing(cx);
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, from_hash, limit } => {
                self.on_list_request(cx, tag, from_hash, limit)
            }
            Event::Explain { tag, key } => self.on_explain(cx, tag, key),
            Event::Peer { from, message } => self.on_message(cx, from, message),
            Event::PeerReset { node } => self.on_peer_reset(cx, node),
            Event::PeerUp { node } => self.on_peer_up(cx, node),
            Event::PeerSteady { node } => self.on_peer_steady(cx, node),
            Event::ViewChanged => self.on_view_changed(cx),
            Event::Timer(timer) => self.on_timer(cx, timer),
            Event::Scanned(scanned) => self.on_scanned(cx, scanned),
            Event::Forgotten { shard } => {
                self.ranges.doubt_holders(shard);
                recovery::note_loss(cx, shard);
                self.on_forgotten(cx, shard);
            }
            Event::Turn => self.on_turn(cx),
        }
    }

    fn on_meta_loaded(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        let epoch = cx.replicas.epoch();
        if self.env.durable {
            cx.metas.get_mut(shard).restarted(epoch);
        }
        if cx.metas.get(shard).void && !cx.cells.is_forgotten(shard) && cx.replicas.set.has_me() {
            self.find_void(cx, shard);
        }
    }

    fn on_meta_lost(&mut self, cx: &mut Cx<'_>, shard: Shard) {
        cx.metas.get_mut(shard).void = true;
        cx.metas.persist(shard);
    }

    fn look(register: &Register) -> bool {
        register.chosen | register.state.as_ref().is_some_and(State::has_expiry)
    }

    fn copy(register: &Register) -> (Register, usize) {
        let len = register.state.as_ref().map_or(0, |state| state.bytes().len());
        (register.stored(), len)
    }

    fn weight(key: &Key, register: &Register) -> Weight {
        let Some(state) = &register.state else { return Weight::NONE };
        let len =
            |value: &[u8]| Weight::of_key(key.bytes().len() + value.len(), state.has_expiry());
        state.value().map_or(Weight::NONE, len)
    }

    fn check(&self, cells: &Cells<Register>, _replicas: Replicas<'_>) -> Result<(), Violation> {
        for active in self.actives.iter() {
            let key = &active.key;
            let register = match cells.get(key) {
                Cell::Present(register) => register,
                Cell::Absent | Cell::Lost => continue,
            };
            if register.accepted.ballot() > register.promised {
                return Err(Violation(format!("{key:?}: accepted above promise: {register:?}")));
            }
            if active.in_flight.len() > DEPTH {
                return Err(Violation(format!("{key:?}: {} in flight", active.in_flight.len())));
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.actives.is_empty()
            && self.recovery.is_idle()
            && self.lists.is_empty()
            && self.explanations.is_empty()
            && self.collector.is_empty()
            && self.owed.is_quiet()
            && self.ranges.is_quiet()
    }

    fn stats(&self, stats: &mut Stats) {
        let counters = &self.counters;
        stats.add("rmw_reads", counters.reads);
        stats.add("rmw_proposals", counters.proposals);
        stats.add("rmw_phase_ones", counters.phase_ones);
        stats.add("rmw_conflicts", counters.conflicts);
        stats.add("rmw_forwards", counters.forwards);
        stats.add("rmw_unknown", counters.unknowns);
        stats.add("rmw_joint_phases", counters.joint);
        stats.add("rmw_joint_phases_failed", counters.joint_failed);
        stats.add("rmw_repairs", counters.repairs);
        stats.add("rmw_repaired", counters.repaired);
        stats.add("rmw_chosen_hints", counters.hints);
        stats.add("rmw_shards_compared", counters.shards_compared);
        stats.add("rmw_shards_different", counters.shards_different);
        stats.add("rmw_keys_compared", counters.keys_compared);
        stats.add("rmw_keys_different", counters.keys_different);
        stats.add("rmw_keys_older", counters.older);
        stats.add("rmw_compare_passes", self.patrol.passes);
        stats.add("rmw_compare_passed_unix", self.patrol.passed_at.0 / 1_000);
        stats.add("tombstones_found", counters.found);
        stats.add("rmw_proposals_spared", counters.spared);
        stats.add("rmw_deltas", counters.deltas);
        stats.add("rmw_needed_full", counters.needed_full);
        stats.add("recovered_keys", counters.recovered_keys);
        stats.add("recovering_keys", self.recovery.keys_going_on() as u64);
        stats.add("recovering_shards", self.recovery.shards_going_on() as u64);
        stats.add("recovering_in_vain", self.recovery.in_vain() as u64);
        stats.add("tombstones", self.collector.tombstones() as u64);
        stats.add("keys_remembering", self.collector.remembering() as u64);
        stats.add("tombstones_collected", counters.collected);
        stats.add("expired_keys", counters.expired);
        stats.add("expiring_states", counters.expiring_states);
        stats.add("active_keys", self.actives.len() as u64);
    }
}

/// Questions and forwards are numbered on from here: an answer to an earlier start of this process, still on its
/// way, must not count for a later one.
fn first_id(incarnation: types::Incarnation) -> u64 {
    if mutation::is(Mutation::StaleAnswers) { 0 } else { u64::from(incarnation.0) << 40 }
}

/// Says that this transmission of a command had no effect: not to be said of one that may have run. [corrections F5]
fn denies_effect(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused(_) => !mutation::is(Mutation::OnceRefusalStays),
        Outcome::NoQuorum | Outcome::Loading => true,
        Outcome::Reply(_)
        | Outcome::AlreadyDone
        | Outcome::Unknown
        | Outcome::Listed { .. }
        | Outcome::Explained(_)
        | Outcome::Unsupported(_) => false,
    }
}

impl RmwPaxos {
    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        let Request { tag, session, key, mut command, asked_at } = request;
        let mut deadline = cx.now + self.env.request_timeout;
        if let Some(once) = &mut command.once {
            // Entries outlast a time that all nodes share. A longer timeout would outlast them.
            let shared = self.env.once_timeout;
            deadline = deadline.min(asked_at + shared);
            // A line that comes in time runs in time: within one timeout, the other is for clocks.
            once.window = Millis(once.window.0.saturating_add(2 * shared.as_millis()));
        }
        let operation = Operation::new(Source::Client(tag), session, command, deadline, self.step);
        self.recover_if_lost(cx, &key);
        self.enqueue(cx, key, operation);
    }

    /// Queues an operation. Those of one session keep their order: a read behind writes rides along with them, and
    /// reads of its session that are under way are taken back in front of whatever is queued. [corrections B10]
    fn enqueue(&mut self, cx: &mut Cx<'_>, key: Key, operation: Operation) {
        let mut active = self.take_active(cx, &key);
        if !operation.is_read() || active.has_writes() {
            reader::recall(&mut active, operation.session);
            active.queue.push_back(operation);
        } else {
            active.read_queue.push(operation);
        }
        self.put_active(active);
    }

    /// Takes the key's proposer out to work on it; it must be put back.
    fn take_active(&mut self, cx: &mut Cx<'_>, key: &Key) -> Box<Active> {
        cx.about(key.shard());
        self.actives.take(key).unwrap_or_else(|| {
            cx.cells.pin(key);
            self.sweep.arm(cx);
            self.actives.start(key)
        })
    }

    /// Puts it back and has it looked at when the turn ends.
    fn put_active(&mut self, mut active: Box<Active>) {
        if !active.touched {
            active.touched = true;
            self.touched.push(active.key.clone());
        }
        self.actives.put_back(active);
    }

    fn on_turn(&mut self, cx: &mut Cx<'_>) {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let Some(mut active) = self.actives.take(&key) else { continue };
            cx.about(key.shard());
            active.touched = false;
            self.pump(cx, &mut active);
            if active.is_done() {
                self.retire(cx, active);
            } else {
                self.actives.put_back(active);
            }
        }
        // Pumping may touch others (results of forwards do not), never while draining.
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    fn retire(&mut self, cx: &mut Cx<'_>, active: Box<Active>) {
        proposer::settle_ownership(cx, &active);
        cx.cells.unpin(&active.key);
        self.actives.end(active);
    }

    /// The only source of ballots. [spec 0.2, U2] `None`: the numbers are used up.
    fn mint(&mut self, cx: &mut Cx<'_>, key: &Key) -> Option<Ballot> {
        let promised = match cx.cells.get(key) {
            Cell::Present(register) => register.promised,
            Cell::Absent | Cell::Lost => Ballot::ZERO,
        };
        let epoch = cx.replicas.epoch();
        let meta = cx.metas.get_mut(key.shard());
        meta.saw(promised);
        if meta.number >= NUMBER_LIMIT {
            return None;
        }
        meta.number += 1;
        let incarnation = if mutation::is(Mutation::NoIncarnation) {
            types::Incarnation(0)
        } else {
            self.env.incarnation
        };
        Some(Ballot::new(epoch, meta.number, self.env.me, incarnation))
    }

    /// True where the own acceptor is asked without messages, and no more others than needed.
    fn takes_short_ways(&self) -> bool {
        #[cfg(test)]
        return !self.by_message;
        #[cfg(not(test))]
        true
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Ends an operation.
    fn answer(&mut self, cx: &mut Cx<'_>, operation: &Operation, mut outcome: Outcome) {
        if operation.doubtful && denies_effect(&outcome) {
            outcome = Outcome::Unknown;
        }
        if outcome == Outcome::Unknown {
            self.counters.unknowns += 1;
        }
        match operation.source {
            Source::Client(tag) => self.reply(cx, tag, outcome),
            Source::Forwarded { forward, index } => {
                self.on_forwarded_done(cx, forward, index, outcome);
            }
            Source::Expire(_) | Source::Collect | Source::Forget | Source::Answered => {}
        }
    }

    fn reply(&mut self, cx: &mut Cx<'_>, tag: Tag, outcome: Outcome) {
        cx.fx.reply(tag, outcome);
    }

    fn moment<'a>(cx: &Cx<'a>) -> acceptor::Moment<'a> {
        acceptor::Moment { now: cx.now, uptime: cx.uptime }
    }

    fn clock(cx: &mut Cx<'_>) -> types::Clock {
        types::Clock { unix: cx.unix, seed: cx.rng.next_u64() }
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: Peer, message: Message) {
        // A node that is no replica has no acceptor.
        if message.is_for_replicas() && !cx.replicas.set.has_me() {
            return;
        }
        match message {
            Message::Read { key, id, have } => self.on_read(cx, from, key, id, have),
            Message::Prepare { key, ballot, have } => self.on_prepare(cx, from, key, ballot, have),
            Message::Accept { key, round, chosen_k, state } => {
                let payload = Payload::Whole(state);
                self.on_accept(cx, from, key, acceptor::Proposal { round, chosen_k, payload });
            }
            Message::AcceptDelta { key, round, chosen_k, delta } => {
                let payload = Payload::Delta(delta);
                self.on_accept(cx, from, key, acceptor::Proposal { round, chosen_k, payload });
            }
            Message::PrepareAccept { key, round, base, payload } => {
                self.on_prepare_accept(cx, from, key, (round, base), payload);
            }
            Message::NeedFull { key, round } => self.on_need_full(cx, from, &key, round),
            Message::Repair { key, round, state } => self.on_repair(cx, from, key, round, state),
            Message::Remove { key, round } => self.on_remove(cx, key, round),
            Message::Chosen { key, round } => self.on_chosen(cx, &key, round),
            Message::State { key, id, report } => {
                if !self.on_explained(cx, from.node, id, &report) {
                    self.on_state(cx, from, &key, id, report);
                }
            }
            Message::Promise { key, ballot, report } => {
                self.on_promise(cx, from, &key, ballot, report);
            }
            Message::Accepted { key, round } => self.on_accepted(cx, from, &key, round),
            Message::Nack { key, tried, promised, recovering } => {
                self.on_nack(cx, from, &key, tried, promised, recovering);
            }
            Message::Forward { key, forward } => self.on_forward(cx, from, key, forward),
            Message::Forwarded { key, sequence, verdict } => {
                self.on_forwarded(cx, from, &key, sequence, verdict);
            }
            Message::Recover { key, id } => self.on_recover(cx, from, key, id),
            Message::Recovered { key, id, promised, report } => {
                self.on_recovered(cx, from, &key, id, promised, *report);
            }
            Message::List { shard, id, from_hash, limit } => {
                self.on_list(cx, from, shard, id, from_hash, limit);
            }
            Message::Want { key, have, insist } => {
                self.deliver_late(cx, key, from.node, have, insist);
            }
            Message::Older { key, round, floor, loss } => {
                self.on_older(cx, from, &key, rollback_detector::Past { round, floor, loss });
            }
            Message::OlderFloor { shard, floor, loss } => {
                self.on_older_floor(cx, shard, floor, loss);
            }
            Message::Compare { shard, id, range, floor, folds } => {
                self.on_compare(cx, from, shard, id, (range, floor), *folds);
            }
            Message::Compared { id, until, floor, buckets, entries, .. } => {
                self.on_compared(cx, from, id, (until, floor), (buckets, entries));
            }
            Message::Listed { shard, id, listing } => self.on_listed(cx, from, shard, id, listing),
            Message::Touch { key, due } => self.on_due(cx, key, due),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: TimerId) {
        match timer {
            retry::SWEEP => self.on_sweep(cx),
            deletion::COLLECT => self.on_collect_timer(cx),
            expiry::EXPIRE => self.on_expire_timer(cx),
            retry::BACK_OFF => self.on_back_off_timer(cx),
            recovery::RETRY => self.on_recovery_timer(cx),
            ranges::COMPARE => self.on_compare_timer(cx),
            patrol::PATROL => self.on_patrol_timer(cx),
            pending_repairs::REMIND => self.on_remind_timer(cx),
            other => unreachable!("{other:?} was never set"),
        }
    }

    fn on_due(&mut self, cx: &mut Cx<'_>, key: Key, due: message::Due) {
        match due {
            message::Due::Recover => self.on_recover_due(cx, &key),
            message::Due::Collect => self.on_collect_due(cx, key),
            message::Due::Expire => self.on_expire_due(cx, key),
            message::Due::Remind => self.on_remind_due(cx, &key),
            message::Due::Deliver { to, lower, insist } => {
                self.deliver_late(cx, key, to, lower, insist);
            }
        }
    }

    /// Why there was no quorum: this node may know.
    fn unavailable(&self, cx: &Cx<'_>, shard: Shard) -> Outcome {
        if cx.cells.is_forgotten(shard) { Outcome::Loading } else { Outcome::NoQuorum }
    }
}
