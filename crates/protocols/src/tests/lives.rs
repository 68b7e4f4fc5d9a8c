//! Lives of keys of hermes: schedules made for single mutants. Each holds without them.

use types::Outcome;

use super::World;
use super::asks::Ask;
use super::letter::Letter;
use super::steps::{A, ALL, B, C};
use crate::configured::Configured;
use crate::hermes::{Hermes, Message};

type Envelope = crate::configured::Envelope<Message>;

fn hermes() -> World<Configured<Hermes>> {
    let mut world = World::new(3, false, 7);
    world.begin(&ALL);
    world.drain();
    world
}

/// The key was written and deleted. Returns a copy of its invalidation for one node.
fn written_and_deleted(
    world: &mut World<Configured<Hermes>>,
    (writer, late): (usize, usize),
) -> Vec<Letter<Envelope>> {
    let write = world.ask(writer, 0, Ask::Set(1));
    let letters = world.take(writer, late, "Invalidate");
    let copies = letters.iter().map(Letter::copy).collect();
    letters.into_iter().for_each(|letter| world.deliver(letter));
    world.done(write);
    world.ask_and_end(writer, 0, Ask::Delete);
    copies
}

/// An invalidation comes after the registers were removed. The others leave.
fn hermes_late_version(is_withheld: impl Fn(&Letter<Envelope>) -> bool) -> Result<(), String> {
    let mut world = hermes();
    let [first, late, _] = world.by_turn();
    let letters = written_and_deleted(&mut world, (first, late));
    world.idle_but(1_500, |it| it.to == late && is_withheld(it));
    letters.into_iter().for_each(|letter| world.deliver(letter));
    world.bag.clear();
    world.change(&[late]);
    world.lend(late);
    world.judge(&[late])
}

pub(super) fn hermes_late_version_after_a_round() -> Result<(), String> {
    hermes_late_version(|_| false)
}

/// One member has not begun the era of the others.
pub(super) fn hermes_late_version_before_an_era() -> Result<(), String> {
    hermes_late_version(|it| it.has("Raise {"))
}

/// One member has begun an era. Returns it and the others.
fn hermes_with_eras() -> (World<Configured<Hermes>>, [usize; 3]) {
    let mut world = hermes();
    let nodes = world.by_turn();
    world.ask_and_end(nodes[0], 1, Ask::Set(1));
    world.ask_and_end(nodes[0], 1, Ask::Delete);
    world.idle_but(1_500, |it| it.has("Raise {"));
    (world, nodes)
}

/// Two members write to a key without a register, in different eras.
pub(super) fn hermes_births_of_two_eras() -> Result<(), String> {
    let (mut world, [ahead, behind, other]) = hermes_with_eras();
    let write = world.ask(behind, 0, Ask::Set(1));
    let append = world.ask(ahead, 0, Ask::Append(2));
    for (from, to) in [(behind, ahead), (behind, other), (ahead, behind), (other, behind)] {
        let part = if from == behind { "Invalidate" } else { "Ack" };
        world.take(from, to, part).into_iter().for_each(|letter| world.deliver(letter));
    }
    let read = world.ask(behind, 0, Ask::Get);
    world.settle(&[write, append, read]);
    world.judge(&ALL)
}

/// A write in an earlier era is found lost by the next one's value.
pub(super) fn hermes_write_below_a_later_life() -> Result<(), String> {
    let (mut world, [ahead, behind, _]) = hermes_with_eras();
    let write = world.ask(behind, 0, Ask::Set(1));
    world.bag.clear();
    let append = world.ask(ahead, 0, Ask::Append(2));
    world.settle(&[write, append]);
    world.judge(&ALL)
}

/// A member that still holds a tombstone writes above it.
pub(super) fn hermes_write_on_a_removed_tombstone() -> Result<(), String> {
    let mut world = hermes();
    let [first, late, _] = world.by_turn();
    world.ask_and_end(first, 0, Ask::Set(1));
    world.ask_and_end(first, 0, Ask::Delete);
    world.idle_but(1_500, |it| it.to == late && it.has("Bury"));
    assert!(world.is_absent(first, 0) && !world.is_absent(late, 0));
    world.ask_and_end(late, 0, Ask::Set(2));
    world.judge(&ALL)
}

