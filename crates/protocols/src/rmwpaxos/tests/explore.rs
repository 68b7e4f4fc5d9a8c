//! Random schedules: loss, duplication, reordering, crashes with and without memory, deletion,
//! collection, expiry.
//!
//! A run draws its rates first, so that some runs crash often, others lose or delete much. Then it
//! heals, and all work must end.

use base::{Nanos, Prng};

use super::strings::Ask;
use super::world::{Ways, World};
use crate::peers::Pace;

const OPERATIONS_MAX: u64 = 16;
const LATE_SEEDS: u64 = 600;

struct Rates {
    drop: f64,
    duplicate: f64,
    crash: f64,
    delete: f64,
    read: f64,
    expire: f64,
    conditional: f64,
    /// Commands that are safe to repeat, and are repeated.
    once: f64,
    /// Listings of the shard.
    list: f64,
    /// Nodes see others become slow, are to spare them, or see them steady again.
    pace: f64,
    neighbour: f64,
    newest_first: bool,
    pass: f64,
    flush: f64,
    /// Time passes in leaps that let tombstones be collected.
    collect: bool,
    steps: u64,
}

impl Rates {
    fn draw(prng: &mut Prng) -> Rates {
        let rates = Rates::draw_freely(prng);
        match prng.below(3) {
            0 => Rates {
                drop: rates.drop.min(0.02),
                crash: rates.crash.min(0.003),
                delete: 0.5,
                read: 0.3,
                collect: true,
                pass: 0.1,
                steps: 1_200,
                ..rates
            },
            _ => rates,
        }
    }

    fn draw_freely(prng: &mut Prng) -> Rates {
        Rates {
            drop: *prng.pick(&[0.0, 0.0, 0.02, 0.1, 0.25]),
            duplicate: *prng.pick(&[0.0, 0.05, 0.2]),
            crash: *prng.pick(&[0.0, 0.0, 0.003, 0.01, 0.03]),
            delete: *prng.pick(&[0.0, 0.2, 0.5]),
            read: *prng.pick(&[0.2, 0.5]),
            expire: *prng.pick(&[0.0, 0.0, 0.3]),
            conditional: *prng.pick(&[0.0, 0.3]),
            once: 0.0,
            list: 0.0,
            pace: 0.0,
            neighbour: *prng.pick(&[0.0, 0.0, 0.3]),
            newest_first: prng.chance(0.3),
            pass: *prng.pick(&[0.02, 0.1]),
            flush: *prng.pick(&[0.1, 0.5]),
            collect: false,
            steps: 600,
        }
    }
}

/// One run. Returns its first fault.
pub(super) fn explore(seed: u64, members: u16, durable: bool) -> Result<(), String> {
    let by_message = seed.is_multiple_of(2);
    play(seed, members, durable, Ways { by_message, always_deltas: false, core_alone: false }, 0.0)
}

/// The same, with most commands safe to repeat, and repeated.
pub(super) fn explore_once(seed: u64, members: u16, durable: bool) -> Result<(), String> {
    let ways = Ways {
        by_message: seed.is_multiple_of(2),
        always_deltas: seed.is_multiple_of(5),
        core_alone: false,
    };
    play(seed, members, durable, ways, 0.8)
}

/// The same with every possible proposal as a delta.
pub(super) fn explore_deltas(seed: u64, members: u16, durable: bool) -> Result<(), String> {
    let by_message = seed.is_multiple_of(2);
    play(seed, members, durable, Ways { by_message, always_deltas: true, core_alone: false }, 0.0)
}

/// The same with listings among the commands.
pub(super) fn explore_listings(seed: u64, members: u16, durable: bool) -> Result<(), String> {
    let ways = Ways {
        by_message: seed.is_multiple_of(2),
        always_deltas: seed.is_multiple_of(5),
        core_alone: false,
    };
    let mut prng = Prng::new(seed);
    let rates = Rates { list: 0.01, expire: 0.0, ..Rates::draw(&mut prng) };
    play_at(seed, members, durable, ways, (prng, rates))
}

/// The same by the core alone: without fast paths, deletion and services. Media are durable, for
/// recovery is a service.
fn explore_core_alone(seed: u64, members: u16) -> Result<(), String> {
    let by_message = seed.is_multiple_of(2);
    let ways = Ways { by_message, always_deltas: false, core_alone: true };
    let once = if seed.is_multiple_of(3) { 0.8 } else { 0.0 };
    play(seed, members, true, ways, once)
}

/// The same with members that are slow now and then.
fn explore_paces(seed: u64, members: u16, durable: bool) -> Result<(), String> {
    let ways = Ways {
        by_message: seed.is_multiple_of(2),
        always_deltas: seed.is_multiple_of(5),
        core_alone: false,
    };
    let mut prng = Prng::new(seed);
    let pace = *prng.pick(&[0.003, 0.02]);
    let rates = Rates { pace, ..Rates::draw(&mut prng) };
    play_at(seed, members, durable, ways, (prng, rates))
}

