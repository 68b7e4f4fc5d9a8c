//! Schedules of lost memory. [spec 11, S27 to S30, S45]

use base::Nanos;
use types::{Key, Outcome, Reply, Wire};

use super::steps::{Kind, claim};
use super::strings::Ask;
use super::world::{Envelope, World};
use crate::rmwpaxos::Message;

fn volatile() -> World {
    World::new(3, false, 1)
}

/// S27: A1 forgets and recovers from a minority's value and a higher promise.
pub(super) fn recovery_from_a_minority() -> Result<(), String> {
    let mut world = volatile();
    world.append(1, "v");
    world.prepared(&[0, 1]);
    world.flow(|m| m.goes(Kind::Accept, 1, 1));
    world.lose_all();
    world.append(2, "w");
    world.prepared(&[0, 2]);
    let higher = world.take(|m| m.is(Kind::Accept));
    world.lose_all();
    world.crash(0, 0);
    world.lose_all();
    world.start(0, Ask::Get);
    world.flow(|m| m.is(Kind::Recover) || m.is(Kind::Recovered));
    world.flow(|m| m.among(&[0, 1]) && (m.is(Kind::Read) || m.is(Kind::State)));
    world.lose_all();
    world.deliver_all(higher);
    world.flow(|m| m.is(Kind::Accepted));
    world.finish()
}

#[test]
fn minority_value_is_not_adopted_as_a_vote() -> Result<(), String> {
    recovery_from_a_minority()
}

/// S28: A2 acknowledges, forgets and recovers before A3 accepts; then A3 acknowledges.
pub(super) fn an_acknowledgement_from_before_a_loss() -> Result<(), String> {
    let mut world = volatile();
    let tag = world.append(0, "v");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 0, 1) || m.is(Kind::Accepted));
    let last = world.take(|m| m.goes(Kind::Accept, 0, 2));
    world.lose_all();
    world.crash(1, 0);
    world.lose_all();
    world.start(1, Ask::Get);
    world.flow(|m| m.is(Kind::Recover) || m.is(Kind::Recovered));
    world.lose_all();
    world.deliver_all(last);
    world.flow(|m| m.is(Kind::Accepted));
    claim(world.is_open(tag), "only one acknowledgement is left")?;
    world.start(1, Ask::Get);
    world.pass_at(1, Nanos::from_millis(100));
    world.flow(|m| m.among(&[0, 1]) && (m.is(Kind::Read) || m.is(Kind::State)));
    world.finish()
}

#[test]
fn an_acknowledgement_from_before_a_loss_is_void() -> Result<(), String> {
    an_acknowledgement_from_before_a_loss()
}

/// S29: two of five forget faster than they recover, one of them again in the middle of it.
#[test]
fn recovering_members_are_silent_and_recover() -> Result<(), String> {
    let mut world = World::new(5, false, 1);
    world.write(0, Ask::Append("a"));
    world.crash(0, 0);
    world.crash(1, 0);
    world.append(2, "b");
    world.flow(|m| m.among(&[0, 1, 2]) && !m.goes(Kind::Accept, 2, 2));
    let told = |m: &Envelope| {
        m.sender() < 2
            && [Kind::Promise, Kind::Accepted, Kind::State, Kind::Recovered, Kind::Listed]
                .contains(&m.kind())
    };
    claim(!world.bag.iter().any(told), "a forgotten register takes no part")?;
    world.flow(|m| m.is(Kind::Recover) && m.receiver() > 2);
    world.crash(0, 0);
    world.finish_with("vab")?;
    claim(world.nodes.iter().all(|node| !node.is_recovering()), "recovery ends")
}

/// S30: all forget at once.
#[test]
fn total_amnesia_gives_no_answer() -> Result<(), String> {
    let mut world = volatile();
    world.write(0, Ask::Append("a"));
    (0..3).for_each(|node| world.crash(node, 0));
    let read = world.start(0, Ask::Get);
    claim(world.settle(), "work ends")?;
    claim(world.value_of(read) == Some(&Outcome::Loading), "unavailable, never empty")?;
    claim((0..3).all(|node| world.held(node).is_none()), "no node pretends to hold it")?;
    world.verdict()
}

