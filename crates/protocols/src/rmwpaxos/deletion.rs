//! Collection of tombstones [spec 7.5]: never by age, only once every member has accepted that very tombstone.
//!
//! The node whose proposal left the tombstone collects it: an identity proposal that all members acknowledge exactly,
//! then `Remove` to all. What a restart forgot, and what its proposer gave up, is found by the comparison of ranges
//! ([`crate::rmwpaxos::services::anti_entropy::ranges`]), and then collected by whoever found it.
//!
//! Keys that remember commands wait here too, until the windows of half of these are over ([`crate::rmwpaxos::once::window`]): a vote
//! then has them forgotten though nobody asks for the key. A tombstone waits for all of them.

use std::collections::{BTreeMap, BTreeSet};

use base::{Millis, Nanos};
use types::{Key, NodeId, Shard};

use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::rmwpaxos::Cx;
use crate::rmwpaxos::Register;
use crate::rmwpaxos::RmwPaxos;
use crate::rmwpaxos::core::operation::{Active, Operation, Source};
use crate::rmwpaxos::core::replies;
use crate::rmwpaxos::core::state::State;
use crate::rmwpaxos::message::{Due, Message};
use crate::rmwpaxos::once::window;
use crate::rmwpaxos::services::anti_entropy::ranges::own_place;

pub(crate) const COLLECT: TimerId = TimerId(1);

/// A key that was deleted is often written again: no hurry.
const GRACE: Nanos = Nanos::from_secs(1);
const RETRY_MAX: Nanos = Nanos::from_secs(60);
/// Keys waited for at a time. Shards of others are searched again when there is room.
const WAITING_MAX: usize = 262_144;
/// Of these, keys that remember commands: they wait for long.
const REMEMBERING_MAX: usize = WAITING_MAX / 2;
/// A key is looked at again after this however long its windows are.
const LOOK_AFTER_MAX: Millis = Millis(3_600_000);
/// Collections started at a time.
const STARTED_MAX: usize = 256;
/// A tombstone that another node left is its own to collect for so long, and up to twice that.
const FOUND_AFTER: Nanos = Nanos::from_secs(5);

#[derive(Default, Debug)]
pub(crate) struct Collector {
    waiting: BTreeMap<Key, Waiting>,
    due: BTreeMap<(Nanos, Key), ()>,
    /// Of those that wait, keys that remember commands.
    remembering: usize,
    /// Shards of keys for which there was no room.
    left_out: BTreeSet<Shard>,
    armed: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Nanos,
    tries: u32,
    remembers: bool,
}

impl Collector {
    /// Tombstones that this node is to collect.
    pub(crate) fn tombstones(&self) -> usize {
        self.waiting.len() - self.remembering
    }

    /// Keys that remember commands, which this node is to have forgotten.
    pub(crate) fn remembering(&self) -> usize {
        self.remembering
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.left_out.is_empty()
    }

    fn wait(&mut self, key: &Key, waiting: Waiting) {
        self.forget(key);
        self.remembering += usize::from(waiting.remembers);
        self.waiting.insert(key.clone(), waiting);
        self.due.insert((waiting.at, key.clone()), ());
    }

    fn forget(&mut self, key: &Key) {
        if let Some(old) = self.waiting.remove(key) {
            self.remembering -= usize::from(old.remembers);
            self.due.remove(&(old.at, key.clone()));
        }
    }

    /// Waits, unless the key is looked at earlier as it is.
    fn wait_from(&mut self, key: &Key, at: Nanos, remembers: bool) {
        let is_full =
            self.waiting.len() >= WAITING_MAX || (remembers && self.remembering >= REMEMBERING_MAX);
        match self.waiting.get(key) {
            Some(waiting) if waiting.at <= at => {}
            None if is_full => _ = self.left_out.insert(key.shard()),
            _ => self.wait(key, Waiting { at, tries: 0, remembers }),
        }
    }
}

impl RmwPaxos {
    /// This node's proposal left a tombstone, or a state that is to be forgotten one day. A node
    /// that is no replica leaves it to the replicas, which meet it when they compare.
    pub(crate) fn schedule_collection(&mut self, cx: &mut Cx<'_>, key: &Key, state: &State) {
        if !cx.replicas.set.has_me() {
            return;
        }
        let window = window::newest(state).filter(|_| !mutation::is(Mutation::OnceCollected));
        let after = window.map_or(GRACE, look_after);
        self.collector.wait_from(key, cx.now + after, state.has_once());
        self.arm_collector(cx);
    }

    /// It did not work this time.
    pub(crate) fn collect_later(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let waiting = self.collector.waiting.get(key);
        let tries = waiting.map_or(0, |waiting| waiting.tries) + 1;
        let remembers = waiting.is_some_and(|waiting| waiting.remembers);
        let pause = Nanos(GRACE.0 << tries.min(6)).min(RETRY_MAX);
        self.collector.wait(key, Waiting { at: cx.now + pause, tries, remembers });
        self.arm_collector(cx);
    }

    pub(crate) fn arm_collector(&mut self, cx: &mut Cx<'_>) {
        let first = self.collector.due.first_key_value().map(|((at, _), ())| *at);
        let Some(at) = first else { return };
        if self.collector.armed.is_none_or(|armed| at < armed) {
            self.collector.armed = Some(at);
            cx.fx.timer(COLLECT, at);
        }
    }

