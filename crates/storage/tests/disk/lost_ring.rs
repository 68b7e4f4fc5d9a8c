//! A ring that is damaged or lost, and records that come after it.

use storage::disk::{Config, File};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard, Ticket};

use crate::support::{SECTOR, SimDisk, Withheld, World, seeds, small_config};

fn config() -> Config {
    Config { ring_bytes: 256 << 10, ..small_config() }
}

fn cell(number: u64) -> Place {
    Place::Cell(Database(0), Key::new(&number.to_le_bytes()))
}

fn submit(world: &mut World, place: &Place, record: &[u8]) -> Ticket {
    let ticket = world.stores[0].ticket();
    world.stores[0].put(place, record);
    world.stores[0].submit();
    ticket
}

fn is_stored(world: &mut World, ticket: Ticket) -> bool {
    for _ in 0..20_000 {
        let is_it = |heard: &Completion| matches!(heard, Completion::Stored(of) if *of >= ticket);
        if world.heard[0].iter().any(is_it) {
            return true;
        }
        world.poll();
    }
    false
}

fn put(world: &mut World, place: &Place, record: &[u8]) {
    let ticket = submit(world, place, record);
    assert!(is_stored(world, ticket), "{place:?} is not stored");
}

/// A store whose ring took so many batches before the first page was read.
fn filled(batches: u64) -> SimDisk {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    world.disk.withhold(Withheld::Reads(File::Slots));
    for number in 0..batches {
        for part in 0..2 {
            world.stores[0].put(&cell(number * 1_000 + part), &[1; 200]);
        }
        world.stores[0].submit();
        world.poll();
    }
    (0..20).for_each(|_| world.poll());
    world.disk.crashed(1)
}

fn rot_ring(disk: &SimDisk) {
    disk.rot(File::Ring, |bytes| bytes[40 * SECTOR..70 * SECTOR].fill(0x55));
}

/// Recovered from the others.
fn know_all(world: &mut World) {
    for shard in 0..=255_u8 {
        world.stores[0].set_forgotten(Database(0), Shard(shard), false);
    }
    world.stores[0].submit();
}

#[test]
fn records_after_a_lost_ring_survive_a_kill() {
    for variant in 0..60_u64 {
        let disk = filled(190);
        disk.rot(File::Ring, |bytes| bytes.fill(0));
        let mut world = World::open(disk, 1, &config());
        (0..20).for_each(|_| world.poll());
        world.heard[0].clear();
        know_all(&mut world);
        let places: Vec<Place> = (0..8).map(|number| cell((1 << 50) + number)).collect();
        places.iter().for_each(|place| put(&mut world, place, b"old"));
        for number in 0..(6 + variant % 30) {
            put(&mut world, &cell((1 << 51) + number), &[2; 300]);
        }
        world.settle();
        for number in 0..(40 + 2 * variant) {
            put(&mut world, &cell((1 << 52) + number), &[3; 300]);
        }
        places.iter().for_each(|place| put(&mut world, place, b"new"));
        let mut world = World::open(world.disk.copy(), 1, &config());
        for place in &places {
            assert_eq!(world.load(place), Load::Found(b"new"[..].into()), "variant {variant}");
        }
    }
}

/// Damages the ring batch of this record, which has one sector of data, beyond repair.
fn rot_stripe(disk: &SimDisk, record: &[u8]) {
    let ring = disk.bytes(File::Ring);
    let at = ring.windows(record.len()).position(|bytes| bytes == record).expect("it is there");
    let start = at / SECTOR * SECTOR;
    disk.rot(File::Ring, |bytes| bytes[start..start + 2 * SECTOR].fill(0x55));
}

#[test]
fn records_after_two_losses_survive_a_kill() {
    for variant in 0..300_u64 {
        // After a loss the process ends before anything goes home.
        let disk = filled(60);
        let head = World::open(disk.copy(), 1, &config()).stores[0].staging().expect("of all");
        rot_stripe(&disk, &[1; 200]);
        let mut world = World::open(disk, 1, &config());
        world.disk.withhold(Withheld::Reads(File::Slots));
        (0..60).for_each(|_| world.poll());
        for number in 0..115 {
            submit(&mut world, &cell(number + (1 << 49)), &[2; 300]);
            (0..3).for_each(|_| world.poll());
        }
        // Then its ring batches are lost, so that the head goes back.
        let disk = world.disk.copy();
        disk.rot(File::Ring, |bytes| bytes[head.used as usize..].fill(0));
        let mut world = World::open(disk, 1, &config());
        know_all(&mut world);
        let places: Vec<Place> = (0..8).map(|number| cell((1 << 50) + number)).collect();
        places.iter().for_each(|place| put(&mut world, place, b"old"));
        for number in 0..variant % 20 {
            put(&mut world, &cell((1 << 51) + number), &[2; 300]);
        }
        world.settle();
        for number in 0..variant / 10 * 3 + 20 {
            put(&mut world, &cell((1 << 52) + number), &[3; 300]);
        }
        places.iter().for_each(|place| put(&mut world, place, b"new"));
        let mut world = World::open(world.disk.copy(), 1, &config());
        for place in &places {
            assert_eq!(world.load(place), Load::Found(b"new"[..].into()), "variant {variant}");
        }
    }
}

