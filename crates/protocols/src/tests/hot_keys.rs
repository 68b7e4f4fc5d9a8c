//! A key that one member changes without a pause.

use types::Tag;

use super::World;
use super::asks::Ask;
use super::steps::{A, ALL, B, C, group};
use crate::configured::Configured;
use crate::hermes::Hermes;

type Group = Configured<Hermes>;

/// Messages arrive one by one, in their order, until these requests end. The requests of the busy
/// member that are left then.
fn left(world: &mut World<Group>, queue: &[Tag], tags: &[Tag]) -> usize {
    while tags.iter().any(|&tag| world.is_open(tag)) {
        if world.bag.is_empty() {
            (0..3).for_each(|index| world.wait(index, 10));
        } else {
            let letter = world.bag.remove(0);
            world.deliver(letter);
        }
    }
    queue.iter().filter(|&&tag| world.is_open(tag)).count()
}

fn busy_at(index: usize, ask: fn(u8) -> Ask) -> (World<Group>, Vec<Tag>) {
    let mut world = group::<Group>(3, &ALL, false);
    let queue = (1..=40).map(|value| world.ask(index, 0, ask(value))).collect();
    for other in ALL.into_iter().filter(|&other| other != index) {
        world.carry(index, other, "Invalidate");
    }
    (world, queue)
}

/// Whichever of two members wins ties, the other one's change ends long before the queue does.
#[test]
fn change_has_its_turn_on_a_hot_key_of_hermes() {
    for (busy, other) in [(A, C), (C, A)] {
        for ask in [Ask::Append, Ask::Set] {
            let (mut world, queue) = busy_at(busy, ask);
            let tags = [Ask::Append(50), Ask::Get].map(|ask| world.ask(other, 0, ask));
            let left = left(&mut world, &queue, &tags);
            assert!(left > 20, "{left} requests are left");
            world.settle(&queue);
            world.verdict().unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

#[test]
fn read_has_its_turn_on_a_hot_key_of_hermes() {
    for ask in [Ask::Append, Ask::Set] {
        let (mut world, queue) = busy_at(A, ask);
        let tags = [B, C].map(|other| world.ask(other, 0, Ask::Get));
        let left = left(&mut world, &queue, &tags);
        assert!(left > 20, "{left} requests are left");
        world.settle(&queue);
        world.verdict().unwrap_or_else(|why| panic!("{why}"));
    }
}