/// Others have finished a write and deleted its value. Its writer knows of neither.
pub(super) fn hermes_write_that_others_finished() -> Result<(), String> {
    let mut world = hermes();
    let [first, writer, other] = world.by_turn();
    let is_news = |it: &Letter<_>| it.to == writer && (it.has("Ack") || it.has("Validate"));
    let write = world.ask(writer, 0, Ask::Set(1));
    world.carry(writer, first, "Invalidate");
    world.carry(writer, other, "Invalidate");
    let read = world.ask(first, 0, Ask::Get);
    world.idle_but(50, is_news);
    let delete = world.ask(first, 0, Ask::Delete);
    world.idle_but(1_500, is_news);
    assert!(!world.is_open(read) && !world.is_open(delete));
    world.settle(&[write]);
    match world.outcomes.get(&write) {
        Some(Outcome::Reply(_)) => world.judge(&ALL),
        outcome => Err(format!("the write ends with {outcome:?}")),
    }
}

/// A page of a shadow's copy has a value that is deleted meanwhile.
pub(super) fn hermes_deletion_beside_a_copy() -> Result<(), String> {
    let mut world = World::<Configured<Hermes>>::new(3, false, 7);
    world.begin(&[A, B]);
    world.ask_and_end(A, 0, Ask::Set(1));
    world.change(&ALL);
    world.lend_all();
    let is_page = |it: &Letter<_>| it.to == C && it.has("Page");
    // The second page is waited for longer.
    world.idle_but(900, is_page);
    let mut pages = Vec::new();
    for donor in (0..400).map(|step| step % 2) {
        world.wait(C, 1);
        world.take(C, donor, "Copy(").into_iter().for_each(|letter| world.deliver(letter));
        pages.append(&mut world.take(donor, C, "Page"));
    }
    assert_eq!(pages.len(), 1);
    let delete = world.ask(A, 0, Ask::Delete);
    world.idle_but(1_500, is_page);
    assert!(!world.is_open(delete));
    pages.into_iter().for_each(|letter| world.deliver(letter));
    world.drain();
    world.change(&ALL);
    world.lend_all();
    world.judge(&[C])
}

#[test]
fn registers_of_deleted_keys_of_hermes_go() {
    let mut world = hermes();
    for key in [0, 1] {
        world.ask_and_end(A, key, Ask::SetExpiring(1));
    }
    world.ask_and_end(B, 0, Ask::Delete);
    world.idle_all(2_500);
    for node in ALL {
        assert!(world.is_absent(node, 0) && world.is_absent(node, 1));
    }
    world.ask_and_end(C, 0, Ask::SetIfAbsent(2));
    world.ask_and_end(A, 0, Ask::Delete);
    // The round ends with the epoch, and another one begins.
    world.change(&ALL);
    world.lend_all();
    world.idle_all(2_500);
    assert!(ALL.into_iter().all(|node| world.is_absent(node, 0)));
    world.ask_and_end(B, 0, Ask::SetIfAbsent(3));
    assert_eq!(world.judge(&ALL), Ok(()));
}

/// Some members have removed a register, others have not. The next rounds end it, in a later epoch
/// too.
#[test]
fn rounds_of_hermes_go_on() {
    let mut world = hermes();
    let [first, late, _] = world.by_turn();
    world.ask_and_end(first, 0, Ask::Set(1));
    world.ask_and_end(first, 0, Ask::Delete);
    world.idle_but(1_500, |it| it.to == late && it.has("Bury"));
    assert!(world.is_absent(first, 0) && !world.is_absent(late, 0));
    world.change(&ALL);
    world.lend_all();
    world.idle_all(13_000);
    assert!(ALL.into_iter().all(|node| world.is_absent(node, 0)));
    assert_eq!(world.judge(&ALL), Ok(()));
}
