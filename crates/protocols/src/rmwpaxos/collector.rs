//! Collection of tombstones [spec 7.5]: never by age, only once every member has accepted that very tombstone.
//!
//! The node whose proposal left the tombstone collects it: an identity proposal that all members acknowledge exactly,
//! then `Remove` to all. What a restart forgot is found again by one slow pass over the registers.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Key, Shard};

use super::message::{Due, Message};
use super::operation::{Active, Operation, Source};
use super::{Cx, Register, RmwPaxos, proposer, serve};
use crate::effects::{Scan, TimerId};
use crate::mutation::{self, Mutation};
use crate::protocol::{Scanned, ScannedCell};

pub(super) const COLLECT: TimerId = TimerId(1);

/// A key that was deleted is often written again: no hurry.
const GRACE: Nanos = Nanos::from_secs(1);
const RETRY_MAX: Nanos = Nanos::from_secs(60);
/// Tombstones waited for at a time; a later pass finds the others.
const WAITING_MAX: usize = 262_144;
/// Collections started at a time.
const STARTED_MAX: usize = 256;
/// The pass looks at this many registers at a time.
const PASS_STEP: usize = 256;
const PASS_PAUSE: Nanos = Nanos::from_millis(250);

#[derive(Default)]
pub(super) struct Collector {
    waiting: BTreeMap<Key, Waiting>,
    due: BTreeMap<(Nanos, Key), ()>,
    armed: Option<Nanos>,
    pass: Pass,
}

struct Waiting {
    at: Nanos,
    tries: u32,
}

/// One walk over all registers in search of tombstones that nobody waits for.
#[derive(Default)]
struct Pass {
    /// Where to go on; `None` before the first pass and after the last.
    position: Option<u64>,
    started: bool,
    next_at: Nanos,
    pub scan: Option<u64>,
}

impl Collector {
    /// Tombstones that this node is to collect.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn wait(&mut self, key: &Key, at: Nanos, tries: u32) {
        if let Some(old) = self.waiting.insert(key.clone(), Waiting { at, tries }) {
            self.due.remove(&(old.at, key.clone()));
        }
        self.due.insert((at, key.clone()), ());
    }

    fn forget(&mut self, key: &Key) {
        if let Some(old) = self.waiting.remove(key) {
            self.due.remove(&(old.at, key.clone()));
        }
    }

    fn look_again(&mut self, now: Nanos, from_hash: Option<u64>) {
        let next_at = now + PASS_PAUSE;
        self.pass = Pass { position: from_hash, started: true, next_at, scan: None };
    }
}

impl RmwPaxos {
    pub(super) fn schedule_collection(&mut self, cx: &mut Cx<'_>, key: &Key) {
        if self.collector.waiting.contains_key(key) || self.collector.len() >= WAITING_MAX {
            return;
        }
        self.collector.wait(key, cx.now + GRACE, 0);
        self.arm_collector(cx);
    }

    /// It did not work this time.
    pub(super) fn collect_later(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let tries = self.collector.waiting.get(key).map_or(0, |waiting| waiting.tries) + 1;
        let pause = Nanos(GRACE.0 << tries.min(6)).min(RETRY_MAX);
        self.collector.wait(key, cx.now + pause, tries);
        self.arm_collector(cx);
    }

    pub(super) fn arm_collector(&mut self, cx: &mut Cx<'_>) {
        let first = self.collector.due.first_key_value().map(|((at, _), ())| *at);
        let pass = &self.collector.pass;
        // A scan under way arms the timer when it is answered.
        let is_waiting = pass.position.is_some() && pass.scan.is_none();
        let pass = is_waiting.then_some(pass.next_at);
        let Some(at) = [first, pass].into_iter().flatten().min() else { return };
        if self.collector.armed.is_none_or(|armed| at < armed) {
            self.collector.armed = Some(at);
            cx.fx.timer(COLLECT, at);
        }
    }

    pub(super) fn on_collect_timer(&mut self, cx: &mut Cx<'_>) {
        // An earlier timer may have replaced this one: only the newest arms another.
        if self.collector.armed.is_some_and(|armed| armed <= cx.now) {
            self.collector.armed = None;
        }
        self.go_on_with_pass(cx);
        let all_up = cx.view.members().iter().all(|member| member.up);
        for _ in 0..STARTED_MAX {
            let Some(((at, key), ())) = self.collector.due.pop_first() else { break };
            if at > cx.now {
                self.collector.due.insert((at, key), ());
                break;
            }
            if all_up {
                cx.fx.send_now(self.env.me, Message::Touch { key: key.clone(), due: Due::Collect });
            }
            self.collect_later(cx, &key);
        }
        self.arm_collector(cx);
    }

