//! A group that a torn write-back has begun, whose images rot: no superblock counts it and its map is not there.

use storage::disk::{Config, File};
use storage::{Completion, Load, Store};
use types::Key;

use crate::support::{SECTOR, SimDisk, World, cell, of_bucket, record, small_config};

const PAGE: usize = 4096;
const UNIT: usize = 1024;
/// Units of a group but for those of its map.
const ROOM: usize = 32_252;
const GROUP: usize = (ROOM + 4) * UNIT;

fn config() -> Config {
    let (ring_bytes, cache_bytes) = (1 << 20, 1 << 20);
    Config { ring_bytes, cache_bytes, initial_level: 4, fill_percent: 90, ..small_config() }
}

fn await_stored(world: &mut World) {
    let last = world.stores[0].ticket().0 - 1;
    let is_stored = |it: &Completion| matches!(it, Completion::Stored(ticket) if ticket.0 >= last);
    while !world.heard[0].iter().any(is_stored) {
        world.poll();
    }
}

fn put(world: &mut World, number: u64, len: usize) {
    world.stores[0].put(&cell(number), &record(number, len));
    world.stores[0].submit();
    await_stored(world);
}

fn remove(world: &mut World, number: u64) {
    world.stores[0].remove(&cell(number));
    world.stores[0].submit();
    await_stored(world);
}

/// A record that takes so many units, with its key.
fn len_of(units: usize) -> usize {
    units * UNIT - 8
}

fn groups(disk: &SimDisk, copy: usize) -> u8 {
    disk.bytes(File::Slots)[copy * PAGE + 88]
}

#[test]
fn a_group_that_may_be_in_use_gives_nothing_back() {
    let mut world = World::create(SimDisk::new(1, 3), 1, &config());
    let large: Vec<u64> = of_bucket(4, 0).take(9).collect();
    let mut chain: Vec<u64> = of_bucket(4, 5).take(30).collect();
    // Those that are there first go to the last pages.
    chain.sort_by_key(|number| std::cmp::Reverse(Key::new(&number.to_le_bytes()).hash()));
    let others: Vec<u64> = of_bucket(4, 3).take(3).collect();
    for &number in &large[..8] {
        put(&mut world, number, len_of(4_000));
    }
    put(&mut world, large[8], len_of(ROOM - 32_000));
    for &number in &chain[..4] {
        put(&mut world, number, 800);
    }
    world.settle();
    assert_eq!(groups(&world.disk, 1), 1, "it is full");
    // The chain of a bucket comes behind these in a second group.
    for &number in &others[..2] {
        put(&mut world, number, len_of(2_000));
    }
    for &number in &others[..2] {
        remove(&mut world, number);
    }
    for &number in &chain[4..] {
        put(&mut world, number, 800);
    }
    let mut before = world.disk.bytes(File::Slots)[..2 * PAGE].to_vec();
    for step in 0.. {
        assert!(step < 10_000, "no group is added");
        if groups(&world.disk, 1) == 2 {
            break;
        }
        if groups(&world.disk, 0) == 1 {
            before = world.disk.bytes(File::Slots)[..2 * PAGE].to_vec();
        }
        world.guard.rest();
        world.poll();
    }
    // Power failed when all pages of this write-back were in place but superblocks and map; then its images rotted.
    let disk = world.disk.copy();
    disk.rot(File::Slots, |bytes| bytes[..2 * PAGE].copy_from_slice(&before));
    disk.rot(File::Extents, |bytes| bytes[GROUP..GROUP + PAGE].fill(0));
    disk.rot(File::Spare, |bytes| bytes[..SECTOR].fill(0x55));
    let mut world = World::open(disk.copy(), 1, &config());
    for &number in &chain {
        let load = world.load(&cell(number));
        assert!(load == Load::Found(record(number, 800).into()), "nothing is lost yet: {number}");
    }
    // The same, but no record of it is asked for.
    let mut world = World::open(disk, 1, &config());
    put(&mut world, others[2], len_of(100));
    for &number in &large {
        remove(&mut world, number);
    }
    world.settle();
    let mut world = World::open(world.disk.copy(), 1, &config());
    let is_lost =
        |&&number: &&u64| world.load(&cell(number)) != Load::Found(record(number, 800).into());
    let lost = chain.iter().filter(is_lost).count();
    assert_eq!(lost, 0, "of {} records", chain.len());
}
