//! Amnesia: the worker sends no message about forgotten records until the amnesia count is raised.

use bytes::Bytes;
use node::Input;
use protocols::GroupEvent;
use storage::volatile::Beginning;
use storage::{Completion, Load, Place};
use types::{AmnesiaCount, Epoch, Outcome, Shard, Tag};

use crate::store::Script;
use crate::toy::Say;
use crate::world::{DISK, PEER, Sender, Shape, VOLATILE, World, key, keys_in, replies, sent};

fn raise(world: &mut World, amnesia: u32) {
    world.input(Input::Amnesia { amnesia: AmnesiaCount(amnesia) });
}

fn put(key: &types::Key, op: u64) -> Say {
    Say::Put { key: key.clone(), value: Bytes::from_static(b"v"), op }
}

#[test]
fn a_forgotten_shard_holds_frames_and_replies_until_the_loss_is_raised() {
    let mut world = World::new();
    world.script.state().at_once = true;
    let (here, there) = (keys_in(Shard(3), 2), keys_in(Shard(4), 1));
    world.frame(Sender::default(), &[put(&here[0], 1)]);
    assert_eq!(sent(&world.turn(), PEER).len(), 1);

    world.script.state().forgotten.insert((DISK, Shard(3)));
    world.script.complete(Completion::Forgotten { database: DISK, shard: Shard(3) });
    world.frame(Sender::default(), &[put(&here[1], 2), put(&there[0], 3)]);
    world.ask(DISK, &there[0], "get");
    let out = world.turn();
    assert!(out.raise_amnesia && out.frames.is_empty() && out.replies.is_empty());
    assert!(!world.worker.takes_requests());
    let out = world.turn();
    assert!(!out.raise_amnesia && out.frames.is_empty(), "asked for once, still silent");
    assert_eq!(world.stat("toy_forgotten"), 0);

    raise(&mut world, 2);
    let out = world.turn();
    assert_eq!(world.stat("toy_forgotten"), 1);
    assert_eq!(replies(&out), [(1, "v".to_string())]);
    // The other shard's acknowledgement was made under the old amnesia count; the forgotten key's
    // was never made.
    assert_eq!(sent(&out, PEER), [(AmnesiaCount(1), vec![Say::Ack { op: 3 }])]);
    assert!(world.worker.takes_requests());
    assert_eq!(world.replies(DISK, &here[1], "get"), [(2, "Loading".to_string())]);
    assert_eq!(world.replies(DISK, &here[0], "get"), [(3, "v".to_string())], "still in memory");

    world.frame(Sender::default(), &[put(&here[0], 4)]);
    assert_eq!(sent(&world.turn(), PEER), [(AmnesiaCount(2), vec![Say::Ack { op: 4 }])]);
}

/// A seal tells that the image is whole as far as the worker knows.
#[test]
fn a_seal_waits_until_the_loss_is_shown() {
    let mut world = World::new();
    let order = |world: &mut World, event| {
        world.input(Input::Group { database: DISK, event });
        world.turn();
        world.stat("toy_orders")
    };
    let wedge = |epoch| GroupEvent::Wedge { epoch: Epoch(epoch) };
    assert_eq!(order(&mut world, wedge(1)), 1);
    world.script.complete(Completion::Forgotten { database: DISK, shard: Shard(3) });
    world.turn();
    assert_eq!(order(&mut world, GroupEvent::Keep), 2, "it vouches for nothing");
    assert_eq!(order(&mut world, wedge(2)), 2);
    assert_eq!(order(&mut world, GroupEvent::Keep), 2, "orders keep their order");
    assert_eq!(world.stat("toy_forgotten"), 0);
    raise(&mut world, 2);
    world.turn();
    assert_eq!((world.stat("toy_forgotten"), world.stat("toy_orders")), (1, 4));
    assert_eq!(order(&mut world, wedge(3)), 5);
}

/// Two shards are lost, and the fields of one are still read when both may be shown.
#[test]
fn a_seal_waits_for_each_loss_that_waits_for_its_shard() {
    let mut world = World::new();
    world.replies(DISK, &keys_in(Shard(3), 1)[0], "get");
    world.script.state().slow_metas = true;
    for shard in [Shard(3), Shard(4)] {
        world.script.complete(Completion::Forgotten { database: DISK, shard });
    }
    assert!(world.turn().raise_amnesia);
    let event = GroupEvent::Wedge { epoch: Epoch(1) };
    world.input(Input::Group { database: DISK, event });
    raise(&mut world, 2);
    world.turn();
    assert_eq!((world.stat("toy_forgotten"), world.stat("toy_orders")), (1, 0));
    world.script.finish_loads();
    world.turn();
    assert_eq!((world.stat("toy_forgotten"), world.stat("toy_orders")), (2, 1));
}