#[test]
fn pages_of_a_write_back_that_did_not_end_are_void_after_a_loss() {
    let place = cell(1 << 50);
    for (restarts, ends) in [(false, 0), (false, 1), (true, 0), (true, 1), (true, 2)] {
        for seed in seeds(20) {
            let mut world = World::create(SimDisk::new(1, 0), 1, &config());
            if restarts {
                put(&mut world, &place, b"zero");
                world.settle();
                world = World::open(world.disk.copy(), 1, &config());
            }
            for number in 0..ends {
                put(&mut world, &cell(number), b"goes home");
                world.settle();
            }
            put(&mut world, &place, b"one");
            (0..10).for_each(|number| put(&mut world, &cell(number), &[1; 300]));
            // Images are durable; some of the pages are written.
            world.disk.withhold(Withheld::Stores(File::Slots));
            for _ in 0..50 {
                world.guard.rest();
                world.poll();
            }
            put(&mut world, &place, &[2; 300]);
            (0..3).for_each(|number| put(&mut world, &cell(number + 1_000), &[1; 300]));
            let disk = world.disk.crashed(seed);
            disk.rot(File::Spare, |bytes| bytes[..SECTOR].fill(0x55));
            rot_stripe(&disk, &[2; 300]);
            let mut world = World::open(disk, 1, &config());
            (0..60).for_each(|_| world.poll());
            assert_eq!(world.load(&place), Load::Lost, "{restarts} {ends} {seed}");
        }
    }
}

#[test]
fn a_large_record_after_a_lost_ring_is_stored() {
    let mut world = World::create(SimDisk::new(1, 6), 1, &config());
    let mut number = 0;
    for step in 0..800_u64 {
        if !world.stores[0].is_full() {
            for _ in 0..2 {
                number += 1;
                world.stores[0].put(&cell(number), &[7; 200]);
            }
            world.stores[0].submit();
        }
        world.poll();
        let disk = world.disk.crashed(step);
        rot_ring(&disk);
        // The last process's write-back may be in the double-write buffer, which the large record
        // has to wait for.
        let mut again = World::open(disk, 1, &config());
        let ticket = submit(&mut again, &cell(1 << 40), &[9; 20_000]);
        assert!(is_stored(&mut again, ticket), "step {step}");
    }
}

#[test]
fn damaged_buckets_leave_room_in_a_full_ring() {
    for (loads, rots) in [(80, false), (80, true), (400, false), (400, true)] {
        let config = Config { initial_level: 8, spare_pages: 128, ..config() };
        let mut world = World::create(SimDisk::new(1, 2), 1, &config);
        world.disk.withhold(Withheld::Reads(File::Slots));
        for number in 0..800 {
            world.stores[0].put(&cell(number), &[1; 200]);
            world.stores[0].submit();
            world.poll();
        }
        let disk = world.disk.crashed(1);
        disk.rot(File::Slots, |bytes| {
            bytes[16 * SECTOR..].iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
        });
        if rots {
            rot_ring(&disk);
        }
        let mut world = World::open(disk, 1, &config);
        for number in 0..100 {
            submit(&mut world, &cell((1 << 44) + number), &[1; 400]);
            world.poll();
        }
        (0..50).for_each(|_| world.poll());
        for number in 0..loads {
            world.stores[0].load(&cell((1 << 45) + number));
            (0..12).for_each(|_| world.poll());
        }
        put(&mut world, &cell(1 << 60), b"behind all that");
    }
}

#[test]
fn a_damaged_ring_forgets_all_but_what_came_after_it() {
    for settles in [false, true] {
        let disk = filled(190);
        let mut whole = World::open(disk.copy(), 1, &config());
        let mut numbers = (0..190).rev().map(|number| number * 1_000);
        let newest = numbers.find(|&number| whole.load(&cell(number)) != Load::Absent);
        let newest = newest.expect("the ring has records");
        assert!(newest > 100_000, "{newest}");
        rot_ring(&disk);
        let mut world = World::open(disk, 1, &config());
        put(&mut world, &cell(1 << 50), b"new");
        let is_it = |it: &&Completion| matches!(it, Completion::Forgotten { .. });
        assert_eq!(
            world.heard[0].iter().filter(is_it).count(),
            types::limits::SPACES * 256,
            "all shards"
        );
        if settles {
            world.settle();
        }
        for seed in 0..2 {
            assert_eq!(world.load(&cell(1 << 50)), Load::Found(b"new"[..].into()));
            assert_eq!(world.load(&cell(newest)), Load::Found([1; 200][..].into()));
            for number in [0, 1 << 51] {
                assert_eq!(world.load(&cell(number)), Load::Lost);
            }
            world = World::open(world.disk.crashed(seed), 1, &config());
        }
    }
}
