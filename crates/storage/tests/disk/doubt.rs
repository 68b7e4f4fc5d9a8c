//! Damaged content, and a survey that is under way meanwhile: whole records stay whole.

use storage::disk::{Config, File, verify};
use storage::{Completion, Load, Store};

use crate::support::{
    SECTOR, SimDisk, Withheld, World, cell, of_bucket, put, record, small_config,
};

const PAGE: u64 = 4096;
/// The stores below begin with two to the power of this many buckets, and have no more.
const LEVEL: u32 = 5;
/// Bytes of a record that is neither in a page nor in the ring.
const LARGE: usize = 20_000;

fn config() -> Config {
    Config {
        ring_bytes: 256 << 10,
        first_fit: true,
        initial_level: LEVEL,
        cache_bytes: 1 << 20,
        ..small_config()
    }
}

fn put_home(world: &mut World, numbers: impl IntoIterator<Item = u64>, len: usize) {
    for number in numbers {
        put(world, number, len);
        world.settle();
    }
}

/// Whatever can be done is done, though a write-back may stand still.
fn go_on(world: &mut World) {
    for _ in 0..300 {
        world.guard.rest();
        world.poll();
    }
}

fn scrub(world: &mut World, bytes: u64) {
    world.ask_scrub(bytes);
    go_on(world);
}

fn check(world: &mut World, number: u64, len: usize) {
    let wanted = Load::Found(record(number, len).into());
    assert!(world.load(&cell(number)) == wanted, "{number} is not what it was");
}

fn lost(world: &mut World, numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let is_lost = |number: &u64| world.load(&cell(*number)) == Load::Lost;
    numbers.into_iter().filter(is_lost).collect()
}

/// Where these bytes stand.
fn find(world: &World, file: File, bytes: &[u8]) -> usize {
    let all = world.disk.bytes(file);
    all.windows(bytes.len()).position(|it| it == bytes).expect("it is there")
}

fn first_map(world: &World) -> Vec<u8> {
    world.disk.bytes(File::Extents)[..PAGE as usize].to_vec()
}

/// Starts anew, with an older first map.
fn restart_with(world: &World, map: &[u8]) -> World {
    let disk = world.disk.copy();
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    disk.rot(File::Extents, |bytes| bytes[..map.len()].copy_from_slice(map));
    World::open(disk, 1, &config())
}

/// A damaged record is removed, a survey ends while that is being written home, and power fails then: the page that
/// refers to it is there again.
#[test]
fn a_survey_gives_nothing_away_that_a_loss_of_power_needs() {
    for seed in 0..20 {
        let damaged = of_bucket(LEVEL, 30).next().expect("there is one");
        let mut others = of_bucket(LEVEL, 3);
        let mut other = || others.next().expect("there are more");
        let mut world = World::create(SimDisk::new(1, 0), 1, &config());
        put_home(&mut world, [damaged], LARGE);
        scrub(&mut world, 2 * PAGE);
        scrub(&mut world, 16 * PAGE);
        let at = find(&world, File::Extents, &record(damaged, LARGE));
        world.disk.rot(File::Extents, |bytes| bytes[at + 100] ^= 1);
        world.disk.withhold(Withheld::Stores(File::Spare));
        assert_eq!(lost(&mut world, [damaged]), [damaged]);
        go_on(&mut world);
        scrub(&mut world, 1 << 20);
        assert!(!world.is_scrubbing());
        let new = other();
        put(&mut world, new, LARGE);
        go_on(&mut world);
        let last = world.stores[0].ticket().0 - 1;
        let is_last =
            |it: &Completion| matches!(it, Completion::Stored(ticket) if ticket.0 == last);
        assert!(world.heard[0].iter().any(is_last));
        let mut world = World::open(world.disk.crashed(seed), 1, &config());
        world.settle();
        check(&mut world, new, LARGE);
        put_home(&mut world, [other()], LARGE);
        let mut world = World::open(world.disk.copy(), 1, &config());
        check(&mut world, new, LARGE);
    }
}

/// A page that counts no more, and is in memory, is damaged: its references are given back once.
#[test]
fn a_void_page_that_is_damaged_gives_its_units_back_once() {
    let void = of_bucket(LEVEL, 3).next().expect("there is one");
    let mut others = of_bucket(LEVEL, 20);
    let mut other = || others.next().expect("there are more");
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    put_home(&mut world, [void], LARGE);
    world.disk.withhold(Withheld::Stores(File::Spare));
    let small = other();
    for _ in 0..2 {
        put(&mut world, small, 30);
        go_on(&mut world);
    }
    let at = find(&world, File::Ring, &record(small, 30)) / SECTOR * SECTOR;
    let disk = world.disk.crashed(0);
    disk.rot(File::Ring, |bytes| bytes[at..at + 2 * SECTOR].fill(0x55));
    let mut world = World::open(disk, 1, &config());
    world.settle();
    assert_eq!(lost(&mut world, [void]), [void], "a lost ring voids all pages");
    let page = (2 + 3) * PAGE as usize;
    world.disk.rot(File::Slots, |bytes| bytes[page + PAGE as usize - 1] ^= 1);
    world.scrub_all(1 << 20);
    world.settle();
    let [new, newer] = [other(), other()];
    put_home(&mut world, [new], LARGE);
    put_home(&mut world, [void], 10);
    put_home(&mut world, [newer], LARGE);
    check(&mut world, newer, LARGE);
    check(&mut world, new, LARGE);
}

