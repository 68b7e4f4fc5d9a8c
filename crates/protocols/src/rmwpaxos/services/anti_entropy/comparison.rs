//! One step of a comparison [spec 9.7]: the registers of one range of hashes, here and at the members in question.
//!
//! The question holds a fold of (key, accepted round) for each of a few buckets; the answer lists the registers of the
//! buckets that differ. Whoever holds the higher round delivers its accept late: the asker at once, the other when it
//! is told that it is wanted. Reading the range goes through the scans that serve listings and makes nothing resident.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Ballot, Key, Loss, NodeId, Round, Shard, Ticket, Wire};

use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::peers::{Member, Pace};
use crate::protocol::{Peer, Scanned, ScannedCell};
use crate::replicas::Places;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::Register;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::{Active, Operation, Source};
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::message::{Due, Message};
use crate::rmwpaxos::services::anti_entropy::pending_repairs::others_in_reach;
use crate::rmwpaxos::services::anti_entropy::ranges::own_place;
use crate::rmwpaxos::services::rollback_detector::Past;

/// Registers that a step asks about.
pub(crate) const STEP: usize = 128;
/// Registers that an answer tells of: more than that is told in several.
const ANSWER_MAX: usize = 2 * STEP;
/// Parts of a range that are compared on their own.
pub const BUCKETS: usize = 16;
const ANSWER_WITHIN: Nanos = Nanos::from_secs(1);
/// A question is asked again so often, each time waiting twice as long; then the whole walk is left to a later one.
const RESENDS_MAX: u32 = 2;
/// Questions of others answered at a time; more are not answered, and asked again later.
const ANSWERING_MAX: usize = 64;
/// A register whose owner is at work is about to change.
const BUSY_FOR: Nanos = Nanos::from_millis(50);

/// A register as a comparison sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub key: Key,
    /// Never `Round::NONE`: a promise alone is not compared.
    pub accepted: Round,
    pub is_tombstone: bool,
}

/// Sums of hashes, one per bucket.
pub type Folds = [u64; BUCKETS];

/// Where a walk stands.
#[derive(Debug)]
pub(crate) enum Step {
    Pausing { until: Nanos },
    Scanning { scan: u64, began: Nanos },
    Asking(Question),
}

/// A range that members were asked about.
#[derive(Debug)]
pub(crate) struct Question {
    id: u64,
    own: Vec<Held>,
    /// It stands for what is not among them.
    floor: Ballot,
    range: (u64, Option<u64>),
    /// As far as all who have answered go.
    until: Option<u64>,
    awaited: Places,
    deadline: Nanos,
    resends: u32,
}

/// A question of another member, while its range is read.
#[derive(Debug)]
pub(crate) struct Answering {
    to: NodeId,
    /// What it had lost when it asked.
    loss: Loss,
    id: u64,
    shard: Shard,
    range: (u64, Option<u64>),
    floor: Ballot,
    folds: Folds,
    began: Nanos,
}

fn bucket(key: &Key) -> usize {
    key.hash() as usize % BUCKETS
}

fn fold(held: &[Held]) -> Folds {
    let mut folds = [0_u64; BUCKETS];
    for it in held {
        let hash = base::checksum::checksum(it.key.hash(), &it.accepted.to_bytes());
        let sum = &mut folds[bucket(&it.key)];
        *sum = sum.wrapping_add(hash);
    }
    folds
}

fn is_below(key: &Key, until: Option<u64>) -> bool {
    until.is_none_or(|until| key.hash() < until)
}

/// The nearer of two ends; `None` is the end of the shard.
fn nearer(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    [one, other].into_iter().flatten().min()
}

/// What a scan found, and the keys of damaged records.
fn held_of(scanned: Scanned<Register>, until: Option<u64>) -> (Vec<Held>, Vec<Key>) {
    let (mut held, mut lost) = (Vec::new(), Vec::new());
    for (key, cell) in scanned.records.into_iter().filter(|(key, _)| is_below(key, until)) {
        match cell {
            ScannedCell::Present(register) => {
                let Some(state) = &register.state else { continue };
                let (accepted, is_tombstone) = (register.accepted, state.is_tombstone());
                held.push(Held { key, accepted, is_tombstone });
            }
            ScannedCell::Lost => lost.push(key),
        }
    }
    (held, lost)
}

