//! Makes faults happen at the times that the profile's rates draw, and ends them.
//!
//! Faults stay within the limits of a protocol: at any time a majority of nodes remembers all that
//! it acknowledged.

use base::Prng;
use storage::Place;

use crate::faults::{Fault, FaultSet};
use crate::profile::Profile;
use crate::store::{Durability, Survival};
use crate::world::World;

/// The end of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
    Start(usize),
    /// The next node of a rolling restart.
    Restart(usize),
    /// Space on the device again.
    Room(usize),
    Unblock(Vec<(usize, usize)>),
    Quicken(usize),
}

/// The injector's latest effects on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Casualties {
    /// Nodes that died, as their clients know.
    pub crashed: Vec<usize>,
}

/// The faults of one run.
#[derive(Debug)]
pub struct Injector {
    gaps: Vec<(Fault, u64)>,
    next: Vec<u64>,
    undo: Vec<(u64, Undo)>,
    faults: FaultSet,
    durability: Durability,
    crash_after_turn_ppm: u32,
    len_max: u64,
    request_timeout: u64,
    workers_vary: bool,
    /// Spontaneous faults that may still happen.
    faults_left: u64,
    /// No fault begins.
    pub rests: bool,
    rng: Prng,
    /// Faults that happened, by kind.
    pub counts: Vec<(Fault, u64)>,
}

impl Injector {
    #[must_use]
    pub fn new(profile: &Profile, strikes_max: Option<u64>, mut rng: Prng) -> Injector {
        let next = profile.gaps.iter().map(|&(_, gap)| exponential(&mut rng, gap)).collect();
        Injector {
            gaps: profile.gaps.clone(),
            next,
            undo: Vec::new(),
            faults: profile.faults,
            durability: profile.durability,
            crash_after_turn_ppm: profile.crash_after_turn_ppm,
            len_max: profile.fault_len_max,
            request_timeout: profile.request_timeout,
            workers_vary: profile.faults.has(Fault::Workers),
            faults_left: strikes_max.unwrap_or(u64::MAX),
            rests: false,
            rng,
            counts: Vec::new(),
        }
    }

