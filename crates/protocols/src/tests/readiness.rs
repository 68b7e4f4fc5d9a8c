//! Which nodes wait for data: others must not rely on them, and they are not ready.

use base::Nanos;
use types::{Epoch, Outcome, Tag};

use super::World;
use super::steps::{A, B, C, D};
use crate::configured::{Configured, Member};
use crate::craq::Craq;
use crate::hermes::Hermes;
use crate::protocol::{Event, Protocol as _, Stats};

impl<P: Member> World<Configured<P>> {
    fn waits_for_data(&self, index: usize) -> bool {
        let mut stats = Stats::default();
        self.nodes[index].protocol.stats(&mut stats);
        stats.values["shards_recovering"] > 0
    }

    /// The service has given the image up, and the node copies everything.
    fn copy(&mut self, index: usize, members: &[usize]) {
        self.install(index);
        self.erase(index);
        self.drain();
        self.change(members);
        self.lend_all();
        assert!(self.waits_for_data(index), "a shadow still copies");
        for _ in 0..20 {
            let up = self.up();
            self.pass(Nanos::from_millis(100), up.into_iter());
            self.drain();
        }
        self.change(members);
        self.lend_all();
    }
}

fn outsider_of_a_complete_group_waits_for_nothing<P: Member>() {
    let mut world = World::<Configured<P>>::with_group((4, 3), true, 7);
    assert!(world.waits_for_data(D), "no node has a configuration yet");
    world.begin(&[A, B, C]);
    world.drain();
    for index in [A, B, C, D] {
        assert!(!world.waits_for_data(index), "node {index}");
    }
}

fn outsider_of_a_short_group_waits_until_it_is_full<P: Member>() {
    let mut world = World::<Configured<P>>::with_group((4, 3), true, 7);
    world.begin(&[A, B]);
    world.drain();
    assert!(!world.waits_for_data(A));
    assert!(world.waits_for_data(C) && world.waits_for_data(D), "either may have to join");
    world.copy(C, &[A, B, C]);
    assert!(!world.waits_for_data(C));
    world.install(D);
    assert!(!world.waits_for_data(D), "the group is complete without it");
}

fn wiped_member_waits_until_it_has_a_copy<P: Member>() {
    let mut world = World::<Configured<P>>::new(3, false, 7);
    world.begin(&[A, B, C]);
    world.drain();
    world.kill(C, 0, 0);
    world.start(C);
    assert!(world.waits_for_data(C));
    world.install(C);
    assert!(world.waits_for_data(C), "the configuration names the process before");
    world.change(&[A, B]);
    world.copy(C, &[A, B, C]);
    assert!(!world.waits_for_data(C));
}

#[test]
fn outsider_of_complete_group_is_ready() {
    outsider_of_a_complete_group_waits_for_nothing::<Hermes>();
    outsider_of_a_complete_group_waits_for_nothing::<Craq>();
}

#[test]
fn outsider_of_short_group_is_not_ready() {
    outsider_of_a_short_group_waits_until_it_is_full::<Hermes>();
    outsider_of_a_short_group_waits_until_it_is_full::<Craq>();
}

#[test]
fn wiped_member_is_ready_once_it_has_a_copy() {
    wiped_member_waits_until_it_has_a_copy::<Hermes>();
    wiped_member_waits_until_it_has_a_copy::<Craq>();
}

/// It would read its keys in vain, and that again and again.
fn member_without_a_lease_reads_no_keys_to_list<P: Member>() {
    let mut world = World::<Configured<P>>::new(3, false, 7);
    world.begin(&[A, B, C]);
    world.drain();
    world.nodes[B].lent.set(Epoch(0));
    let (tag, from_hash) = (Tag(1_000), world.shard().first_hash());
    world.run(B, Event::List { tag, from_hash, limit: 100 });
    for _ in 0..5 {
        assert!(world.nodes[B].scans.is_empty());
        world.wait(B, 20);
        assert!(world.is_open(tag));
    }
    world.lend(B);
    world.settle(&[tag]);
    assert!(matches!(world.outcomes.get(&tag), Some(Outcome::Listed { .. })));
}

#[test]
fn members_without_a_lease_read_no_keys_to_list() {
    member_without_a_lease_reads_no_keys_to_list::<Hermes>();
    member_without_a_lease_reads_no_keys_to_list::<Craq>();
}
