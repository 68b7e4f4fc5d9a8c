//! A ring that was lost, found late, and what its head meets a lap later.

use storage::disk::{Config, File};
use storage::{Completion, Store};
use types::{Database, Shard};

use crate::support::{SECTOR, SimDisk, Withheld, World, cell, put, record, small_config};

const SECTORS: u64 = 512;

fn config() -> Config {
    Config { ring_bytes: SECTORS * SECTOR as u64, ..small_config() }
}

fn put_wait(world: &mut World, number: u64) {
    let ticket = world.stores[0].ticket();
    world.stores[0].put(&cell(number), &record(number, 200));
    world.stores[0].submit();
    let is_stored = |it: &Completion| matches!(it, Completion::Stored(of) if *of >= ticket);
    while !world.heard[0].iter().any(is_stored) {
        world.poll();
    }
}

/// What was damaged is made blank, so that no start takes it for the stripe behind its head.
#[test]
fn what_was_lost_once_is_not_lost_again_a_lap_later() {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    world.disk.withhold(Withheld::Reads(File::Slots));
    for number in 0..190 {
        put(&mut world, number * 1_000, 200);
        put(&mut world, number * 1_000 + 1, 200);
        world.poll();
    }
    (0..20).for_each(|_| world.poll());
    let disk = world.disk.crashed(1);
    disk.rot(File::Ring, |bytes| bytes[40 * SECTOR..70 * SECTOR].fill(0x55));
    let mut world = World::open(disk, 1, &config());
    assert!(world.keeper.has_unread_ring(), "it is found late");
    world.settle();
    for database in 0..16 {
        for shard in 0..=255_u8 {
            if world.stores[0].is_forgotten(Database(database), Shard(shard)) {
                world.stores[0].set_forgotten(Database(database), Shard(shard), false);
            }
        }
        world.stores[0].submit();
        (0..10).for_each(|_| world.poll());
    }
    world.settle();
    for step in 0..SECTORS / 2 {
        let mut again = World::open(world.disk.copy(), 1, &config());
        again.poll();
        let is_loss = |it: &Completion| matches!(it, Completion::Forgotten { .. });
        assert!(!again.heard[0].iter().any(is_loss), "step {step}: nothing was damaged since");
        put_wait(&mut world, step % 7);
        world.settle();
    }
}
