//! Locks that no client meets are told to a worker. [transactions T14]

use base::Nanos;
use bytes::Bytes;
use types::{Access, Command, Incarnation, NodeId, Outcome, Settle, Take, Then, Txid};

use super::steps::claim;
use super::strings::Ask;
use super::world::{Ways, World};
use crate::rmwpaxos::services::lingering::Lingering;

const TXID: Txid = Txid { start: 1, node: NodeId(1), incarnation: Incarnation(1), counter: 1 };

/// Node 0 has taken the key; returns the version that it locked.
fn taken() -> Result<(World, u64), String> {
    let ways = Ways { by_message: false, always_deltas: false, core_alone: false };
    let mut world = World::with(3, true, 1, ways);
    world.write(0, Ask::Append("v"));
    let take =
        Take { txid: TXID, record: Bytes::from_static(b"record"), generation: 0, once: None };
    let tag = world.start_hold(0, Command::holding(Access::Update, Then::Take(take)));
    world.flow(|_| true);
    world.calm();
    match world.held_by(tag) {
        Some(Outcome::Held(found)) => {
            let version = found.version;
            Ok((world, version))
        }
        other => Err(format!("not taken: {other:?}")),
    }
}

fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 10 {
        world.pass(Nanos::from_millis(100));
        world.flow(|_| true);
    }
}

/// The nodes that were told since the last call.
fn told(world: &mut World) -> Vec<usize> {
    std::mem::take(&mut world.locked).into_iter().map(|(node, _)| node).collect()
}

#[test]
fn one_replica_tells_of_a_lock() -> Result<(), String> {
    let (mut world, version) = taken()?;
    claim(told(&mut world).is_empty(), "no client has met it")?;
    pass(&mut world, 4);
    let first = told(&mut world);
    claim(first.len() == 1, &format!("one node, once: {first:?}"))?;
    pass(&mut world, 5);
    claim(told(&mut world) == first, "the same again, as long as the lock stays")?;
    let nothing = Command::new(Access::Update, Bytes::new());
    let settle = Settle::aborted(TXID, version);
    world.start_hold(0, nothing.after(settle));
    world.flow(|_| true);
    pass(&mut world, 20);
    claim(told(&mut world).is_empty(), "it is settled")
}

#[test]
fn lock_that_no_look_ends_is_left_to_a_walk() -> Result<(), String> {
    let (mut world, _) = taken()?;
    pass(&mut world, 70);
    claim(!told(&mut world).is_empty(), "it was told")?;
    pass(&mut world, 30);
    claim(told(&mut world).is_empty(), "a minute is enough")
}

#[test]
fn next_replica_tells_while_the_first_is_away() -> Result<(), String> {
    let (mut world, _) = taken()?;
    pass(&mut world, 4);
    let first = told(&mut world)[0];
    let away = NodeId(first as u16 + 1);
    for node in 0..3 {
        world.nodes[node].peers.set_up(away, false);
    }
    pass(&mut world, 8);
    let others = told(&mut world);
    claim(others.iter().any(|node| *node != first), &format!("another one: {others:?}"))
}

#[test]
fn lock_is_found_after_all_have_restarted() -> Result<(), String> {
    let (mut world, _) = taken()?;
    (0..3).for_each(|node| world.crash(node, usize::MAX));
    pass(&mut world, 60);
    claim(!told(&mut world).is_empty(), "a walk meets it")
}

/// A silent coordinator counts as gone after two minutes. Its record is still told then.
#[test]
fn record_is_told_for_minutes() -> Result<(), String> {
    let ways = Ways { by_message: false, always_deltas: false, core_alone: false };
    let mut world = World::with(3, true, 1, ways);
    for node in &mut world.nodes {
        node.protocol.core.env_mut().transient = true;
        node.protocol.parts.lingering = Lingering::new(true);
    }
    world.write(0, Ask::Append("v"));
    pass(&mut world, 150);
    world.recorded.clear();
    pass(&mut world, 6);
    claim(!world.recorded.is_empty(), "one node is told")?;
    pass(&mut world, 150);
    world.recorded.clear();
    pass(&mut world, 10);
    claim(world.recorded.is_empty(), "the next walk finds it")
}
