//! Idle databases cost a turn no time, and keep their state until the next request.

use base::Nanos;
use node::Input;
use types::{AmnesiaCount, Shard};

use crate::store::Script;
use crate::toy::{DELAY, Say};
use crate::world::{
    BESIDE, DISK, ME, PEER, Sender, Shape, World, frame_of, key, keys_in, replies, sent,
};

fn world(registers_max: usize) -> World {
    let shape = Shape { members: vec![ME], registers_max, has_beside: true, ..Shape::default() };
    World::shaped(shape, Script::default())
}

/// A worker whose other database has written something and has been at rest since, while this one
/// went on.
fn rested() -> World {
    let mut world = world(1 << 20);
    world.ask(BESIDE, &key("a"), "local old");
    world.turn();
    world.script.complete_all();
    world.turn();
    for _ in 0..10 {
        world.ask(DISK, &key("b"), "local v");
        world.turn();
        world.script.complete_all();
    }
    world.turn();
    world
}

#[test]
fn a_turn_does_not_touch_who_rests() {
    let mut world = world(1 << 20);
    world.turn();
    let (turns, before) = (world.stat("toy_turns"), world.stat("worker_turns"));
    for _ in 0..10 {
        world.ask(DISK, &key("a"), "local v");
        world.turn();
        world.script.complete_all();
        world.turn();
    }
    assert_eq!(world.stat("worker_turns") - before, 20);
    assert_eq!(world.stat("toy_turns") - turns, 10, "of one database, where it had an event");
}

#[test]
fn what_is_changed_after_a_rest_waits_for_its_own_batch() {
    let mut world = rested();
    world.ask(BESIDE, &key("a"), "local new");
    world.ask(DISK, &key("b"), "local v");
    assert_eq!(replies(&world.turn()), [], "none of it is durable");
    assert_eq!(replies(&world.turn()), []);
    world.script.complete_all();
    let ok = |tag| (tag, "ok".to_owned());
    let mut heard = replies(&world.turn());
    heard.sort_unstable();
    assert_eq!(heard, [ok(12), ok(13)]);
    assert_eq!(world.replies(BESIDE, &key("a"), "get"), [(14, "new".to_owned())]);
}

#[test]
fn whoever_waits_for_storage_does_not_rest() {
    let mut world = world(1 << 20);
    world.ask(BESIDE, &key("a"), "local v");
    for _ in 0..5 {
        assert_eq!(replies(&world.turn()), []);
    }
    world.script.complete_all();
    assert_eq!(replies(&world.turn()), [(1, "ok".to_owned())]);
}

#[test]
fn timers_and_messages_wake() {
    let shape = Shape { has_beside: true, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    world.ask(BESIDE, &key("a"), "timer");
    world.turn();
    world.turn();
    world.now = world.now + DELAY + Nanos(1);
    assert_eq!(replies(&world.turn()), [(1, "rang".to_owned())]);
    world.turn();
    let put = Say::Put { key: key("a"), value: bytes::Bytes::from_static(b"v"), op: 1 };
    let bytes = frame_of(BESIDE, Sender::default(), &[put]);
    world.input(Input::Frame { from: PEER, bytes });
    assert!(world.turn().frames.is_empty());
    world.script.complete_all();
    let acks = sent(&world.turn(), PEER);
    assert_eq!(acks, [(AmnesiaCount(1), vec![Say::Ack { op: 1 }])]);
}

#[test]
fn who_rests_gives_memory_back() {
    let mut world = world(100);
    world.script.state().at_once = true;
    let keys = keys_in(Shard(5), 80);
    for key in &keys {
        world.ask(BESIDE, key, "local v");
    }
    (0..4).for_each(|_| drop(world.turn()));
    let before = world.stat("worker_cells_resident");
    assert!(before >= 80, "there is room for them");
    for number in 0..90 {
        world.ask(DISK, &key(&format!("k{number}")), "local v");
    }
    (0..256).for_each(|_| drop(world.turn()));
    assert!(world.stat("worker_cells_bytes") <= 100 * node::REGISTER_OVERHEAD as u64);
    assert_eq!(world.replies(BESIDE, &keys[79], "get"), [(171, "v".to_owned())]);
}

#[test]
fn everybody_has_a_first_turn() {
    let mut world = world(1 << 20);
    world.turn();
    assert_eq!(world.stat("toy_turns"), 3, "of three databases that nobody has touched");
    world.turn();
    assert_eq!(world.stat("toy_turns"), 3);
}