    pub(super) fn on_collect_due(&mut self, cx: &mut Cx<'_>, key: Key) {
        if serve::is_lost(cx, &key) {
            return;
        }
        if !serve::held(cx, &key).is_some_and(is_tombstone) {
            return self.collector.forget(&key);
        }
        let mut active = self.take_active(cx, &key);
        if !active.has_writes() && active.collecting.is_none() {
            active.queue.push_back(Operation::internal(Source::Collect, self.step));
        }
        self.put_active(active);
    }

    /// Everybody holds exactly this tombstone and nothing came after it: all may forget it.
    pub(super) fn settle_collection(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some(k) = active.collecting else { return };
        let overtaken = k != active.k;
        if overtaken {
            active.collecting = None;
            return;
        }
        let members = cx.view.members();
        let exact = members
            .iter()
            .zip(&active.acks)
            .filter(|(member, (acked, loss))| *acked == k && *loss >= member.loss)
            .count();
        let by_majority = mutation::is(Mutation::CollectByMajority)
            && proposer::acked(cx, active, k) >= cx.view.majority();
        if exact < members.len() && !by_majority {
            return;
        }
        base::sometimes!("a tombstone is collected");
        active.collecting = None;
        self.collector.forget(&active.key);
        let round = active.ballot.round(k);
        for node in cx.view.all() {
            cx.fx.send_now(node, Message::Remove { key: active.key.clone(), round });
        }
    }

    /// The first event of a process starts the pass.
    pub(super) fn start_first_pass(&mut self, cx: &mut Cx<'_>) {
        if !self.collector.pass.started {
            self.start_pass(cx);
        }
    }

    /// Looks for tombstones among all registers, once more.
    pub(super) fn start_pass(&mut self, cx: &mut Cx<'_>) {
        let from_hash = self.next_own_shard(0);
        self.collector.look_again(cx.now, from_hash);
        self.arm_collector(cx);
    }

    fn go_on_with_pass(&mut self, cx: &mut Cx<'_>) {
        let Some(from_hash) = self.collector.pass.position else { return };
        if cx.now < self.collector.pass.next_at || self.collector.pass.scan.is_some() {
            return;
        }
        let id = self.next_id();
        self.collector.pass.scan = Some(id);
        cx.fx.scan(Scan { id, from_hash, limit: PASS_STEP });
    }

    /// True when the scan was the pass's.
    pub(super) fn on_pass_scanned(&mut self, cx: &mut Cx<'_>, scanned: &Scanned<Register>) -> bool {
        if self.collector.pass.scan != Some(scanned.id) {
            return false;
        }
        self.collector.pass.scan = None;
        for (key, cell) in &scanned.records {
            let ScannedCell::Present(register) = cell else { continue };
            if is_tombstone(register) && self.should_collect(cx, register) {
                self.schedule_collection(cx, key);
            }
        }
        let from_hash = self.collector.pass.position.unwrap_or(0);
        self.collector.pass.position =
            scanned.next_hash.or_else(|| self.next_own_shard((from_hash >> 56) + 1));
        // Empty shards are passed quickly.
        let pause = if scanned.records.is_empty() { Nanos::from_millis(5) } else { PASS_PAUSE };
        self.collector.pass.next_at = cx.now + pause;
        self.arm_collector(cx);
        true
    }

    /// Where the first shard of this instance from `shard` on begins.
    fn next_own_shard(&self, shard: u64) -> Option<u64> {
        (shard..256).find(|shard| self.env.owns(Shard(*shard as u8))).map(|shard| shard << 56)
    }

    /// Whoever proposed it, or anybody while that node is away.
    fn should_collect(&self, cx: &Cx<'_>, register: &Register) -> bool {
        let node = register.accepted.ballot().node();
        node == self.env.me || cx.view.member(node).is_none_or(|member| !member.up)
    }
}

fn is_tombstone(register: &Register) -> bool {
    register.state.as_ref().is_some_and(|state| state.is_tombstone())
}