    /// The time of the next due event.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        let undo = self.undo.iter().map(|(at, _)| *at);
        self.next.iter().copied().chain(undo).min()
    }

    /// Runs due events.
    pub fn run_due(&mut self, world: &mut World) -> Casualties {
        let now = world.now();
        let mut done = Casualties::default();
        let mut due = Vec::new();
        self.undo.retain(|(at, undo)| {
            if *at <= now {
                due.push(undo.clone());
            }
            *at > now
        });
        for undo in due {
            self.undo_now(world, undo, &mut done);
        }
        for index in 0..self.gaps.len() {
            if self.next[index] <= now {
                let (fault, gap) = self.gaps[index];
                self.next[index] = now + 1 + exponential(&mut self.rng, gap);
                // A run that its faults delay sees ever fewer of them.
                self.gaps[index].1 = gap + gap / 16;
                if self.faults_left > 0 && !self.rests {
                    self.faults_left -= 1;
                    self.inject(world, fault, &mut done);
                }
            }
        }
        done
    }

    /// After a node sent a message: it may die of it.
    pub fn after_turn(&mut self, world: &mut World, node: usize) -> Casualties {
        let mut done = Casualties::default();
        if self.crash_after_turn_ppm > 0
            && self.faults_left > 0
            && !self.rests
            && self.rng.chance_ppm(self.crash_after_turn_ppm)
        {
            self.faults_left -= 1;
            self.count(Fault::CrashAfterTurn);
            self.crash(world, node, &mut done);
        }
        done
    }

    /// A node's medium failed, and the node stopped.
    pub fn after_failure(&mut self, world: &mut World, node: usize) -> Casualties {
        let mut done = Casualties::default();
        self.crash(world, node, &mut done);
        done
    }

    /// Ends all faults: dead nodes start, cuts heal.
    pub fn stop(&mut self, world: &mut World) {
        self.gaps.clear();
        self.next.clear();
        self.undo.clear();
        self.crash_after_turn_ppm = 0;
        for node in 0..world.node_count() {
            world.medium(node).set_failing(false);
            world.medium(node).set_full(false);
        }
        world.heal();
        world.start_all();
    }

    fn count(&mut self, fault: Fault) {
        match self.counts.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((fault, 1)),
        }
    }

    fn undo_now(&mut self, world: &mut World, undo: Undo, done: &mut Casualties) {
        match undo {
            Undo::Start(node) if !world.is_up(node) => {
                if self.workers_vary {
                    world.set_workers(node, self.rng.between(1, 3) as usize);
                }
                world.start(node);
                if !world.is_up(node) {
                    let again_at = world.now() + self.length();
                    self.undo.push((again_at, Undo::Start(node)));
                }
            }
            Undo::Start(_) => {}
            Undo::Restart(_) if self.rests => {}
            Undo::Restart(node) => self.crash(world, node, done),
            Undo::Room(node) => world.medium(node).set_full(false),
            Undo::Unblock(links) => links.iter().for_each(|&(from, to)| world.unblock(from, to)),
            Undo::Quicken(node) => world.network_mut().set_slowness(node, 1),
        }
    }

    fn length(&mut self) -> u64 {
        self.rng.between(self.len_max / 20, self.len_max)
    }

    fn inject(&mut self, world: &mut World, fault: Fault, done: &mut Casualties) {
        self.count(fault);
        world.note(|| format!("fault: {}", fault.name()));
        let nodes = world.node_count();
        let now = world.now();
        let until = now + self.length();
        let node = self.rng.below(nodes as u64) as usize;
        let peer = (node + 1 + self.rng.below(nodes as u64 - 1) as usize) % nodes;
        match fault {
            Fault::Partition => {
                let side = self.rng.between(1, (1 << nodes) - 2);
                let is_there = |node: usize| side >> node & 1 == 1;
                let cut = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
                self.block(
                    world,
                    cut.filter(|&(a, b)| is_there(a) != is_there(b)).collect(),
                    until,
                );
            }
            Fault::PartialPartition => {
                let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
                let mut cut: Vec<_> = pairs.filter(|_| self.rng.chance(0.4)).collect();
                if cut.is_empty() {
                    cut.push((node, peer));
                }
                let links = cut.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect();
                self.block(world, links, until);
            }
            Fault::OneWay => self.block(world, vec![(node, peer)], until),
            Fault::Slow => {
                world.network_mut().set_slowness(node, self.rng.between(10, 100));
                self.undo.push((until, Undo::Quicken(node)));
            }
            Fault::Reset => world.reset(node, peer),
            Fault::Pause => {
                let long = self.request_timeout.saturating_mul(2);
                let until = if self.rng.chance(0.2) { now + long } else { until };
                world.pause(node, until);
            }
            Fault::Crash => self.crash(world, node, done),
            Fault::RestartAll if self.durability != Durability::Volatile => {
                for node in 0..nodes {
                    self.crash(world, node, done);
                }
            }
            Fault::RollingRestart => {
                for turn in 0..nodes {
                    let next = (node + turn) % nodes;
                    self.undo.push((now + turn as u64 * (until - now) + 1, Undo::Restart(next)));
                }
            }
            Fault::Amnesia if world.is_up(node) && may_forget(world, node) => {
                world.crash_and_wipe(node);
                done.crashed.push(node);
                self.undo.push((until, Undo::Start(node)));
            }
            Fault::Rot => {
                let medium = world.medium(node).clone();
                medium.damage(|place| may_lose(world, node, place));
            }
            Fault::RollBack => {
                let medium = world.medium(node).clone();
                medium.roll_back(|place| may_lose(world, node, place));
            }
            Fault::DiskFull => {
                world.medium(node).set_full(true);
                self.undo.push((until, Undo::Room(node)));
            }
            Fault::FlushError if world.is_up(node) => {
                world.medium(node).set_failing(true);
            }
            Fault::Jump => {
                let span = *self.rng.pick(&[1_000, 60_000, 86_400_000]);
                let millis = self.rng.between(0, 2 * span) as i64 - span as i64;
                world.clock_mut(node).jump(millis);
            }
            _ => {}
        }
    }

    fn block(&mut self, world: &mut World, links: Vec<(usize, usize)>, until: u64) {
        for &(from, to) in &links {
            world.block(from, to);
        }
        self.undo.push((until, Undo::Unblock(links)));
    }

    fn crash(&mut self, world: &mut World, node: usize, done: &mut Casualties) {
        let forgets = self.durability == Durability::Volatile;
        let may = !forgets || (self.faults.has(Fault::Amnesia) && may_forget(world, node));
        if !world.is_up(node) || !may {
            return;
        }
        let medium = world.medium(node);
        if !medium.has_failed() && self.rng.chance(0.3) && medium.end_within_a_turn() {
            return;
        }
        let survival = match self.faults.has(Fault::Torn) {
            true => Survival::Torn,
            false => Survival::Prefix,
        };
        world.crash(node, survival);
        done.crashed.push(node);
        let until = world.now() + self.length();
        self.undo.push((until, Undo::Start(node)));
    }
}

/// A majority of each replica set has forgotten no shard, this node not counted.
fn may_forget(world: &World, node: usize) -> bool {
    let remembers = |other| !world.medium(other).has_forgotten_anything();
    others_that(world, node, remembers) && world.group_survives(node, remembers)
}

/// A majority of each replica set has this place, this node not counted. A group gives up the whole
/// image of a member for any place, and a node of an order all that it has.
fn may_lose(world: &World, node: usize, place: &Place) -> bool {
    let is_whole = |other| !world.medium(other).has_forgotten_anything();
    if world.is_ordered() {
        return may_forget(world, node);
    }
    others_that(world, node, |other| !world.medium(other).has_forgotten(place))
        && world.group_survives(node, is_whole)
}

/// True when in each replica set of the node a majority of the other members `remember`s.
fn others_that(world: &World, node: usize, remember: impl Fn(usize) -> bool) -> bool {
    world.replica_sets_of(node).all(|set| {
        let others = set.iter().filter(|&&other| other != node && remember(other)).count();
        others > set.len() / 2
    })
}

/// A span with this mean; never zero.
fn exponential(rng: &mut Prng, mean: u64) -> u64 {
    let unit = 1.0 - rng.unit();
    (-unit.ln() * mean as f64) as u64 + 1
}
