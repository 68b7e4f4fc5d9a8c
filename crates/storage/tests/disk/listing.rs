//! The most that a listing may hold at a time.

use storage::{Completion, Place, Store};
use types::{Database, Key, Shard};

use crate::support::{SimDisk, World, small_config};

const SHARD: Shard = Shard(7);

/// One step: records, their bytes, where to go on.
fn step(world: &mut World, from: u64) -> (Vec<Key>, usize, Option<u64>) {
    world.heard[0].clear();
    world.stores[0].scan(1, Database(0), from, 1_024);
    loop {
        world.poll();
        for completion in world.heard[0].drain(..) {
            if let Completion::Scanned { records, next_hash, .. } = completion {
                let len = records.iter().map(|(_, record)| record.len()).sum();
                return (records.into_iter().map(|(key, _)| key).collect(), len, next_hash);
            }
        }
    }
}

#[test]
fn a_listing_of_large_records_takes_steps() {
    for value_len in [1_000, 100 << 10, 1 << 20] {
        let mut config = small_config();
        config.ring_bytes = 1 << 20;
        let mut world = World::create(SimDisk::new(1, 0), 1, &config);
        let keys = (0_u64..).map(|n| Key::new(format!("key {n}").as_bytes()));
        let mut keys: Vec<Key> = keys.filter(|key| key.shard() == SHARD).take(90).collect();
        for key in &keys {
            let place = Place::Cell(Database(0), key.clone());
            world.stores[0].put(&place, &vec![7; value_len]);
            world.stores[0].submit();
            world.poll();
        }
        world.settle();
        let (mut found, mut steps) = (Vec::new(), 0);
        let mut next = Some(SHARD.first_hash());
        while let Some(from) = next {
            let (listed, len, then) = step(&mut world, from);
            assert!(len <= 5 << 20, "{len} bytes in one step");
            found.extend(listed);
            (next, steps) = (then, steps + 1);
        }
        keys.sort();
        assert_eq!(found, keys);
        let all = keys.len() * value_len;
        assert!(steps >= all.div_ceil(5 << 20) && steps <= 1 + all / (3 << 20), "{steps} steps");
    }
}