impl RmwPaxos {
    pub(crate) fn go_on_with_walk(&mut self, cx: &mut Cx<'_>) {
        let scan = self.next_id();
        let Some(walk) = &mut self.ranges.walk else { return };
        cx.about(walk.shard);
        match &mut walk.step {
            Step::Pausing { until } if (*until).max(self.ranges.resting_until) > cx.now => {
                let until = (*until).max(self.ranges.resting_until);
                self.arm_comparison(cx, until);
            }
            Step::Pausing { .. } => {
                walk.step = Step::Scanning { scan, began: cx.now };
                cx.fx.scan(Scan { id: scan, from_hash: walk.from_hash, limit: STEP });
            }
            Step::Scanning { .. } => {}
            Step::Asking(question) if question.deadline > cx.now => {
                let deadline = question.deadline;
                self.arm_comparison(cx, deadline);
            }
            Step::Asking(question)
                if question.resends < RESENDS_MAX
                    && question.awaited & others_in_reach(cx.replicas) != 0 =>
            {
                base::sometimes!("a comparison asks again");
                question.resends += 1;
                let deadline = cx.now + Nanos(ANSWER_WITHIN.0 << question.resends);
                question.deadline = deadline;
                self.ask_awaited(cx);
                self.arm_comparison(cx, deadline);
            }
            Step::Asking(question) => {
                let (silent, until) = (question.awaited, question.until);
                walk.note_doubt(silent);
                self.end_step(cx, until);
            }
        }
    }

    /// True when the scan was for a comparison, of this node's or another's.
    pub(crate) fn on_range_scanned(
        &mut self,
        cx: &mut Cx<'_>,
        scanned: &mut Scanned<Register>,
    ) -> bool {
        let began = self.ranges.walk.as_ref().and_then(|walk| match walk.step {
            Step::Scanning { scan, began } if scan == scanned.id => Some(began),
            _ => None,
        });
        if let Some(began) = began {
            let records = std::mem::take(&mut scanned.records);
            let (id, next_hash) = (scanned.id, scanned.next_hash);
            self.ask_range(cx, Scanned { id, records, next_hash }, began);
            return true;
        }
        let Some(answering) = self.answering.remove(&scanned.id) else { return false };
        let records = std::mem::take(&mut scanned.records);
        let (id, next_hash) = (scanned.id, scanned.next_hash);
        self.answer_range(cx, answering, Scanned { id, records, next_hash });
        true
    }

    /// This node's part of the range is read: asks the others.
    fn ask_range(&mut self, cx: &mut Cx<'_>, scanned: Scanned<Register>, began: Nanos) {
        let (id, until) = (scanned.id, scanned.next_hash);
        let Some(shard) = self.ranges.walk.as_ref().map(|walk| walk.shard) else { return };
        cx.about(shard);
        for (key, cell) in &scanned.records {
            self.note_found(cx, key, cell);
        }
        let (own, lost) = held_of(scanned, until);
        // Who does not know what it holds does not say that it holds the same. A floor that has risen meanwhile may cover what
        // was accepted behind the scan, and would deny that it is there.
        let is_known = lost.is_empty()
            && !self.ranges.has_risen_since(shard, began)
            && !cx.cells.is_forgotten(shard)
            && !cx.metas.get(shard).void;
        let Some(walk) = &mut self.ranges.walk else { return };
        if !is_known {
            walk.note_doubt(Places::MAX);
        }
        let awaited = walk.with & others_in_reach(cx.replicas);
        // Who went away since the walk began is not asked.
        walk.note_doubt(!awaited & !own_place(cx));
        self.counters.keys_compared += own.len() as u64;
        let deadline = cx.now + ANSWER_WITHIN;
        let range = (walk.from_hash, until);
        let floor = cx.metas.get(shard).floor_ballot;
        let question = Question { id, own, floor, range, until, awaited, deadline, resends: 0 };
        walk.step = Step::Asking(question);
        recover_all(cx, lost);
        if awaited == 0 || !is_known {
            return self.end_step(cx, until);
        }
        self.ask_awaited(cx);
        self.arm_comparison(cx, deadline);
    }