#[test]
fn what_waited_for_storage_while_the_loss_was_raised_is_not_sent() {
    let mut world = World::new();
    let there = keys_in(Shard(4), 1);
    world.frame(Sender::default(), &[put(&there[0], 1)]);
    assert!(sent(&world.turn(), PEER).is_empty(), "not durable yet");
    world.script.complete(Completion::Forgotten { database: DISK, shard: Shard(3) });
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    world.turn();
    world.script.complete_all();
    assert!(sent(&world.turn(), PEER).is_empty(), "it was made under the loss before");
    world.frame(Sender::default(), &[put(&there[0], 2)]);
    world.turn();
    world.script.complete_all();
    assert_eq!(sent(&world.turn(), PEER).len(), 1);
}

#[test]
fn a_loss_that_does_not_suffice_is_asked_for_again() {
    let mut world = World::new();
    world.script.complete(Completion::Forgotten { database: DISK, shard: Shard(3) });
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 1);
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    assert!(!world.turn().raise_amnesia);
    assert_eq!(world.stat("toy_forgotten"), 1);
}

#[test]
fn what_was_said_before_another_worker_raised_the_loss_keeps_the_old_one() {
    let mut world = World::new();
    world.ask(DISK, &key("a"), "set v");
    raise(&mut world, 2);
    world.ask(DISK, &key("a"), "set w");
    let losses: Vec<AmnesiaCount> =
        sent(&world.turn(), PEER).into_iter().map(|(amnesia, _)| amnesia).collect();
    assert_eq!(losses, [AmnesiaCount(1), AmnesiaCount(2)]);
    assert_eq!(world.stat("toy_views"), 2);
}

#[test]
fn a_lost_register_is_shown_as_lost_only_once_the_loss_is_raised() {
    let mut world = World::new();
    let keys = keys_in(Shard(3), 2);
    world.script.state().lost.insert(Place::Cell(DISK, keys[0].clone()));
    world.ask(DISK, &keys[0], "get");
    let out = world.turn();
    assert!(out.raise_amnesia && out.replies.is_empty());
    world.ask(DISK, &keys[0], "get");
    assert!(!world.turn().raise_amnesia);
    raise(&mut world, 2);
    let loading = "Loading".to_string();
    assert_eq!(replies(&world.turn()), [(1, loading.clone()), (2, loading)]);
    assert_eq!(world.replies(DISK, &keys[1], "get"), [(3, "-".to_string())], "its shard is known");
    assert_eq!(world.stat("toy_forgotten"), 0);
}

#[test]
fn a_record_that_cannot_be_read_is_lost() {
    let mut world = World::new();
    let place = Place::Cell(DISK, key("a"));
    world.script.state().durable.insert(place, Bytes::from_static(b"\xff"));
    world.ask(DISK, &key("a"), "get");
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    assert_eq!(replies(&world.turn()), [(1, "Loading".to_string())]);
}

#[test]
fn lost_shard_fields_forget_the_whole_shard() {
    let mut world = World::new();
    let keys = keys_in(Shard(3), 1);
    world.script.state().slow_metas = true;
    world.script.state().lost.insert(Place::Meta(DISK, Shard(3)));
    world.ask(DISK, &keys[0], "get");
    assert!(!world.turn().raise_amnesia);
    world.script.state().slow_metas = false;
    world.script.finish_loads();
    assert!(world.turn().raise_amnesia);
    assert!(world.script.state().forgotten.contains(&(DISK, Shard(3))), "storage knows at once");
    raise(&mut world, 2);
    assert_eq!(replies(&world.turn()), [(1, "Loading".to_string())]);
    assert_eq!((world.stat("toy_forgotten"), world.stat("toy_metas_lost")), (1, 1));
}

