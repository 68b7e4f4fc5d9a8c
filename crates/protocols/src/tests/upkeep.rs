//! Work on keys that no client touches.

use base::Nanos;
use types::{Key, Tag};

use super::World;
use super::asks::{Ask, TTL};
use super::steps::{ALL, group};
use crate::abd::{self, Abd};
use crate::configured::{Configured, Member};
use crate::craq::{self, Craq};
use crate::hermes::{self, Hermes};
use crate::protocol::{Protocol, Stats};
use crate::register_cache::CachedRegister;

impl<P: Protocol> World<P> {
    /// Lets time pass at all nodes. Messages arrive in between.
    pub(super) fn idle(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(10) {
            self.drain();
            self.pass(Nanos::from_millis(10), ALL.into_iter());
        }
        self.drain();
    }

    /// All nodes stop, start and form the next epoch.
    fn restart_all(&mut self) {
        ALL.into_iter().for_each(|index| self.kill(index, 99, 0));
        ALL.into_iter().for_each(|index| self.start(index));
        self.change(&ALL);
        self.lend_all();
    }

    /// The first key's register at each node.
    fn held<T>(&self, of: impl Fn(&P::Record) -> T) -> Vec<Option<T>> {
        let held = |index: usize| match self.nodes[index].cache.get(&self.keys[0]) {
            CachedRegister::Present(register) => Some(of(register)),
            CachedRegister::Absent | CachedRegister::Lost => None,
        };
        ALL.into_iter().map(held).collect()
    }
}

fn untouched_key_ends<P: Member>(is_empty: impl Fn(&P::Record) -> bool + Copy) {
    let mut world = group::<Configured<P>>(ALL.len(), &ALL, true);
    let write = world.ask(1, 0, Ask::SetExpiring(1));
    world.settle(&[write]);
    world.idle(10);
    world.restart_all();
    assert_eq!(world.held(is_empty), [Some(false); 3]);
    world.idle(3 * TTL.0);
    assert!(world.held(is_empty).into_iter().all(|is_empty| is_empty != Some(false)));
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn key_ends_after_restart_of_all_members() {
    untouched_key_ends::<Hermes>(|register| register.content.is_empty());
    untouched_key_ends::<Craq>(|register| register.content.is_empty());
}

#[test]
fn registers_of_deleted_keys_go() {
    let mut world = group::<Configured<Craq>>(ALL.len(), &ALL, true);
    let write = world.ask(1, 0, Ask::Set(1));
    world.settle(&[write]);
    let delete = world.ask(2, 0, Ask::Delete);
    world.settle(&[delete]);
    let is_empty = |register: &craq::Register| register.content.is_empty();
    assert_eq!(world.held(is_empty), [Some(true); 3]);
    // The head answers once both nodes have said that their commands have ended.
    world.idle(61_000);
    assert_eq!(world.held(is_empty), [None; 3]);
    let again = world.ask(1, 0, Ask::SetIfAbsent(2));
    world.settle(&[again]);
    world.idle(10);
    assert_eq!(world.held(is_empty), [Some(false); 3]);
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn key_of_abd_ends_after_restart_of_all_nodes() {
    let is_empty = |register: &abd::Register| register.content.is_empty();
    let mut world = World::<Abd>::new(ALL.len(), true, 7);
    let write = world.ask(1, 0, Ask::SetExpiring(1));
    world.settle(&[write]);
    world.idle(10);
    ALL.into_iter().for_each(|index| world.kill(index, 99, 0));
    ALL.into_iter().for_each(|index| world.start(index));
    assert_eq!(world.held(is_empty), [Some(false); 3]);
    world.idle(3 * TTL.0);
    assert_eq!(world.held(is_empty), [Some(true); 3]);
    assert_eq!(world.verdict(), Ok(()));
}

/// The coordinator dies before any member knows that all hold its write.
#[test]
fn sweep_validates_key_of_dead_coordinator() {
    let is_valid = |register: &hermes::Register| register.is_valid;
    let mut world = group::<Configured<Hermes>>(ALL.len(), &ALL, true);
    world.ask(0, 0, Ask::Set(1));
    world.idle(10);
    world.ask(0, 0, Ask::Set(2));
    world.bag.retain(|letter| letter.to == 1);
    world.restart_all();
    world.idle(100);
    assert_eq!(world.held(is_valid), [Some(true); 3]);
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn sweep_cleans_dirty_key_of_earlier_epoch() {
    let is_clean = |register: &craq::Register| register.is_clean;
    let mut world = group::<Configured<Craq>>(ALL.len(), &ALL, true);
    world.ask(0, 0, Ask::Set(1));
    while world.flush(0) {}
    let letter = world.bag.remove(0);
    world.deliver(letter);
    world.restart_all();
    assert!(world.held(is_clean).contains(&Some(false)));
    world.idle(100);
    assert_eq!(world.held(is_clean), [Some(true); 3]);
    assert_eq!(world.verdict(), Ok(()));
}

/// No register is known to be clean after a restart. Few of them are on their way at a time.
#[test]
fn restart_renews_few_registers_at_a_time() {
    const KEYS: u64 = 300;
    let mut world = group::<Configured<Craq>>(ALL.len(), &ALL, true);
    let first = world.shard().first_hash();
    world.keys = (0..KEYS).map(|key| Key::at(first + (key << 20), b"k")).collect();
    let writes: Vec<Tag> = (0..KEYS as usize).map(|key| world.ask(0, key, Ask::Set(1))).collect();
    world.settle(&writes);
    world.restart_all();
    let in_progress = |world: &World<Configured<Craq>>| {
        let mut stats = Stats::default();
        world.nodes[0].protocol.stats(&mut stats);
        stats.values["operations_in_progress"]
    };
    let is_clean = |world: &World<Configured<Craq>>| {
        ALL.into_iter().all(|index| {
            world.keys.iter().all(|key| match world.nodes[index].cache.get(key) {
                CachedRegister::Present(register) => register.is_clean,
                CachedRegister::Absent | CachedRegister::Lost => false,
            })
        })
    };
    assert!(!is_clean(&world));
    let mut most = in_progress(&world);
    for _ in 0..200 {
        world.drain();
        world.pass(Nanos::from_millis(10), ALL.into_iter());
        most = most.max(in_progress(&world));
    }
    world.drain();
    assert!((32..=64).contains(&most), "{most}");
    assert!(is_clean(&world), "the sweep comes to each");
}
