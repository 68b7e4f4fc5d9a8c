//! Stores whose next write-back is nearly always built while one is written.

use base::Prng;
use storage::disk::Config;
use storage::{Completion, Place, Store};
use types::{Database, Key};

use crate::history::{Life, WORKERS, run};
use crate::support::{SimDisk, World, seeds, small_config};

#[test]
fn a_store_whose_write_backs_overlap_is_a_map() {
    for seed in seeds(7) {
        run(seed, 1_500, Life::Busy);
    }
}

fn rot_run(seed: u64) -> usize {
    use crate::rot::{change, check, damage, end, go_on};
    println!("rot seed {seed}");
    let mut prng = Prng::new(seed);
    let delay = *prng.pick(&[9, 40, 120]);
    let config = Config {
        ring_bytes: *prng.pick(&[64 << 10, 128 << 10, 256 << 10]),
        spare_pages: *prng.pick(&[32, 64]),
        initial_level: *prng.pick(&[1, 3, 5]) as u32,
        cache_bytes: *prng.pick(&[0, 64 << 10]),
        first_fit: seed % 2 == 1,
        ..small_config()
    };
    let mut world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
    let mut model = crate::rot::Model::new();
    let mut lost = 0;
    for life in 0..5 {
        let changes = *prng.pick(&[20, 60, 500, 900]);
        change(&mut world, &mut prng, &mut model, changes);
        (0..prng.below(200)).for_each(|_| world.poll());
        let disk = world.disk.crashed(prng.next_u64());
        let mut what = format!("life {life}, {}", damage(&disk, &mut prng));
        if prng.chance(0.3) {
            what = format!("{what}; {}", damage(&disk, &mut prng));
        }
        match storage::disk::LocalGuard::open(
            disk.copy(),
            crate::support::BINDING,
            WORKERS,
            &config,
        ) {
            Ok(_) => {}
            Err(storage::disk::OpenError::Damaged) => return lost, // two damages
            Err(error) => panic!("{what}: {error}"),
        }
        world = World::open(disk, WORKERS, &config);
        lost += check(&mut world, &model, &what);
        // Without recovery: changes while buckets are damaged.
        let changes = *prng.pick(&[0, 100, 500]);
        change(&mut world, &mut prng, &mut model, changes);
        lost += check(&mut world, &model, &format!("{what}, later"));
        go_on(&mut world, &mut prng, &model, &config, &what);
    }
    end(world, &model, &config);
    lost
}

#[test]
fn rot_while_write_backs_overlap_never_shows_an_old_record() {
    let lost: usize = seeds(20).map(rot_run).sum();
    assert!(lost > 0);
}

/// Damage under a bucket in memory is mended though writes elsewhere never end.
#[test]
fn a_scrub_mends_what_is_in_memory_while_others_write() {
    const LAPS_MAX: u64 = 100;
    let config = Config {
        ring_bytes: 256 << 10,
        spare_pages: 64,
        initial_level: 6,
        cache_bytes: 4 << 20,
        fill_percent: 90,
        first_fit: false,
    };
    let mut laps_of = Vec::new();
    for seed in 0..8 {
        let mut prng = Prng::new(seed);
        let mut world = World::create(SimDisk::new(seed, 8), 1, &config);
        let keys: Vec<Place> = (0..600_u64)
            .map(|number| Key::new(&number.to_le_bytes()))
            .map(|key| Place::Cell(Database(0), key))
            .collect();
        for key in &keys {
            world.stores[0].put(key, &[1; 100]);
            world.stores[0].submit();
            world.poll();
        }
        world.settle();
        keys.iter().for_each(|key| drop(world.load(key)));
        world.heard[0].clear();
        let others: Vec<Place> = keys
            .iter()
            .filter(|place| matches!(place, Place::Cell(_, key) if key.shard().0 >= 8))
            .cloned()
            .collect();
        assert!(others.len() > 500);
        let mut laps = 0;
        let mut damaged = 0;
        let mut is_rotten = false;
        let mut steps = 0;
        while laps < LAPS_MAX && damaged == 0 {
            steps += 1;
            if !is_rotten && steps == 2_000 {
                is_rotten = true;
                world
                    .disk
                    .rot_lasting(storage::disk::File::Slots, |bytes| bytes[2 * 4096 + 9] ^= 1);
                world.ask_scrub(64 << 10);
            }
            if !world.stores[0].is_full() {
                for _ in 0..4 {
                    world.stores[0].put(prng.pick(&others), &[steps as u8; 100]);
                }
                world.stores[0].submit();
            }
            world.poll();
            let mut asks = false;
            for completion in std::mem::take(&mut world.heard[0]) {
                if let Completion::Scrubbed(step) = completion {
                    laps += u64::from(step.has_ended);
                    damaged += step.damaged;
                    asks = true;
                }
            }
            if asks {
                world.ask_scrub(64 << 10);
            }
        }
        laps_of.push((laps, damaged));
    }
    println!("laps and damage found: {laps_of:?}");
    assert!(laps_of.iter().all(|&(_, damaged)| damaged > 0), "{laps_of:?}");
}

/// A full store becomes less so as long as its device answers, without a rest.
#[test]
fn a_store_is_never_full_for_nothing() {
    let mut polls_of_all = 0_u64;
    for seed in seeds(70) {
        let mut prng = Prng::new(seed);
        let config = Config {
            ring_bytes: *prng.pick(&[64 << 10, 128 << 10, 256 << 10]),
            spare_pages: *prng.pick(&[32, 64, 128]),
            initial_level: prng.between(1, 7) as u32,
            cache_bytes: *prng.pick(&[0, 64 << 10, 1 << 20]),
            fill_percent: *prng.pick(&[20, 60, 90]),
            first_fit: seed % 2 == 1,
        };
        let delay = *prng.pick(&[0, 1, 4, 20, 60]);
        let keys = *prng.pick(&[1, 3, 30, 300, 3_000]);
        let len = prng.between(1, 900) as usize;
        let mut world = World::create(SimDisk::new(seed, delay), 1, &config);
        for number in 0..1_500_u64 {
            let mut idle = 0;
            while world.stores[0].is_full() {
                let is_idle = world.guard.under_way() == 0;
                idle = if is_idle { idle + 1 } else { 0 };
                assert!(idle < 20, "seed {seed}: full at record {number}, {config:?}, {keys} keys");
                world.poll();
                polls_of_all += 1;
            }
            let place = Place::Cell(Database(0), Key::new(&prng.below(keys).to_le_bytes()));
            world.stores[0].put(&place, &vec![number as u8; len]);
            world.stores[0].submit();
            if prng.chance(0.005) {
                world = World::open(world.disk.crashed(seed), 1, &config);
            }
        }
        // And it comes to rest, also where it rests while one write-back is built and another written.
        world.settle();
    }
    println!("{polls_of_all} polls");
}
