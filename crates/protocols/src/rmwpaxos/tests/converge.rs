//! Schedules without reads and writes: replicas become equal, and then are silent. [spec 9.7]

use base::Nanos;
use types::{Key, Round};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, World};
use crate::protocol::Event;
use crate::rmwpaxos::services::anti_entropy::comparison::STEP;
use crate::rmwpaxos::services::anti_entropy::ranges::PAUSE;

fn volatile() -> World {
    World::new(3, false, 1)
}

fn accepted(world: &World, node: usize, key: &Key) -> Round {
    world.nodes[node].register(key).map_or(Round::NONE, |register| register.accepted)
}

fn is_equal(world: &World) -> bool {
    [&world.key, &world.neighbour].into_iter().all(|key| {
        let first = accepted(world, 0, key);
        (1..world.nodes.len()).all(|node| accepted(world, node, key) == first)
    })
}

fn has_tombstone(world: &World) -> bool {
    let is_tombstone = |node: &super::world::Node, key: &Key| {
        let state = node.register(key).and_then(|register| register.state.as_ref());
        state.is_some_and(|state| state.is_tombstone())
    };
    world
        .nodes
        .iter()
        .any(|node| is_tombstone(node, &world.key) || is_tombstone(node, &world.neighbour))
}

impl World {
    /// Delivers all messages and passes time, up to `span`. True if all nodes are at rest before
    /// that.
    pub(super) fn rest(&mut self, span: Nanos) -> bool {
        let end = self.now + span;
        while self.now < end && self.fault.is_none() {
            self.flow(|_| true);
            if self.nodes.iter().all(|node| crate::Protocol::is_idle(&node.protocol)) {
                return true;
            }
            self.pass(Nanos::from_millis(10));
        }
        false
    }

    /// All nodes are up and no client asks. Replicas become equal, no tombstone stays, and then all
    /// nodes are silent.
    pub(super) fn converge(&mut self) -> Result<(), String> {
        self.converge_within(Nanos::from_secs(240))
    }

    pub(super) fn converge_within(&mut self, limit: Nanos) -> Result<(), String> {
        let ended = self.rest(limit);
        claim(ended, "comparing ends")?;
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        claim(is_equal(self), "replicas hold the same")?;
        claim(!has_tombstone(self), "no tombstone stays")?;
        self.pass(Nanos::from_secs(600));
        claim(self.bag.is_empty(), "all is silent")?;
        claim(self.nodes.iter().all(|node| node.timers.is_empty()), "no timer is left")
    }
}

/// The owner restarts, so its pending repairs are gone.
fn forgetting_owner(world: &mut World) {
    world.crash(0, 1);
    world.lose_all();
}

/// The third member misses a write, whose owner forgets it.
pub(super) fn a_write_missed() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    forgetting_owner(&mut world);
    world.converge()?;
    let key = world.key.clone();
    claim(accepted(&world, 2, &key) != Round::NONE, "the third holds it now")?;
    world.finish_with("va")
}

#[test]
fn a_replica_that_missed_a_write_becomes_equal() -> Result<(), String> {
    a_write_missed()
}

/// The same, but the third has promised more, so it refuses a late accept.
#[test]
fn replica_refusing_a_late_accept_becomes_equal() -> Result<(), String> {
    let mut world = volatile();
    world.append(2, "x");
    world.flow(|m| m.goes(Kind::Prepare, 2, 2));
    world.lose_all();
    world.crash(2, 0);
    world.flow(|_| true);
    world.append(2, "y");
    world.flow(|m| m.goes(Kind::Prepare, 2, 2));
    world.lose_all();
    world.calm();
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    world.converge()
}

/// The owner's proposal reaches only the second acceptor, and the owner dies. It is decided either
/// way.
#[test]
fn round_accepted_by_one_is_decided() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(0, Ask::Append("a"));
    world.append(0, "b");
    world.flow(|m| m.goes(Kind::Accept, 0, 1));
    world.lose_all();
    world.crash(0, 0);
    world.converge()?;
    world.finish_with("vab")
}

/// A live value whose round lies below a floor that another key has raised at the replica that
/// lacks it.
#[test]
fn another_keys_floor_keeps_no_replicas_apart() -> Result<(), String> {
    let mut world = volatile();
    let neighbour = world.neighbour.clone();
    world.append(0, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    world.calm();
    world.write_key(1, &neighbour, Ask::Append("n"));
    world.write_key(1, &neighbour, Ask::Append("n"));
    world.write_key(2, &neighbour, Ask::Delete);
    world.collect(2, |m| !m.is(Kind::Compare));
    world.converge()?;
    let key = world.key.clone();
    claim(accepted(&world, 2, &key) != Round::NONE, "the third holds it now")?;
    world.finish_with("va")
}

/// A restarted member refuses the owner's ballot, each time after the others have chosen.
#[test]
fn an_owner_that_one_refuses_prepares_anew() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(0, Ask::Append("a"));
    world.crash(2, 9);
    world.lose_all();
    for text in ["b", "c"] {
        let tag = world.append(0, text);
        world.flow(|m| m.among(&[0, 1]));
        claim(!world.is_open(tag), "two choose it")?;
        world.flow(|_| true);
        world.calm();
    }
    let key = world.key.clone();
    claim(accepted(&world, 2, &key) == accepted(&world, 0, &key), "the third has the second")?;
    world.finish_with("vabc")
}

