//! Listings: storage and memory as one, each hash whole, each register once.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use storage::Place;
use types::{Database, Key, Outcome, Shard};

use crate::store::Script;
use crate::world::{DISK, Shape, VOLATILE, World, keys_in};

const SHARD: Shard = Shard(9);

/// Lists the shard from the start in steps and checks each of them.
fn list_all(world: &mut World, database: Database, limit: usize) -> Vec<Key> {
    let mut found: Vec<Key> = Vec::new();
    let mut from_hash = SHARD.first_hash();
    for _ in 0..1_000 {
        world.list(database, from_hash, limit);
        let mut out = world.turn();
        if out.replies.is_empty() {
            world.script.finish_scans();
            out = world.turn();
        }
        let [(_, Outcome::Listed { keys, next_hash, .. })] = &out.replies[..] else {
            panic!("one listing, not {:?}", out.replies)
        };
        assert!(
            keys.is_sorted() && keys.len() <= limit.max(1),
            "no two keys of a test share a hash"
        );
        assert!(keys.iter().all(|key| key.hash() >= from_hash));
        found.extend(keys.iter().cloned());
        match next_hash {
            Some(next) => {
                assert!(*next > from_hash && found.iter().all(|key| key.hash() < *next));
                from_hash = *next;
            }
            None => return found,
        }
    }
    panic!("a listing must end");
}

/// The change made to one of the keys.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Remove(usize),
    Read(usize),
    Flush,
    Idle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..20).prop_map(Step::Write),
        2 => (0_usize..20).prop_map(Step::Remove),
        1 => (0_usize..20).prop_map(Step::Read),
        2 => Just(Step::Flush),
        1 => Just(Step::Idle),
    ];
    vec(step, 0..60)
}

fn run(world: &mut World, database: Database, keys: &[Key], steps: &[Step]) -> BTreeSet<Key> {
    let mut expected = BTreeSet::new();
    for step in steps {
        match step {
            Step::Write(at) => {
                world.ask(database, &keys[*at], "local v");
                expected.insert(keys[*at].clone());
            }
            Step::Remove(at) => {
                world.ask(database, &keys[*at], "del");
                expected.remove(&keys[*at]);
            }
            Step::Read(at) => {
                world.ask(database, &keys[*at], "get");
            }
            Step::Flush => {
                world.script.complete_one();
            }
            Step::Idle => {}
        }
        world.turn();
    }
    // No reply of the steps may be taken for a listing.
    world.script.complete_all();
    world.turn();
    expected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_listing_is_what_was_written_and_not_removed(
        steps in steps(),
        limit in 0_usize..9,
        registers_max in prop_oneof![Just(0_usize), Just(8), Just(1 << 20)],
        volatile in any::<bool>(),
    ) {
        let shape = Shape { members: vec![crate::world::ME], registers_max, ..Shape::default() };
        let mut world = World::shaped(shape, Script::default());
        let keys = keys_in(SHARD, 20);
        let database = if volatile { VOLATILE } else { DISK };
        let expected = run(&mut world, database, &keys, &steps);
        let found = list_all(&mut world, database, limit);
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn memory_wins_over_what_storage_read_before() {
    let mut world =
        World::shaped(Shape { registers_max: 0, ..Shape::default() }, Script::default());
    let keys = keys_in(SHARD, 4);
    for key in &keys[..3] {
        world.ask(DISK, key, "local v");
    }
    world.turn();
    world.script.complete_all();
    for _ in 0..64 {
        world.turn();
    }
    assert_eq!(world.stat("worker_cells_resident"), 0);
    // While the scan is under way one register goes and one comes.
    world.list(DISK, SHARD.first_hash(), 100);
    world.turn();
    world.script.finish_scans();
    world.ask(DISK, &keys[1], "del");
    world.ask(DISK, &keys[3], "local v");
    world.ask(DISK, &keys[0], "get");
    let scans = std::mem::take(&mut world.script.state().completions);
    world.turn();
    world.script.complete_all();
    for _ in 0..64 {
        world.turn();
    }
    assert!(world.stat("worker_cells_resident") >= 3, "a scanned shard is not evicted");
    world.script.state().completions.extend(scans);
    let out = world.turn();
    let keys = vec![keys[0].clone(), keys[2].clone(), keys[3].clone()];
    assert_eq!(out.replies[0].1, Outcome::Listed { keys, undecided: Vec::new(), next_hash: None });
    for _ in 0..64 {
        world.turn();
    }
    assert_eq!(world.stat("worker_cells_resident"), 0, "afterwards it is");
}

#[test]
fn nothing_is_listed_beyond_what_storage_has_looked_at() {
    let mut world = World::alone();
    let keys = keys_in(SHARD, 9);
    for (at, key) in keys.iter().enumerate() {
        if at % 3 == 0 {
            let place = Place::Cell(DISK, key.clone());
            let record = bytes::Bytes::from_static(b"\x01v");
            world.script.state().durable.insert(place, record);
        } else {
            world.ask(DISK, key, "local v");
        }
    }
    world.turn();
    assert_eq!(list_all(&mut world, DISK, 1), keys);
    assert_eq!(list_all(&mut world, DISK, 2), keys);
}

#[test]
fn a_step_over_large_registers_ends_early() {
    let mut world = World::alone();
    let mut keys = keys_in(SHARD, 12);
    keys.sort();
    let value = "v".repeat(1 << 20);
    for key in &keys {
        world.ask(DISK, key, &format!("local {value}"));
        world.turn();
    }
    world.script.complete_all();
    world.turn();
    world.list(DISK, SHARD.first_hash(), 100);
    world.turn();
    world.script.finish_scans();
    let out = world.turn();
    let Outcome::Listed { keys: listed, next_hash, .. } = &out.replies[0].1 else {
        panic!("a listing, not {:?}", out.replies)
    };
    assert_eq!((listed.len(), *next_hash), (4, Some(keys[4].hash())), "4 MiB at a time");
    assert_eq!(list_all(&mut world, DISK, 100), keys);
}
