//! Random schedules.

use base::{Nanos, Prng};
use types::Role;

use super::World;
use super::asks::Ask;
use super::template::Template;
use crate::abd::Abd;
use crate::caspaxos::CasPaxos;
use crate::classic_paxos::ClassicPaxos;
use crate::configured::Configured;
use crate::craq::Craq;
use crate::hermes::Hermes;
use crate::protocol::Protocol;

/// The faults of one world, each in thousandths of its occasions.
struct Odds {
    loss: u64,
    copies: u64,
    crashes: u64,
    changes: u64,
    leases: u64,
    disorder: u64,
    damage: u64,
    /// Keys are deleted and written again, and time passes.
    deletes: u64,
}

/// One random world. An error describes the fault.
pub(super) fn explore<P: Protocol>(seed: u64, is_traced: bool) -> Result<(), (String, String)> {
    let mut rng = Prng::new(seed ^ 0x5eed);
    let nodes = 2 + rng.below(4) as usize;
    let durable = rng.below(3) != 0;
    let mut world = World::<P>::new(nodes, durable, seed);
    world.trace = is_traced.then(String::new);
    world.are_own_late = rng.below(2) == 0;
    let mut turns = Prng::new(seed ^ 0x7042);
    world.long_turns = (turns.below(2) == 0).then_some(turns);
    if P::PROPERTIES.needs_config {
        let full = 1 + rng.below(nodes as u64) as usize;
        world.begin(&(0..full).collect::<Vec<_>>());
    }
    let mut one_of = |all: &[u64]| all[rng.below(all.len() as u64) as usize];
    let odds = Odds {
        loss: one_of(&[0, 20, 100, 300]),
        copies: one_of(&[0, 50, 200]),
        crashes: one_of(&[0, 10, 30]),
        changes: one_of(&[0, 30, 100, 200]),
        leases: one_of(&[10, 50]),
        disorder: one_of(&[0, 300, 1000]),
        damage: one_of(&[0, 0, 5]),
        deletes: *Prng::new(seed ^ 0xde1).pick(&[0, 0, 400]),
    };
    let (steps, asks) = (one_of(&[60, 150, 400]), one_of(&[40, 90]));
    let mut asked = 0;
    for _ in 0..steps {
        if world.fault.is_some() {
            break;
        }
        if asked < 24 && rng.below(1000) < asks {
            asked += 1;
            ask(&mut world, &mut rng, asked, &odds);
        }
        step(&mut world, &mut rng, &odds);
    }
    if world.fault.is_none() {
        world.heal();
    }
    world.verdict().map_err(|fault| (fault, world.trace.take().unwrap_or_default()))
}

fn ask<P: Protocol>(world: &mut World<P>, rng: &mut Prng, value: u8, odds: &Odds) {
    let up = world.up();
    if up.is_empty() {
        return;
    }
    let index = up[rng.below(up.len() as u64) as usize];
    let key = usize::from(rng.below(5) == 0);
    let place = rng.below(10);
    if !P::PROPERTIES.read_modify_write {
        let ask = match place {
            0..=2 => Ask::Get,
            3..=6 => Ask::Set(value),
            _ => Ask::Remove,
        };
        world.ask(index, key, ask);
        return;
    }
    let ask = match place {
        _ if odds.deletes > 0 && !(5..=8).contains(&place) => Ask::Delete,
        0..=3 => Ask::Get,
        4..=5 => Ask::Set(value),
        6..=7 => Ask::Append(value),
        8 => Ask::SetIfAbsent(value),
        _ => Ask::Delete,
    };
    world.ask(index, key, ask);
}

fn step<P: Protocol>(world: &mut World<P>, rng: &mut Prng, odds: &Odds) {
    let index = rng.below(world.nodes.len() as u64) as usize;
    let mut chance = |odds: u64| rng.below(1000) < odds;
    if chance(odds.crashes) {
        return match world.nodes[index].is_up {
            true => crash(world, rng, index),
            false => world.start(index),
        };
    }
    if P::PROPERTIES.needs_config && chance(odds.changes) {
        return change(world, rng, index);
    }
    if P::PROPERTIES.needs_config && chance(odds.damage) {
        let key = usize::from(chance(500));
        // Registers in use are in memory, where no medium damages them.
        let is_in_use = world.nodes[index].cache.pinned() > 0;
        if world.nodes[index].is_up && !is_in_use && may_lose(world, index) {
            world.damage(index, key);
        }
        return;
    }
    if chance(odds.leases) {
        return match chance(700) {
            true => world.lend(index),
            false => world.nodes[index].lent.set(types::Epoch(0)),
        };
    }
    if odds.deletes > 0 && rng.below(1000) < odds.deletes {
        let grace = if P::PROPERTIES.read_modify_write { 30 } else { 1_100 };
        return world.pass(Nanos::from_millis(grace), world.up().into_iter());
    }
    match rng.below(10) {
        0..=5 if !world.bag.is_empty() => {
            let is_any = rng.below(1000) < odds.disorder;
            let at = if is_any { rng.below(world.bag.len() as u64) as usize } else { 0 };
            if rng.below(1000) < odds.loss {
                drop(world.bag.remove(at));
            } else if rng.below(1000) < odds.copies {
                world.deliver_copy(at);
            } else {
                let letter = world.bag.remove(at);
                world.deliver(letter);
            }
        }
        0..=6 => _ = world.deliver_own(index),
        7 => _ = world.flush(index),
        8 => {
            let millis = [1, 5, 10, 40, 300, 1200][rng.below(6) as usize];
            world.pass(Nanos::from_millis(millis), std::iter::once(index));
        }
        _ => {
            let other = rng.below(world.nodes.len() as u64) as usize;
            if other != index && world.nodes[index].is_up && world.nodes[other].is_up {
                match rng.below(10) {
                    0 => world.reset(index, other),
                    _ => world.fire(index),
                }
            }
        }
    }
}

