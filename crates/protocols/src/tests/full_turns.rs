//! Turns with more writes than receivers remember.

use types::{Key, Outcome, Tag};

use super::World;
use super::asks::Ask;
use super::steps::{A, B, C, group};
use crate::abd::Abd;
use crate::configured::{Configured, Member};
use crate::craq::Craq;
use crate::hermes::Hermes;
use crate::protocol::{Event, Protocol};
use crate::register_cache::CachedRegister;

/// More than a receiver remembers of one stream.
const MANY: usize = 1_100;

impl<P: Protocol> World<P> {
    fn add_keys(&mut self, count: usize) {
        let first = self.shard().first_hash();
        let key = |number: usize| Key::at(first + number as u64, &number.to_le_bytes());
        self.keys = (0..count).map(key).collect();
    }

    /// One node gets these writes, each of another key, before its turn ends.
    fn ask_together(&mut self, index: usize, keys: std::ops::Range<usize>) -> Vec<Tag> {
        let mut tags = Vec::new();
        for key in keys {
            let request = self.request(index, key, Ask::Set(1));
            tags.push(request.tag);
            self.run(index, Event::Request(request));
        }
        tags
    }

    fn expect_replies(&self, tags: &[Tag]) -> Result<(), String> {
        let lacks = |tag: &&Tag| !matches!(self.outcomes.get(tag), Some(Outcome::Reply(_)));
        let lacking: Vec<_> = tags.iter().filter(lacks).collect();
        match lacking.is_empty() {
            true => Ok(()),
            false => Err(format!("{} writes have no reply", lacking.len())),
        }
    }
}

/// The coordinator gets all acknowledgements of many writes and many new writes in one turn. No
/// timer may be needed.
pub(super) fn hermes_commits_of_a_full_turn() -> Result<(), String> {
    let mut world = group::<Configured<Hermes>>(3, &[A, B, C], false);
    world.add_keys(2 * MANY);
    let mut tags = world.ask_together(A, 0..MANY);
    world.go_on(A);
    for member in [B, C] {
        let writes = world.take(A, member, "Invalidate");
        world.deliver_together(writes);
    }
    let acks = world.bag.extract_if(.., |letter| letter.to == A).collect::<Vec<_>>();
    for letter in acks {
        world.run(A, Event::Peer { from: letter.from, message: letter.message });
    }
    tags.extend(world.ask_together(A, MANY..2 * MANY));
    world.go_on(A);
    world.drain();
    world.expect_replies(&tags)?;
    for (member, key) in
        [B, C].into_iter().flat_map(|it| world.keys.iter().map(move |key| (it, key)))
    {
        let CachedRegister::Present(register) = world.nodes[member].cache.get(key) else {
            return Err(format!("node {member} lacks {key:?}"));
        };
        if !register.is_valid {
            return Err(format!("node {member} waits for {key:?}"));
        }
    }
    world.judge(&[B, C])
}

fn full_turn<P: Protocol>(mut world: World<P>, node: usize) {
    world.add_keys(MANY);
    let tags = world.ask_together(node, 0..MANY);
    world.go_on(node);
    world.drain();
    assert_eq!(world.expect_replies(&tags), Ok(()));
    assert_eq!(world.judge(&[A, B, C]), Ok(()));
}

/// Any message may be the last one: no write of a full turn waits for a timer.
#[test]
fn writes_of_a_full_turn_need_no_timer() {
    for durable in [false, true] {
        full_turn(group::<Configured<Hermes>>(3, &[A, B, C], durable), B);
        full_turn(group::<Configured<Craq>>(3, &[A, B, C], durable), A);
        full_turn(group::<Configured<Craq>>(3, &[A, B, C], durable), C);
        full_turn(World::<Abd>::new(3, durable, 7), B);
    }
}

/// Reads of a key that is being written wait. Those beyond the limit are refused at once.
#[test]
fn requests_beyond_the_limit_are_refused_at_once() {
    const LIMIT: usize = 65_536;
    let mut world = group::<Configured<Hermes>>(2, &[A, B], false);
    let write = world.ask(A, 0, Ask::Set(1));
    world.carry(A, B, "Invalidate");
    let mut reads = Vec::new();
    for _ in 0..LIMIT + 10 {
        let request = world.request(B, 0, Ask::Get);
        reads.push(request.tag);
        world.run(B, Event::Request(request));
    }
    world.go_on(B);
    let refused: Vec<_> = reads.iter().filter(|&&read| !world.is_open(read)).collect();
    assert!((10..20).contains(&refused.len()), "{} are refused", refused.len());
    assert!(refused.iter().all(|read| world.outcomes[read] == Outcome::NoQuorum));
    let waiting: Vec<Tag> = reads.iter().copied().filter(|&read| world.is_open(read)).collect();
    world.drain();
    assert!(!world.is_open(write));
    assert_eq!(world.expect_replies(&waiting), Ok(()));
}

/// A member holds few writes of an epoch that it has not installed. The others come again.
fn writes_before_an_epoch<P: Member>() {
    let mut world = group::<Configured<P>>(2, &[A, B], false);
    world.add_keys(200);
    world.service.tried.0 += 1;
    [A, B].into_iter().for_each(|index| world.wedge(index));
    let members = world.draft();
    world.activate(members);
    world.install(A);
    world.lend(A);
    let tags = world.ask_together(A, 0..200);
    world.go_on(A);
    world.drain();
    world.install(B);
    world.lend(B);
    world.drain();
    assert!(tags.iter().any(|&tag| world.is_open(tag)), "some were dropped");
    assert!(tags.iter().any(|&tag| !world.is_open(tag)), "some were held");
    world.settle(&tags);
    assert_eq!(world.expect_replies(&tags), Ok(()));
    assert_eq!(world.judge(&[A, B]), Ok(()));
}

#[test]
fn writes_before_an_epoch_are_held_or_come_again() {
    writes_before_an_epoch::<Hermes>();
    writes_before_an_epoch::<Craq>();
}
