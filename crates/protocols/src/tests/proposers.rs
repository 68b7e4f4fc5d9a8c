//! Schedules of protocols whose nodes propose: classic-paxos and caspaxos.

use std::collections::BTreeSet;

use base::Nanos;
use types::{Key, Tag};

use super::World;
use super::asks::{Ask, TTL};
use super::steps::{A, B, C};
use crate::abd::Abd;
use crate::caspaxos::{self, CasPaxos};
use crate::classic_paxos::{self, ClassicPaxos};
use crate::protocol::Protocol;
use crate::register_cache::CachedRegister;

/// A replica votes by a reader's message, which promises no further ballot. Then the proposer's own
/// message comes: its acknowledgement counts as a promise, once that is durable.
#[test]
fn vote_that_a_reader_brought_promises_the_next_ballot() {
    let mut world = World::<CasPaxos>::new(3, true, 7);
    let write = world.ask(A, 0, Ask::Set(1));
    world.carry(A, B, "Prepare");
    while world.flush(A) || world.flush(B) {}
    world.carry(B, A, "State");
    while world.flush(A) {}
    world.carry(A, B, "Accept {");
    while world.flush(A) || world.flush(B) {}
    world.bag.clear();
    let read = world.ask(B, 0, Ask::Get);
    for node in [C, A] {
        world.carry(B, node, "Read");
        world.carry(node, B, "State");
    }
    assert!(!world.is_open(read), "two of three have the vote");
    world.carry(B, C, "Accept {");
    while world.flush(C) {}
    world.bag.clear();
    world.wait_for(A, C, "Accept {");
    let promised = |world: &World<CasPaxos>, index: usize| match world.nodes[index]
        .cache
        .get(&world.keys[0])
    {
        CachedRegister::Present(register) => register.promised,
        CachedRegister::Absent | CachedRegister::Lost => panic!("it has voted"),
    };
    assert!(promised(&world, C) < promised(&world, A));
    world.carry(A, C, "Accept {");
    assert_eq!(promised(&world, C), promised(&world, A));
    assert!(world.take(C, A, "Accepted").is_empty(), "the promise is not durable yet");
    while world.flush(C) {}
    world.carry(C, A, "Accepted");
    assert!(!world.is_open(write));
    assert_eq!(world.verdict(), Ok(()));
}

/// A protocol whose keys end without a client.
pub(super) trait Ending: Protocol {
    /// The register has a value.
    fn has_value(register: &Self::Record) -> bool;
}

impl Ending for ClassicPaxos {
    fn has_value(register: &classic_paxos::Register) -> bool {
        register.latest().is_some_and(|state| state.value.is_some())
    }
}

impl Ending for CasPaxos {
    fn has_value(register: &caspaxos::Register) -> bool {
        register.state.as_ref().is_some_and(|state| state.value.is_some())
    }
}

impl Ending for Abd {
    fn has_value(register: &crate::abd::Register) -> bool {
        !register.content.is_empty()
    }
}

impl<P: Ending> World<P> {
    fn has(&self, index: usize, key: usize) -> bool {
        match self.nodes[index].cache.get(&self.keys[key]) {
            CachedRegister::Present(register) => P::has_value(register),
            CachedRegister::Absent => false,
            CachedRegister::Lost => true,
        }
    }

    /// Time passes until none of these nodes has the first key's value.
    fn ends_within(&mut self, nodes: &[usize], millis: u64) -> bool {
        for _ in 0..millis.div_ceil(10) {
            if nodes.iter().all(|&index| !self.has(index, 0)) {
                return true;
            }
            self.drain();
            self.pass(Nanos::from_millis(10), nodes.iter().copied());
        }
        false
    }
}

fn expiring<P: Ending>(durable: bool) -> World<P> {
    let mut world = World::<P>::new(3, durable, 7);
    let write = world.ask(A, 0, Ask::SetExpiring(1));
    world.settle(&[write]);
    world.idle(10);
    assert!([A, B, C].into_iter().all(|index| world.has(index, 0)));
    world
}