#[test]
fn shards_forgotten_before_the_start_take_no_part_until_the_loss_is_raised() {
    let shape = Shape { volatile: Beginning::Forgotten, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    let a = key("a");
    world.ask(VOLATILE, &a, "get");
    assert!(world.worker.next_timer().is_some(), "the question is due at once");
    let out = world.turn();
    assert!(out.raise_amnesia && out.replies.is_empty());
    raise(&mut world, 2);
    assert_eq!(replies(&world.turn()), [(1, "Loading".to_string())]);
    assert_eq!(world.stat("toy_forgotten"), 256);
    assert_eq!(world.replies(DISK, &a, "get"), [(2, "-".to_string())]);
    world.replies(VOLATILE, &a, "recovered");
    assert_eq!(world.replies(VOLATILE, &a, "get"), [(4, "-".to_string())]);
}

#[test]
fn a_recovered_shard_is_known_to_storage_only_once_its_records_are_durable() {
    let script = Script::default();
    script.state().forgotten.insert((DISK, Shard(3)));
    let mut world = World::shaped(Shape::default(), script);
    let keys = keys_in(Shard(3), 2);
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    world.turn();
    world.ask(DISK, &keys[0], "local v");
    world.ask(DISK, &keys[0], "recovered");
    world.ask(DISK, &keys[1], "get");
    assert_eq!(replies(&world.turn()), [(2, "ok".to_string())]);
    assert!(world.script.state().forgotten.contains(&(DISK, Shard(3))), "a crash now forgets");
    world.script.complete_one();
    assert_eq!(replies(&world.turn()), [(1, "ok".to_string())]);
    assert!(!world.script.state().forgotten.contains(&(DISK, Shard(3))), "storage is told");
    world.script.complete_one();
    assert_eq!(replies(&world.turn()), [(3, "-".to_string())], "and has it durably");
    assert!(!world.worker.is_idle() || world.script.state().loading.is_empty());
}

#[test]
fn what_storage_calls_lost_before_it_durably_knows_the_shard_raises_no_loss() {
    let script = Script::default();
    script.state().forgotten.insert((DISK, Shard(3)));
    let mut world = World::shaped(Shape::default(), script);
    let keys = keys_in(Shard(3), 2);
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    world.ask(DISK, &keys[0], "local v");
    world.ask(DISK, &keys[0], "recovered");
    world.turn();
    world.script.complete_one();
    world.turn();
    assert!(!world.script.state().forgotten.contains(&(DISK, Shard(3))), "storage is told");
    let place = Place::Cell(DISK, keys[1].clone());
    world.script.state().lost.insert(place.clone());
    world.ask(DISK, &keys[1], "get");
    let out = world.turn();
    assert!(!out.raise_amnesia && out.replies.is_empty(), "the answer may be older than the word");
    assert!(!world.worker.is_idle());
    world.script.state().lost.remove(&place);
    world.script.complete_one();
    let out = world.turn();
    assert!(!out.raise_amnesia);
    assert_eq!(replies(&out), [(3, "-".to_string())]);
    assert!(world.worker.is_idle());
}

#[test]
fn damage_in_a_shard_under_recovery_is_shown_only_once_its_own_loss_is_raised() {
    let script = Script::default();
    script.state().forgotten.insert((DISK, Shard(3)));
    let mut world = World::shaped(Shape::default(), script);
    let keys = keys_in(Shard(3), 1);
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    world.turn();
    world.script.state().slow_registers = true;
    world.ask(DISK, &keys[0], "get");
    assert!(!world.turn().raise_amnesia);
    let place = Place::Cell(DISK, keys[0].clone());
    world.script.complete(Completion::Forgotten { database: DISK, shard: Shard(3) });
    world.script.finish_load_with(&place, Load::Lost);
    assert!(world.turn().raise_amnesia);
    assert_eq!(world.stat("worker_events_parked"), 1, "the protocol has not seen it");
    raise(&mut world, 3);
    assert_eq!(replies(&world.turn()), [(1, "Loading".to_string())]);
    assert_eq!(world.stat("toy_forgotten"), 2);
}

#[test]
fn a_register_that_is_whole_in_memory_only_is_written_before_its_shard_is_known() {
    let mut world = World::new();
    world.script.state().at_once = true;
    let keys = keys_in(Shard(3), 1);
    let place = Place::Cell(DISK, keys[0].clone());
    assert_eq!(world.replies(DISK, &keys[0], "local v"), [(1, "ok".to_string())]);
    world.script.state().durable.remove(&place);
    world.script.state().forgotten.insert((DISK, Shard(3)));
    world.script.complete(Completion::Forgotten { database: DISK, shard: Shard(3) });
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    world.turn();
    world.replies(DISK, &keys[0], "recovered");
    assert!(!world.script.state().forgotten.contains(&(DISK, Shard(3))), "storage is told");
    assert!(world.script.state().durable.contains_key(&place), "and has the register");
}

#[test]
fn what_is_found_forgotten_again_needs_a_higher_loss_again() {
    let mut world = World::new();
    let found = || Completion::Forgotten { database: DISK, shard: Shard(3) };
    world.script.complete(found());
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 2);
    world.turn();
    world.script.complete(found());
    assert!(world.turn().raise_amnesia);
    raise(&mut world, 3);
    world.turn();
    assert_eq!(world.stat("toy_forgotten"), 2);
}

#[test]
fn a_listing_of_a_shard_found_forgotten_is_taken_again_when_the_protocol_may_know() {
    let mut world = World::new();
    let keys = keys_in(Shard(3), 2);
    world.list(DISK, Shard(3).first_hash(), 10);
    world.turn();
    // Storage finds the damage during the scan, and lists the rest.
    world.script.finish_scans();
    world.script.complete(Completion::Forgotten { database: DISK, shard: Shard(3) });
    let out = world.turn();
    assert!(out.raise_amnesia && out.replies.is_empty());
    assert_eq!(world.script.state().scans.len(), 0);
    world.ask(DISK, &keys[0], "local v");
    world.turn();
    raise(&mut world, 2);
    assert!(world.turn().replies.is_empty());
    world.script.finish_scans();
    let out = world.turn();
    let listed =
        Outcome::Listed { keys: vec![keys[0].clone()], undecided: Vec::new(), next_hash: None };
    assert_eq!(out.replies, [(Tag(1), listed)]);
}
