//! Versions in a chain that lose messages, or wait.

use bytes::Bytes;
use types::{Access, Command, Key, Outcome, Reply, Tag};

use super::asks::{Ask, TTL};
use super::node::REQUEST_TIMEOUT;
use super::node_id;
use super::steps::{A, B, C, D, group};
use crate::configured::Configured;
use crate::craq::Craq;
use crate::peers::Pace;
use crate::protocol::{Event, Request};
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

/// A member gives up its commands on a key one after the other, while a version is stuck.
#[test]
fn head_keeps_one_command_of_a_worker() {
    let mut world = group::<Configured<Craq>>(2, &[A, B], false);
    world.ask(A, 0, Ask::Set(1));
    let stuck = world.take(A, B, "Down");
    for byte in 2..6 {
        let append = world.ask(B, 0, Ask::Append(byte));
        world.carry(B, A, "Steer");
        world.wait(B, REQUEST_TIMEOUT.as_millis());
        assert_eq!(world.outcomes.get(&append), Some(&Outcome::Unknown));
        world.take(B, A, "Steer");
    }
    let last = world.ask(B, 0, Ask::Append(6));
    world.carry(B, A, "Steer");
    let kept = format!("{:?}", world.nodes[A].protocol).matches("Steered {").count();
    assert_eq!(kept, 1);
    stuck.into_iter().for_each(|letter| world.deliver(letter));
    world.done(last);
    assert_eq!(world.judge(&[A, B]), Ok(()));
}

/// A member tells at once that it holds a long value, so that the value does not come again.
#[test]
fn long_value_goes_once() {
    const LEN: usize = 70 << 10;
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], true);
    let (key, tag) = (world.keys[0].clone(), Tag(1_000));
    let command = Command::new(Access::Write, Bytes::from([b"s".as_slice(), &[1; LEN]].concat()));
    let session = types::SessionId(tag.0);
    let request = Request { tag, session, key, command, asked_at: world.now };
    world.step(A, Event::Request(request));
    while world.flush(A) {}
    world.carry(A, B, "Down");
    assert!(world.take(B, A, "Have").is_empty(), "it is not durable there");
    while world.flush(B) {}
    let slow = world.take(B, C, "Down");
    world.carry(B, A, "Have");
    // The last member is silent, and the one before it reports it.
    for _ in 0..400 {
        world.wait(A, 10);
        assert!(world.take(A, B, "Down").is_empty(), "it is there");
        for (from, to) in [(A, B), (B, A)] {
            world.take(from, to, "").into_iter().for_each(|letter| world.deliver(letter));
        }
        world.take(B, C, "");
        if !world.suspects.is_empty() {
            break;
        }
    }
    assert_eq!(world.suspects, [(B, node_id(C))]);
    slow.into_iter().for_each(|letter| world.deliver(letter));
    world.done(tag);
    assert!(matches!(world.outcomes.get(&tag), Some(Outcome::Reply(_))));
    assert_eq!(world.verdict(), Ok(()));
}

/// The deadline of a key is over, and its deletion has not come to the last member.
#[test]
fn reader_of_an_ended_key_asks_the_tail_seldom() {
    let mut world = group::<Configured<Craq>>(3, &[A, B, C], false);
    let write = world.ask(A, 0, Ask::SetUntil(1));
    world.done(write);
    world.drain();
    world.wait(A, TTL.0 + 10);
    world.wait_for(A, B, "Down");
    world.carry(A, B, "Down");
    let stuck = world.take(B, C, "Down");
    assert!(!stuck.is_empty());
    let read = world.ask(B, 0, Ask::Get);
    for _ in 0..3 {
        world.carry(B, C, "AskTail");
        world.carry(C, B, "Tail");
        assert!(world.take(B, C, "AskTail").is_empty(), "no sooner than after a while");
        assert!(world.is_open(read));
        world.wait_for(B, C, "AskTail");
    }
    stuck.into_iter().for_each(|letter| world.deliver(letter));
    world.done(read);
    assert_eq!(world.outcomes.get(&read), Some(&Outcome::Reply(Reply::Null)));
    assert_eq!(world.fault, None);
}