fn play(seed: u64, members: u16, durable: bool, ways: Ways, once: f64) -> Result<(), String> {
    let mut prng = Prng::new(seed);
    let rates = Rates { once, ..Rates::draw(&mut prng) };
    play_at(seed, members, durable, ways, (prng, rates))
}

fn play_at(
    seed: u64,
    members: u16,
    durable: bool,
    ways: Ways,
    (mut prng, rates): (Prng, Rates),
) -> Result<(), String> {
    let mut world = World::with(members, durable, seed, ways);
    let mut asked = 0;
    for _ in 0..rates.steps {
        if world.fault.is_some() {
            break;
        }
        act(&mut world, &mut prng, &rates, &mut asked);
    }
    // A slow member may stay spared.
    world.steady_all(if seed.is_multiple_of(2) { Pace::Spared } else { Pace::Slow });
    if !world.settle() && world.fault.is_none() {
        return Err("work that never ends".into());
    }
    if seed.is_multiple_of(3) && !ways.core_alone && world.fault.is_none() {
        world.steady_all(Pace::Spared);
        // A tombstone that remembers commands stays until its windows are over.
        world.converge_within(Nanos::from_secs(if rates.once > 0.0 { 1_000 } else { 240 }))?;
    }
    for node in 0..world.nodes.len() {
        let key = world.key.clone();
        world.ask(node, &key, Ask::Get);
    }
    if !world.settle() {
        return Err("a last read that never ends".into());
    }
    world.verdict()
}

/// Compares everything several times while earlier messages are in flight, and delivers those
/// later. No medium goes back, so no node may disbelieve itself.
fn explore_late(seed: u64, members: u16, durable: bool) -> Result<(), String> {
    let mut prng = Prng::new(seed);
    let rates = Rates { once: 0.0, ..Rates::draw(&mut prng) };
    let ways = Ways {
        by_message: seed.is_multiple_of(2),
        always_deltas: seed.is_multiple_of(5),
        core_alone: false,
    };
    let mut world = World::with(members, durable, seed, ways);
    let late_part = prng.unit();
    for _ in 0..4 {
        let mut asked = 0;
        for _ in 0..rates.steps / 4 {
            if world.fault.is_none() {
                act(&mut world, &mut prng, &rates, &mut asked);
            }
        }
        let late = world.take(|_| prng.chance(late_part));
        world.rest(Nanos::from_secs(30));
        world.bag.extend(late);
    }
    if !world.settle() && world.fault.is_none() {
        return Err("work that never ends".into());
    }
    world.verdict()
}

#[test]
fn late_messages_make_no_node_disbelieve_itself() {
    for seed in 0..LATE_SEEDS {
        let (members, durable) = (if seed % 3 == 0 { 5 } else { 3 }, seed % 4 != 0);
        if let Err(fault) = explore_late(seed, members, durable) {
            panic!("seed {seed}: {fault}");
        }
    }
}

fn act(world: &mut World, prng: &mut Prng, rates: &Rates, asked: &mut u64) {
    let members = world.nodes.len() as u64;
    let node = prng.below(members) as usize;
    let dice = prng.unit();
    if dice < rates.list && *asked < OPERATIONS_MAX {
        *asked += 1;
        world.list(node);
    } else if dice < 0.04 && *asked < OPERATIONS_MAX {
        *asked += 1;
        ask(world, prng, rates, node, *asked as u8);
    } else if dice > 1.0 - rates.pace {
        let pace = *prng.pick(&[Pace::Steady, Pace::Slow, Pace::Spared, Pace::Spared]);
        let other = (node + 1 + prng.below(members - 1) as usize) % members as usize;
        world.sees_pace(node, other, pace);
        world.spare_beside_majorities(node);
    } else if rates.once > 0.0 && dice > 0.97 {
        repeat(world, prng, node);
    } else if dice < 0.04 + rates.crash {
        crash(world, prng, node);
    } else if dice < 0.08 + rates.pass {
        let long = rates.collect && prng.chance(0.2);
        let span = if long { 1_100_000_000 } else { prng.below(30_000_000) };
        world.pass(Nanos(span));
    } else if world.durable && prng.chance(rates.flush) && world.flush(node) {
    } else if !world.bag.is_empty() {
        let len = world.bag.len() as u64;
        let at = match rates.newest_first {
            true => len - 1 - prng.below(len.min(3)),
            false => prng.below(len),
        } as usize;
        let envelope = if prng.chance(rates.duplicate) {
            world.bag[at].clone()
        } else {
            world.bag.swap_remove(at)
        };
        let is_own = envelope.from.node == envelope.to;
        if is_own || !prng.chance(rates.drop) {
            world.deliver(envelope);
        }
    }
}

