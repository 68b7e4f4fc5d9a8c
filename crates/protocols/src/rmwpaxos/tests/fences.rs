//! Fences: an aborted record is forgotten although its coordinator may live. [transactions T1, T2]
//!
//! The key plays a record. Node 0 looks after it, node 1 coordinates, and both are acceptors.

use base::Nanos;
use bytes::Bytes;
use types::{
    Access, Ballot, Command, Epoch, Fence, Incarnation, NodeId, Outcome, Refusal, Reply, Tag, Under,
};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, Ways, World};
use crate::protocol::Protocol;

const COORDINATOR: usize = 1;
const FIRST: Incarnation = Incarnation(1);
const SECOND: Incarnation = Incarnation(2);

/// Writes the commit, unless there is a decision.
fn commit(incarnation: Incarnation) -> Command {
    Ask::SetIfAbsent(b'C').command().only(Under::Incarnation(incarnation))
}

/// Writes that it is aborted, unless there is a decision.
fn abort() -> Command {
    Ask::SetIfAbsent(b'A').command().only(Under::Any)
}

/// Forgets the aborted record, and shuts its coordinator out.
fn forget() -> Command {
    let fence = Fence { node: NodeId(COORDINATOR as u16 + 1), below: SECOND };
    Command::new(Access::Update, Bytes::from_static(b"qA")).only(Under::Fence(fence))
}

fn world(durable: bool, by_message: bool) -> World {
    let ways = Ways { by_message, always_deltas: false, core_alone: false };
    let mut world = World::with(3, durable, 1, ways);
    for node in &mut world.nodes {
        node.protocol.core.env_mut().transient = true;
    }
    world
}

/// The coordinator's next ballot is above all others.
fn count_on(world: &mut World) {
    let shard = world.key.shard();
    let ballot = Ballot::new(Epoch(1), 1 << 20, NodeId(1), FIRST);
    world.nodes[COORDINATOR].metas.get_mut(shard).saw(ballot);
}

fn fence_at(world: &World, node: usize) -> Incarnation {
    let fences = &world.nodes[node].metas.get(world.key.shard()).fences;
    fences.of(NodeId(COORDINATOR as u16 + 1))
}

fn ended(world: &World, tag: Tag, reply: Reply) -> Result<(), String> {
    let outcome = world.held_by(tag);
    claim(outcome == Some(&Outcome::Reply(reply)), &format!("it ended so: {outcome:?}"))
}

/// The record at last, as node 2 reads it.
fn shows(world: &mut World, value: Option<&[u8]>) -> Result<(), String> {
    let read = world.start_hold(2, Ask::Get.command());
    for _ in 0..100 {
        world.flow(|_| true);
        world.pass(Nanos::from_millis(20));
    }
    ended(world, read, Reply::copy_or_null(value))
}

/// All members hold the abort, which node 0 wrote.
fn aborted(durable: bool, by_message: bool) -> World {
    let mut world = world(durable, by_message);
    world.start_hold(0, abort());
    world.flow(|_| true);
    world.calm();
    world
}

/// The coordinator tries to commit, with these acceptors alone.
fn commit_late(world: &mut World, acceptors: &[usize]) -> Tag {
    count_on(world);
    let tag = world.start_hold(COORDINATOR, commit(FIRST));
    for _ in 0..20 {
        world.flow(|m| m.among(acceptors));
        world.lose_all();
        world.pass_at(COORDINATOR, Nanos::from_millis(50));
    }
    tag
}