/// Its node looks at the key while no quorum answers, and gives up.
fn look_without_a_quorum<P: Ending>() {
    let mut world = expiring::<P>(false);
    for _ in 0..500 {
        world.pass(Nanos::from_millis(10), [A, B, C].into_iter());
        world.bag.clear();
    }
    assert!(world.has(A, 0) && world.has(B, 0) && world.has(C, 0));
    assert!(world.ends_within(&[A, B, C], 4_000), "it looks again");
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn look_is_repeated_until_a_quorum_answers() {
    look_without_a_quorum::<ClassicPaxos>();
    look_without_a_quorum::<CasPaxos>();
    look_without_a_quorum::<Abd>();
}

/// The look falls into the first phase of a command that keeps the deadline. One of the two
/// replicas that answer began to count later.
fn look_beside_a_command<P: Ending>() {
    let mut world = World::<P>::new(3, false, 7);
    let write = world.ask(A, 0, Ask::SetExpiring(1));
    world.nodes[C].is_up = false;
    world.settle(&[write]);
    world.drain();
    world.nodes[C].is_up = true;
    assert!(world.has(B, 0) && !world.has(C, 0));
    world.pass(Nanos::from_millis(TTL.0 - 20), [A, B, C].into_iter());
    let read = world.ask(C, 0, Ask::Get);
    world.settle(&[read]);
    world.drain();
    assert!(world.has(C, 0), "it heard of the value");
    world.nodes[B].is_up = false;
    let append = world.ask(A, 0, Ask::Keep(2));
    world.pass(Nanos::from_millis(60), std::iter::once(A));
    world.settle(&[append]);
    assert!(!world.is_open(append));
    assert!(world.has(A, 0) && world.has(C, 0));
    assert!(world.ends_within(&[A, C], 1_000), "no other node's turn has come");
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn look_goes_on_after_a_command_on_the_key() {
    look_beside_a_command::<ClassicPaxos>();
    look_beside_a_command::<CasPaxos>();
}

/// The node that set the deadline dies for good.
fn setter_that_is_gone<P: Ending>() {
    let mut world = expiring::<P>(true);
    world.kill(A, 9, 0);
    assert!(world.ends_within(&[B, C], TTL.0 + 6_000));
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn key_of_a_dead_node_ends() {
    setter_that_is_gone::<ClassicPaxos>();
    setter_that_is_gone::<CasPaxos>();
    setter_that_is_gone::<Abd>();
}

/// The node that set the deadline forgets it, and recovers it after the sweep of its start.
fn setter_that_forgot<P: Ending>() {
    let mut world = expiring::<P>(false);
    world.kill(A, 0, 0);
    world.start(A);
    world.idle(50);
    assert!(world.has(A, 0), "it has recovered the register");
    assert!(world.ends_within(&[A, B, C], TTL.0 + 300), "no other node's turn has come");
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn recovered_key_ends() {
    setter_that_forgot::<ClassicPaxos>();
    setter_that_forgot::<CasPaxos>();
}

/// Many keys end together. Few values are on their way at a time.
fn keys_that_end_together<P: Ending>() {
    const KEYS: u64 = 600;
    let mut world = World::<P>::new(3, false, 7);
    let first = world.shard().first_hash();
    world.keys = (0..KEYS).map(|key| Key::at(first + (key << 20), b"k")).collect();
    let all = 0..KEYS as usize;
    let writes: Vec<Tag> = all.clone().map(|key| world.ask(A, key, Ask::SetExpiring(1))).collect();
    world.settle(&writes);
    world.drain();
    world.pass(Nanos::from_millis(TTL.0 + 30), std::iter::once(A));
    for _ in 0..5 {
        world.pass(Nanos::from_millis(20), std::iter::once(A));
    }
    let reads = world.bag.iter().filter(|letter| letter.to == B);
    let reads = reads.map(|letter| format!("{:?}", letter.message));
    let reads: BTreeSet<String> = reads.filter(|it| it.contains("Read")).collect();
    assert_eq!(reads.len(), 256, "{}", P::NAME);
    world.idle(3_000);
    for index in [A, B, C] {
        assert!(all.clone().all(|key| !world.has(index, key)), "each ends");
    }
    assert_eq!(world.verdict(), Ok(()));
}

#[test]
fn few_keys_end_at_a_time() {
    keys_that_end_together::<ClassicPaxos>();
    keys_that_end_together::<CasPaxos>();
}