fn crash<P: Protocol>(world: &mut World<P>, rng: &mut Prng, index: usize) {
    if !world.durable && !may_lose(world, index) {
        return;
    }
    let kept = rng.below(world.nodes[index].flushes() as u64 + 1) as usize;
    world.kill(index, kept, rng.next_u64());
}

/// True if this node is not the last that has all registers.
fn may_lose<P: Protocol>(world: &World<P>, index: usize) -> bool {
    let keeps = |other: usize| {
        let node = &world.nodes[other];
        match &world.service.active {
            Some(active) => active.member(super::node_id(other)).is_some_and(|member| {
                member.role == Role::Full && member.image == node.image && node.is_up
            }),
            None => node.is_up && !node.cache.is_forgotten(world.shard()),
        }
    };
    let keepers = (0..world.nodes.len()).filter(|&other| other != index && keeps(other)).count();
    match P::PROPERTIES.needs_config {
        true => keepers >= 1,
        false => keepers > world.nodes.len() / 2,
    }
}

fn change<P: Protocol>(world: &mut World<P>, rng: &mut Prng, index: usize) {
    let is_active = world.service.active.as_ref().is_some_and(|it| it.epoch == world.service.tried);
    match rng.below(10) {
        0 => world.service.tried.0 += 1,
        1 if is_active => {
            world.service.tried.0 += 1;
            world.wedge(index);
        }
        1..=4 if !is_active => world.wedge(index),
        5 if !is_active => {
            let told: Vec<usize> = (0..world.nodes.len()).filter(|_| rng.below(4) != 0).collect();
            told.iter().for_each(|&index| world.wedge(index));
            activate(world, rng);
            if rng.below(2) == 0 {
                told.into_iter().for_each(|index| world.install(index));
                world.lend_all();
            }
        }
        6 if !is_active => activate(world, rng),
        7 => world.erase(index),
        _ => world.install(index),
    }
}

/// Begins the epoch that is tried with some of the nodes that may be members.
fn activate<P: Protocol>(world: &mut World<P>, rng: &mut Prng) {
    let mut members = world.draft();
    if rng.below(2) == 0 {
        members.retain(|_| rng.below(3) != 0);
    }
    if members.iter().any(|&(_, role)| role == Role::Full) {
        world.activate(members);
    }
}

/// Explores seeds from `first` on; the failing one is played again with its trace.
pub(super) fn campaign<P: Protocol>(first: u64, count: u64) {
    for seed in first..first + count {
        if explore::<P>(seed, false).is_err() {
            let (fault, trace) = explore::<P>(seed, true).expect_err("a seed always fails alike");
            panic!("{} seed {seed}:\n{trace}\n{fault}", P::NAME);
        }
    }
}

fn worlds() -> (u64, u64) {
    let number =
        |name, other| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(other);
    (number("PROTOCOL_SEED", 0), number("PROTOCOL_WORLDS", 1_500))
}

#[test]
fn random_worlds_of_hermes_hold() {
    let (first, count) = worlds();
    campaign::<Configured<Hermes>>(first, count);
}

#[test]
fn random_worlds_of_craq_hold() {
    let (first, count) = worlds();
    campaign::<Configured<Craq>>(first, count);
}

#[test]
fn random_worlds_of_abd_hold() {
    let (first, count) = worlds();
    campaign::<Abd>(first, count);
}

#[test]
fn random_worlds_of_caspaxos_hold() {
    let (first, count) = worlds();
    campaign::<CasPaxos>(first, count);
}

#[test]
fn random_worlds_of_classic_paxos_hold() {
    let (first, count) = worlds();
    campaign::<ClassicPaxos>(first, count);
}

#[test]
fn random_worlds_of_the_template_hold() {
    let (first, count) = worlds();
    campaign::<Template>(first, count);
}
