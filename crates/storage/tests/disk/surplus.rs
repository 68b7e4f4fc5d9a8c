//! Deleted records leave the file system, too.

use base::Prng;
use storage::disk::{Config, File, verify};
use storage::{Load, Place, Store};
use types::{Database, Key};

use crate::support::{SimDisk, World, seeds, small_config};

const PAGE: usize = 4096;
/// Bytes of a record: some thirty of them fill a group.
const LEN: usize = 1_000_000;
/// Bytes of a group.
const GROUP: usize = 32_256 << 10;

fn config() -> Config {
    Config { ring_bytes: 1 << 20, ..small_config() }
}

fn cell(number: u64) -> Place {
    Place::Cell(Database(0), Key::new(&number.to_le_bytes()))
}

fn record(number: u64, version: u8) -> Vec<u8> {
    [&number.to_le_bytes()[..], &vec![version | 1; LEN]].concat()
}

fn put(world: &mut World, numbers: impl IntoIterator<Item = u64>, version: u8) {
    for number in numbers {
        world.stores[0].put(&cell(number), &record(number, version));
        world.stores[0].submit();
        world.poll();
    }
    world.settle();
}

fn remove(world: &mut World, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        world.stores[0].remove(&cell(number));
        world.stores[0].submit();
        world.poll();
    }
    world.settle();
}

/// Pages of the extents file that a file system would keep.
fn kept(world: &World) -> usize {
    let bytes = world.disk.bytes(File::Extents);
    bytes.chunks(PAGE).filter(|page| page.iter().any(|&byte| byte != 0)).count() * PAGE
}

fn check(world: &mut World, numbers: impl IntoIterator<Item = u64>, version: u8) {
    for number in numbers {
        let found = world.load(&cell(number));
        assert!(found == Load::Found(record(number, version).into()), "{number}");
    }
}

#[test]
fn what_is_deleted_is_given_back_at_rest() {
    let mut world = World::create(SimDisk::new(1, 3), 1, &config());
    put(&mut world, 0..130, 1);
    assert!(kept(&world) > 130 * LEN);
    let stay = || (0..130).step_by(20);
    remove(&mut world, (0..130).filter(|number| number % 20 != 0));
    assert!(kept(&world) < GROUP + 8 * LEN, "{} bytes are kept", kept(&world));
    check(&mut world, stay(), 1);
    let mut world = World::open(world.disk.crashed(1), 1, &config());
    check(&mut world, stay(), 1);
    let len = world.disk.file_len(File::Extents);
    put(&mut world, (0..130).filter(|number| number % 20 != 0), 3);
    assert_eq!(world.disk.file_len(File::Extents), len, "it is used again");
    check(&mut world, stay(), 1);
    check(&mut world, (0..130).filter(|number| number % 20 != 0), 3);
}

/// A store that starts does not know yet whether its maps are older than its pages.
#[test]
fn after_a_start_a_survey_comes_first() {
    let mut world = World::create(SimDisk::new(1, 3), 1, &config());
    put(&mut world, 0..130, 1);
    let mut world = World::open(world.disk.copy(), 1, &config());
    remove(&mut world, 0..130);
    assert!(kept(&world) > 130 * LEN);
    assert_eq!(world.scrub_all(1 << 20).damaged, 0);
    world.settle();
    assert!(kept(&world) <= GROUP + 8 * PAGE, "{} bytes are kept", kept(&world));
}

/// Records come and go while space is given back, and power fails.
#[test]
fn what_is_given_back_is_nobodys() {
    for seed in seeds(2) {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let config = Config { first_fit: seed % 2 == 0, ..config() };
        let disk = SimDisk::new(seed, *prng.pick(&[0, 9, 40]));
        let mut world = World::create(disk, 1, &config);
        let mut versions = [0_u8; 80];
        for life in 0..4 {
            for _ in 0..prng.between(1, 4) {
                let share = *prng.pick(&[0.1, 0.5, 0.9]);
                for (number, version) in (0..).zip(&mut versions) {
                    let place = cell(number);
                    *version = if prng.chance(share) { prng.between(1, 250) as u8 | 1 } else { 0 };
                    match *version {
                        0 => world.stores[0].remove(&place),
                        version => world.stores[0].put(&place, &record(number, version)),
                    }
                    world.stores[0].submit();
                    (0..prng.below(6)).for_each(|_| world.poll());
                    if !world.is_scrubbing() {
                        world.ask_scrub(prng.between(1, 40 << 20));
                    }
                }
                if prng.chance(0.5) {
                    world.settle();
                }
            }
            let last = world.stores[0].ticket().0 - 1;
            while world.heard[0].iter().all(|it| !is_stored(it, last)) {
                world.poll();
            }
            world = World::open(world.disk.crashed(prng.next_u64()), 1, &config);
            for (number, &version) in (0..).zip(&versions) {
                let expected = match version {
                    0 => Load::Absent,
                    version => Load::Found(record(number, version).into()),
                };
                assert!(world.load(&cell(number)) == expected, "life {life}: {number}");
            }
            let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
            assert!(report.is_good(), "life {life}: {report:?}");
        }
    }
}

fn is_stored(completion: &storage::Completion, last: u64) -> bool {
    matches!(completion, storage::Completion::Stored(ticket) if ticket.0 >= last)
}
