//! Evicted registers come back unchanged, and pinned ones stay.

use std::collections::BTreeMap;

use base::Nanos;
use node::REGISTER_OVERHEAD;
use proptest::collection::vec;
use proptest::prelude::*;
use types::{Database, Key, Outcome, Reply, Shard};

use crate::store::Script;
use crate::world::{DISK, Shape, VOLATILE, World, key, keys_in, replies};

fn tiny() -> World {
    let shape = Shape { members: vec![crate::world::ME], registers_max: 0, ..Shape::default() };
    World::shaped(shape, Script::default())
}

/// Enough turns for the hand to pass everything twice.
fn let_the_hand_pass(world: &mut World) {
    for _ in 0..64 {
        world.turn();
    }
}

#[test]
fn registers_that_are_dirty_in_flight_or_pinned_stay() {
    let mut world = tiny();
    let keys = keys_in(Shard(5), 3);
    world.ask(DISK, &keys[0], "local v");
    world.ask(DISK, &keys[1], "pin");
    world.ask(DISK, &keys[2], "get");
    let_the_hand_pass(&mut world);
    assert_eq!(world.stat("worker_cells_resident"), 2, "one in flight, one pinned");
    world.script.complete_all();
    let_the_hand_pass(&mut world);
    assert_eq!(world.stat("worker_cells_resident"), 1, "one pinned");
    assert_eq!(world.replies(DISK, &keys[0], "get"), [(4, "v".to_string())]);
}

#[test]
fn volatile_registers_leave_the_cache_and_return() {
    let mut world = tiny();
    let a = key("a");
    world.replies(VOLATILE, &a, "local v");
    let_the_hand_pass(&mut world);
    assert_eq!(world.stat("worker_cells_resident"), 0);
    assert_eq!(world.replies(VOLATILE, &a, "get"), [(2, "v".to_string())]);
    world.replies(VOLATILE, &a, "del");
    let_the_hand_pass(&mut world);
    assert_eq!(world.replies(VOLATILE, &a, "get"), [(4, "-".to_string())], "no older one is left");
}

/// Runs the turns of a minute, without requests or with requests for `key` alone.
fn pass_a_minute(world: &mut World, key: Option<&Key>) {
    let end = world.now + Nanos::from_secs(61);
    while let Some(next) = world.worker.next_timer().filter(|next| *next <= end) {
        world.now = world.now.max(next);
        if let Some(key) = key {
            world.ask(VOLATILE, key, "get");
        }
        world.turn();
    }
}

#[test]
fn idle_registers_are_packed_within_a_minute_and_busy_ones_are_not() {
    let mut world = World::alone();
    let keys: Vec<Key> = (0..100).map(|number| key(&format!("k{number}"))).collect();
    for key in &keys {
        world.ask(VOLATILE, key, "local v");
    }
    world.ask(DISK, &keys[0], "local v");
    world.turn();
    world.script.complete_all();
    pass_a_minute(&mut world, Some(&keys[7]));
    assert_eq!(world.stat("worker_cells_resident"), 2, "the busy one, and one of a disk");
    assert_eq!(world.stat("worker_cells_loaded"), 101, "the busy one never left");
    pass_a_minute(&mut world, None);
    assert_eq!(world.stat("worker_cells_resident"), 1, "one of a disk");
    assert_eq!(world.worker.next_timer(), None, "an idle worker sleeps");
    world.ask(VOLATILE, &keys[50], "get");
    let out = world.turn();
    assert!(matches!(&out.replies[..], [(_, Outcome::Reply(value))] if *value == Reply::bulk("v")));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize, u8),
    Remove(usize),
    Read(usize),
    FinishLoads,
    CompleteOne,
    Turn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_usize..12, any::<u8>()).prop_map(|(key, value)| Step::Write(key, value)),
        1 => (0_usize..12).prop_map(Step::Remove),
        4 => (0_usize..12).prop_map(Step::Read),
        3 => Just(Step::FinishLoads),
        2 => Just(Step::CompleteOne),
        5 => Just(Step::Turn),
    ];
    vec(step, 1..150)
}

