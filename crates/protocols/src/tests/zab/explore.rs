//! Random worlds.

use base::{Nanos, Prng};
use types::Shard;

use super::World;
use super::node::{Own, OwnLetter, Plan};
use super::order::Do;
use crate::protocol::{Message as _, Touches};

/// The faults of one world, each in thousandths of its occasions.
struct Odds {
    loss: u64,
    copies: u64,
    disorder: u64,
    crashes: u64,
    losses: u64,
    cuts: u64,
    slow: u64,
    asks: u64,
    /// Steps that let everything go on for a while.
    calm: u64,
    /// Clients that send several requests on one key without waiting.
    pipelines: u64,
}

impl Odds {
    fn draw(rng: &mut Prng) -> Odds {
        let mut one_of = |all: &[u64]| *rng.pick(all);
        Odds {
            loss: one_of(&[0, 20, 100, 300]),
            copies: one_of(&[0, 50, 200]),
            disorder: one_of(&[0, 200, 1000]),
            crashes: one_of(&[0, 5, 15, 30]),
            losses: one_of(&[0, 0, 5, 15]),
            cuts: one_of(&[0, 10, 30]),
            slow: one_of(&[0, 10, 50]),
            asks: one_of(&[50, 150]),
            calm: one_of(&[10, 40, 100]),
            pipelines: one_of(&[0, 0, 500]),
        }
    }
}

/// One random world. An error describes the fault.
pub(in super::super) fn explore(seed: u64, is_traced: bool) -> Result<(), (String, String)> {
    let mut rng = Prng::new(seed ^ 0x2ab);
    let plan = Plan {
        nodes: *rng.pick(&[3, 3, 3, 5]),
        workers: *rng.pick(&[1, 2, 2]),
        durable: rng.below(3) != 0,
        log_len: *rng.pick(&[24_000, 48_000, 1 << 20]),
    };
    let odds = Odds::draw(&mut rng);
    let mut world = World::new(plan);
    world.trace = is_traced.then(String::new);
    world.note(|| format!("{plan:?}"));
    if rng.below(4) != 0 {
        world.pass(50);
    }
    let (steps, asks_max) = (*rng.pick(&[100, 300, 600]), 40);
    let mut asked = 0;
    for _ in 0..steps {
        if world.fault.is_some() {
            break;
        }
        if asked < asks_max && rng.below(1000) < odds.asks {
            asked += ask(&mut world, &mut rng, &odds);
        }
        step(&mut world, &mut rng, &odds);
    }
    let verdict = world.heal_and_judge();
    verdict.map_err(|fault| (fault, world.trace.take().unwrap_or_default()))
}

fn ask(world: &mut World, rng: &mut Prng, odds: &Odds) -> u64 {
    let up = world.up();
    if up.is_empty() {
        return 0;
    }
    let (index, key) = (*rng.pick(&up), *rng.pick(&[0, 0, 1, 2]));
    let many = if rng.below(1000) < odds.pipelines { 1 + rng.below(4) } else { 1 };
    let session = world.clock + 1;
    for _ in 0..many {
        let what = *rng.pick(&[
            Do::Get,
            Do::Get,
            Do::Get,
            Do::ReadLast,
            Do::Set,
            Do::Append,
            Do::Append,
            Do::SetIfAbsent,
            Do::Delete,
        ]);
        world.ask(index, session, key, what);
    }
    many
}

fn step(world: &mut World, rng: &mut Prng, odds: &Odds) {
    let index = rng.below(world.nodes.len() as u64) as usize;
    let mut chance = |odds: u64| rng.below(1000) < odds;
    if chance(odds.calm) {
        let millis = *rng.pick(&[5, 20, 20, 60, 400]);
        return calm(world, millis);
    }
    if chance(odds.crashes) {
        return match world.nodes[index].is_up {
            true => crash(world, rng, index),
            false => world.start(index, rng.below(4) as usize),
        };
    }
    if chance(odds.losses) && world.nodes[index].is_up && may_lose(world, index) {
        if world.plan.durable && rng.below(3) == 0 {
            world.kill(index, 0, 0);
            world.start_empty(index);
        } else if world.plan.durable {
            world.damage(index, rng.below(3) as usize);
        }
        return;
    }
    if chance(odds.cuts) {
        return cut(world, rng, index);
    }
    if chance(odds.slow) {
        let worker = (index, rng.below(world.plan.workers as u64) as usize);
        if !world.slow.remove(&worker) {
            world.slow.insert(worker);
        } else if world.nodes[index].is_up {
            world.go_on(index);
        }
        return;
    }
    match rng.below(10) {
        0..=5 if !world.bag.is_empty() => deliver(world, rng, odds),
        0..=6 => take_own(world, rng, index),
        7 => {
            let worker = rng.below(world.plan.workers as u64) as usize;
            world.flush(index, worker);
        }
        8 => {
            world.now += Nanos::from_millis(*rng.pick(&[1, 5, 10, 20, 40]));
            world.up().into_iter().for_each(|index| world.fire(index));
        }
        _ => {
            world.now += Nanos::from_millis(*rng.pick(&[1, 5, 10, 40, 300]));
            world.fire(index);
        }
    }
}