/// An older map lets a record take the place of a page of a chain.
#[test]
fn the_repair_of_a_chain_spares_what_took_the_place_of_its_page() {
    let (chain, mut others) = (of_bucket(LEVEL, 3), of_bucket(LEVEL, 20));
    let mut other = || others.next().expect("there are more");
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    put_home(&mut world, [other()], LARGE);
    let before = first_map(&world);
    let chain: Vec<u64> = chain.take(30).collect();
    put_home(&mut world, chain.iter().copied(), 200);
    assert!(first_map(&world) != before, "it is a chain");
    let mut world = restart_with(&world, &before);
    let [new, newer] = [other(), other()];
    put_home(&mut world, [new], LARGE);
    check(&mut world, new, LARGE);
    assert!(!lost(&mut world, chain).is_empty(), "a page of the chain was written over");
    world.settle();
    put_home(&mut world, [newer], LARGE / 2);
    check(&mut world, newer, LARGE / 2);
    check(&mut world, new, LARGE);
}

/// Two older maps, one after the other, give one place to three records. Two of them are met.
#[test]
fn two_doubts_about_one_place_are_two() {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    put_home(&mut world, 0..10, LARGE);
    let before = first_map(&world);
    put_home(&mut world, 10..30, LARGE);
    let mut world = restart_with(&world, &before);
    put_home(&mut world, 30..50, LARGE);
    let mut world = restart_with(&world, &before);
    put_home(&mut world, 50..70, LARGE);
    world.disk.withhold(Withheld::Stores(File::Spare));
    assert!(lost(&mut world, 0..50).len() > 30);
    world.disk.release();
    world.settle();
    put_home(&mut world, 70..90, LARGE);
    assert_eq!(lost(&mut world, 50..90), [0; 0]);
}

/// A record was damaged that had never gone home. Its successor is given back as any other.
#[test]
fn a_doubt_ends_with_what_was_doubted() {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    put_home(&mut world, [0], LARGE);
    world.disk.withhold(Withheld::Stores(File::Spare));
    put(&mut world, 1, LARGE);
    go_on(&mut world);
    let at = find(&world, File::Extents, &record(1, LARGE));
    // Until it is home memory has it; the next process reads it.
    let mut world = World::open(world.disk.crashed(0), 1, &config());
    world.disk.withhold(Withheld::Stores(File::Spare));
    world.disk.rot(File::Extents, |bytes| bytes[at + 100] ^= 1);
    assert_eq!(lost(&mut world, [1]), [1]);
    go_on(&mut world);
    world.disk.release();
    world.settle();
    put_home(&mut world, [2], LARGE);
    assert_eq!(find(&world, File::Extents, &record(2, LARGE)), at);
    put_home(&mut world, [2], 10);
    let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
    assert!(report.is_good() && report.leaked_units == 0, "{report:?}");
}

/// Power fails while a write-back is put in place, a page of it is there, and the image of its map
/// rots. The references of page and ring are not given to another record.
#[test]
fn a_page_that_is_newer_than_its_map_keeps_what_it_refers_to() {
    let mut world = World::create(SimDisk::new(1, 0), 1, &config());
    put_home(&mut world, [0], LARGE);
    world.disk.withhold(Withheld::Stores(File::Slots));
    put(&mut world, 1, LARGE);
    go_on(&mut world);
    let disk = world.disk.copy();
    let spare = disk.bytes(File::Spare);
    let count = spare[16] as usize;
    let start = (32 + 24 * count).next_multiple_of(PAGE as usize);
    for image in 0..count {
        let row = &spare[32 + 24 * image..][..24];
        let offset = u64::from_le_bytes(row[8..16].try_into().expect("eight bytes")) as usize;
        let (page, at) = (PAGE as usize, start + image * PAGE as usize);
        match row[0] {
            file if file == File::Extents as u8 => {
                disk.rot(File::Spare, |bytes| bytes[at + 100] ^= 1);
            }
            file if file == File::Slots as u8 && offset >= 2 * page => disk
                .rot(File::Slots, |bytes| {
                    bytes[offset..][..page].copy_from_slice(&spare[at..][..page])
                }),
            _ => {}
        }
    }
    let mut world = World::open(disk, 1, &config());
    world.settle();
    put_home(&mut world, 2..8, LARGE);
    assert_eq!(lost(&mut world, 0..8), [0; 0]);
    let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
    assert!(report.is_good(), "{report:?}");
}
