//! A read of a large record that finds an earlier or later content of its units is no damage.

use storage::disk::{Config, File};
use storage::{Completion, Load, Store};

use crate::support::{SimDisk, Withheld, World, cell, of_bucket, put, record, small_config};

const PAGE: u64 = 4096;
const LEVEL: u32 = 5;
/// Bytes of a record that is in no page, and of one that is not in the ring either.
const LENS: [usize; 2] = [6_000, 20_000];
/// Where the first record goes.
const FIRST: Withheld = Withheld::At(File::Extents, PAGE);

/// No bucket stays in memory.
fn config() -> Config {
    Config {
        ring_bytes: 256 << 10,
        first_fit: true,
        initial_level: LEVEL,
        cache_bytes: 0,
        ..small_config()
    }
}

fn world() -> World {
    World::create(SimDisk::new(1, 0), 1, &config())
}

fn remove(world: &mut World, number: u64) {
    world.stores[0].remove(&cell(number));
    world.stores[0].submit();
}

/// Whatever can be done is done, though something may stand still.
fn go_on(world: &mut World) {
    for _ in 0..300 {
        world.guard.rest();
        world.poll();
    }
}

/// The same, but committed entries stay in the ring.
fn commit(world: &mut World) {
    (0..20).for_each(|_| world.poll());
}

fn answers(world: &World) -> Vec<&Load> {
    let loads = world.heard[0].iter().filter_map(|heard| match heard {
        Completion::Loaded { load, .. } => Some(load),
        _ => None,
    });
    loads.collect()
}

fn check(world: &mut World, number: u64, len: usize) {
    let load = world.load(&cell(number));
    assert!(load != Load::Lost, "it is taken for damaged");
    assert!(load == Load::Found(record(number, len).into()), "it is another");
}

/// The load is answered only now, with the record.
fn answered(world: &mut World, number: u64, len: usize) {
    assert!(answers(world).is_empty());
    world.disk.release();
    go_on(world);
    assert!(answers(world) == [&Load::Found(record(number, len).into())]);
    check(world, number, len);
}

/// A record is asked for and deleted. The read finds its successor, and before it is answered the
/// same record comes to the same place again.
#[test]
fn what_stood_there_before_is_no_damage() {
    for len in LENS {
        let (mut world, asked, other) = (world(), 1, 2);
        put(&mut world, asked, len);
        go_on(&mut world);
        world.disk.withhold(FIRST);
        assert_eq!(world.stores[0].load(&cell(asked)), Load::Pending);
        commit(&mut world);
        remove(&mut world, asked);
        go_on(&mut world);
        put(&mut world, other, len);
        go_on(&mut world);
        world.disk.read_now();
        remove(&mut world, other);
        go_on(&mut world);
        put(&mut world, asked, len);
        go_on(&mut world);
        answered(&mut world, asked, len);
    }
}

/// The read is answered before the record comes again, but then its bucket has to be read.
#[test]
fn what_was_read_before_a_bucket_is_awaited_is_no_damage() {
    for len in LENS {
        let (mut world, bucket) = (world(), 7);
        let asked = of_bucket(LEVEL, bucket).next().expect("there is one");
        let others: Vec<u64> = of_bucket(LEVEL, 3).take(30).collect();
        put(&mut world, asked, len);
        go_on(&mut world);
        world.disk.withhold(FIRST);
        assert_eq!(world.stores[0].load(&cell(asked)), Load::Pending);
        commit(&mut world);
        assert_eq!(world.guard.under_way(), 1, "its content is being read");
        remove(&mut world, asked);
        go_on(&mut world);
        // An overflow page takes its place.
        others.iter().for_each(|&number| put(&mut world, number, 200));
        go_on(&mut world);
        world.disk.read_now();
        world.disk.withhold(Withheld::At(File::Slots, (2 + bucket) * PAGE));
        commit(&mut world);
        assert_eq!(world.guard.under_way(), 1, "its bucket is being read");
        others.iter().for_each(|&number| remove(&mut world, number));
        go_on(&mut world);
        put(&mut world, asked, len);
        commit(&mut world);
        answered(&mut world, asked, len);
    }
}

/// The scrub has seen the record's page, and reads where the same record is on its way to meanwhile.
#[test]
fn what_is_not_written_yet_is_no_damage() {
    for len in LENS {
        let (mut world, asked) = (world(), of_bucket(LEVEL, 7).next().expect("there is one"));
        let other = of_bucket(LEVEL, 3).next().expect("there is one");
        put(&mut world, asked, len);
        go_on(&mut world);
        for pages in [2, 16] {
            world.ask_scrub(pages * PAGE);
            go_on(&mut world);
            assert!(!world.is_scrubbing());
        }
        remove(&mut world, asked);
        go_on(&mut world);
        put(&mut world, other, len);
        go_on(&mut world);
        remove(&mut world, other);
        go_on(&mut world);
        world.disk.withhold(Withheld::Stores(File::Extents));
        put(&mut world, asked, len);
        go_on(&mut world);
        assert!(world.guard.under_way() > 0, "it is being written");
        world.disk.read_early(true);
        world.disk.withhold(FIRST);
        world.ask_scrub(PAGE);
        commit(&mut world);
        assert!(world.is_scrubbing());
        // The read is answered when the record has long been there.
        go_on(&mut world);
        world.disk.release();
        go_on(&mut world);
        assert!(!world.is_scrubbing());
        check(&mut world, asked, len);
    }
}
