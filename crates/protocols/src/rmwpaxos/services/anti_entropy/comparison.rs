//! One step of a comparison [spec 9.7]: the registers of one range of hashes, here and at the
//! members in question.
//!
//! The question holds one digest of (key, accepted round) per bucket. The answer lists the
//! registers of the buckets that differ. The holder of the higher round delivers its accept late.
//! The asker does so at once; another holder gets a `Want` first. A step reads its range by the
//! scans that serve listings, which make no register resident.

use std::collections::BTreeMap;

use base::Nanos;
use types::{AmnesiaCount, Ballot, Key, NodeId, Round, Shard, Ticket, Wire};

use super::patrol::Patrol;
use super::pending_repairs::{PendingRepairs, others_in_reach};
use super::ranges::{Ranges, own_place, replicated_shards};
use super::walk::{Question, Step};
use crate::effects::Scan;
use crate::mutation::{self, Mutation};
use crate::peers::{Member, Pace};
use crate::protocol::{Peer, Scanned, ScannedRegister};
use crate::replicas::Places;
use crate::rmwpaxos::context::{Cx, held, is_lost};
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::deletion::{self, Deletion};
use crate::rmwpaxos::message::{BUCKETS, Digests, Due, Held, Message};
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::progress::operation::Source;
use crate::rmwpaxos::record::register::Register;
use crate::rmwpaxos::services::lingering::Lingering;
use crate::rmwpaxos::services::rollback_detector::{Past, RollbackDetector};

/// Registers of one question.
pub(crate) const STEP: usize = 128;
/// Registers of one answer. A range with more needs several questions.
const ANSWER_MAX: usize = 2 * STEP;
const ANSWER_WITHIN: Nanos = Nanos::from_secs(1);
/// Repeats of a question, each after twice the time. Then a later walk takes over.
const RESENDS_MAX: u32 = 2;
/// Questions of others in progress. Further ones are dropped and asked again.
const ANSWERING_MAX: usize = 64;
/// A register changes soon if its owner is active.
const BUSY_FOR: Nanos = Nanos::from_millis(50);

/// Anti-entropy of one instance.
#[derive(Default, Debug)]
pub(crate) struct AntiEntropy {
    pub(crate) ranges: Ranges,
    pub(crate) patrol: Patrol,
    pub(crate) repairs: PendingRepairs,
    /// Questions of other members, by the number of their scan.
    answering: BTreeMap<u64, Answering>,
    pub(crate) figures: Figures,
}

/// The parts around a comparison that it uses.
pub(crate) struct Helpers<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) detector: &'a mut RollbackDetector,
    pub(crate) deletion: &'a mut Deletion,
    pub(crate) lingering: &'a mut Lingering,
}

/// Figures of comparisons.
#[derive(Default, Debug)]
pub(crate) struct Figures {
    pub(crate) shards_compared: Figure,
    pub(crate) shards_different: Figure,
    /// Registers read by walks.
    pub(crate) keys_compared: Figure,
    pub(crate) keys_different: Figure,
}

/// A question of another member, while its range is read.
#[derive(Debug)]
pub(crate) struct Answering {
    to: NodeId,
    /// Its amnesia count when it asked.
    amnesia: AmnesiaCount,
    id: u64,
    shard: Shard,
    range: (u64, Option<u64>),
    floor: Ballot,
    digests: Digests,
    began: Nanos,
}

fn bucket(key: &Key) -> usize {
    key.hash() as usize % BUCKETS
}

fn digests_of(held: &[Held]) -> Digests {
    let mut digests = [0_u64; BUCKETS];
    for it in held {
        let hash = base::checksum::checksum(it.key.hash(), &it.accepted.to_bytes());
        let sum = &mut digests[bucket(&it.key)];
        *sum = sum.wrapping_add(hash);
    }
    digests
}

fn is_below(key: &Key, until: Option<u64>) -> bool {
    until.is_none_or(|until| key.hash() < until)
}

/// The nearer of two ends; `None` is the end of the shard.
fn nearer(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    [one, other].into_iter().flatten().min()
}

/// The registers of a scan, and the keys of damaged records.
fn held_of(scanned: Scanned<Register>, until: Option<u64>) -> (Vec<Held>, Vec<Key>) {
    let (mut held, mut lost) = (Vec::new(), Vec::new());
    for (key, found) in scanned.records.into_iter().filter(|(key, _)| is_below(key, until)) {
        match found {
            ScannedRegister::Present(register) => {
                let Some(state) = &register.state else { continue };
                let (accepted, is_tombstone) = (register.accepted, state.is_tombstone());
                held.push(Held { key, accepted, is_tombstone });
            }
            ScannedRegister::Lost => lost.push(key),
        }
    }
    (held, lost)
}

