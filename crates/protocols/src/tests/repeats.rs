//! Commands of a chain that come again. Each schedule holds without its mistake.

use types::{Outcome, Role, Tag};

use super::World;
use super::asks::Ask;
use super::steps::{A, B, C, D, group};
use crate::configured::Configured;
use crate::craq::Craq;

/// A command took effect in a version that only its origin got. The next head lacks the version,
/// and runs the command without effect.
pub(super) fn craq_repeat_without_effect() -> Result<(), String> {
    let mut world = group::<Configured<Craq>>(4, &[A, C, D], false);
    world.service.tried.0 += 1;
    [A, B, C, D].into_iter().for_each(|index| world.wedge(index));
    world.activate(vec![(A, Role::Full), (B, Role::Shadow), (C, Role::Full), (D, Role::Full)]);
    [A, B, C, D].into_iter().for_each(|index| world.install(index));
    world.lend_all();
    world.drain();
    let write = world.ask(A, 0, Ask::Set(8));
    // Commands that wait for a version become the next one together.
    world.ask(D, 0, Ask::Delete);
    world.carry(D, A, "Steer");
    let again = world.ask(C, 0, Ask::SetIfAbsent(1));
    world.carry(C, A, "Steer");
    for (from, to) in [(A, C), (C, D), (D, B)] {
        world.carry(from, to, "Down");
    }
    for (from, to) in [(B, D), (D, C), (C, A)] {
        world.carry(from, to, "Up");
    }
    assert!(!world.is_open(write));
    world.carry(A, C, "Down");
    world.bag.clear();
    // The shadow becomes full and the head.
    world.change(&[B, C]);
    world.lend_all();
    world.wait_for(C, B, "Steer");
    world.carry(C, B, "Steer");
    for letter in world.take(B, C, "Done") {
        world.deliver(letter);
    }
    if world.is_open(again) {
        world.settle(&[again]);
        return world.judge(&[B, C]);
    }
    world.bag.clear();
    world.change(&[C]);
    world.lend(C);
    world.judge(&[C])
}

type Chain = World<Configured<Craq>>;

/// A command of a member behind the head took effect, and its long reply is lost.
fn long_reply_that_is_lost(origin: usize) -> (Chain, Tag) {
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], false);
    let append = world.ask(origin, 0, Ask::AppendTold(1));
    world.carry(origin, A, "Steer");
    world.carry(A, B, "Down");
    world.carry(B, C, "Down");
    world.carry(C, B, "Up");
    world.carry(B, A, "Up");
    assert_eq!(world.take(A, origin, "Done").len(), 1, "it ran");
    (world, append)
}

/// The outcome is unknown, and the command ran once.
fn judge_repeat(world: Chain, append: Tag, readers: &[usize]) -> Result<(), String> {
    match world.outcomes.get(&append) {
        Some(Outcome::Unknown) => world.judge(readers),
        outcome => Err(format!("it ends with {outcome:?}")),
    }
}

fn after_the_head_failed(origin: usize) -> Result<(), String> {
    let (mut world, append) = long_reply_that_is_lost(origin);
    world.bag.clear();
    world.change(&[B, C]);
    world.lend_all();
    world.settle(&[append]);
    judge_repeat(world, append, &[B, C])
}

pub(super) fn craq_long_reply_of_a_dead_head() -> Result<(), String> {
    after_the_head_failed(C)
}

/// The member that sends it again is the head now.
pub(super) fn craq_long_reply_at_the_next_head() -> Result<(), String> {
    after_the_head_failed(B)
}

/// The head answers the copy at once. It does not let the client wait for the deadline.
#[test]
fn repeat_of_a_long_reply_ends_unknown() {
    let (mut world, append) = long_reply_that_is_lost(C);
    world.wait_for(C, A, "Steer");
    world.carry(C, A, "Steer");
    world.carry(A, C, "Done");
    assert_eq!(judge_repeat(world, append, &[A, B, C]), Ok(()));
}

/// A copy comes while the version of the command is on its way. The reply itself arrives.
#[test]
fn repeat_during_the_version_gets_the_long_reply() {
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], false);
    let append = world.ask(C, 0, Ask::AppendTold(1));
    world.carry(C, A, "Steer");
    world.wait_for(C, A, "Steer");
    world.carry(C, A, "Steer");
    world.done(append);
    assert!(matches!(world.outcomes.get(&append), Some(Outcome::Reply(_))));
    assert_eq!(world.judge(&[A, B, C]), Ok(()));
}
