//! Collection of tombstones [spec 7.5]: never by age, only once every member has accepted that very
//! tombstone.
//!
//! The node whose proposal left the tombstone collects it. It makes an identity proposal that all
//! members acknowledge exactly. If the tombstone stays for a while, it sends `Remove` to all. The
//! identity proposal may have ended attempts of other proposers. Meanwhile these find out the fate
//! of their commands, which an absent register would not tell.
//!
//! A restart may forget a tombstone, and a proposer may give up on one. Anti-entropy
//! ([`crate::rmwpaxos::services::anti_entropy`]) finds those, and the node that finds one collects
//! it.
//!
//! Keys that remember commands wait here too, until half of their windows are over
//! ([`crate::rmwpaxos::once::window`]). Then a vote makes the replicas forget these commands even
//! if no client uses the key. A tombstone waits for all of its windows.

use std::collections::{BTreeMap, BTreeSet};

use base::{Millis, Nanos};
use types::{Ballot, Epoch, Key, NodeId, Round, Shard};

use crate::effects::TimerId;
use crate::mutation::{self, Mutation};
use crate::peers::Member;
use crate::rmwpaxos::context::{Cx, held, is_lost};
use crate::rmwpaxos::core::instance::Core;
use crate::rmwpaxos::message::{Due, Message};
use crate::rmwpaxos::once::window;
use crate::rmwpaxos::progress::counters::Figure;
use crate::rmwpaxos::progress::operation::Source;
use crate::rmwpaxos::record::register::Register;
use crate::rmwpaxos::record::state::State;

pub(crate) const COLLECT: TimerId = TimerId(1);

/// A deleted key is often written again, so collection is not urgent. Proposers back off for less.
const GRACE: Nanos = Nanos::from_secs(1);
const RETRY_MAX: Nanos = Nanos::from_secs(60);
/// Keys scheduled at a time. Shards without room are searched again later.
const WAITING_MAX: usize = 262_144;
/// Of these, keys that remember commands, which wait for long.
const REMEMBERING_MAX: usize = WAITING_MAX / 2;
/// A key is checked after this time even if its windows are longer.
const LOOK_AFTER_MAX: Millis = Millis(3_600_000);
/// Collections started at a time.
const STARTED_MAX: usize = 256;
/// How long another node may collect its own tombstone, and up to twice that.
const FOUND_AFTER: Nanos = Nanos::from_secs(5);

#[derive(Default, Debug)]
pub(crate) struct Deletion {
    waiting: BTreeMap<Key, Waiting>,
    due: BTreeMap<(Nanos, Key), ()>,
    /// Scheduled keys that remember commands.
    remembering: usize,
    /// Shards with keys that found no room.
    left_out: BTreeSet<Shard>,
    armed: Option<Nanos>,
    /// Tombstones of other nodes.
    found: Figure,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Nanos,
    tries: u32,
    remembers: bool,
    /// All members hold exactly this tombstone.
    held_by_all: Option<Round>,
}

impl Waiting {
    fn from(at: Nanos, remembers: bool) -> Waiting {
        Waiting { at, tries: 0, remembers, held_by_all: None }
    }
}

impl Deletion {
    /// Tombstones that this node will collect.
    pub(crate) fn tombstones(&self) -> usize {
        self.waiting.len() - self.remembering
    }

    /// Keys whose commands this node will have forgotten.
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

    /// Schedules the key, unless it is due earlier.
    fn wait_from(&mut self, key: &Key, at: Nanos, remembers: bool) {
        let is_full =
            self.waiting.len() >= WAITING_MAX || (remembers && self.remembering >= REMEMBERING_MAX);
        match self.waiting.get(key) {
            Some(waiting) if waiting.at <= at => {}
            None if is_full => _ = self.left_out.insert(key.shard()),
            _ => self.wait(key, Waiting::from(at, remembers)),
        }
    }
}

impl Deletion {
    /// Tombstones of other nodes that were found here.
    pub(crate) fn found(&self) -> u64 {
        self.found.get()
    }

    /// This node's proposal left a tombstone, or a table of commands. A node that is no replica
    /// leaves it to the replicas, which find it by comparison.
    pub(crate) fn schedule(&mut self, cx: &mut Cx<'_>, key: &Key, state: &State) {
        if !cx.replicas.set.has_me() {
            return;
        }
        let window = window::newest(state).filter(|_| !mutation::is(Mutation::OnceCollected));
        let after = window.map_or(GRACE, look_after);
        self.wait_from(key, cx.now + after, state.has_once());
        self.arm(cx);
    }

    /// Schedules the key again after a failed collection.
    pub(crate) fn collect_later(&mut self, cx: &mut Cx<'_>, key: &Key) {
        let old = self.waiting.get(key).copied().unwrap_or(Waiting::from(cx.now, false));
        let tries = old.tries + 1;
        let pause = Nanos(GRACE.0 << tries.min(6)).min(RETRY_MAX);
        self.wait(key, Waiting { at: cx.now + pause, tries, ..old });
        self.arm(cx);
    }