    pub(crate) fn on_collect_timer(&mut self, cx: &mut Cx<'_>) {
        // An earlier timer may have replaced this one: only the newest arms another.
        if self.collector.armed.is_some_and(|armed| armed <= cx.now) {
            self.collector.armed = None;
        }
        for _ in 0..STARTED_MAX {
            let Some(((at, key), ())) = self.collector.due.pop_first() else { break };
            if at > cx.now {
                self.collector.due.insert((at, key), ());
                break;
            }
            if cx.replicas_of(key.shard()).members().all(Member::is_in_reach) {
                cx.fx.send_now(self.env.me, Message::Touch { key: key.clone(), due: Due::Collect });
            }
            self.collect_later(cx, &key);
        }
        if self.collector.waiting.len() <= WAITING_MAX / 4 {
            for shard in std::mem::take(&mut self.collector.left_out) {
                cx.about(shard);
                self.doubt(cx, shard, own_place(cx));
            }
        }
        self.arm_collector(cx);
    }

    pub(crate) fn on_collect_due(&mut self, cx: &mut Cx<'_>, key: Key) {
        if replies::is_lost(cx, &key) {
            return;
        }
        let held = replies::held(cx, &key);
        let Some((register, state)) = held.and_then(|it| Some((it, leftover(it)?))) else {
            return self.collector.forget(&key);
        };
        let (is_tombstone, proposer) = (state.is_tombstone(), register.accepted.ballot().node());
        let rest = window::rest(register, cx.uptime).filter(|rest| rest.0 > 0);
        if let Some(rest) = rest.filter(|_| !mutation::is(Mutation::OnceCollected)) {
            let at = cx.now + look_after(rest) + self.precedence(cx, proposer);
            self.collector.wait(&key, Waiting { at, tries: 0, remembers: true });
            return self.arm_collector(cx);
        }
        let mut active = self.take_active(cx, &key);
        let is_free = !active.has_writes() && active.collecting.is_none();
        if is_tombstone && is_free {
            active.queue.push_back(Operation::internal(Source::Collect, self.step));
        } else if !is_tombstone {
            active.queue.push_back(Operation::internal(Source::Forget, self.step));
        }
        self.put_active(active);
    }

    /// How long to leave a key to the node that proposed what it holds.
    fn precedence(&self, cx: &mut Cx<'_>, proposer: NodeId) -> Nanos {
        let may_collect = cx.replicas.member(proposer).is_none_or(|member| member.up);
        match proposer == self.env.me || !may_collect {
            true => Nanos::ZERO,
            // Proposers that are no replicas collect no tombstones: one replica comes first.
            false => FOUND_AFTER + Nanos(cx.rng.below(FOUND_AFTER.0)),
        }
    }

    /// Everybody holds exactly this tombstone and nothing came after it: all may forget it.
    pub(crate) fn settle_collection(&mut self, cx: &mut Cx<'_>, active: &mut Active) {
        let Some(k) = active.collecting else { return };
        let overtaken = k != active.k;
        if overtaken {
            active.collecting = None;
            return;
        }
        let replicas = cx.replicas;
        let is_held_by_all = replicas.set.is_all_of(active.acks.exactly(replicas, k));
        let by_majority = mutation::is(Mutation::CollectByMajority)
            && replicas.set.is_quorum_of(active.acks.at_least(replicas, k));
        if !is_held_by_all && !by_majority {
            return;
        }
        base::sometimes!("a tombstone is collected");
        active.collecting = None;
        self.collector.forget(&active.key);
        let round = active.ballot.round(k);
        for node in cx.replicas.all() {
            cx.fx.send_now(node, Message::Remove { key: active.key.clone(), round });
        }
    }

    /// A comparison has met a tombstone. It is left to whoever proposed it, unless that node is away or does not collect
    /// it for long: it may have given up before it learned that the tombstone is chosen. What a live key remembers is
    /// left to that node for good, which meets it when it compares.
    pub(crate) fn collect_found(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Key,
        proposer: NodeId,
        state: &State,
    ) {
        let is_own = proposer == self.env.me || cx.replicas.index(proposer).is_none();
        if self.collector.waiting.contains_key(key) || (!is_own && !state.is_tombstone()) {
            return;
        }
        let pause = self.precedence(cx, proposer);
        self.counters.found += u64::from(pause > Nanos::ZERO);
        self.collector.wait_from(key, cx.now + pause.max(GRACE), state.has_once());
        self.arm_collector(cx);
    }
}

#[cfg(test)]
impl Collector {
    fn others() -> impl Iterator<Item = Key> {
        (0..WAITING_MAX).map(|number| Key::new(format!("waiting-{number}").as_bytes()))
    }

    /// As many other keys wait as there is room for.
    pub(crate) fn fill(&mut self, at: Nanos) {
        Collector::others().for_each(|key| self.wait_from(&key, at, false));
    }

    /// They wait no more.
    pub(crate) fn make_room(&mut self) {
        Collector::others().for_each(|key| self.forget(&key));
    }
}

fn look_after(window: Millis) -> Nanos {
    Nanos::from_millis(window.min(LOOK_AFTER_MAX).0)
}

/// What should not stay: a tombstone, or a state that remembers commands.
pub(crate) fn leftover(register: &Register) -> Option<&State> {
    register.state.as_ref().filter(|state| state.is_tombstone() || state.has_once())
}