/// S45: one durable record is damaged while its acknowledgement is in flight. Other keys are
/// unaffected.
#[test]
fn a_damaged_record_voids_its_acknowledgement_only() -> Result<(), String> {
    let mut world = World::new(3, true, 1);
    let neighbour = world.neighbour.clone();
    world.write_key(0, &neighbour, Ask::Append("n"));
    let tag = world.append(0, "a");
    world.prepared(&[0, 1, 2]);
    world.flow(|m| m.goes(Kind::Accept, 0, 1));
    let early = world.take(|m| m.is(Kind::Accepted));
    let last = world.take(|m| m.goes(Kind::Accept, 0, 2));
    world.lose_all();
    world.crash_damaged(1);
    world.lose_all();
    let other = world.ask(1, &neighbour, Ask::Get);
    world.flow(|_| true);
    claim(world.reply(other) == Some(Reply::bulk("n")), "another key is read")?;
    world.deliver_all(early);
    world.deliver_all(last);
    world.flow(|m| m.is(Kind::Accepted));
    claim(world.is_open(tag), "the first acknowledgement is void")?;
    world.finish_with("va")
}

/// An answer to a recovery of an earlier start arrives in a later one.
pub(super) fn an_answer_to_an_earlier_start() -> Result<(), String> {
    let mut world = volatile();
    world.crash(0, 0);
    world.lose_all();
    world.start(0, Ask::Get);
    world.flow(|m| m.is(Kind::Recover));
    let early = world.take(|m| m.goes(Kind::Recovered, 1, 0));
    claim(early.len() == 1, "one answer is late")?;
    world.crash(0, 0);
    world.flow(|_| true);
    world.pass(Nanos::from_millis(200));
    claim(world.settle(), "it recovers")?;
    world.append(1, "a");
    world.flow(|m| m.among(&[0, 1]));
    world.lose_all();
    world.calm();
    world.crash(0, 0);
    world.lose_all();
    world.start(0, Ask::Get);
    world.deliver_all(early);
    world.flow(|m| (m.is(Kind::Recover) || m.is(Kind::Recovered)) && m.among(&[0, 2]));
    world.lose_all();
    world.start(2, Ask::Get);
    world.flow(|m| m.among(&[0, 2]) && (m.is(Kind::Read) || m.is(Kind::State)));
    world.finish()
}

#[test]
fn answer_to_an_earlier_start_does_not_count() -> Result<(), String> {
    an_answer_to_an_earlier_start()
}

/// A1 asks for a register, its shard is recovered first, and A1 and A2 accept a write. Returns the
/// answers, which are late.
fn overtaken_by_its_shard(world: &mut World) -> Result<Vec<Envelope>, String> {
    world.crash(0, 0);
    let listing = world.take(|m| m.is(Kind::List));
    world.start(0, Ask::Get);
    world.flow(|m| m.is(Kind::Recover));
    let late = world.take(|m| m.is(Kind::Recovered));
    claim(late.len() == 2, "the register's own answers are late")?;
    world.lose_all();
    world.deliver_all(listing);
    world.flow(|m| m.is(Kind::Listed));
    claim(!world.nodes[0].cache.is_forgotten(world.key.shard()), "the shard is recovered")?;
    let tag = world.append(1, "a");
    world.flow(|m| m.among(&[0, 1]));
    claim(world.reply(tag) == Some(Reply::Integer(1)), "A1 and A2 accepted it")?;
    world.lose_all();
    world.calm();
    Ok(late)
}

/// A register's own recovery ends after its shard's. Rounds accepted in between stay.
#[test]
fn late_recovery_overwrites_no_register() -> Result<(), String> {
    let mut world = volatile();
    let late = overtaken_by_its_shard(&mut world)?;
    world.deliver_all(late);
    claim(world.held(0).is_some_and(|register| register.state.is_some()), "A1 still holds it")?;
    world.finish_with("va")
}