/// A tombstone whose proposer gave up before it learned that it is chosen.
#[test]
fn tombstone_given_up_by_its_proposer_is_collected() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    world.write(0, Ask::Append("a"));
    world.start(0, Ask::Delete);
    world.flow(|m| m.is(Kind::Accept));
    world.lose_all();
    world.crash(0, 2);
    world.converge()?;
    world.finish_with("-")
}

/// All members but one have removed the tombstone.
pub(super) fn a_removal_that_one_missed() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    world.write(0, Ask::Delete);
    let missed = |m: &Envelope| m.goes(Kind::Remove, 0, 2);
    world.collect(0, |m| !missed(m));
    world.lose(missed);
    claim(world.held(0).is_none() && world.held(2).is_some(), "one still has it")?;
    let delivered = |world: &World| {
        world.nodes.iter().map(|node| node.protocol.core.counters().repairs).sum::<u64>()
    };
    let before = delivered(&world);
    claim(world.rest(Nanos::from_secs(240)), "comparing ends")?;
    claim(delivered(&world) == before, "a removed tombstone is not delivered")?;
    world.converge()?;
    world.finish_with("-")
}

#[test]
fn removal_missed_by_one_is_repeated() -> Result<(), String> {
    a_removal_that_one_missed()
}

/// A late accept of a value that was deleted and removed since.
pub(super) fn a_late_accept_after_a_removal() -> Result<(), String> {
    let mut world = volatile();
    world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    let late: Vec<Envelope> =
        world.bag.iter().filter(|m| m.goes(Kind::Accept, 0, 1)).cloned().collect();
    world.flow(|_| true);
    world.calm();
    world.write(0, Ask::Delete);
    world.collect(0, |_| true);
    claim((0..3).all(|node| world.held(node).is_none()), "it is removed")?;
    for envelope in late {
        let crate::rmwpaxos::Message::Accept { key, round, state, .. } = envelope.message else {
            continue;
        };
        let message = crate::rmwpaxos::Message::Repair { key, round, state };
        world.step(1, Event::Peer { from: envelope.from, message });
    }
    claim(world.held(1).is_none(), "the floor refuses it")?;
    world.converge()?;
    world.finish_with("-")
}

#[test]
fn late_accept_revives_no_register() -> Result<(), String> {
    a_late_accept_after_a_removal()
}

#[test]
fn a_shard_that_is_equal_is_compared_once() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    claim(world.rest(Nanos::from_secs(60)), "comparing ends")?;
    let walks = |world: &World| {
        world
            .nodes
            .iter()
            .map(|node| node.protocol.parts.anti_entropy.figures.shards_compared.get())
            .sum::<u64>()
    };
    let before = walks(&world);
    claim(before <= 6, "few walks are enough")?;
    world.pass(Nanos::from_secs(3_600));
    claim(walks(&world) == before && world.bag.is_empty(), "and no more follow")
}

fn keys_of_shard(world: &World, count: usize) -> Vec<Key> {
    (0..)
        .map(|n: u32| Key::new(format!("many-{n}").as_bytes()))
        .filter(|key| key.shard() == world.key.shard())
        .take(count)
        .collect()
}

/// A start's cost per time does not grow with the number of registers. Only its duration does.
#[test]
fn walk_after_a_start_reads_bounded_steps() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let keys = keys_of_shard(&world, 3 * STEP);
    for key in &keys {
        world.write_key(0, key, Ask::Append("a"));
    }
    world.converge()?;
    world.crash(0, 0);
    let read =
        |world: &World| world.nodes[0].protocol.parts.anti_entropy.figures.keys_compared.get();
    let (mut before, mut most) = (0, 0);
    for _ in 0..400 {
        world.pass(PAUSE);
        world.flow(|_| true);
        most = most.max(read(&world) - before);
        before = read(&world);
    }
    claim(before >= keys.len() as u64, "all is read once")?;
    claim(before < 2 * keys.len() as u64, "and not again")?;
    // A pause may begin within one look at the clock and end within the next.
    claim(most <= 2 * STEP as u64, "a step is followed by a pause")?;
    world.converge()
}

/// A question in the middle is lost for good, on links that lose silently.
#[test]
fn a_question_that_is_lost_is_asked_again() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    for key in keys_of_shard(&world, 2 * STEP) {
        world.write_key(0, &key, Ask::Append("a"));
    }
    world.append(0, "b");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    forgetting_owner(&mut world);
    for _ in 0..1_000 {
        world.pass(Nanos::from_millis(10));
        world.flow(|m| !m.is(Kind::Compare));
        world.lose(|m| m.is(Kind::Compare));
    }
    world.converge()?;
    let key = world.key.clone();
    claim(accepted(&world, 2, &key) != Round::NONE, "the third holds it now")
}

/// More tombstones than a node schedules.
#[test]
fn tombstone_without_room_is_collected_later() -> Result<(), String> {
    let mut world = volatile();
    for node in &mut world.nodes {
        node.protocol.parts.deletion.fill(world.now + Nanos::from_secs(30));
    }
    world.write(0, Ask::Append("a"));
    world.write(0, Ask::Delete);
    claim(!world.rest(Nanos::from_secs(20)), "others wait")?;
    claim(has_tombstone(&world), "it is not collected yet")?;
    for node in &mut world.nodes {
        node.protocol.parts.deletion.make_room();
    }
    world.converge()
}