/// T1: a majority raised the fence, but another one promised the ballot of the tombstone.
pub(super) fn a_fence_apart_from_its_ballot() -> Result<(), String> {
    let mut world = world(true, true);
    world.start_hold(0, abort());
    world.flow(|m| m.among(&[0, 2]));
    world.lose_all();
    world.calm();
    count_on(&mut world);
    let late = world.start_hold(COORDINATOR, commit(FIRST));
    world.flow(|m| m.goes(Kind::Prepare, 1, 1) || m.goes(Kind::Promise, 1, 1));
    let held_up = world.take(|m| m.goes(Kind::Prepare, 1, 0));
    world.lose_all();
    let forgotten = world.start_hold(0, forget());
    world.flow(|m| m.goes(Kind::Prepare, 0, 1));
    world.lose(|m| m.is(Kind::Other));
    world.flow(|m| m.among(&[0, 2]));
    ended(&world, forgotten, Reply::Integer(1))?;
    claim(!held_up.is_empty(), "the coordinator asks the first acceptor, too")?;
    world.deliver_all(held_up);
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    claim(world.held_by(late).is_none(), "it waits for another incarnation")?;
    shows(&mut world, None)
}

#[test]
fn fence_belongs_to_a_ballot() -> Result<(), String> {
    a_fence_apart_from_its_ballot()
}

/// The owner of the record forgets it without a phase 1 of its own, or with one acceptor's fence.
pub(super) fn a_tombstone_without_its_fence() -> Result<(), String> {
    for by_message in [false, true] {
        for others in [[1, 0], [1, 2]] {
            let mut world = aborted(true, by_message);
            let forgotten = world.start_hold(0, forget());
            world.flow(|_| true);
            ended(&world, forgotten, Reply::Integer(1))?;
            commit_late(&mut world, &others);
            claim(world.fenced.get(&COORDINATOR) == Some(&SECOND), "the process is told")?;
            shows(&mut world, None)?;
        }
    }
    Ok(())
}

#[test]
fn owner_raises_the_fence_before_it_forgets() -> Result<(), String> {
    a_tombstone_without_its_fence()
}

/// An acceptor restarts between its promise and the flush of the fence.
pub(super) fn a_fence_that_is_not_durable() -> Result<(), String> {
    let mut world = aborted(true, true);
    world.lose_all();
    let forgotten = world.start_hold(0, forget());
    let to_two = world.take(|m| m.goes(Kind::Prepare, 0, 2));
    claim(!to_two.is_empty(), "both phases follow each other")?;
    world.deliver_all(to_two);
    let early = world.take(|m| m.is(Kind::Promise) && m.sender() == 2);
    world.crash(2, 0);
    world.lose(|m| m.sender() == 2 || m.receiver() == 2 || m.goes(Kind::Prepare, 0, 1));
    world.deliver_all(early);
    world.flow(|m| m.among(&[0, 1]));
    if world.held_by(forgotten).is_none() {
        world.lose_all();
        for _ in 0..20 {
            world.pass_at(0, Nanos::from_millis(50));
            world.flow(|m| m.among(&[0, 1]));
            world.lose_all();
        }
    }
    ended(&world, forgotten, Reply::Integer(1))?;
    commit_late(&mut world, &[1, 2]);
    shows(&mut world, None)
}

#[test]
fn promise_waits_for_a_durable_fence() -> Result<(), String> {
    a_fence_that_is_not_durable()
}

#[test]
fn restarted_acceptors_keep_the_fence() -> Result<(), String> {
    for others in [[1, 0], [1, 2]] {
        let mut world = aborted(true, true);
        world.start_hold(0, forget());
        world.flow(|_| true);
        for node in [0, 2] {
            let kept = usize::MAX;
            world.crash(node, kept);
            world.nodes[node].protocol.core.env_mut().transient = true;
            claim(fence_at(&world, node) == SECOND, "it survives")?;
        }
        world.lose_all();
        commit_late(&mut world, &others);
        shows(&mut world, None)?;
    }
    Ok(())
}

/// An acceptor that promised loses its memory. It recovers the record, and not the shard yet.
pub(super) fn a_fence_that_an_acceptor_forgot() -> Result<(), String> {
    let mut world = aborted(false, true);
    world.start_hold(0, forget());
    world.flow(|m| !m.goes(Kind::Prepare, 0, 1));
    world.lose_all();
    claim(fence_at(&world, 1) == Incarnation(0), "one member does not know the fence")?;
    world.crash(2, 0);
    world.lose(|m| m.is(Kind::List));
    world.nodes[2].protocol.core.env_mut().transient = true;
    world.start_hold(2, Ask::Get.command());
    world.flow(|m| m.is(Kind::Recover) || m.is(Kind::Recovered));
    claim(world.held(2).is_some(), "the record is recovered")?;
    world.lose_all();
    commit_late(&mut world, &[1, 2]);
    shows(&mut world, None)
}

