//! Bounds of the work of abd, and of the time that it takes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use base::Nanos;
use types::{AmnesiaCount, Key, SessionId, Tag};

use super::World;
use super::asks::Ask;
use super::node::REQUEST_TIMEOUT;
use super::node_id;
use super::steps::{A, B, C};
use super::tombstones::goes;
use crate::abd::Abd;
use crate::peers::Pace;
use crate::protocol::{Env, Event, Protocol, Request, Stats};
use crate::register_cache::CachedRegister;
use crate::toolkit::eras::{Eras, checked};

/// A round would lead to an era that no peer takes.
#[test]
fn last_era_of_abd_stays() {
    let last = (1 << 56) - 1;
    assert!(checked(last).is_ok() && checked(last + 1).is_err());
    let mut world = World::<Abd>::new(3, false, 7);
    let shard = world.shard();
    world.nodes[B].metas.get_mut(shard).raise(Eras::begun(last));
    world.ask_and_end(A, 0, Ask::Set(1));
    world.ask_and_end(A, 0, Ask::Remove);
    world.idle_all(20_000);
    for node in [A, B, C] {
        assert!(world.nodes[node].metas.get(shard).now <= last);
        assert!(!world.is_absent(node, 0));
    }
    assert_eq!(world.judge(&[A, B, C]), Ok(()));
}

/// Many values get the same deadline.
#[test]
fn few_values_of_abd_end_at_a_time() {
    const KEYS: u64 = 600;
    let mut world = World::<Abd>::new(3, true, 7);
    let first = world.shard().first_hash();
    world.keys = (0..KEYS).map(|key| Key::at(first + (key << 20), b"k")).collect();
    let writes: Vec<Tag> =
        (0..KEYS as usize).map(|key| world.ask(A, key, Ask::SetExpiring(1))).collect();
    world.settle(&writes);
    let mut most = 0;
    for _ in 0..50 {
        world.idle_all(10);
        most = most.max(stat(&world, A, "operations_in_progress"));
    }
    assert!((1..=256).contains(&most), "{most}");
    let has_ended = |key: &Key| match world.nodes[A].cache.get(key) {
        CachedRegister::Present(register) => register.content.is_empty(),
        CachedRegister::Absent | CachedRegister::Lost => false,
    };
    assert!(world.keys.iter().all(has_ended));
}

/// A raised amnesia count drops the messages of a node to itself.
#[test]
fn tombstones_of_abd_outlive_lost_looks() {
    let mut world = World::<Abd>::new(3, true, 7);
    let [first, second, away] = world.by_turn();
    world.kill(away, 99, 0);
    let delete = world.ask(first, 0, Ask::Remove);
    world.settle(&[delete]);
    world.are_own_late = true;
    while world.nodes[first].own.is_empty() {
        world.pass(Nanos::from_millis(10), [first].into_iter());
    }
    world.are_own_late = false;
    world.nodes[first].own.clear();
    world.nodes[first].set_amnesia(AmnesiaCount(2));
    world.step(first, Event::ViewChanged);
    assert_eq!(stat(&world, first, "tombstones"), 0);
    world.idle_all(70_000);
    assert_eq!(stat(&world, first, "tombstones"), 1);
    world.start(away);
    world.idle_all(11_000);
    assert!([first, second, away].into_iter().all(|node| world.is_absent(node, 0)));
    assert_eq!(world.judge(&[A, B, C]), Ok(()));
}

fn stat(world: &World<Abd>, node: usize, name: &str) -> u64 {
    let mut stats = Stats::default();
    world.nodes[node].protocol.stats(&mut stats);
    stats.values[name]
}

/// The answers to the query of a write come late.
#[test]
fn stores_of_abd_have_their_own_time() {
    let mut world = World::<Abd>::new(3, false, 7);
    world.ask(A, 0, Ask::Set(1));
    world.wait(A, 19);
    world.carry(A, B, "Query");
    world.carry(B, A, "State");
    let mut sent = |millis| {
        world.wait(A, millis);
        world.take(A, B, "Store {").len()
    };
    assert_eq!([sent(0), sent(19), sent(2)], [1, 0, 1]);
}