/// Runs the steps and checks every read against the write before it.
fn check_reads(database: Database, registers_max: usize, steps: &[Step]) {
    let shape = Shape { members: vec![crate::world::ME], registers_max, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    world.script.state().slow_registers = true;
    let keys: Vec<Key> = keys_in(Shard(1), 6).into_iter().chain(keys_in(Shard(2), 6)).collect();
    let mut model: BTreeMap<usize, String> = BTreeMap::new();
    let mut expected: BTreeMap<u64, String> = BTreeMap::new();
    let mut heard: BTreeMap<u64, String> = BTreeMap::new();
    let mut hear = |world: &mut World| heard.extend(replies(&world.turn()));
    for step in steps {
        match *step {
            Step::Write(at, value) => {
                let tag = world.ask(database, &keys[at], &format!("local {value}"));
                model.insert(at, value.to_string());
                expected.insert(tag.0, "ok".to_string());
            }
            Step::Remove(at) => {
                let tag = world.ask(database, &keys[at], "del");
                model.remove(&at);
                expected.insert(tag.0, "ok".to_string());
            }
            Step::Read(at) => {
                let tag = world.ask(database, &keys[at], "get");
                let value = model.get(&at).cloned().unwrap_or_else(|| "-".to_string());
                expected.insert(tag.0, value);
            }
            Step::FinishLoads => world.script.finish_loads(),
            Step::CompleteOne => {
                world.script.complete_one();
            }
            Step::Turn => hear(&mut world),
        }
    }
    for _ in 0..4 {
        hear(&mut world);
        world.script.finish_loads();
        hear(&mut world);
        world.script.complete_all();
        hear(&mut world);
    }
    assert_eq!(heard, expected);
    assert!(world.worker.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn reads_see_the_last_write_whatever_was_evicted(
        steps in steps(),
        registers_max in 0_usize..6,
        database in prop_oneof![Just(DISK), Just(VOLATILE)],
    ) {
        check_reads(database, registers_max, &steps);
    }
}

#[test]
fn memory_stays_near_its_limit() {
    let shape = Shape { members: vec![crate::world::ME], registers_max: 100, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    world.script.state().at_once = true;
    for n in 0..1_000 {
        let out = {
            world.ask(DISK, &key(&format!("key {n}")), "local v");
            world.turn()
        };
        assert!(matches!(out.replies[..], [(_, Outcome::Reply(_))]));
    }
    let_the_hand_pass(&mut world);
    assert!(world.stat("worker_cells_resident") <= 100);
    assert_eq!(world.replies(DISK, &key("key 0"), "get"), [(1_001, "v".to_string())]);
}

/// Registers that stay in memory of a hundred, each with a value of so many bytes.
fn resident_of_a_hundred(value_len: usize, registers_max: usize, held: usize) -> u64 {
    let shape = Shape { members: vec![crate::world::ME], registers_max, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    world.script.state().at_once = true;
    world.script.state().memory = held;
    let value = "v".repeat(value_len);
    for n in 0..100 {
        world.ask(DISK, &key(&format!("key {n}")), &format!("local {value}"));
        world.turn();
    }
    let_the_hand_pass(&mut world);
    let resident = world.stat("worker_cells_resident");
    assert_eq!(world.replies(DISK, &key("key 0"), "get"), [(101, value)]);
    resident
}

#[test]
fn registers_count_by_what_they_take() {
    assert_eq!(resident_of_a_hundred(1, 200, 0), 100);
    let large = resident_of_a_hundred(10 * REGISTER_OVERHEAD, 200, 0);
    assert!((10..20).contains(&large), "{large}");
    let larger = resident_of_a_hundred(100 * REGISTER_OVERHEAD, 200, 0);
    assert!((1..=1).contains(&larger), "{larger}");
}

#[test]
fn memory_that_a_store_takes_comes_off() {
    let half = resident_of_a_hundred(1, 80, 40 * REGISTER_OVERHEAD);
    assert!((30..40).contains(&half), "{half}");
    let least = resident_of_a_hundred(1, 80, usize::MAX / 2);
    assert!((5..10).contains(&least), "an eighth is always theirs: {least}");
}

#[test]
fn long_keys_count_and_go_with_their_registers() {
    let shape = Shape { members: vec![crate::world::ME], registers_max: 200, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    world.script.state().at_once = true;
    for n in 0..100 {
        let long = format!("{n}{}", "k".repeat(100 * REGISTER_OVERHEAD));
        world.ask(DISK, &key(&long), if n % 2 == 0 { "local v" } else { "get" });
        world.turn();
    }
    let_the_hand_pass(&mut world);
    let kept = (world.stat("worker_cells_resident"), world.stat("worker_cells_bytes"));
    assert!(kept.0 <= 1 && kept.1 <= 200 * REGISTER_OVERHEAD as u64, "{kept:?}");
}

#[test]
fn a_large_register_in_use_drives_out_no_others_that_are() {
    let shape = Shape { members: vec![crate::world::ME], registers_max: 1_000, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    world.script.state().at_once = true;
    let small: Vec<Key> = (0..100).map(|n| key(&format!("small {n}"))).collect();
    let large = key("large");
    world.ask(DISK, &large, &format!("local {}", "v".repeat(1_100 * REGISTER_OVERHEAD)));
    for key in &small {
        world.ask(DISK, key, "local v");
    }
    let_the_hand_pass(&mut world);
    let before = world.stat("worker_cells_loaded");
    for _ in 0..100 {
        for key in small.iter().chain([&large]) {
            world.ask(DISK, key, "get");
        }
        world.turn();
    }
    let loaded = world.stat("worker_cells_loaded") - before;
    assert!(loaded <= 250, "{loaded} of 10,100 reads found no register");
}

#[test]
fn memory_stays_near_its_limit_while_many_are_in_use() {
    const LIMIT: usize = 24 << 20;
    let registers_max = LIMIT / REGISTER_OVERHEAD;
    let shape = Shape { members: vec![crate::world::ME], registers_max, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    world.script.state().at_once = true;
    let small: Vec<Key> = (0..70_000).map(|n| key(&format!("small {n}"))).collect();
    for keys in small.chunks(1_000) {
        for key in keys {
            world.ask(DISK, key, "local v");
        }
        world.turn();
    }
    let_the_hand_pass(&mut world);
    let value = "v".repeat(64 << 10);
    let mut peak = 0;
    for turn in 0..100 {
        for n in 0..60 {
            world.ask(DISK, &key(&format!("large {turn} {n}")), &format!("local {value}"));
        }
        for n in 0..8_000 {
            world.ask(DISK, &small[(turn * 8_000 + n) % small.len()], "get");
        }
        world.turn();
        peak = peak.max(world.stat("worker_cells_bytes"));
        world.script.state().durable.retain(|_, record| record.len() < 1_000);
    }
    assert!(peak < LIMIT as u64 * 3 / 2, "{peak} bytes");
}

#[test]
fn what_lives_no_longer_than_the_process_weighs_the_same_written_and_read() {
    let shape = Shape { members: vec![crate::world::ME], registers_max: 1_000, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    let keys: Vec<Key> = (0..100).map(|n| key(&format!("key {n}"))).collect();
    let value = "v".repeat(100 * REGISTER_OVERHEAD);
    for key in &keys {
        world.ask(VOLATILE, key, &format!("local {value}"));
    }
    let_the_hand_pass(&mut world);
    let written = world.stat("worker_cells_bytes");
    pass_a_minute(&mut world, None);
    assert_eq!(world.stat("worker_cells_bytes"), 0);
    for key in &keys {
        world.ask(VOLATILE, key, "get");
    }
    let_the_hand_pass(&mut world);
    assert_eq!(
        (world.stat("worker_cells_bytes"), world.stat("worker_cells_resident")),
        (written, 100)
    );
}

#[test]
fn the_hand_reaches_every_shard_of_one_worker_among_many() {
    let members = vec![crate::world::ME];
    let shape = Shape { members, registers_max: 0, workers: 100, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    for shard in [0, 100, 200] {
        world.ask(DISK, &keys_in(Shard(shard), 1)[0], "get");
    }
    world.turn();
    let_the_hand_pass(&mut world);
    assert_eq!(world.stat("worker_cells_resident"), 0);
}

#[test]
fn registers_that_are_absent_leave_memory_far_below_the_limit() {
    let shape =
        Shape { members: vec![crate::world::ME], registers_max: 10 * 256, ..Shape::default() };
    let mut world = World::shaped(shape, Script::default());
    let keys: Vec<Key> = (0..200).map(|number| key(&format!("k{number}"))).collect();
    for key in &keys {
        world.ask(DISK, key, "local v");
    }
    let_the_hand_pass(&mut world);
    for key in &keys {
        world.ask(DISK, key, "del");
    }
    world.script.complete_all();
    let_the_hand_pass(&mut world);
    assert_eq!(world.stat("worker_cells_resident"), 200, "the removals are not durable yet");
    world.script.complete_all();
    let_the_hand_pass(&mut world);
    assert_eq!(world.stat("worker_cells_resident"), 10, "a few for those who ask again");
    assert_eq!(world.stat("worker_cells_evicted"), 190);
}