    fn arm(&mut self, cx: &mut Cx<'_>) {
        let first = self.due.first_key_value().map(|((at, _), ())| *at);
        let Some(at) = first else { return };
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            cx.fx.timer(COLLECT, at);
        }
    }

    /// Returns shards that had no room and have it now. They must be searched again.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) -> BTreeSet<Shard> {
        // An earlier timer may have replaced this one. Only the newest arms another.
        if self.armed.is_some_and(|armed| armed <= cx.now) {
            self.armed = None;
        }
        let me = cx.replicas.me();
        for _ in 0..STARTED_MAX {
            let Some(((at, key), ())) = self.due.pop_first() else { break };
            if at > cx.now {
                self.due.insert((at, key), ());
                break;
            }
            if cx.replicas_of(key.shard()).members().all(Member::is_in_reach) {
                cx.fx.send_now(me, Message::Touch { key: key.clone(), due: Due::Collect });
            }
            self.collect_later(cx, &key);
        }
        self.arm(cx);
        match self.waiting.len() <= WAITING_MAX / 4 {
            true => std::mem::take(&mut self.left_out),
            false => BTreeSet::new(),
        }
    }

    /// The register is resident.
    pub(crate) fn on_due(&mut self, core: &mut Core, cx: &mut Cx<'_>, key: &Key) {
        if is_lost(cx, key) {
            return;
        }
        let held = held(cx, key);
        let Some((register, state)) = held.and_then(|it| Some((it, leftover(it)?))) else {
            return self.forget(key);
        };
        let (is_tombstone, remembers) = (state.is_tombstone(), state.has_once());
        let (accepted, promised) = (register.accepted, register.promised);
        let proposer = accepted.ballot().node();
        let rest = window::rest(register, cx.uptime).filter(|rest| rest.0 > 0);
        if let Some(rest) = rest.filter(|_| !mutation::is(Mutation::OnceCollected)) {
            let at = cx.now + look_after(rest) + precedence(cx, proposer);
            self.wait(key, Waiting::from(at, true));
            return self.arm(cx);
        }
        match self.is_settled(cx.replicas.epoch(), key, (accepted, promised)) {
            Some(true) => return self.remove(cx, key, accepted),
            // Another node may collect it. Its turn comes first, or both would hinder each other.
            Some(false) => {
                let pause = precedence(cx, promised.node()).max(GRACE);
                let at = cx.now + pause + Nanos(cx.rng.below(GRACE.0));
                self.wait(key, Waiting::from(at, remembers));
                return self.arm(cx);
            }
            None => {}
        }
        match is_tombstone {
            true => core.propose_if_free(cx, key, Source::Collect),
            false => core.propose_internal(cx, key, Source::Forget),
        }
    }

    /// All members hold exactly this tombstone, and no proposal followed.
    pub(crate) fn on_held_by_all(&mut self, cx: &mut Cx<'_>, key: &Key, round: Round) {
        let waiting = Waiting::from(cx.now + GRACE, false);
        self.wait(key, Waiting { held_by_all: Some(round), ..waiting });
        self.arm(cx);
    }

    /// Whether no other proposal followed since all members held it, as far as this node knows.
    /// `None`: they do not hold it yet.
    fn is_settled(
        &mut self,
        epoch: Epoch,
        key: &Key,
        (accepted, promised): (Round, Ballot),
    ) -> Option<bool> {
        let held = self.waiting.get_mut(key)?.held_by_all.take()?;
        let ballot = held.ballot();
        Some(held == accepted && promised == ballot && ballot.epoch() == epoch)
    }

    /// All may forget this tombstone.
    fn remove(&mut self, cx: &mut Cx<'_>, key: &Key, round: Round) {
        base::sometimes!("a tombstone is collected");
        self.forget(key);
        for node in cx.replicas.all() {
            cx.fx.send_now(node, Message::Remove { key: key.clone(), round });
        }
    }

    /// Handles a tombstone that a comparison met. Its proposer collects it, unless that node is
    /// away or has not done so for long. It may have given up before it learned that the tombstone
    /// is chosen. The table of a live key is always left to its proposer, whose own comparisons
    /// meet it.
    pub(crate) fn on_found(&mut self, cx: &mut Cx<'_>, key: &Key, proposer: NodeId, state: &State) {
        let is_own = proposer == cx.replicas.me() || cx.replicas.index(proposer).is_none();
        if self.waiting.contains_key(key) || (!is_own && !state.is_tombstone()) {
            return;
        }
        let pause = precedence(cx, proposer);
        self.found.add(u64::from(pause > Nanos::ZERO));
        self.wait_from(key, cx.now + pause.max(GRACE), state.has_once());
        self.arm(cx);
    }
}

/// How long to leave a key to the proposer of its state.
fn precedence(cx: &mut Cx<'_>, proposer: NodeId) -> Nanos {
    let may_collect = cx.replicas.member(proposer).is_none_or(|member| member.up);
    match proposer == cx.replicas.me() || !may_collect {
        true => Nanos::ZERO,
        // Proposers that are no replicas collect no tombstones: one replica comes first.
        false => FOUND_AFTER + Nanos(cx.rng.below(FOUND_AFTER.0)),
    }
}

#[cfg(test)]
impl Deletion {
    fn others() -> impl Iterator<Item = Key> {
        (0..WAITING_MAX).map(|number| Key::new(format!("waiting-{number}").as_bytes()))
    }

    /// Schedules as many other keys as there is room for.
    pub(crate) fn fill(&mut self, at: Nanos) {
        Deletion::others().for_each(|key| self.wait_from(&key, at, false));
    }

    /// Removes them.
    pub(crate) fn make_room(&mut self) {
        Deletion::others().for_each(|key| self.forget(&key));
    }
}

fn look_after(window: Millis) -> Nanos {
    Nanos::from_millis(window.min(LOOK_AFTER_MAX).0)
}

/// A state that should not stay: a tombstone, or one that remembers commands.
pub(crate) fn leftover(register: &Register) -> Option<&State> {
    let is_left = |state: &&State| state.is_tombstone() || state.has_once();
    register.state.as_ref().filter(|state| !state.has_lock()).filter(is_left)
}