/// The message of before most likely still waits in front of the link.
#[test]
fn slow_replicas_get_few_repeats() {
    let mut world = World::<Abd>::new(3, false, 7);
    world.nodes[A].peers.set_pace(node_id(B), Pace::Slow);
    world.ask(A, 0, Ask::Set(1));
    for _ in 0..150 {
        world.wait(A, 10);
    }
    let mut sent = |to| world.take(A, to, "Query").len();
    assert_eq!([sent(B), sent(C)], [2, 9]);
}

/// Its register was loaded meanwhile.
#[test]
fn request_that_waited_too_long_is_refused() {
    let mut world = World::<Abd>::new(3, false, 7);
    let asked_at = world.now;
    world.now = asked_at + REQUEST_TIMEOUT;
    let mut ask = |tag, asked_at| {
        let (tag, session, key) = (Tag(tag), SessionId(tag), world.keys[0].clone());
        let request = Request { tag, session, key, command: Ask::Set(1).command(), asked_at };
        world.step(A, Event::Request(request));
        !world.bag.is_empty()
    };
    assert!(!ask(1, asked_at), "no replica is asked");
    assert!(ask(2, asked_at + Nanos(1)));
}

/// The first tombstone waits for a round, since a replica is away.
#[test]
fn tombstone_of_another_deletion_goes() {
    let mut world = World::<Abd>::new(3, true, 7);
    let [first, second, away] = world.by_turn();
    world.kill(away, 99, 0);
    for _ in 0..2 {
        let delete = world.ask(first, 0, Ask::Remove);
        world.settle(&[delete]);
        world.idle_all(12_000);
    }
    world.start(away);
    world.idle_all(25_000);
    assert!([first, second, away].into_iter().all(|node| world.is_absent(node, 0)));
    assert_eq!(world.judge(&[A, B, C]), Ok(()));
}

/// Each first answer to a step of a round is lost.
#[test]
fn round_with_losses_ends_despite_short_requests() {
    let mut world = World::<Abd>::new(3, true, 7);
    let [first, second, late] = world.by_turn();
    for node in &mut world.nodes {
        let env = Env { request_timeout: Nanos::from_millis(50), ..node.env.clone() };
        node.protocol = Abd::open(env);
    }
    world.ask_and_end(first, 0, Ask::Remove);
    let seen = RefCell::new(BTreeSet::new());
    world.idle_but(4_000, |it| {
        goes(it, late, first, "EraTold") && seen.borrow_mut().insert(format!("{:?}", it.message))
    });
    assert!([first, second, late].into_iter().all(|node| world.is_absent(node, 0)));
    assert!(seen.borrow().len() >= 4, "each step was asked twice");
}

/// The replicas are connected, and do not answer.
#[test]
fn tombstones_of_abd_go_to_answering_replicas() {
    let mut world = World::<Abd>::new(3, true, 7);
    world.ask_and_end(A, 0, Ask::Remove);
    let asked = Cell::new(0);
    world.idle_but(30_000, |it| {
        let text = format!("{:?}", it.message);
        assert!(!text.starts_with("Store {"), "{text}");
        asked.set(asked.get() + usize::from(text.starts_with("Era {")));
        text.starts_with("EraTold")
    });
    assert!(asked.get() > 0);
    assert!(!world.is_absent(A, 0));
}

#[test]
fn rounds_of_abd_wait_for_slow_replicas() {
    let mut world = World::<Abd>::new(3, true, 7);
    world.ask_and_end(A, 0, Ask::Remove);
    let set_pace = |world: &mut World<Abd>, pace| {
        for node in [A, B] {
            world.nodes[node].peers.set_pace(node_id(C), pace);
        }
        // It goes on by itself otherwise.
        world.nodes[C].peers.set_pace(node_id(A), pace);
    };
    set_pace(&mut world, Pace::Slow);
    world.idle_but(30_000, |it| panic!("{:?}", it.message));
    set_pace(&mut world, Pace::Steady);
    world.idle_all(11_000);
    assert!([A, B, C].into_iter().all(|node| world.is_absent(node, 0)));
    assert_eq!(world.judge(&[A, B, C]), Ok(()));
}
