//! Schedules made for single mistakes. Each holds without them.

use super::World;
use super::node::Plan;
use super::order::Do;
use crate::protocol::Protocol as _;
use crate::zab::Meta;
use types::{Outcome, Shard, Tag};

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;
pub(super) const SESSION: u64 = 7;

pub(super) const PLAN: Plan = Plan { nodes: 3, workers: 1, durable: true, log_len: 1 << 20 };

impl World {
    /// Three nodes, whose leader is the first.
    pub(super) fn led(plan: Plan) -> World {
        let mut world = World::new(plan);
        assert!(world.pass_until(|world| world.serves(&[A, B, C])), "all follow the first");
        world
    }

    pub(super) fn meta(&self, index: usize) -> Meta {
        *self.nodes[index].workers[0].metas.get(Shard(0))
    }

    /// All of these have joined the same epoch, and no more is open there.
    pub(super) fn serves(&self, nodes: &[usize]) -> bool {
        let epoch = self.meta(nodes[0]).current;
        nodes.iter().all(|&at| {
            let is_idle = self.nodes[at].workers.iter().all(|it| it.protocol.is_idle());
            self.nodes[at].is_up && self.meta(at).current == epoch && is_idle
        })
    }

    /// The node that founded the epoch of this one.
    pub(super) fn leader(&self, of: usize) -> usize {
        self.meta(of).current.node as usize - 1
    }

    /// A request that ends with a reply.
    pub(super) fn done(&mut self, at: usize, key: usize, what: Do) -> Tag {
        let tag = self.ask(at, SESSION, key, what);
        self.settle(&[tag]);
        assert!(self.fault.is_some() || self.is_answered(tag), "{tag:?} is answered");
        tag
    }

    /// Messages with this text between the nodes wait, in both directions.
    pub(super) fn hold_between(&mut self, one: usize, other: usize) {
        self.held.extend([(one, other, ""), (other, one, "")]);
    }

    pub(super) fn release_between(&mut self, one: usize, other: usize) {
        self.held.retain(|&(from, to, _)| (from, to) != (one, other) && (from, to) != (other, one));
    }

    /// Messages on their way between two nodes are lost.
    pub(super) fn lose_between(&mut self, one: usize, other: usize) {
        self.take(one, other, "");
        self.take(other, one, "");
    }

    pub(super) fn is_sent(&self, from: usize, to: usize, part: &str) -> bool {
        self.bag.iter().any(|letter| letter.goes(from, to) && letter.has(part))
    }

    /// Takes the messages from one node to another whose text has this part.
    pub(super) fn take(&mut self, from: usize, to: usize, part: &str) -> Vec<super::Letter> {
        self.bag.extract_if(.., |letter| letter.goes(from, to) && letter.has(part)).collect()
    }
}

/// A node promised an epoch, and lost its memory. The leader of an earlier one goes on with it,
/// while that of the later one counts the promise.
pub(in super::super) fn promise_that_was_forgotten() -> Result<(), String> {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    // B founds an epoch with C, whose history it lacks no part of. A does not notice.
    world.hold_between(A, B);
    world.hold_between(A, C);
    world.held.push((B, C, "Sync {"));
    for (one, other) in [(B, A), (C, A)] {
        world.reset_one(one, other, false);
    }
    assert!(world.pass_until(|world| world.meta(C).accepted.node == 2), "C promises");
    world.drain();
    world.lose_between(B, C);
    world.hold_between(B, C);
    world.kill(C, 0, 0);
    world.start_empty(C);
    world.take(A, C, "");
    world.release_between(A, C);
    let write = world.ask(A, SESSION, 0, Do::Append);
    world.pass(100);
    if world.is_answered(write) {
        world.hold_between(A, C);
        world.reset_one(C, A, false);
        world.kill(A, 9, u64::MAX);
        world.release_between(B, C);
        world.pass(2_000);
        world.done(B, 0, Do::ReadLast);
    }
    world.judge()
}

/// A leader took a write, and no other node has it. The others go on without it, and the write's
/// worker sends it again. Then the former leader founds an epoch with that worker's node, of which
/// it heard before.
pub(in super::super) fn history_that_was_left_behind() -> Result<(), String> {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.held.extend([(A, B, "Propose"), (A, C, "Propose")]);
    let write = world.ask(C, SESSION, 0, Do::Append);
    world.drain();
    for other in [B, C] {
        world.lose_between(A, other);
        world.hold_between(A, other);
        world.reset_one(other, A, false);
    }
    let early = world.take(C, A, "is_looking: true").into_iter().next().expect("C looks");
    world.held.push((C, B, "Write {"));
    assert!(world.pass_until(|world| world.leader(B) == B && world.leader(C) == B), "B leads");
    world.pass(50);
    world.take(C, B, "Write {");
    world.hold_between(B, C);
    world.pass(400);
    // The former leader hears of that epoch, and only of that.
    world.lose_between(A, B);
    world.held.retain(|&(from, to, _)| (from, to) != (B, A));
    world.pass(30);
    world.hold_between(B, A);
    world.pass(150);
    world.lose_between(A, C);
    world.release_between(A, C);
    world.held.extend([(C, A, "Look"), (A, C, "Look")]);
    world.deliver(early);
    world.pass(100);
    world.settle(&[write]);
    world.judge()
}