fn ask(world: &mut World, prng: &mut Prng, rates: &Rates, node: usize, id: u8) {
    let key = match prng.chance(rates.neighbour) {
        true => world.neighbour.clone(),
        false => world.key.clone(),
    };
    let byte = b'a' + id;
    let ask = if prng.chance(rates.read) {
        Ask::Get
    } else if prng.chance(rates.delete) {
        Ask::Delete
    } else if prng.chance(rates.expire) {
        Ask::Expiring { value: byte, millis: 1 + prng.below(60) as u8 }
    } else if prng.chance(rates.conditional) {
        let expected = vec![b'a' + prng.below(u64::from(id)) as u8];
        match prng.chance(0.5) {
            true => Ask::SetIfAbsent(byte),
            false => Ask::SetIfEqual(expected, byte),
        }
    } else {
        Ask::AppendByte(byte)
    };
    let is_once =
        rates.once > 0.0 && !matches!(ask, Ask::Expiring { .. }) && prng.chance(rates.once);
    // Few sessions, so that one has newer commands while copies of older ones are in flight.
    let ask = if is_once { ask.once(id % 5, u64::from(id)) } else { ask };
    world.ask(node, &key, ask);
}

/// Sends a line again from any node, in any state of the first copy.
fn repeat(world: &mut World, prng: &mut Prng, node: usize) {
    let key = if prng.chance(0.9) { world.key.clone() } else { world.neighbour.clone() };
    let lines = world.lines(&key);
    if !lines.is_empty() {
        let line = prng.pick(&lines).clone();
        world.ask(node, &key, line);
    }
}

/// A minority at a time loses its memory. More never recovers, rightly.
fn crash(world: &mut World, prng: &mut Prng, node: usize) {
    let others = world.nodes.iter().enumerate();
    let recovering = others.filter(|(at, other)| *at != node && other.is_recovering()).count();
    if world.durable || recovering < (world.nodes.len() - 1) / 2 {
        world.crash(node, prng.below(3) as usize);
    }
}

fn explore_all(seeds: std::ops::Range<u64>, members: u16, durable: bool) {
    for seed in seeds {
        if let Err(fault) = explore(seed, members, durable) {
            panic!("seed {seed}, {members} members, durable {durable}: {fault}");
        }
    }
}

#[test]
fn three_durable_members_keep_one_history() {
    explore_all(0..500, 3, true);
}

#[test]
fn five_durable_members_keep_one_history() {
    explore_all(0..100, 5, true);
}

#[test]
fn three_forgetful_members_keep_one_history() {
    explore_all(0..500, 3, false);
}

#[test]
fn five_forgetful_members_keep_one_history() {
    explore_all(0..100, 5, false);
}

#[test]
fn deltas_keep_one_history() {
    for seed in 0..500 {
        for (members, durable) in [(3, true), (3, false)] {
            if let Err(fault) = explore_deltas(seed, members, durable) {
                panic!("seed {seed}, {members} members, durable {durable}: {fault}");
            }
        }
    }
}

#[test]
fn deltas_among_five_members_keep_one_history() {
    for seed in 0..100 {
        let durable = seed % 2 == 0;
        if let Err(fault) = explore_deltas(seed, 5, durable) {
            panic!("seed {seed}, durable {durable}: {fault}");
        }
    }
}

fn three_and_five(explore: fn(u64, u16, bool) -> Result<(), String>) {
    for seed in 0..500 {
        for (members, durable) in [(3, true), (3, false), (5, seed % 2 == 0)] {
            if let Err(fault) = explore(seed, members, durable) {
                panic!("seed {seed}, {members} members, durable {durable}: {fault}");
            }
        }
    }
}

#[test]
fn schedules_with_slow_members_stay_linearizable_and_settle() {
    three_and_five(explore_paces);
}

#[test]
fn listings_are_reads_of_existence() {
    three_and_five(explore_listings);
}

#[test]
fn core_alone_keeps_one_history() {
    for seed in 0..200 {
        for members in [3, 5] {
            if let Err(fault) = explore_core_alone(seed, members) {
                panic!("seed {seed}, {members} members: {fault}");
            }
        }
    }
}

#[test]
fn repeated_commands_keep_one_history() {
    for seed in 0..500 {
        for (members, durable) in [(3, true), (3, false)] {
            if let Err(fault) = explore_once(seed, members, durable) {
                panic!("seed {seed}, {members} members, durable {durable}: {fault}");
            }
        }
    }
}

#[test]
fn repeated_commands_among_five_keep_one_history() {
    for seed in 0..100 {
        let durable = seed % 2 == 0;
        if let Err(fault) = explore_once(seed, 5, durable) {
            panic!("seed {seed}, durable {durable}: {fault}");
        }
    }
}

/// A register recovered as absent took a late proposal of the ballot whose tombstone had been
/// removed.
#[test]
fn seed_that_once_revived_a_deleted_key() {
    explore_all(100_808..100_809, 3, false);
}
