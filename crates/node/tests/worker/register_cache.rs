//! Events wait for their own register or shard, and for no other.

use storage::{Load, Place};
use types::Shard;

use crate::world::{DISK, World, key, keys_in, replies};

fn reply(tag: u64, text: &str) -> (u64, String) {
    (tag, text.to_string())
}

#[test]
fn events_of_a_key_keep_their_order_across_a_miss() {
    let mut world = World::alone();
    world.script.state().slow_registers = true;
    world.script.state().at_once = true;
    let a = key("a");
    world.ask(DISK, &a, "get");
    world.ask(DISK, &a, "local one");
    assert_eq!(replies(&world.turn()), []);
    world.ask(DISK, &a, "get");
    world.ask(DISK, &a, "local two");
    world.ask(DISK, &a, "get");
    assert_eq!(replies(&world.turn()), []);
    assert_eq!(world.script.state().loading.len(), 1, "one read for all of them");
    assert!(!world.worker.is_idle());
    world.script.finish_loads();
    let expected =
        [reply(1, "-"), reply(2, "ok"), reply(3, "one"), reply(4, "ok"), reply(5, "two")];
    assert_eq!(replies(&world.turn()), expected);
    assert!(world.worker.is_idle());
}

#[test]
fn other_keys_go_on_while_one_is_read() {
    let mut world = World::alone();
    let keys = keys_in(Shard(7), 2);
    world.ask(DISK, &keys[0], "get");
    assert_eq!(replies(&world.turn()), [reply(1, "-")]);
    world.script.state().slow_registers = true;
    world.ask(DISK, &keys[1], "get");
    world.ask(DISK, &keys[0], "get");
    assert_eq!(replies(&world.turn()), [reply(3, "-")]);
    world.script.finish_loads();
    assert_eq!(replies(&world.turn()), [reply(2, "-")]);
}

#[test]
fn events_of_a_shard_wait_for_its_fields_and_then_for_their_keys() {
    let mut world = World::alone();
    world.script.state().slow_metas = true;
    world.script.state().slow_registers = true;
    let keys = keys_in(Shard(7), 2);
    let other = keys_in(Shard(8), 1);
    world.ask(DISK, &keys[0], "get");
    world.ask(DISK, &keys[1], "get");
    world.turn();
    assert_eq!(world.script.state().loading, [Place::Meta(DISK, Shard(7))]);
    world.ask(DISK, &other[0], "get");
    world.turn();
    world.script.finish_loads();
    assert_eq!(replies(&world.turn()), []);
    assert_eq!(world.script.state().loading.len(), 3);
    assert_eq!(world.stat("toy_metas"), 2);
    world.script.finish_loads();
    let mut done = replies(&world.turn());
    done.sort();
    assert_eq!(done, [reply(1, "-"), reply(2, "-"), reply(3, "-")]);
}

#[test]
fn shard_fields_come_back_from_storage() {
    let mut world = World::alone();
    world.script.state().at_once = true;
    let a = key("a");
    assert_eq!(world.replies(DISK, &a, "mark"), [reply(1, "1")]);
    assert_eq!(world.replies(DISK, &a, "mark"), [reply(2, "2")]);
    let mut again = World::shaped(Default::default(), world.script.clone());
    assert_eq!(again.replies(DISK, &a, "mark"), [reply(1, "3")]);
}

#[test]
fn a_register_written_while_it_was_read_keeps_what_was_written() {
    let mut world = World::alone();
    let (a, b) = (key("a"), key("b"));
    world.ask(DISK, &a, "get");
    world.turn();
    world.script.state().slow_registers = true;
    world.ask(DISK, &b, "get");
    world.turn();
    world.ask(DISK, &a, "poke b");
    world.ask(DISK, &b, "get");
    world.turn();
    // The load is older than the write.
    world.script.finish_load_with(&Place::Cell(DISK, b.clone()), Load::Absent);
    world.turn();
    world.script.complete_all();
    let answers = replies(&world.turn());
    assert!(answers.contains(&reply(2, "poked")) && answers.contains(&reply(4, "poked")));
}

#[test]
fn a_read_that_was_overtaken_by_a_write_and_an_eviction_is_repeated() {
    let mut world = World::shaped(
        crate::world::Shape { registers_max: 0, ..Default::default() },
        Default::default(),
    );
    world.script.state().at_once = true;
    let (a, b) = (key("a"), key("b"));
    world.ask(DISK, &a, "get");
    world.turn();
    world.script.state().slow_registers = true;
    world.ask(DISK, &b, "get");
    world.turn();
    world.script.state().slow_registers = false;
    world.ask(DISK, &a, "poke b");
    for _ in 0..64 {
        world.turn();
    }
    assert_eq!(world.stat("worker_cells_resident"), 0);
    world.script.finish_load_with(&Place::Cell(DISK, b.clone()), Load::Absent);
    assert_eq!(replies(&world.turn()), [reply(2, "poked")]);
}
