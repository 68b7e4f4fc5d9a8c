//! Schedules of faults that a review found in abd. Each holds without its mistake.

use base::Nanos;

use super::World;
use super::asks::Ask;
use super::steps::{A, B, C};
use crate::abd::Abd;
use crate::register_cache::CachedRegister;

fn is_ended(world: &World<Abd>, index: usize) -> bool {
    match world.nodes[index].cache.get(&world.keys[0]) {
        CachedRegister::Present(register) => register.content.value.is_none(),
        CachedRegister::Absent => true,
        CachedRegister::Lost => false,
    }
}

/// The writer of a value with a time to live failed, and one replica has it.
pub(super) fn abd_value_at_a_minority() -> Result<(), String> {
    let mut world = World::<Abd>::new(3, false, 7);
    let write = world.ask(A, 0, Ask::SetExpiring(1));
    world.carry(A, B, "Query");
    world.carry(B, A, "State");
    world.bag.clear();
    while world.is_open(write) {
        world.wait(A, 50);
        world.bag.clear();
    }
    assert!(!is_ended(&world, A), "the writer has it");
    for _ in 0..100 {
        world.pass(Nanos::from_millis(50), [A, B, C].into_iter());
        world.drain();
        if is_ended(&world, A) {
            return world.fault.map_or(Ok(()), Err);
        }
    }
    Err("it never ends".to_owned())
}

/// A replica missed the end of a value.
pub(super) fn abd_end_that_a_replica_missed() -> Result<(), String> {
    let mut world = World::<Abd>::new(3, false, 7);
    let write = world.ask(A, 0, Ask::SetExpiring(1));
    world.done(write);
    world.drain();
    world.now += Nanos::from_millis(120);
    for _ in 0..20 {
        world.pass(Nanos::from_millis(20), [A, B].into_iter());
        while !world.bag.is_empty() {
            let letter = world.bag.remove(0);
            if letter.to != C {
                world.deliver(letter);
            }
        }
    }
    assert!(is_ended(&world, A) && is_ended(&world, B) && !is_ended(&world, C));
    // The others answer before it does. So no answer makes its question store the end here.
    world.are_own_late = true;
    // Later it would get the tombstone, so that the others can remove theirs.
    for _ in 0..10 {
        world.pass(Nanos::from_millis(50), [A, B, C].into_iter());
        world.drain();
        if is_ended(&world, C) {
            return world.fault.map_or(Ok(()), Err);
        }
    }
    Err("it keeps the value".to_owned())
}