/// Everything goes on but slow workers and links that are cut.
fn calm(world: &mut World, millis: u64) {
    world.pass(millis);
}

fn deliver(world: &mut World, rng: &mut Prng, odds: &Odds) {
    let is_any = rng.below(1000) < odds.disorder;
    let at = if is_any { rng.below(world.bag.len() as u64) as usize } else { 0 };
    let (from, to) = (usize::from(world.bag[at].from.node.0) - 1, world.bag[at].to);
    let is_cut = world.held.iter().any(|&(one, other, _)| (one, other) == (from, to));
    if is_cut || rng.below(1000) < odds.loss {
        world.bag.remove(at);
    } else if rng.below(1000) < odds.copies {
        let copy = world.bag[at].copy();
        world.deliver(copy);
    } else {
        let letter = world.bag.remove(at);
        world.deliver(letter);
    }
}

/// A message of a node to itself arrives. It may overtake those that wait for other registers.
fn take_own(world: &mut World, rng: &mut Prng, index: usize) {
    let own = &world.nodes[index].own;
    if own.is_empty() || !world.nodes[index].is_up {
        return;
    }
    let at = rng.below(own.len() as u64) as usize;
    let letter = &own[at];
    let may_wait = |other: &OwnLetter| match (touched(other), touched(letter)) {
        (Some(one), Some(other)) => one != other,
        (one, None) => one.is_some(),
        (None, Some(_)) => false,
    };
    let is_next =
        |other: &OwnLetter| (other.from, other.to) != (letter.from, letter.to) || may_wait(other);
    if own[..at].iter().all(is_next) {
        world.take_own(index, at);
        world.go_on(index);
    }
}

/// The register or shard that a message waits for.
fn touched(letter: &OwnLetter) -> Option<(Shard, Option<types::Key>)> {
    match &letter.body {
        Own::Message(message) => match message.touches() {
            Touches::Key(key) => Some((key.shard(), Some(key.clone()))),
            Touches::Shard(shard) if shard != Shard(0) => Some((shard, None)),
            Touches::Shard(_) | Touches::Nothing => None,
        },
        Own::Amnesia(_) => None,
    }
}

fn crash(world: &mut World, rng: &mut Prng, index: usize) {
    if !world.plan.durable && !may_lose(world, index) {
        return;
    }
    let kept = rng.below(world.nodes[index].flushes() as u64 + 1) as usize;
    let part = rng.next_u64();
    world.kill(index, kept, part);
    if !world.plan.durable {
        world.start_empty(index);
    }
}

/// True if a majority of others would not lose its promises by a crash.
fn may_lose(world: &World, index: usize) -> bool {
    let durable = world.plan.durable;
    let keeps = |&other: &usize| other != index && world.nodes[other].keeps_promises(durable);
    (0..world.nodes.len()).filter(keeps).count() > world.nodes.len() / 2
}

/// A link or a node is cut off, or all links are whole again.
fn cut(world: &mut World, rng: &mut Prng, index: usize) {
    let other = rng.below(world.nodes.len() as u64) as usize;
    match rng.below(6) {
        0 if index != other => world.held.push((index, other, "")),
        1 if index != other => {
            world.held.extend([(index, other, ""), (other, index, "")]);
        }
        2 => {
            for other in (0..world.nodes.len()).filter(|&other| other != index) {
                world.held.extend([(index, other, ""), (other, index, "")]);
            }
        }
        3 if index != other && world.nodes[index].is_up && world.nodes[other].is_up => {
            world.reset(index, other);
        }
        _ => world.held.clear(),
    }
}

/// Explores seeds from `first` on; the failing one is played again with its trace.
fn campaign(first: u64, count: u64) {
    for seed in first..first + count {
        let played = std::panic::catch_unwind(|| explore(seed, false));
        let Ok(played) = played else { panic!("zab seed {seed}: see above") };
        if played.is_err() {
            let (fault, trace) = explore(seed, true).expect_err("a seed always fails alike");
            panic!("zab seed {seed}:\n{trace}\n{fault}");
        }
    }
}

#[test]
fn random_worlds_of_zab_hold() {
    let number =
        |name, other| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(other);
    campaign(number("PROTOCOL_SEED", 0), number("PROTOCOL_WORLDS", 1_500));
}