/// While a shard is recovered, a register that its recovery has passed is lost again.
#[test]
fn shard_forgotten_in_recovery_restarts_its_recovery() -> Result<(), String> {
    let mut world = volatile();
    let (shard, neighbour) = (world.key.shard(), world.neighbour.clone());
    world.write(1, Ask::Append("a"));
    world.write_key(1, &neighbour, Ask::Append("n"));
    world.crash(0, 0);
    world.flow(|m| m.is(Kind::List) || m.is(Kind::Listed));
    let passed = neighbour.clone();
    world.flow(|m| match &m.message {
        Message::Recovered { key, .. } => *key == passed,
        Message::Touch { .. } | Message::Recover { .. } => true,
        _ => false,
    });
    claim(world.nodes[0].register(&neighbour).is_some(), "the neighbour is passed")?;
    let late = world.take(|m| m.is(Kind::Recovered));
    claim(late.len() == 2, "the other register is not")?;
    world.forget_anew(0, &neighbour);
    world.lose_all();
    world.deliver_all(late);
    claim(world.held(0).is_some(), "the other register is recovered")?;
    claim(
        world.nodes[0].cache.is_forgotten(shard),
        "the shard is not: its other registers are lost",
    )?;
    for _ in 0..5 {
        world.pass(Nanos::from_millis(200));
        world.flow(|_| true);
    }
    claim(!world.nodes[0].is_recovering(), "recovery ends")?;
    claim(!world.nodes[0].cache.is_forgotten(shard), "with the whole shard")?;
    claim(world.nodes[0].register(&neighbour).is_some(), "the neighbour among it")?;
    let read = world.ask(0, &neighbour, Ask::Get);
    world.flow(|_| true);
    claim(world.reply(read) == Some(Reply::bulk("n")), "the neighbour is read")?;
    world.finish_with("va")
}

/// A register is asked for, and its shard is recovered first. It is lost once more while the
/// answers are in flight.
#[test]
fn answers_from_before_recovery_do_not_count() -> Result<(), String> {
    let mut world = volatile();
    let late = overtaken_by_its_shard(&mut world)?;
    let key = world.key.clone();
    world.forget_anew(0, &key);
    world.lose_all();
    world.deliver_all(late);
    world.lose_all();
    world.start(2, Ask::Get);
    world.flow(|m| m.among(&[0, 2]) && (m.is(Kind::Read) || m.is(Kind::State)));
    world.finish_with("va")
}

/// Keys of the world's shard.
fn keys_of_shard(world: &World, count: usize) -> Vec<Key> {
    (0..)
        .map(|n: u32| Key::new(format!("register-{n}").as_bytes()))
        .filter(|key| key.shard() == world.key.shard())
        .take(count)
        .collect()
}

/// The most answers to a recovery in flight at a time, and their bytes, until it ends.
fn most_under_way(world: &mut World) -> (usize, usize) {
    let mut most = (0, 0);
    while world.nodes[0].is_recovering() {
        let answers = || world.bag.iter().filter(|m| m.is(Kind::Recovered));
        let len = answers().map(|m| m.message.to_bytes().len()).sum();
        most = (most.0.max(answers().count()), most.1.max(len));
        // Questions first, so that as many answers as possible are in flight.
        let next = world.bag.iter().position(|m| !m.is(Kind::Recovered)).unwrap_or(0);
        let envelope = world.bag.remove(next);
        world.deliver(envelope);
    }
    most
}

/// Bytes in flight to a recovery are bounded, and short registers are asked for in parallel.
#[test]
fn shard_recovery_fills_a_link() -> Result<(), String> {
    let mut world = volatile();
    let large: &'static str = "x".repeat(1 << 20).leak();
    for key in keys_of_shard(&world, 40) {
        world.write_key(1, &key, Ask::Append(large));
    }
    world.crash(0, 0);
    let (_, len) = most_under_way(&mut world);
    claim(len > 4 << 20, "several large ones go together")?;
    claim(len < 20 << 20, &format!("each of two has at most 8 MiB under way, and here {len}"))?;

    let mut world = volatile();
    for key in keys_of_shard(&world, 400) {
        world.write_key(1, &key, Ask::Append("n"));
    }
    world.crash(0, 0);
    let (count, _) = most_under_way(&mut world);
    claim(count > 300, &format!("most short ones go together, and here {count}"))?;
    world.finish()?;

    let mut world = volatile();
    let mut keys = keys_of_shard(&world, 400);
    keys.sort();
    for (at, key) in keys.iter().enumerate() {
        world.write_key(1, key, Ask::Append(if at < 360 { "n" } else { large }));
    }
    world.crash(0, 0);
    let (count, len) = most_under_way(&mut world);
    claim(count > 300, "short ones go together, whatever comes after them")?;
    claim(len < 20 << 20, &format!("no more of the large ones than alone, and here {len}"))
}

