//! The disk store against a plain map: random changes, delays, losses of power at any moment, restarts.

use crate::history::{Life, Model, run};
use crate::support::{SimDisk, Withheld, World, seeds, small_config};
use base::Prng;
use storage::disk::{Config, File};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key};

#[test]
fn a_store_is_a_map_whatever_happens_to_its_power() {
    for seed in seeds(50) {
        run(seed, 400, Life::Mixed);
    }
}

#[test]
fn many_short_lives_lose_nothing() {
    for seed in seeds(300) {
        run(seed + 1_000_000, 25, Life::Mixed);
    }
}

#[test]
fn buckets_become_more_and_fewer_whatever_happens_to_the_power() {
    for seed in seeds(13) {
        run(seed + 2_000_000, 400, Life::Tidal);
    }
}

/// Every entry of a full ring may be replaced by one that waits for room: then the older one has to go home.
#[test]
fn a_ring_that_only_waits_for_its_own_successors_gets_room() {
    for seed in seeds(20) {
        let mut prng = Prng::new(seed);
        let mut world = World::create(SimDisk::new(seed, 40), 1, &small_config());
        // More than the ring holds, so that a place's next entry waits for room while its last one is in the ring.
        let places: Vec<Place> = (0..prng.between(250, 500))
            .map(|number| Place::Cell(Database(0), Key::new(&number.to_le_bytes())))
            .collect();
        let mut model = Model::new();
        for batch in 0..150 {
            for i in 0..10 {
                let place = &places[(batch * 10 + i) % places.len()];
                let record = vec![prng.next_u64() as u8; 200];
                world.stores[0].put(place, &record);
                model.insert(place.clone(), record);
            }
            world.stores[0].submit();
        }
        world.settle();
        for (place, record) in &model {
            assert_eq!(world.load(place), Load::Found(record.clone().into()), "seed {seed}");
        }
    }
}

/// The tail of a ring cannot move before the hand has been everywhere, which takes long without a
/// cache.
#[test]
fn a_store_that_ended_when_it_was_full_takes_writes_before_it_has_read_a_page() {
    let config = Config { ring_bytes: 256 << 10, ..small_config() };
    let mut world = World::create(SimDisk::new(1, 3), 1, &config);
    fill(&mut world, 2_000);
    // Each start but the first falls into the first lap of the one before.
    for start in 1..=3 {
        world = World::open(world.disk.crashed(start), 1, &config);
        world.disk.withhold(Withheld::Reads(File::Slots));
        assert!(!world.stores[0].is_full(), "start {start}");
        fill(&mut world, 1);
        (0..100).for_each(|_| world.poll());
        let is_stored = |heard: &Completion| matches!(heard, Completion::Stored(_));
        assert!(world.heard[0].iter().any(is_stored), "start {start}");
        fill(&mut world, 200);
    }
}

/// Writes as much as a store takes in so many polls.
fn fill(world: &mut World, polls: u64) {
    for _ in 0..polls {
        if !world.stores[0].is_full() {
            for _ in 0..8 {
                let number = world.stores[0].ticket().0;
                let place = Place::Cell(Database(0), Key::new(&number.to_le_bytes()));
                world.stores[0].put(&place, &[7; 200]);
                world.stores[0].submit();
            }
        }
        world.poll();
    }
}

/// A store of two buckets, whose hand has few places to go, is emptied before anybody has to rest.
#[test]
fn a_store_of_few_buckets_takes_more_than_its_ring_without_a_rest() {
    // An idle store rests after so many polls.
    const POLLS_MAX: u32 = 60;
    let mut world = World::create(SimDisk::new(1, 0), 1, &small_config());
    for number in 0..2_000_u64 {
        let mut polls = 0;
        while world.stores[0].is_full() {
            polls += 1;
            assert!(polls < POLLS_MAX, "full at record {number}, and nobody empties it");
            world.poll();
        }
        let place = Place::Cell(Database(0), Key::new(&(number % 8).to_le_bytes()));
        world.stores[0].put(&place, &[number as u8; 200]);
        world.stores[0].submit();
    }
}
