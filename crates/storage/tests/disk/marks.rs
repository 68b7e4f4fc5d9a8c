//! A damaged page is rewritten once all that it cost is durably said, also where some of that was
//! said before.

use storage::disk::{Config, File};
use storage::{Load, Place, Store};
use types::{Database, Key};

use crate::support::{SimDisk, Withheld, World, small_config};

fn cell(database: u8, number: u64) -> Place {
    Place::Cell(Database(database), Key::new(&number.to_le_bytes()))
}

fn hash(number: u64) -> u64 {
    Key::new(&number.to_le_bytes()).hash()
}

fn config() -> Config {
    Config { initial_level: 7, cache_bytes: 0, ..small_config() }
}

/// Begins every record, and names it.
fn name(database: u8, number: u64) -> Vec<u8> {
    [&[0xd0 + database; 12][..], &number.to_le_bytes()].concat()
}

fn put(world: &mut World, place: &Place, record: &[u8]) {
    world.stores[0].put(place, record);
    world.stores[0].submit();
    world.settle();
}

/// Damages every copy of a record in the slots.
fn damage(world: &World, database: u8, number: u64) {
    let name = name(database, number);
    let mut is_found = false;
    world.disk.rot(File::Slots, |bytes| {
        let starts = 0..bytes.len() - name.len();
        let at: Vec<usize> = starts.filter(|&at| bytes[at..].starts_with(&name)).collect();
        is_found |= !at.is_empty();
        at.into_iter().for_each(|at| bytes[at + name.len() - 1] ^= 0xff);
    });
    assert!(is_found);
}

/// A record is lost, and that it is durable, in the superblock too.
fn lose(world: &mut World, database: u8, number: u64) {
    damage(world, database, number);
    assert_eq!(world.load(&cell(database, number)), Load::Lost);
    world.settle();
}

fn restarted(world: &World) -> World {
    World::open(world.disk.copy(), 1, &config())
}

/// While the ring does not answer the store rests; whatever is left by a loss of power, these are
/// lost.
fn stay_lost(world: &mut World, lost: &[Place]) {
    for _ in 0..500 {
        world.guard.rest();
        world.poll();
    }
    for seed in 0..10 {
        let mut again = World::open(world.disk.crashed(seed), 1, &config());
        for place in lost {
            assert_eq!(again.load(place), Load::Lost, "{place:?} after crash {seed}");
        }
    }
}

/// One page holds damaged records of two databases; that one of them has forgotten the shard was
/// said before.
#[test]
fn a_page_waits_for_the_marks_of_all_its_records() {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    let numbers: Vec<u64> = (0..).filter(|&it| hash(it) >> 56 == 77).take(2).collect();
    for &number in &numbers {
        for database in [0, 1] {
            put(&mut world, &cell(database, number), &name(database, number));
        }
    }
    let mut world = restarted(&world);
    lose(&mut world, 1, numbers[0]);
    let mut world = restarted(&world);
    for database in [0, 1] {
        let place = cell(database, numbers[1]);
        assert_eq!(world.load(&place), Load::Found(name(database, numbers[1]).into()));
    }
    world.settle();
    let mut world = restarted(&world);
    for database in [0, 1] {
        damage(&world, database, numbers[1]);
    }
    world.disk.withhold(Withheld::Stores(File::Ring));
    let place = cell(0, numbers[1]);
    assert_eq!(world.load(&place), Load::Lost);
    stay_lost(&mut world, &[place]);
}

/// A page of a chain is damaged, and a record of another page of it, whose shard was forgotten
/// before.
#[test]
fn a_chain_waits_for_the_marks_of_all_its_pages() {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    let numbers: Vec<u64> = (0..).filter(|&it| hash(it) >> 57 == 38).take(40).collect();
    for &number in &numbers {
        put(&mut world, &cell(0, number), &[&name(0, number)[..], &[7; 180]].concat());
    }
    let slots = world.disk.bytes(File::Slots);
    let is_in_slots = |number: u64| slots.windows(20).any(|it| it == name(0, number));
    let first: Vec<u64> = numbers.iter().copied().filter(|&it| is_in_slots(it)).collect();
    assert!(first.len() < numbers.len(), "it is a chain");
    let shard = hash(first[0]) >> 56;
    let of_shard: Vec<u64> = first.into_iter().filter(|&it| hash(it) >> 56 == shard).collect();
    let mut world = restarted(&world);
    lose(&mut world, 0, of_shard[0]);
    damage(&world, 0, of_shard[1]);
    world.disk.rot(File::Extents, |bytes| {
        let pages = bytes.chunks_exact_mut(4096).filter(|page| page[8..].starts_with(b"PBKT"));
        pages.for_each(|page| page[30] ^= 0xff);
    });
    let mut world = restarted(&world);
    world.disk.withhold(Withheld::Stores(File::Ring));
    let places = numbers.iter().map(|&number| cell(0, number));
    let lost: Vec<Place> = places.filter(|place| world.load(place) == Load::Lost).collect();
    assert!(
        lost.iter().any(|place| matches!(place, Place::Cell(_, key) if key.hash() >> 56 != shard))
    );
    stay_lost(&mut world, &lost);
}

/// The bucket of another is too long for the double-write buffer. While it is read for a write-back
/// in vain, damage is met elsewhere.
#[test]
fn a_repair_that_comes_up_meanwhile_is_done_at_rest() {
    for is_gathering in [false, true] {
        let config = Config { ring_bytes: 256 << 10, spare_pages: 32, ..config() };
        let rest = |world: &mut World, polls: usize| {
            for _ in 0..polls {
                world.guard.rest();
                world.poll();
            }
        };
        let of = |top: u64, count: usize| -> Vec<u64> {
            (0..).filter(|&it| hash(it) >> 57 == top).take(count).collect()
        };
        let mut world = World::create(SimDisk::new(1, 0), 1, &config);
        let (long, short) = (of(5, 50), of(9, 3));
        let records =
            long[..49].iter().map(|&it| (it, 990)).chain(short.iter().map(|&it| (it, 30)));
        for (number, len) in records {
            world.stores[0].put(&cell(0, number), &vec![1; len]);
            world.stores[0].submit();
            rest(&mut world, 20);
        }
        let shard = types::Shard((hash(short[0]) >> 56) as u8);
        world.stores[0].set_forgotten(Database(0), shard, true);
        world.stores[0].submit();
        rest(&mut world, 1_000);
        let mut world = World::open(world.disk.copy(), 1, &config);
        rest(&mut world, 1_000);
        assert!(world.stores[0].staging().is_some_and(|it| it.used > 0), "the long one stays");
        if is_gathering {
            world.disk.withhold(Withheld::Reads(File::Extents));
        }
        world.stores[0].put(&cell(0, long[49]), &[2; 990]);
        world.stores[0].submit();
        rest(&mut world, 20);
        let bucket = (hash(short[0]) >> 57).reverse_bits() >> 57;
        let page = (2 + bucket as usize) * 4096;
        world.disk.rot(File::Slots, |bytes| bytes[page + 4095] ^= 0xff);
        let rotten = world.disk.bytes(File::Slots)[page..page + 4096].to_vec();
        assert!(short.iter().any(|&it| world.load(&cell(0, it)) == Load::Lost));
        world.disk.release();
        rest(&mut world, 20_000);
        let now = &world.disk.bytes(File::Slots)[page..page + 4096];
        assert!(*now != rotten[..], "gathering: {is_gathering}");
    }
}