impl AntiEntropy {
    /// On the first event of a process all shards are in doubt.
    pub(crate) fn start(&mut self, core: &Core, cx: &mut Cx<'_>) {
        if self.ranges.started.is_some() {
            return;
        }
        self.ranges.started = Some(cx.now);
        let set = cx.replicas.set;
        let shards: Vec<Shard> = replicated_shards(core.env(), cx).collect();
        for shard in shards {
            cx.about(shard);
            self.ranges.doubt(cx, shard, own_place(cx));
        }
        cx.replicas.set = set;
        self.patrol.start(core.env(), cx);
    }

    pub(crate) fn on_timer(&mut self, parts: &mut Helpers<'_>, cx: &mut Cx<'_>) {
        // An earlier timer may have replaced this one. Only the newest arms another.
        if !self.ranges.on_fired(cx) || mutation::is(Mutation::NoComparison) {
            return;
        }
        if self.ranges.walk.is_none() {
            self.ranges.start_walk(cx);
        }
        self.go_on_with_walk(parts.core, cx);
    }

    /// Ends a step: starts the next one, or ends the walk.
    fn end_step(&mut self, core: &mut Core, cx: &mut Cx<'_>, until: Option<u64>) {
        let is_in_hurry = self.patrol.is_behind();
        let Some(ended) = self.ranges.end_step(cx, until, is_in_hurry) else { return };
        self.figures.shards_compared.add(1);
        self.figures.shards_different.add(u64::from(ended.differs));
        self.patrol.found_equal(cx, ended.shard, ended.equal);
        self.raise_floor(core, cx, ended.shard, ended.floor);
    }

    /// Adopts the higher floor of a member that holds the same. So a floor that a medium lost
    /// unnoticed rises again.
    fn raise_floor(&mut self, core: &mut Core, cx: &mut Cx<'_>, shard: Shard, floor: Ballot) {
        let is_void = cx.cache.is_forgotten(shard) || cx.metas.get(shard).void;
        if is_void || mutation::is(Mutation::FloorsStay) {
            return;
        }
        if core.raise_floors(cx, shard, (floor, 0)) {
            base::sometimes!("a floor rises to that of a member that holds the same");
            self.ranges.on_raised(cx, shard);
        }
    }

    fn go_on_with_walk(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let scan = core.next_id();
        let Some(walk) = &mut self.ranges.walk else { return };
        cx.about(walk.shard);
        match &mut walk.step {
            Step::Pausing { until } if (*until).max(self.ranges.resting_until) > cx.now => {
                let until = (*until).max(self.ranges.resting_until);
                self.ranges.arm(cx, until);
            }
            Step::Pausing { .. } => {
                let from_hash = walk.from_hash;
                walk.step = Step::Scanning { scan, began: cx.now };
                self.ranges.last_question = scan;
                cx.fx.scan(Scan { id: scan, from_hash, limit: STEP });
            }
            Step::Scanning { .. } => {}
            Step::Asking(question) if question.deadline > cx.now => {
                let deadline = question.deadline;
                self.ranges.arm(cx, deadline);
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
                self.ranges.arm(cx, deadline);
            }
            Step::Asking(question) => {
                let (silent, until) = (question.awaited, question.until);
                walk.note_doubt(silent);
                self.end_step(core, cx, until);
            }
        }
    }