    /// Asks those who have not answered this step's question.
    fn ask_awaited(&self, cx: &mut Cx<'_>) {
        let Some(walk) = &self.ranges.walk else { return };
        let Step::Asking(question) = &walk.step else { return };
        let message = Message::Compare {
            shard: walk.shard,
            id: question.id,
            range: question.range,
            floor: question.floor,
            folds: Box::new(fold(&question.own)),
        };
        let awaited = question.awaited & others_in_reach(cx.replicas);
        let after = gate(cx, walk.shard, &question.own);
        for (index, member) in cx.replicas.members().enumerate() {
            if awaited & 1 << index != 0 {
                cx.fx.send(member.node, message.clone(), after);
            }
        }
    }

    /// Another member compares. A forgotten shard is silent: it cannot say what is not there.
    pub(crate) fn on_compare(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        shard: Shard,
        id: u64,
        (range, floor): ((u64, Option<u64>), Ballot),
        folds: Folds,
    ) {
        if cx.cells.is_forgotten(shard) || self.answering.len() >= ANSWERING_MAX {
            return;
        }
        let scan = self.next_id();
        self.answering.insert(
            scan,
            Answering {
                to: from.node,
                loss: from.loss,
                id,
                shard,
                range,
                floor,
                folds,
                began: cx.now,
            },
        );
        cx.fx.scan(Scan { id: scan, from_hash: range.0, limit: ANSWER_MAX });
    }

    fn answer_range(&mut self, cx: &mut Cx<'_>, answering: Answering, scanned: Scanned<Register>) {
        let Answering { to, loss, id, shard, range: (from_hash, asked_until), .. } = answering;
        let Answering { floor, folds, began, .. } = answering;
        cx.about(shard);
        let is_stale = self.ranges.has_risen_since(shard, began);
        let until = nearer(asked_until, scanned.next_hash);
        let is_whole = until == asked_until;
        let (held, lost) = held_of(scanned, until);
        let is_lost = !lost.is_empty();
        recover_all(cx, lost);
        if is_stale || is_lost || cx.cells.is_forgotten(shard) || cx.metas.get(shard).void {
            return;
        }
        let after = gate(cx, shard, &held);
        let own = fold(&held);
        let differs = |bucket: usize| !is_whole || own[bucket] != folds[bucket];
        let buckets = (0..BUCKETS).filter(|&it| differs(it)).fold(0, |set, it| set | 1_u16 << it);
        let entries = held.into_iter().filter(|it| buckets & 1 << bucket(&it.key) != 0).collect();
        if let Some(member) = cx.replicas.index(to) {
            self.compare_floor(cx, shard, (member, to), floor);
            // What was accepted behind the scan is nothing that the asker was found to hold.
            let is_still = !self.ranges.was_written_since(shard, began);
            let is_equal = buckets == 0 && is_still;
            if self.ranges.on_agreement((member, loss, floor), shard, (from_hash, until), is_equal)
            {
                self.patrol_found_equal(cx, shard, 1 << member);
                if cx.metas.get(shard).floor_ballot < floor {
                    // It rises when this node asks: who remembers that it was higher says so first.
                    self.doubt(cx, shard, 1 << member);
                }
            }
        }
        let floor = cx.metas.get(shard).floor_ballot;
        cx.fx.send(to, Message::Compared { shard, id, until, floor, buckets, entries }, after);
    }

    pub(crate) fn on_compared(
        &mut self,
        cx: &mut Cx<'_>,
        from: Peer,
        id: u64,
        (until, floor): (Option<u64>, Ballot),
        (buckets, entries): (u16, Vec<Held>),
    ) {
        let Some(member) = cx.replicas.index(from.node) else { return };
        let Some(walk) = &mut self.ranges.walk else { return };
        let Step::Asking(question) = &mut walk.step else { return };
        if question.id != id || question.awaited & 1 << member == 0 {
            return;
        }
        question.awaited &= !(1 << member);
        walk.floors[member] = walk.floors[member].min(floor);
        let shard = walk.shard;
        // The one that tells least far sets the pace: the rest is asked about again.
        question.until = nearer(question.until, until);
        let is_compared = |held: &&Held| buckets & 1 << bucket(&held.key) != 0;
        let own = question.own.iter().filter(is_compared).filter(|it| is_below(&it.key, until));
        let mut pairs: BTreeMap<Key, (Option<Held>, Option<Held>)> = BTreeMap::new();
        for held in own {
            pairs.entry(held.key.clone()).or_default().0 = Some(held.clone());
        }
        for held in entries.into_iter().filter(|it| is_below(&it.key, until)) {
            let pair = pairs.entry(held.key.clone()).or_default();
            pair.1 = Some(held);
        }
        let (is_done, end) = (question.awaited == 0, question.until);
        self.note_answer(shard, member, id);
        self.compare_floor(cx, shard, (member, from.node), floor);
        for (key, (here, there)) in pairs {
            self.settle_difference(cx, (member, from.node), key, here, there);
        }
        if is_done {
            self.end_step(cx, end);
        }
    }

