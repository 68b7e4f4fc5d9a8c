//! Versions in a chain that lose messages, or wait.

use types::Key;

use super::asks::Ask;
use super::node_id;
use super::steps::{A, B, C, D, group};
use crate::configured::Configured;
use crate::craq::Craq;
use crate::peers::Pace;
use crate::register_cache::CachedRegister;

/// An acknowledgement is lost. The member before becomes clean by the answer of the tail.
pub(super) fn acknowledgement_lost_behind_a_clean_member() -> Result<(), String> {
    let mut world = group::<Configured<Craq>>(4, &[A, B, C, D], false);
    let write = world.ask(A, 0, Ask::Set(1));
    for (from, to) in [(A, B), (B, C), (C, D)] {
        world.carry(from, to, "Down");
    }
    assert!(!world.take(D, C, "Up").is_empty(), "the tail acknowledges it");
    let read = world.ask(B, 0, Ask::Get);
    world.done(read);
    world.done(write);
    world.drain();
    match world.nodes[C].cache.get(&world.keys[0]) {
        CachedRegister::Present(register) if register.is_clean => world.judge(&[C]),
        found => Err(format!("it never hears of the end: {found:?}")),
    }
}

/// A write on its way lies above one tombstone of its shard, and below another.
#[test]
fn tombstone_goes_beside_a_slow_write() {
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], false);
    let third = Key::at(world.shard().first_hash(), b"third");
    world.keys.push(third);
    for (key, writes) in [(0, 1), (1, 3), (2, 2)] {
        for value in 0..writes {
            let write = world.ask(A, key, Ask::Set(value));
            world.done(write);
        }
    }
    for key in [0, 1] {
        let delete = world.ask(A, key, Ask::Delete);
        world.done(delete);
    }
    let write = world.ask(A, 2, Ask::Set(2));
    let slow = world.take(A, B, "Down");
    world.wait(B, 150);
    world.carry(B, A, "other-");
    assert!(world.take(A, B, "Bury").is_empty(), "it lies above the write");
    world.carry(B, A, "Spent");
    world.carry(A, B, "Bury");
    slow.into_iter().for_each(|letter| world.deliver(letter));
    world.done(write);
    assert_eq!(world.judge(&[B, C]), Ok(()));
}

/// The next member holds the value, and the one behind it is slow.
#[test]
fn sends_no_value_that_is_held() {
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], false);
    let write = world.ask(A, 0, Ask::Set(1));
    world.carry(A, B, "Down");
    assert!(!world.take(B, C, "Down").is_empty(), "it is lost");
    world.wait_for(A, B, "Down");
    world.carry(A, B, "Down");
    assert!(!world.take(B, C, "Down").is_empty(), "it is lost again");
    world.carry(B, A, "Have");
    world.wait_for(A, B, "Again");
    assert!(world.take(A, B, "Down").is_empty(), "it is there");
    world.carry(A, B, "Again");
    world.carry(B, C, "Down");
    world.done(write);
    assert_eq!(world.judge(&[B, C]), Ok(()));
}

/// Messages in front of a link are not lost.
#[test]
fn repeats_nothing_to_a_slow_member() {
    let mut world = group::<Configured<Craq>>(2, &[A, B], false);
    world.nodes[A].peers.set_pace(node_id(B), Pace::Slow);
    let write = world.ask(A, 0, Ask::Set(1));
    assert!(!world.take(A, B, "Down").is_empty());
    for _ in 0..3 {
        world.wait(A, 25);
    }
    assert!(world.take(A, B, "Down").is_empty());
    world.nodes[A].peers.set_pace(node_id(B), Pace::Steady);
    world.wait_for(A, B, "Down");
    world.done(write);
    assert_eq!(world.judge(&[A, B]), Ok(()));
}
