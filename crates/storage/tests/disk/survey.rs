//! Maps of the extents are held against the references of pages.

use base::Prng;
use storage::disk::{Config, File, Report, verify};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key};

use crate::rot::{Model, WORKERS, change, check, recover};
use crate::support::{BINDING, SimDisk, Withheld, World, seeds, small_config};

const STEP: u64 = 64 << 10;
const PAGE: usize = 4096;
/// Bytes of a group.
const GROUP: usize = 32_256 << 10;

fn config() -> Config {
    Config { ring_bytes: 256 << 10, first_fit: true, ..small_config() }
}

fn cell(number: u64) -> Place {
    Place::Cell(Database(0), Key::new(format!("key-{number}").as_bytes()))
}

/// All of it, of the place and the number of its version.
fn record(number: u64, version: u64) -> Vec<u8> {
    let mut prng = Prng::new(number << 32 | version);
    (0..6_000).map(|_| prng.next_u64() as u8).collect()
}

fn put(world: &mut World, numbers: impl IntoIterator<Item = u64>, version: u64) {
    for number in numbers {
        let place = cell(number);
        let owner = world.owner(&place);
        world.stores[owner].put(&place, &record(number, version));
        world.stores[owner].submit();
        world.settle();
    }
}

fn report(world: &World) -> Report {
    let disk = world.disk.copy();
    // Images of the last write-back would stand in for its pages.
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    verify(&mut disk.clone(), &mut |_| ()).expect("there is a store")
}

fn map(world: &World) -> Vec<u8> {
    world.disk.bytes(File::Extents)[..PAGE].to_vec()
}

/// Starts anew, with another first map.
fn restart_with(world: World, map: &[u8], config: &Config) -> World {
    let disk = world.disk.copy();
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    disk.rot(File::Extents, |bytes| bytes[..PAGE].copy_from_slice(map));
    World::open(disk, WORKERS, config)
}

#[test]
fn an_older_map_learns_what_pages_refer_to() {
    let mut world = World::create(SimDisk::new(1, 0), WORKERS, &config());
    put(&mut world, 0..10, 0);
    let before = map(&world);
    put(&mut world, 10..40, 0);
    world = restart_with(world, &before, &config());
    assert!(!report(&world).is_good());
    assert_eq!(world.scrub_all(STEP).damaged, 1);
    let is_told = |completion: &Completion| matches!(completion, Completion::Warning(what) if what.contains("called used space free"));
    assert!(world.heard.iter().flatten().any(is_told));
    world.settle();
    assert!(report(&world).is_good(), "{:?}", report(&world));
    put(&mut world, 40..80, 0);
    assert_eq!(world.scrub_all(STEP).damaged, 0);
    for number in 0..80 {
        assert_eq!(world.load(&cell(number)), Load::Found(record(number, 0).into()));
    }
}

#[test]
fn a_damaged_map_is_made_anew_and_its_space_used_again() {
    let mut world = World::create(SimDisk::new(1, 0), WORKERS, &config());
    put(&mut world, 0..40, 0);
    let len = world.disk.file_len(File::Extents);
    world = restart_with(world, &[7; PAGE], &config());
    assert_eq!(world.scrub_all(STEP).damaged, 0, "the start has told of it");
    world.settle();
    let report = report(&world);
    assert!(report.is_good() && report.leaked_units == 0, "{report:?}");
    put(&mut world, 0..40, 1);
    put(&mut world, 0..40, 2);
    assert!(world.disk.file_len(File::Extents) < len + (1 << 20), "it stays where it was");
    for number in 0..40 {
        assert_eq!(world.load(&cell(number)), Load::Found(record(number, 2).into()));
    }
}

/// An older map lets records take the place of others. Each that is lost is written again.
#[test]
fn records_that_took_the_place_of_others_come_to_rest() {
    let mut world = World::create(SimDisk::new(1, 0), WORKERS, &config());
    put(&mut world, 0..10, 0);
    let before = map(&world);
    put(&mut world, 10..40, 0);
    world = restart_with(world, &before, &config());
    put(&mut world, 40..60, 0);
    let mut rounds = 0;
    while world.scrub_all(STEP).damaged > 0 {
        rounds += 1;
        assert!(rounds < 4, "there is no end of it");
        for number in 0..60 {
            let is_lost = world.load(&cell(number)) == Load::Lost;
            put(&mut world, is_lost.then_some(number), 0);
        }
    }
    assert!(rounds > 0, "nothing was lost");
    world.scrub_all(STEP);
    world.settle();
    let report = report(&world);
    assert!(report.is_good() && report.leaked_units == 0, "{report:?}");
}

/// A whole map of a group in which everything is in use.
fn full_map(group: u64) -> Vec<u8> {
    let mut page = vec![0xff; PAGE];
    page[..64].fill(0);
    page[8..14].copy_from_slice(b"PMAP\x01\0");
    page[16..24].copy_from_slice(&group.to_le_bytes());
    let place = (group * GROUP as u64) << 3 | File::Extents as u64;
    let seed = BINDING ^ place.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let sum = base::checksum::checksum(seed, &page[8..]);
    page[..8].copy_from_slice(&sum.to_le_bytes());
    page
}

