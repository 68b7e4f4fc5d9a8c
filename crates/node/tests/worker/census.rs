//! Key counts: exact once all is counted, whatever happens meanwhile.

use std::collections::BTreeSet;

use base::Nanos;
use bytes::Bytes;
use node::Input;
use node::status::DatabaseFigures;
use proptest::collection::vec;
use proptest::prelude::*;
use storage::{Completion, Place};
use types::{AmnesiaCount, Database, Key, Shard};

use crate::store::Script;
use crate::world::{DISK, ME, Shape, VOLATILE, World, keys_in};

fn shape(registers_max: usize) -> Shape {
    Shape { members: vec![ME], registers_max, counts_keys: true, ..Shape::default() }
}

fn figures(world: &World, database: Database) -> Option<DatabaseFigures> {
    world.worker.figures().flatten().find(|figures| figures.index == database.0)
}

/// Answers scans and advances time until the count is complete.
fn count(world: &mut World) {
    for _ in 0..2_000 {
        world.script.complete_all();
        world.script.finish_scans();
        world.turn();
        world.now += Nanos::from_millis(60);
    }
    assert!(world.script.state().scans.is_empty(), "counting goes on for ever");
}

/// Keys of a few shards.
fn keys() -> Vec<Key> {
    [0, 1, 9, 255].into_iter().flat_map(|shard| keys_in(Shard(shard), 6)).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize, usize),
    Remove(usize),
    Read(usize),
    Flush,
    Scan,
    /// Time passes: the next scan is due.
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..24, 1_usize..4).prop_map(|(at, len)| Step::Write(at, len)),
        2 => (0_usize..24).prop_map(Step::Remove),
        1 => (0_usize..24).prop_map(Step::Read),
        2 => Just(Step::Flush),
        3 => Just(Step::Scan),
        3 => Just(Step::Wait),
    ];
    vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn counts_are_exact(
        stored in vec(0_usize..24, 0..24),
        steps in steps(),
        registers_max in prop_oneof![Just(0_usize), Just(8), Just(1 << 20)],
        volatile in any::<bool>(),
    ) {
        let database = if volatile { VOLATILE } else { DISK };
        let keys = keys();
        let script = Script::default();
        let mut expected: BTreeSet<(Key, usize)> = BTreeSet::new();
        let before = if volatile { Vec::new() } else { stored };
        for at in before {
            let record = Bytes::from_static(b"\x01v");
            script.state().durable.insert(Place::Cell(DISK, keys[at].clone()), record);
            expected.insert((keys[at].clone(), 1));
        }
        let mut world = World::shaped(shape(registers_max), script);
        for step in steps {
            match step {
                Step::Write(at, len) => {
                    world.ask(database, &keys[at], &format!("local {}", "v".repeat(len)));
                    expected.retain(|(key, _)| *key != keys[at]);
                    expected.insert((keys[at].clone(), len));
                }
                Step::Remove(at) => {
                    world.ask(database, &keys[at], "del");
                    expected.retain(|(key, _)| *key != keys[at]);
                }
                Step::Read(at) => drop(world.ask(database, &keys[at], "get")),
                Step::Flush => drop(world.script.complete_one()),
                Step::Scan => world.script.finish_scans(),
                Step::Wait => world.now += Nanos::from_millis(1),
            }
            world.turn();
        }
        count(&mut world);
        let bytes = expected.iter().map(|(key, len)| (key.bytes().len() + len) as u64).sum();
        let found = figures(&world, database).expect("all was counted");
        let keys = expected.len() as u64;
        prop_assert_eq!(found, DatabaseFigures { index: database.0, keys, expiring: 0, bytes });
    }
}

#[test]
fn unknown_figures_are_none() {
    let mut world = World::shaped(shape(1 << 20), Script::default());
    assert_eq!(figures(&world, DISK), None);
    assert_eq!(figures(&world, VOLATILE).map(|figures| figures.keys), Some(0));
    world.turn();
    assert_eq!(figures(&world, DISK), None, "storage has not answered");
    count(&mut world);
    assert_eq!(figures(&world, DISK).map(|figures| figures.keys), Some(0));
}

#[test]
fn damaged_shards_are_counted_again() {
    let script = Script::default();
    let keys = keys();
    for key in &keys {
        let record = Bytes::from_static(b"\x01v");
        script.state().durable.insert(Place::Cell(DISK, key.clone()), record);
    }
    let mut world = World::shaped(shape(1 << 20), script);
    count(&mut world);
    assert_eq!(figures(&world, DISK).map(|figures| figures.keys), Some(24));
    // Storage forgets a record, and the node hears of it.
    world.script.state().durable.remove(&Place::Cell(DISK, keys[7].clone()));
    let shard = keys[7].shard();
    world.script.state().forgotten.insert((DISK, shard));
    world.script.complete(Completion::Forgotten { database: DISK, shard });
    world.turn();
    world.input(Input::Amnesia { amnesia: AmnesiaCount(2) });
    count(&mut world);
    assert_eq!(figures(&world, DISK).map(|figures| figures.keys), Some(23));
}

#[test]
fn counting_ends_without_timers() {
    let mut world = World::shaped(shape(1 << 20), Script::default());
    count(&mut world);
    assert_eq!(world.worker.next_timer(), None, "an idle worker sleeps");
}