#[test]
fn recovered_register_brings_the_fence() -> Result<(), String> {
    a_fence_that_an_acceptor_forgot()
}

/// T2: the process is told, takes another incarnation, and goes on. Its commit has no effect.
pub(super) fn a_live_process_that_was_shut_out() -> Result<(), String> {
    for by_message in [false, true] {
        let mut world = aborted(true, by_message);
        world.start_hold(0, forget());
        world.flow(|_| true);
        let late = commit_late(&mut world, &[0, 1, 2]);
        claim(world.held_by(late).is_none(), "the commit is not decided")?;
        claim(world.fenced.remove(&COORDINATOR) == Some(SECOND), "the process is told")?;
        world.nodes[COORDINATOR].protocol.renew(SECOND);
        for _ in 0..50 {
            world.pass(Nanos::from_millis(20));
            world.flow(|_| true);
        }
        let outcome = world.held_by(late);
        // A first proposal that travels with phase 1 is an attempt.
        let refusal = if by_message { outcome_of_refusal() } else { Some(Outcome::Unknown) };
        claim(outcome == refusal.as_ref(), &format!("it ends: {outcome:?}"))?;
        let again = world.start_hold(COORDINATOR, commit(FIRST));
        world.flow(|_| true);
        claim(
            world.held_by(again) == outcome_of_refusal().as_ref(),
            "one that comes later had no effect",
        )?;
        shows(&mut world, None)?;
        let next = world.start_hold(COORDINATOR, commit(SECOND));
        world.flow(|_| true);
        ended(&world, next, Reply::OK)?;
        claim(world.fenced.is_empty(), "no fence shuts it out")?;
        shows(&mut world, Some(b"C"))?;
    }
    Ok(())
}

fn outcome_of_refusal() -> Option<Outcome> {
    Some(Outcome::Refused(Refusal::Conflict))
}

#[test]
fn live_process_goes_on_as_another_incarnation() -> Result<(), String> {
    a_live_process_that_was_shut_out()
}

/// After a renewal both phases still take one round trip.
#[test]
fn later_incarnation_combines_both_phases() -> Result<(), String> {
    let mut world = world(true, false);
    world.nodes[COORDINATOR].protocol.renew(SECOND);
    let tag = world.start_hold(COORDINATOR, commit(SECOND));
    let is_combined = |m: &Envelope| m.is(Kind::Combined) || m.is(Kind::Accepted);
    world.flow(|m| is_combined(m) || m.goes(Kind::Promise, 1, 1));
    ended(&world, tag, Reply::OK)
}

/// A fence that one acceptor alone raised, for a tombstone that was never chosen.
#[test]
fn fence_on_one_acceptor_is_passed() -> Result<(), String> {
    let mut world = world(true, true);
    let shard = world.key.shard();
    world.nodes[2].metas.get_mut(shard).fences.raise(NodeId(2), SECOND);
    world.nodes[2].metas.persist(shard);
    let tag = world.start_hold(COORDINATOR, commit(FIRST));
    world.flow(|m| m.receiver() == 2);
    world.flow(|m| m.is(Kind::Fenced));
    claim(world.fenced.remove(&COORDINATOR) == Some(SECOND), "the process is told")?;
    world.nodes[COORDINATOR].protocol.renew(SECOND);
    for _ in 0..50 {
        world.flow(|_| true);
        world.pass(Nanos::from_millis(20));
    }
    let outcome = world.held_by(tag);
    claim(outcome == outcome_of_refusal().as_ref(), &format!("no effect: {outcome:?}"))?;
    let next = world.start_hold(COORDINATOR, commit(SECOND));
    world.flow(|_| true);
    ended(&world, next, Reply::OK)?;
    shows(&mut world, Some(b"C"))
}