/// Another member has lost some of the registers, too, and is silent about those. All others are
/// recovered.
#[test]
fn registers_lost_by_a_majority_block_no_other() -> Result<(), String> {
    let mut world = volatile();
    let large: &'static str = "x".repeat(1 << 20).leak();
    let mut keys = keys_of_shard(&world, 40);
    for key in &keys {
        world.write_key(1, key, Ask::Append(large));
    }
    keys.sort();
    let (lost, others) = keys.split_at(20);
    let is_silent = |m: &Envelope| match &m.message {
        Message::Recovered { key, .. } => m.sender() == 1 && lost.contains(key),
        _ => false,
    };
    world.crash(0, 0);
    for _ in 0..400 {
        world.flow(|m| !is_silent(m));
        world.lose(is_silent);
        world.pass(Nanos::from_millis(50));
    }
    let held = |key: &&Key| world.nodes[0].register(key).is_some();
    claim(others.iter().filter(held).count() == 20, "the others are recovered")?;
    claim(lost.iter().filter(held).count() == 0, "lost registers are not")?;
    let recovery = &world.nodes[0].protocol.parts.recovery;
    let going_on = (recovery.keys_going_on(), recovery.shards_going_on());
    claim(going_on == (0, 0) && recovery.in_vain() == 21, "and no recovery goes on")?;
    claim(world.nodes[0].cache.is_forgotten(world.key.shard()), "and so its shard is not")?;
    for _ in 0..400 {
        world.flow(|_| true);
        world.pass(Nanos::from_millis(50));
    }
    claim(!world.nodes[0].is_recovering(), "it is once it can be")?;
    claim(!world.nodes[0].cache.is_forgotten(world.key.shard()), "with its shard")
}

/// A late answer counts, be it long or its sender far away.
#[test]
fn an_answer_to_a_recovery_may_take_long() -> Result<(), String> {
    let mut world = volatile();
    world.write(1, Ask::Append("a"));
    world.crash(0, 0);
    world.lose_all();
    world.start(0, Ask::Get);
    world.flow(|m| m.is(Kind::Recover));
    let answers = world.take(|m| m.is(Kind::Recovered));
    for _ in 0..20 {
        world.pass(Nanos::from_millis(50));
        world.lose_all();
    }
    world.deliver_all(answers);
    claim(world.held(0).is_some_and(|register| register.chosen), "it is recovered")?;
    world.finish_with("va")
}

/// The others disagree and no client writes. The deciding proposal takes four trips of a tenth of a
/// second.
#[test]
fn a_recovery_over_a_long_way_ends() -> Result<(), String> {
    let mut world = World::new(5, false, 1);
    world.append(4, "a");
    world.prepared(&[2, 3, 4]);
    world.flow(|m| m.goes(Kind::Accept, 4, 3));
    world.lose_all();
    world.crash(4, 0);
    world.crash(0, 0);
    for _ in 0..60 {
        let under_way = world.take(|_| true);
        world.pass(Nanos::from_millis(100));
        world.deliver_all(under_way);
    }
    claim(world.nodes[0].protocol.parts.recovery.keys_len() == 0, "it is recovered")?;
    world.finish()
}

/// A node that is cut off drops reads whose clients are gone.
#[test]
fn reads_without_a_quorum_come_to_an_end() -> Result<(), String> {
    let mut world = volatile();
    let read = world.start(0, Ask::Get);
    for _ in 0..1_300 {
        world.lose_all();
        world.pass(Nanos::from_millis(20));
    }
    claim(world.value_of(read) == Some(&Outcome::NoQuorum), "the client was told")?;
    claim(world.nodes[0].protocol.core.actives().is_empty(), "no trace of it is left")?;
    world.finish()
}