/// A survey corrects many maps while a write-back stands still that takes nearly all of the
/// double-write buffer.
#[test]
fn maps_that_are_corrected_find_room_in_the_spare() {
    const GROUPS: usize = 12;
    let config = Config {
        spare_pages: 32,
        initial_level: 5,
        cache_bytes: 1 << 20,
        fill_percent: 20,
        ..config()
    };
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    world.settle();
    world.disk.rot(File::Extents, |bytes| {
        for group in 0..GROUPS {
            bytes.resize(group * GROUP, 0);
            bytes.extend(full_map(group as u64));
        }
    });
    let mut world = World::open(world.disk.clone(), 1, &config);
    world.settle();
    put(&mut world, [0], 0);
    let scrub = |world: &mut World, pages: usize| {
        world.ask_scrub((pages * PAGE) as u64);
        (0..1_000).for_each(|_| world.poll());
        assert!(!world.is_scrubbing());
    };
    for pages in [2, 16, 16] {
        scrub(&mut world, pages);
    }
    world.disk.set_delay(2);
    world.disk.withhold(Withheld::Stores(File::Spare));
    for number in 0..1_200 {
        if world.stores[0].is_full() {
            break;
        }
        world.stores[0].put(&cell(number), &[7; 300]);
        if number % 40 == 0 {
            world.stores[0].submit();
            world.poll();
        }
    }
    (0..1_000).for_each(|_| world.poll());
    scrub(&mut world, 64);
    world.disk.release();
    world.settle();
    world.scrub_all(STEP);
    world.settle();
    let failed = world.heard[0].iter().find(|it| matches!(it, Completion::Failed(_)));
    assert_eq!(failed, None);
    let report = report(&world);
    assert!(report.is_good() && report.leaked_units == 0, "{report:?}");
}

/// Passes of the scrub take as long as many write-backs, power fails, and maps go back or are
/// damaged.
fn run(seed: u64) -> u64 {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let config = Config {
        initial_level: prng.between(1, 5) as u32,
        cache_bytes: *prng.pick(&[0, 64 << 10]),
        first_fit: seed.is_multiple_of(2),
        ..config()
    };
    let delay = *prng.pick(&[0, 9, 40]);
    let mut world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
    world.disk.read_early(seed.is_multiple_of(3));
    let (mut model, mut before, mut found) = (Model::new(), None, 0);
    for life in 0..4 {
        for _ in 0..prng.between(5, 40) {
            let changes = prng.between(1, 30);
            change(&mut world, &mut prng, &mut model, changes);
            if !world.is_scrubbing() {
                world.ask_scrub(prng.between(1, 40_000));
            }
            (0..prng.below(40)).for_each(|_| world.poll());
        }
        let is_strange = prng.chance(0.5);
        if !is_strange {
            world.settle();
            let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
            assert!(report.is_good(), "life {life}: {report:?}");
            let disk = world.disk.crashed(prng.next_u64());
            world = World::open(disk, WORKERS, &config);
            assert_eq!(check(&mut world, &model, "after a loss of power"), 0);
            continue;
        }
        world.settle();
        if world.disk.file_len(File::Extents) < PAGE {
            continue;
        }
        let now = map(&world);
        let other = before.replace(now).filter(|_| prng.chance(0.5)).unwrap_or(vec![7; PAGE]);
        world = restart_with(world, &other, &config);
        while world.is_scrubbing() {
            world.poll();
        }
        if prng.chance(0.5) {
            change(&mut world, &mut prng, &mut model, 60);
        }
        found += (0..3).map(|_| world.scrub_all(STEP).damaged).sum::<u64>();
        check(&mut world, &model, "with another map");
        recover(&mut world, &model);
        (0..3).for_each(|_| _ = world.scrub_all(STEP));
        world.settle();
        recover(&mut world, &model);
        (0..2).for_each(|_| _ = world.scrub_all(STEP));
        world.settle();
        let report = report(&world);
        assert!(report.is_good() && report.leaked_units == 0, "life {life}: {report:?}");
        assert_eq!(check(&mut world, &model, "recovered"), 0);
    }
    found
}

#[test]
fn surveys_while_everything_changes_take_nothing_that_is_in_use() {
    let found: u64 = seeds(10).map(run).sum();
    assert!(found > 0);
}

/// Units that only the ring refers to stay its own, whatever an older map said of them.
#[test]
fn a_map_that_is_corrected_gives_nothing_away_that_the_ring_refers_to() {
    let config = Config { ring_bytes: 1 << 20, initial_level: 7, ..config() };
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    put(&mut world, 0..100, 0);
    let before = map(&world);
    (0..100).for_each(|number| world.stores[0].remove(&cell(number)));
    world.stores[0].submit();
    world.settle();
    let submit = |world: &mut World, number: u64| {
        world.stores[0].put(&cell(number), &record(number, 0));
        world.stores[0].submit();
        world.poll();
    };
    (100..200).for_each(|number| submit(&mut world, number));
    let disk = world.disk.copy();
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    disk.rot(File::Extents, |bytes| bytes[..PAGE].copy_from_slice(&before));
    disk.set_delay(20);
    let mut world = World::open(disk, 1, &config);
    for number in 200..300 {
        if !world.is_scrubbing() {
            world.ask_scrub(8 * STEP);
        }
        (0..10).for_each(|_| world.poll());
        submit(&mut world, number);
    }
    world.settle();
    for number in 100..300 {
        assert_eq!(world.load(&cell(number)), Load::Found(record(number, 0).into()), "{number}");
    }
}