    /// True if the scan was for a comparison, of this node or another.
    pub(crate) fn on_scanned(
        &mut self,
        parts: &mut Helpers<'_>,
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
            self.ask_range(parts, cx, Scanned { id, records, next_hash }, began);
            return true;
        }
        let Some(answering) = self.answering.remove(&scanned.id) else { return false };
        let records = std::mem::take(&mut scanned.records);
        let (id, next_hash) = (scanned.id, scanned.next_hash);
        self.answer_range(parts, cx, answering, Scanned { id, records, next_hash });
        true
    }

    /// Asks the others after this node's part of the range is read.
    fn ask_range(
        &mut self,
        parts: &mut Helpers<'_>,
        cx: &mut Cx<'_>,
        scanned: Scanned<Register>,
        began: Nanos,
    ) {
        let (id, until) = (scanned.id, scanned.next_hash);
        let Some(shard) = self.ranges.walk.as_ref().map(|walk| walk.shard) else { return };
        cx.about(shard);
        for (key, found) in &scanned.records {
            note_found(parts, cx, key, found);
        }
        let (own, lost) = held_of(scanned, until);
        // A node with damaged records cannot claim to be equal. A floor that rose during the scan
        // may cover an accept behind it, and would deny that accept.
        let is_known = lost.is_empty()
            && !self.ranges.has_risen_since(shard, began)
            && !cx.cache.is_forgotten(shard)
            && !cx.metas.get(shard).void;
        let Some(walk) = &mut self.ranges.walk else { return };
        if !is_known {
            walk.note_doubt(Places::MAX);
        }
        let awaited = walk.with & others_in_reach(cx.replicas);
        // Members that left since the walk began are not asked.
        walk.note_doubt(!awaited & !own_place(cx));
        self.figures.keys_compared.add(own.len() as u64);
        let deadline = cx.now + ANSWER_WITHIN;
        let range = (walk.from_hash, until);
        let floor = cx.metas.get(shard).floor_ballot;
        let question = Question { id, own, floor, range, until, awaited, deadline, resends: 0 };
        walk.step = Step::Asking(question);
        recover_all(cx, lost);
        if awaited == 0 || !is_known {
            return self.end_step(parts.core, cx, until);
        }
        self.ask_awaited(cx);
        self.ranges.arm(cx, deadline);
    }

    /// Asks members that have not answered this step's question.
    fn ask_awaited(&self, cx: &mut Cx<'_>) {
        let Some(walk) = &self.ranges.walk else { return };
        let Step::Asking(question) = &walk.step else { return };
        let message = Message::Compare {
            shard: walk.shard,
            id: question.id,
            range: question.range,
            floor: question.floor,
            digests: Box::new(digests_of(&question.own)),
        };
        let awaited = question.awaited & others_in_reach(cx.replicas);
        let after = gate(cx, walk.shard, &question.own);
        for (index, member) in cx.replicas.members().enumerate() {
            if awaited & 1 << index != 0 {
                cx.fx.send(member.node, message.clone(), after);
            }
        }
    }

    /// Answers another member's question. A forgotten shard is silent, since it does not know which
    /// registers are absent.
    pub(crate) fn on_compare(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        from: Peer,
        (shard, id): (Shard, u64),
        (range, floor): ((u64, Option<u64>), Ballot),
        digests: Digests,
    ) {
        if cx.cache.is_forgotten(shard) || self.answering.len() >= ANSWERING_MAX {
            return;
        }
        let scan = core.next_id();
        self.answering.insert(
            scan,
            Answering {
                to: from.node,
                amnesia: from.amnesia,
                id,
                shard,
                range,
                floor,
                digests,
                began: cx.now,
            },
        );
        cx.fx.scan(Scan { id: scan, from_hash: range.0, limit: ANSWER_MAX });
    }

    fn answer_range(
        &mut self,
        parts: &mut Helpers<'_>,
        cx: &mut Cx<'_>,
        answering: Answering,
        scanned: Scanned<Register>,
    ) {
        let Answering { to, amnesia, id, shard, range: (from_hash, asked_until), .. } = answering;
        let Answering { floor, digests, began, .. } = answering;
        cx.about(shard);
        let is_stale = self.ranges.has_risen_since(shard, began);
        let until = nearer(asked_until, scanned.next_hash);
        let is_whole = until == asked_until;
        let (held, lost) = held_of(scanned, until);
        let is_lost = !lost.is_empty();
        recover_all(cx, lost);
        if is_stale || is_lost || cx.cache.is_forgotten(shard) || cx.metas.get(shard).void {
            return;
        }
        let after = gate(cx, shard, &held);
        let own = digests_of(&held);
        let differs = |bucket: usize| !is_whole || own[bucket] != digests[bucket];
        let buckets = (0..BUCKETS).filter(|&it| differs(it)).fold(0, |set, it| set | 1_u16 << it);
        let entries = held.into_iter().filter(|it| buckets & 1 << bucket(&it.key) != 0).collect();
        if let Some(member) = cx.replicas.index(to) {
            parts.detector.compare_floor(&mut self.ranges, cx, shard, (member, to), floor);
            // The digests miss a round that was accepted behind the scan.
            let is_still = !self.ranges.was_written_since(shard, began);
            let is_equal = buckets == 0 && is_still;
            if self.ranges.on_agreement(
                (member, amnesia, floor),
                shard,
                (from_hash, until),
                is_equal,
            ) {
                self.patrol.found_equal(cx, shard, 1 << member);
                if cx.metas.get(shard).floor_ballot < floor {
                    // Ask before adopting the floor: a member that remembers a higher one of this
                    // node says so first.
                    self.ranges.doubt(cx, shard, 1 << member);
                }
            }
        }
        let floor = cx.metas.get(shard).floor_ballot;
        cx.fx.send(to, Message::Compared { shard, id, until, floor, buckets, entries }, after);
    }

    pub(crate) fn on_compared(
        &mut self,
        parts: &mut Helpers<'_>,
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
        // The shortest answer bounds the step. The next question covers the rest.
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
        parts.detector.note_answer(shard, member, id);
        parts.detector.compare_floor(&mut self.ranges, cx, shard, (member, from.node), floor);
        for (key, (here, there)) in pairs {
            self.settle_difference(parts.detector, cx, (member, from.node), key, here, there);
        }
        if is_done {
            self.end_step(parts.core, cx, end);
        }
    }

    /// Has the holder of the higher round deliver it. A member without the register gets no
    /// tombstone: it has removed it, or the collection will.
    fn settle_difference(
        &mut self,
        detector: &mut RollbackDetector,
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
        self.figures.keys_different.add(1);
        if mine > theirs {
            let due = Due::Deliver { to: node, lower, insist };
            cx.fx.send_now(cx.replicas.me(), Message::Touch { key, due });
        } else if is_left_over
            || !mine.is_none()
            || !detector.tell_removed(&mut self.ranges, cx, node, (&key, theirs))
        {
            cx.fx.send_now(node, Message::Want { key, have: mine, insist });
        }
    }

    /// Delivers the state to a member that seems to hold the older round `lower`. If a delivery did
    /// not help, proposes it anew, because the member has promised a higher ballot.
    pub(crate) fn deliver_late(
        &mut self,
        parts: &mut Helpers<'_>,
        cx: &mut Cx<'_>,
        (key, lower): (Key, Round),
        to: NodeId,
        insist: bool,
    ) {
        if is_lost(cx, &key) {
            return;
        }
        let Some(register) = held(cx, &key).filter(|it| it.accepted > lower) else {
            return;
        };
        let Some(state) = register.state.clone() else { return };
        let round = register.accepted;
        let is_busy = parts.core.has_writes(&key)
            || (register.foreign_at > Nanos::ZERO && cx.now.since(register.foreign_at) < BUSY_FOR);
        if is_busy {
            return;
        }
        let is_left_over = state.is_tombstone() && lower.is_none();
        if is_left_over && !mutation::is(Mutation::RepairRemoved) {
            return parts.deletion.on_found(cx, &key, round.ballot().node(), &state);
        }
        if let Some(member) = cx.replicas.index(to)
            && let Some(amnesia) = self.ranges.was_held_with(key.shard(), member)
            && parts.detector.may_tell(cx, key.shard(), member)
        {
            let past = Past { round, floor: Ballot::ZERO, amnesia };
            return parts.detector.tell_older(&mut self.ranges, cx, key, (member, to), past);
        }
        let pace = cx.replicas.member(to).map_or(Pace::Steady, |member| member.pace);
        if !self.ranges.may_deliver(cx.now, key.shard(), (state.bytes().len(), pace)) {
            return;
        }
        parts.core.count_repair();
        if insist {
            base::sometimes!("a round refused for a promise is proposed anew");
            return parts.core.propose_internal(cx, &key, Source::Collect);
        }
        base::sometimes!("a comparison of ranges repairs a member");
        cx.fx.send_now(to, Message::Repair { key, round, state });
    }
}

/// Reports a leftover of a deletion or transaction, since its proposer may have given up on it.
fn note_found(
    parts: &mut Helpers<'_>,
    cx: &mut Cx<'_>,
    key: &Key,
    found: &ScannedRegister<Register>,
) {
    let ScannedRegister::Present(register) = found else { return };
    if let Some(state) = deletion::leftover(register) {
        parts.deletion.on_found(cx, key, register.accepted.ballot().node(), state);
    }
    let transient = parts.core.env().transient;
    if register.state.as_ref().is_some_and(|state| state.lingers(transient)) {
        parts.lingering.note(cx, key);
    }
}

/// An answer waits until its registers are durable, since the asker relies on it.
fn gate(cx: &Cx<'_>, shard: Shard, held: &[Held]) -> Ticket {
    let tickets = held.iter().map(|it| cx.cache.ticket(&it.key));
    tickets.max().unwrap_or(Ticket::DURABLE).max(cx.metas.ticket(shard))
}

/// Starts the recovery of damaged records.
fn recover_all(cx: &mut Cx<'_>, lost: Vec<Key>) {
    let me = cx.replicas.me();
    for key in lost {
        cx.fx.send_now(me, Message::Touch { key, due: Due::Recover });
    }
}
