//! Collection of tombstones [spec 7.5]: never by age, only once every member has accepted that very tombstone.
//!
//! The node whose proposal left the tombstone collects it: an identity proposal that all members acknowledge exactly,
//! then `Remove` to all. What a restart forgot, and what its proposer gave up, is found by the comparison of ranges
//! ([`super::ranges`]), and then collected by whoever found it.

use std::collections::BTreeMap;

use base::Nanos;
use types::{Key, NodeId};

use super::message::{Due, Message};
use super::operation::{Active, Operation, Source};
use super::{Cx, Register, RmwPaxos, proposer, serve, window};
use crate::effects::TimerId;
use crate::mutation::{self, Mutation};

pub(super) const COLLECT: TimerId = TimerId(1);

/// A key that was deleted is often written again: no hurry.
const GRACE: Nanos = Nanos::from_secs(1);
const RETRY_MAX: Nanos = Nanos::from_secs(60);
/// Tombstones waited for at a time; a later comparison finds the others.
const WAITING_MAX: usize = 262_144;
/// Collections started at a time.
const STARTED_MAX: usize = 256;
/// A tombstone that another node left is its own to collect for so long, and up to twice that.
const FOUND_AFTER: Nanos = Nanos::from_secs(5);

#[derive(Default, Debug)]
pub(super) struct Collector {
    waiting: BTreeMap<Key, Waiting>,
    due: BTreeMap<(Nanos, Key), ()>,
    armed: Option<Nanos>,
}

#[derive(Debug)]
struct Waiting {
    at: Nanos,
    tries: u32,
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
        let Some(at) = first else { return };
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
        let Some(register) = serve::held(cx, &key).filter(|it| is_tombstone(it)) else {
            return self.collector.forget(&key);
        };
        if !window::are_all_over(register, cx.uptime) && !mutation::is(Mutation::OnceCollected) {
            return;
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

    /// A comparison has met a tombstone. It is left to whoever proposed it, unless that node is away or does not collect
    /// it for long: it may have given up before it learned that the tombstone is chosen.
    pub(super) fn collect_found(&mut self, cx: &mut Cx<'_>, key: &Key, proposer: NodeId) {
        if self.collector.waiting.contains_key(key) || self.collector.len() >= WAITING_MAX {
            return;
        }
        let is_up = cx.view.member(proposer).is_some_and(|member| member.up);
        let pause = if proposer == self.env.me || !is_up {
            GRACE
        } else {
            self.counters.found += 1;
            FOUND_AFTER + Nanos(cx.rng.below(FOUND_AFTER.0))
        };
        self.collector.wait(key, cx.now + pause, 0);
        self.arm_collector(cx);
    }
}

fn is_tombstone(register: &Register) -> bool {
    register.state.as_ref().is_some_and(|state| state.is_tombstone())
}
