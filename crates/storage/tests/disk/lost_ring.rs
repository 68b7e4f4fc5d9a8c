//! A ring that is damaged, or lost, beside a start that serves before it has read it.

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

/// Opens the store with its ring withheld; `None` where that is read before it serves.
fn open_unread(disk: SimDisk) -> Option<World> {
    let world = World::open(disk, 1, &config());
    world.disk.withhold(Withheld::Both(File::Ring));
    world.keeper.has_unread_ring().then_some(world)
}

/// Recovered from the others.
fn know_all(world: &mut World) {
    for shard in 0..=255_u8 {
        world.stores[0].set_forgotten(Database(0), Shard(shard), false);
    }
    world.stores[0].submit();
}

#[test]
fn digests_of_a_ring_that_was_lost_say_nothing_of_the_next_one() {
    let mut opened = 0;
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
        let Some(mut world) = open_unread(world.disk.copy()) else { continue };
        opened += 1;
        for place in &places {
            assert_eq!(world.stores[0].load(place), Load::Pending);
        }
        (0..50).for_each(|_| world.poll());
        world.disk.release();
        (0..50).for_each(|_| world.poll());
        let answers = world.heard[0].iter().filter_map(|heard| match heard {
            Completion::Loaded { load, .. } => Some(load),
            Completion::Failed(reason) => panic!("variant {variant}: {reason}"),
            _ => None,
        });
        let wanted = Load::Found(b"new"[..].into());
        assert_eq!(answers.filter(|&load| *load == wanted).count(), 8, "variant {variant}");
    }
    assert!(opened > 0, "all of them read their rings first");
}

/// What the ring holds of this record is damaged beyond repair, its stripe having one sector of data.
fn rot_stripe(disk: &SimDisk, record: &[u8]) {
    let ring = disk.bytes(File::Ring);
    let at = ring.windows(record.len()).position(|bytes| bytes == record).expect("it is there");
    let start = at / SECTOR * SECTOR;
    disk.rot(File::Ring, |bytes| bytes[start..start + 2 * SECTOR].fill(0x55));
}

#[test]
fn digests_of_a_loss_that_no_superblock_speaks_of_say_nothing_of_the_next_one() {
    let mut opened = 0;
    for variant in 0..300_u64 {
        // A loss is found late, and the process ends before anything goes home.
        let disk = filled(60);
        let head = World::open(disk.copy(), 1, &config()).stores[0].staging().expect("of all");
        rot_stripe(&disk, &[1; 200]);
        let mut world = World::open(disk, 1, &config());
        world.disk.withhold(Withheld::Reads(File::Slots));
        (0..60).for_each(|_| world.poll());
        assert!(!world.keeper.has_unread_ring());
        for number in 0..115 {
            submit(&mut world, &cell(number + (1 << 49)), &[2; 300]);
            (0..3).for_each(|_| world.poll());
        }
        // Then what it has written is lost, so that the head goes back.
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
        let Some(mut world) = open_unread(world.disk.copy()) else { continue };
        opened += 1;
        world.disk.withhold(Withheld::Reads(File::Ring));
        for place in &places {
            assert_eq!(world.load(place), Load::Found(b"new"[..].into()), "variant {variant}");
        }
        world.disk.release();
        (0..50).for_each(|_| world.poll());
        let failed = world.heard[0].iter().find(|heard| matches!(heard, Completion::Failed(_)));
        assert_eq!(failed, None, "variant {variant}");
    }
    assert!(opened > 50, "only {opened}");
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
                world.keeper.rest();
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
fn a_large_record_behind_a_ring_that_is_lost_late_is_stored_in_the_end() {
    let mut world = World::create(SimDisk::new(1, 6), 1, &config());
    let (mut number, mut opened) = (0, 0);
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
        // The last process's write-back may be in the spare, which the large record has to wait for.
        let Some(mut again) = open_unread(disk) else { continue };
        opened += 1;
        let ticket = submit(&mut again, &cell(1 << 40), &[9; 20_000]);
        (0..10).for_each(|_| again.poll());
        again.disk.release();
        assert!(is_stored(&mut again, ticket), "step {step}");
    }
    assert!(opened > 50, "only {opened}");
}

#[test]
fn damaged_buckets_that_are_found_before_the_ring_is_read_leave_it_room() {
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
        let mut world = open_unread(disk).expect("its digests are there");
        for number in 0..100 {
            submit(&mut world, &cell((1 << 44) + number), &[1; 400]);
            world.poll();
        }
        (0..50).for_each(|_| world.poll());
        for number in 0..loads {
            world.stores[0].load(&cell((1 << 45) + number));
            (0..12).for_each(|_| world.poll());
        }
        world.disk.release();
        put(&mut world, &cell(1 << 60), b"behind all that");
    }
}

#[test]
fn nothing_goes_home_before_the_loss_of_a_ring_is_durable() {
    let disk = filled(190);
    rot_ring(&disk);
    let mut world = open_unread(disk).expect("its digests are there");
    let slots = world.disk.bytes(File::Slots);
    world.disk.withhold(Withheld::Stores(File::Ring));
    for _ in 0..200 {
        world.keeper.rest();
        world.poll();
    }
    assert!(!world.keeper.has_unread_ring());
    let is_forgotten = |heard: &Completion| matches!(heard, Completion::Forgotten { .. });
    assert!(world.heard[0].iter().any(is_forgotten), "the damage was found");
    assert!(world.disk.bytes(File::Slots) == slots, "pages changed");
    world.disk.release();
    world.settle();
    assert!(world.disk.bytes(File::Slots) != slots, "then they do");
    let mut again = World::open(world.disk.crashed(2), 1, &config());
    assert_eq!(again.load(&cell(1)), Load::Lost);
}
