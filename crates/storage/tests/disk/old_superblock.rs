//! One superblock is an older whole one.

use std::collections::BTreeMap;

use base::Prng;
use storage::disk::{Config, File};
use storage::{Completion, Load, Store};

use crate::support::*;

const PAGE: usize = 4096;

/// Whichever of the two went back, and whether or not power failed in the middle of a write-back: all that was
/// acknowledged is there.
#[test]
fn an_older_whole_superblock_rolls_nothing_back() {
    for seed in seeds(60) {
        let mut prng = Prng::new(seed);
        let config = Config { ring_bytes: *prng.pick(&[64 << 10, 256 << 10]), ..small_config() };
        let mut world = World::create(SimDisk::new(seed, prng.below(3)), 1, &config);
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let superblocks = |world: &World| world.disk.bytes(File::Slots)[..2 * PAGE].to_vec();
        let mut older = vec![superblocks(&world)];
        for life in 0..4 {
            for _ in 0..prng.between(5, 150) {
                for _ in 0..prng.between(1, 8) {
                    let number = prng.below(150);
                    let len_max = *prng.pick(&[10, 100, 700, 3000]);
                    let value = record(prng.next_u64(), prng.between(1, len_max) as usize);
                    world.stores[0].put(&cell(number), &value);
                    model.insert(number, value);
                }
                store_all(&mut world);
                if prng.chance(0.03) {
                    world.settle();
                }
                if prng.chance(0.1) {
                    older.push(superblocks(&world));
                }
            }
            if prng.chance(0.3) {
                world.settle();
            }
            let disk = world.disk.crashed(prng.next_u64());
            let start = prng.below(2) as usize * PAGE;
            let copy = start..start + PAGE;
            let old = prng.pick::<Vec<u8>>(&older)[copy.clone()].to_vec();
            disk.rot(File::Slots, |bytes| bytes[copy].copy_from_slice(&old));
            world = World::open(disk, 1, &config);
            if prng.chance(0.5) {
                world.settle();
            }
            for (&number, value) in &model {
                let load = world.load(&cell(number));
                let is_it = matches!(&load, Load::Found(found) if found[..] == value[..]);
                assert!(is_it, "seed {seed}, life {life}: {number} is {load:?}");
            }
            world.settle();
            let is_failure = |heard: &&Completion| matches!(heard, Completion::Failed(_));
            let failed = world.heard[0].iter().find(is_failure);
            assert!(failed.is_none(), "seed {seed}, life {life}: {failed:?}");
        }
    }
}

/// Until all that was put is durable.
fn store_all(world: &mut World) {
    let ticket = world.stores[0].ticket();
    world.stores[0].submit();
    for _ in 0..20_000 {
        if world.heard[0].iter().any(|it| matches!(it, Completion::Stored(of) if *of >= ticket)) {
            world.heard[0].retain(|it| !matches!(it, Completion::Stored(_)));
            return;
        }
        world.poll();
    }
    panic!("it is not stored: {:?}", world.heard[0]);
}