    /// Who holds the higher round delivers it. A tombstone is delivered to nobody who holds nothing: it was removed
    /// there, or it will be by its collection.
    fn settle_difference(
        &mut self,
        cx: &mut Cx<'_>,
        (member, node): (usize, NodeId),
        key: Key,
        here: Option<Held>,
        there: Option<Held>,
    ) {
        let round = |held: &Option<Held>| held.as_ref().map_or(Round::NONE, |it| it.accepted);
        let (mine, theirs) = (round(&here), round(&there));
        let Some(walk) = self.ranges.walk.as_mut().filter(|_| mine != theirs) else { return };
        let insist = walk.insist && cx.replicas.member(node).is_some_and(Member::is_steady);
        let (higher, lower) = if mine > theirs { (&here, theirs) } else { (&there, mine) };
        let is_left_over = lower.is_none() && higher.as_ref().is_some_and(|it| it.is_tombstone);
        if !is_left_over || mutation::is(Mutation::RepairRemoved) {
            walk.note_difference(member);
        } else {
            walk.note_left_over(member);
        }
        self.counters.keys_different += 1;
        if mine > theirs {
            let due = Due::Deliver { to: node, lower, insist };
            cx.fx.send_now(self.env.me, Message::Touch { key, due });
        } else if is_left_over || !mine.is_none() || !self.tell_removed(cx, node, &key, theirs) {
            cx.fx.send_now(node, Message::Want { key, have: mine, insist });
        }
    }

    /// A member holds `lower` and this one more, it seems: delivers what is held, or proposes it anew where that did not
    /// help, for the member has promised more than the round is worth.
    pub(crate) fn deliver_late(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        to: NodeId,
        lower: Round,
        insist: bool,
    ) {
        if replies::is_lost(cx, &key) {
            return;
        }
        let Some(register) = replies::held(cx, &key).filter(|it| it.accepted > lower) else {
            return;
        };
        let Some(state) = register.state.clone() else { return };
        let round = register.accepted;
        let is_busy = self.actives.get(&key).is_some_and(Active::has_writes)
            || (register.foreign_at > Nanos::ZERO && cx.now.since(register.foreign_at) < BUSY_FOR);
        if is_busy {
            return;
        }
        let is_left_over = state.is_tombstone() && lower.is_none();
        if is_left_over && !mutation::is(Mutation::RepairRemoved) {
            return self.collect_found(cx, &key, round.ballot().node(), &state);
        }
        if let Some(member) = cx.replicas.index(to)
            && let Some(loss) = self.ranges.was_held_with(key.shard(), member)
            && self.may_tell(cx, key.shard(), member)
        {
            let past = Past { round, floor: Ballot::ZERO, loss };
            return self.tell_older(cx, key, (member, to), past);
        }
        let pace = cx.replicas.member(to).map_or(Pace::Steady, |member| member.pace);
        if !self.ranges.may_deliver(cx.now, key.shard(), (state.bytes().len(), pace)) {
            return;
        }
        self.counters.repairs += 1;
        if insist {
            base::sometimes!("what a member refuses for its promise is proposed anew");
            let mut active = self.take_active(cx, &key);
            active.queue.push_back(Operation::internal(Source::Collect, self.step));
            return self.put_active(active);
        }
        base::sometimes!("a comparison of ranges repairs a member");
        cx.fx.send_now(to, Message::Repair { key, round, state });
    }
}

/// What is said of registers waits until it is durable: whoever hears it counts on it.
fn gate(cx: &Cx<'_>, shard: Shard, held: &[Held]) -> Ticket {
    let tickets = held.iter().map(|it| cx.cells.ticket(&it.key));
    tickets.max().unwrap_or(Ticket::DURABLE).max(cx.metas.ticket(shard))
}

/// Damaged records are recovered when they are touched.
fn recover_all(cx: &mut Cx<'_>, lost: Vec<Key>) {
    let me = cx.replicas.me();
    for key in lost {
        cx.fx.send_now(me, Message::Touch { key, due: Due::Recover });
    }
}
