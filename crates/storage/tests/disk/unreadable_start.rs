//! A sector that cannot be read, met by a start that was cut off before.

use storage::disk::{Config, File};
use storage::{Completion, Load, Place, Store};

use crate::support::{SECTOR, SimDisk, Withheld, World, cell, record, small_config};

fn config() -> Config {
    Config { ring_bytes: 256 << 10, ..small_config() }
}

fn opens(disk: &SimDisk, config: &Config) -> Result<World, String> {
    World::try_open(disk.clone(), 1, config)
}

fn put_wait(world: &mut World, place: &Place, record: &[u8]) {
    let ticket = world.stores[0].ticket();
    world.stores[0].put(place, record);
    world.stores[0].submit();
    for _ in 0..20_000 {
        let is_it = |heard: &Completion| matches!(heard, Completion::Stored(of) if *of >= ticket);
        if world.heard[0].iter().any(is_it) {
            return;
        }
        world.poll();
    }
    panic!("{place:?} is not stored: {:?}", world.heard[0]);
}

/// A store whose ring took so many batches before the first page was read.
fn filled(batches: u64, config: &Config) -> SimDisk {
    let mut world = World::create(SimDisk::new(1, 0), 1, config);
    world.disk.withhold(Withheld::Reads(File::Slots));
    for number in 0..batches {
        put_wait(&mut world, &cell(number), &record(number, 400));
    }
    (0..20).for_each(|_| world.poll());
    world.disk.crashed(1)
}

/// A sector of a ring batch cannot be read, and parity has it.
#[test]
fn a_stripe_with_parity_need_not_be_readable() {
    let disk = filled(150, &config());
    let sector = sector_of(&disk, &record(5, 400));
    disk.make_unreadable(File::Ring, sector..sector + 1);
    let mut world = opens(&disk, &config()).expect("it opens");
    assert_eq!(world.load(&cell(5)), Load::Found(record(5, 400).into()));
}

/// A map costs no record: damaged it closes its group until a survey has made another.
#[test]
fn a_map_need_not_be_readable() {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    put_wait(&mut world, &cell(1), &record(1, 20_000));
    world.settle();
    for sectors in [0..1, 32_256 * 2..32_256 * 2 + 1] {
        let disk = world.disk.copy();
        disk.make_unreadable(File::Extents, sectors.clone());
        let opened = opens(&disk, &config());
        assert!(opened.is_ok(), "{sectors:?}: {:?}", opened.err());
        assert_eq!(opened.unwrap().load(&cell(1)), Load::Found(record(1, 20_000).into()));
    }
}

/// Power is lost while images go to the double-write buffer, and one superblock cannot be read: its
/// twin has all that a start needs.
#[test]
fn a_superblock_need_not_be_readable_beside_a_torn_spare() {
    let config = small_config();
    let mut world = World::create(SimDisk::new(1, 8), 1, &config);
    let (mut refused, mut all) = (Vec::new(), 0);
    for round in 0..10 {
        for number in 0..30 {
            put_wait(&mut world, &cell(number), &record(number + 100 * round, 300));
        }
        for step in 0..200 {
            world.guard.rest();
            world.poll();
            for seed in 0..10 {
                let disk = world.disk.crashed(seed);
                for sector in [0, 8] {
                    // The twin is whole, or this would be another matter.
                    let twin = disk.copy();
                    twin.rot(File::Slots, |bytes| {
                        bytes[sector * SECTOR..(sector + 8) * SECTOR].fill(0x55);
                    });
                    if opens(&twin, &config).is_err() {
                        continue;
                    }
                    let disk = disk.copy();
                    disk.make_unreadable(File::Slots, sector..sector + 1);
                    all += 1;
                    if opens(&disk, &config).is_err() {
                        refused.push((round, step, seed, sector));
                    }
                }
            }
            if world.guard.under_way() == 0 && !world.guard.is_dirty() {
                break;
            }
        }
    }
    assert!(all > 0, "no state of the disk has a twin that is whole");
    assert!(refused.is_empty(), "of {all}: {refused:?}");
}

/// One unneeded sector, the only one of the last part that a start reads at once.
#[test]
fn the_last_sector_of_a_ring_of_an_odd_length_need_not_be_readable() {
    let config = Config { ring_bytes: 1025 * SECTOR as u64, ..small_config() };
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    let last = |world: &World| world.disk.bytes(File::Ring)[1012 * SECTOR..].to_vec();
    let blank = last(&world);
    for number in 0.. {
        put_wait(&mut world, &cell(number % 50), &record(number, 200));
        world.settle();
        if last(&world) != blank {
            break;
        }
    }
    put_wait(&mut world, &cell(1), &record(7, 200));
    let disk = world.disk.copy();
    disk.make_unreadable(File::Ring, 1024..1025);
    let mut world = opens(&disk, &config).expect("nothing depends on it");
    assert_eq!(world.load(&cell(1)), Load::Found(record(7, 200).into()));
}

/// The first sector of the ring that holds something of this record.
fn sector_of(disk: &SimDisk, record: &[u8]) -> usize {
    let ring = disk.bytes(File::Ring);
    let at = ring.windows(32).position(|bytes| *bytes == record[..32]);
    at.expect("the ring has it") / SECTOR
}

/// Two sectors of a ring batch are damaged for good, and another one cannot be read.
#[test]
fn what_cannot_be_read_elsewhere_does_not_keep_a_damaged_ring_closed() {
    let disk = filled(40, &config());
    let damaged = sector_of(&disk, &record(5, 400));
    disk.rot(File::Ring, |bytes| bytes[damaged * SECTOR..(damaged + 2) * SECTOR].fill(0x55));
    let next = damaged + 2;
    for sector in
        (0..disk.file_len(File::Ring) / SECTOR).filter(|it| !(damaged..=next).contains(it))
    {
        let disk = disk.copy();
        disk.make_unreadable(File::Ring, sector..sector + 1);
        let opened = opens(&disk, &config());
        assert!(opened.is_ok(), "{sector}, {damaged} is damaged: {:?}", opened.err());
    }
}

/// A sector of a ring batch cannot be read once, and parity has it. A sector beside it rots later.
#[test]
fn a_sector_that_could_not_be_read_once_does_not_leave_its_stripe_without_parity() {
    for batches in [20, 150] {
        let disk = filled(batches, &config());
        let wanted = record(9, 400);
        let sector = sector_of(&disk, &wanted);
        disk.make_unreadable(File::Ring, sector..sector + 1);
        let mut world = opens(&disk, &config()).expect("parity has it");
        (0..100).for_each(|_| world.poll());
        let is_warning = |heard: &&Completion| matches!(heard, Completion::Warning(_));
        assert_eq!(world.heard[0].iter().filter(is_warning).count(), 1);
        let disk = disk.copy();
        let beside = (sector + 1) * SECTOR..(sector + 2) * SECTOR;
        disk.rot(File::Ring, |bytes| bytes[beside].fill(0x55));
        let mut world = opens(&disk, &config()).expect("parity has that");
        assert_eq!(world.load(&cell(9)), Load::Found(wanted.into()), "{batches} batches");
    }
}