/// A follower has the leader's history, and has not noted its epoch durably. It acknowledges an
/// entry that no other has.
pub(in super::super) fn acknowledgement_before_joining() -> Result<(), String> {
    let mut world = World::new(PLAN);
    world.hold_between(A, C);
    world.hold_between(B, C);
    assert!(world.pass_until(|world| world.serves(&[A, B])), "A leads");
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.held.push((A, B, "Propose"));
    let write = world.ask(A, SESSION, 0, Do::Append);
    world.drain();
    world.lose_between(A, C);
    world.unflushed.insert(C);
    world.release_between(A, C);
    let is_syncing =
        |world: &World| world.meta(C).accepted.node == 1 && world.nodes[C].flushes() > 0;
    assert!(world.pass_until(is_syncing), "C promises");
    // Its promise, then the entries. Not the epoch.
    for _ in 0..20 {
        world.pass(5);
        if world.meta(C).current.node == 1 {
            break;
        }
        world.flush(C, 0);
    }
    assert_eq!(world.meta(C).current.node, 1, "C notes the epoch");
    let stored = world.nodes[C].workers[0].stored.meta;
    assert!(stored.is_none_or(|meta| meta.current.node == 0), "not durably");
    world.pass(100);
    if world.is_answered(write) {
        world.kill(A, 9, u64::MAX);
        world.kill(C, 0, 0);
        world.bag.clear();
        world.held.clear();
        world.unflushed.clear();
        world.start(C, 0);
        world.pass(1_000);
        world.done(B, 0, Do::ReadLast);
    }
    world.judge()
}

/// The others make an epoch stand before its leader, which hears late of its own log. Then an entry
/// is at the leader and at one of them.
pub(in super::super) fn leader_behind_its_epoch() -> Result<(), String> {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.unflushed.insert(A);
    world.ask(A, SESSION, 0, Do::Append);
    world.drain();
    world.slow.insert((A, 0));
    world.unflushed.clear();
    world.drain();
    let pairs = [(A, B), (A, C), (B, C)];
    pairs.into_iter().for_each(|(one, other)| world.hold_between(one, other));
    world.pass(400);
    pairs.into_iter().for_each(|(one, other)| world.lose_between(one, other));
    world.held.clear();
    let has_joined = |world: &World, node| world.meta(node).current.counter > 1;
    assert!(world.pass_until(|world| has_joined(world, B) && has_joined(world, C)));
    assert!(!has_joined(&world, A), "the leader has not noted its epoch");
    world.slow.clear();
    world.pass(20);
    world.held.push((A, C, "Propose"));
    world.done(A, 0, Do::Append);
    world.kill(A, 9, u64::MAX);
    world.kill(B, 9, u64::MAX);
    world.bag.clear();
    world.held.clear();
    world.start(A, 0);
    world.pass(1_000);
    world.done(C, 0, Do::ReadLast);
    world.judge()
}

/// One worker is behind another, which has shown a later entry.
pub(in super::super) fn read_at_a_worker_behind() -> Result<(), String> {
    let mut world = World::led(Plan { workers: 2, ..PLAN });
    world.slow.insert((B, 1));
    world.done(A, 1, Do::Set);
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.done(B, 0, Do::Get);
    world.ask(B, SESSION, 1, Do::Get);
    world.pass(20);
    world.judge()
}

/// A key changes while a node copies it: the page is older than the entry that is applied.
fn change_beside_a_copy(change: Do) -> Result<(), String> {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    world.pass(100);
    world.kill(C, 0, 0);
    world.start_empty(C);
    // A page with a register.
    world.held.push((A, C, "Register {"));
    let has_page = |world: &World| world.is_sent(A, C, "Register {");
    assert!(world.pass_until(has_page), "A answers with the key");
    world.done(A, 0, change);
    world.pass(50);
    world.held.clear();
    let page = world.take(A, C, "Register {").remove(0);
    world.deliver(page);
    world.judge()
}

pub(in super::super) fn write_beside_a_copy() -> Result<(), String> {
    change_beside_a_copy(Do::Set)
}

pub(in super::super) fn deletion_beside_a_copy() -> Result<(), String> {
    change_beside_a_copy(Do::Delete)
}

/// All nodes start again, and entries are applied again. Times to live go on.
pub(in super::super) fn countdown_over_a_restart() -> Result<(), String> {
    let mut world = World::led(PLAN);
    world.done(A, 0, Do::Set);
    world.done(A, 0, Do::SetExpiring);
    world.pass(70);
    for index in [A, B, C] {
        world.kill(index, 9, u64::MAX);
    }
    world.bag.clear();
    for index in [A, B, C] {
        world.start(index, 0);
    }
    world.pass(60);
    let has_leader = |index| world.meta(index).current.counter > 1;
    assert!([A, B, C].into_iter().all(has_leader), "they agree on a leader");
    let read = world.ask(A, SESSION, 0, Do::ReadLast);
    world.pass(15);
    match world.order.outcome(read) {
        Some(Outcome::Reply(types::Reply::Null)) => Ok(()),
        outcome => Err(format!("its time was over: {outcome:?}")),
    }
}
