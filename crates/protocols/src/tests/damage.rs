//! A member's medium loses a register.

use std::sync::Arc;

use base::Nanos;
use types::{Configuration, Epoch, Outcome, Reply, Role};

use super::World;
use super::asks::Ask;
use super::steps::{A, B};
use crate::configured::{Configured, Member};
use crate::craq::Craq;
use crate::group::GroupEvent;
use crate::hermes::Hermes;
use crate::protocol::Event;

fn damaged<P: Member>() -> World<Configured<P>> {
    let mut world = World::new(2, true, 7);
    world.begin(&[A, B]);
    let write = world.ask(A, 0, Ask::Set(1));
    world.settle(&[write]);
    world.drain();
    world.damage(B, 0);
    world
}

fn is_read<P: Member>(world: &mut World<Configured<P>>, node: usize) -> bool {
    let read = world.ask(node, 0, Ask::Get);
    world.settle(&[read]);
    let value = Reply::copy(&[1]);
    assert_eq!(world.verdict(), Ok(()));
    world.outcomes.get(&read) == Some(&Outcome::Reply(value))
}

/// The lease still holds, and the other register of the member is whole.
fn damaged_member_serves_no_read<P: Member>() {
    let mut world = damaged::<P>();
    for key in [0, 1] {
        let read = world.ask(B, key, Ask::Get);
        for _ in 0..50 {
            world.drain();
            world.pass(Nanos::from_millis(10), [A, B].into_iter());
        }
        assert!(world.is_open(read), "{:?}", world.outcomes.get(&read));
    }
}

fn damaged_member_copies_everything_anew<P: Member>() {
    let mut world = damaged::<P>();
    world.change(&[A]);
    world.lend(A);
    assert!(is_read(&mut world, A));
    world.install(B);
    world.erase(B);
    world.drain();
    world.change(&[A, B]);
    world.drain();
    world.change(&[A, B]);
    let active = world.service.active.clone().expect("it began");
    assert!(active.members.iter().all(|member| member.role == Role::Full));
    world.lend_all();
    assert!(is_read(&mut world, B));
}

fn damaged_last_image_is_no_full_member<P: Member>() {
    let mut world = damaged::<P>();
    world.kill(A, 0, 0);
    world.service.tried.0 += 1;
    world.wedge(B);
    assert_eq!(world.eligible(B), None);
}

/// The service saves the rest of the last image by an operator's order.
fn rest_of_the_last_image_serves<P: Member>() {
    let mut world = damaged::<P>();
    world.kill(A, 0, 0);
    let lost = world.ask(B, 0, Ask::Get);
    world.drain();
    world.step(B, Event::Group(GroupEvent::Keep));
    world.drain();
    assert!(world.is_open(lost), "it is no member");
    assert!(!world.nodes[B].cache.is_forgotten(world.shard()));
    world.service.tried.0 += 1;
    world.wedge(B);
    world.activate(vec![(B, Role::Full)]);
    world.install(B);
    world.lend(B);
    let (read, write) = (world.ask(B, 0, Ask::Get), world.ask(B, 1, Ask::Set(5)));
    world.settle(&[lost, read, write]);
    for read in [lost, read] {
        assert_eq!(world.outcomes.get(&read), Some(&Outcome::Reply(Reply::Null)));
    }
    let read = world.ask(B, 1, Ask::Get);
    world.settle(&[read]);
    assert_eq!(world.outcomes.get(&read), Some(&Outcome::Reply(Reply::copy(&[5]))));
}

/// An order that was on its way when the loss was told begins no service.
fn damaged_member_begins_no_epoch<P: Member>() {
    let mut world = damaged::<P>();
    let next = {
        let active = world.service.active.clone().expect("it began");
        Configuration { epoch: Epoch(active.epoch.0 + 1), ..(*active).clone() }
    };
    let (configuration, role) = (Arc::new(next), Some(Role::Full));
    world.service.active = Some(Arc::clone(&configuration));
    world.step(B, Event::Group(GroupEvent::Install { configuration, role }));
    world.nodes[B].lent.set(world.service.active.as_ref().expect("it began").epoch);
    let read = world.ask(B, 1, Ask::Get);
    world.drain();
    assert!(world.is_open(read), "{:?}", world.outcomes.get(&read));
}

/// After a loss in another worker the seal names the epoch that runs.
fn seal_of_the_running_epoch_stops_it<P: Member>() {
    let mut world = World::<Configured<P>>::new(2, true, 7);
    world.begin(&[A, B]);
    world.wedge(B);
    world.lend_all();
    let read = world.ask(B, 0, Ask::Get);
    world.drain();
    assert!(world.is_open(read), "{:?}", world.outcomes.get(&read));
}

#[test]
fn rest_of_the_last_image_serves_by_order() {
    rest_of_the_last_image_serves::<Hermes>();
    rest_of_the_last_image_serves::<Craq>();
}

#[test]
fn damaged_member_begins_no_epoch_that_was_on_its_way() {
    damaged_member_begins_no_epoch::<Hermes>();
    damaged_member_begins_no_epoch::<Craq>();
}

#[test]
fn seal_of_the_running_epoch_stops_the_member() {
    seal_of_the_running_epoch_stops_it::<Hermes>();
    seal_of_the_running_epoch_stops_it::<Craq>();
}

#[test]
fn damaged_member_of_hermes_serves_no_read() {
    damaged_member_serves_no_read::<Hermes>();
}

#[test]
fn damaged_member_of_craq_serves_no_read() {
    damaged_member_serves_no_read::<Craq>();
}

#[test]
fn damaged_member_of_hermes_copies_everything_anew() {
    damaged_member_copies_everything_anew::<Hermes>();
}

#[test]
fn damaged_member_of_craq_copies_everything_anew() {
    damaged_member_copies_everything_anew::<Craq>();
}

#[test]
fn damaged_last_image_of_a_group_is_no_member() {
    damaged_last_image_is_no_full_member::<Hermes>();
    damaged_last_image_is_no_full_member::<Craq>();
}
