//! Schedules of protocols whose nodes propose: classic-paxos and caspaxos.

use super::World;
use super::asks::Ask;
use super::schedules::{A, B, C};
use crate::caspaxos::CasPaxos;
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
    let promised = |world: &World<CasPaxos>, index: usize| {
        match world.nodes[index].cache.get(&world.keys[0]) {
            CachedRegister::Present(register) => register.promised,
            CachedRegister::Absent | CachedRegister::Lost => panic!("it has voted"),
        }
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
