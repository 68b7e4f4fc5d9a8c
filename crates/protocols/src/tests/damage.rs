//! A member's medium loses a register.

use base::Nanos;
use types::{Outcome, Reply, Role};

use super::World;
use super::asks::Ask;
use crate::configured::{Configured, Member};
use crate::craq::Craq;
use crate::hermes::Hermes;

const A: usize = 0;
const B: usize = 1;

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
