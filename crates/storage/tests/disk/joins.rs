//! A store that holds less than it did becomes smaller.

use base::Prng;
use storage::disk::{Config, File, verify};
use storage::{Load, Place, Store};
use types::{Database, Key, Shard};

use crate::support::{SimDisk, World, seeds, small_config};

const PAGE: usize = 4096;
const RECORDS: u64 = 4_000;

fn config() -> Config {
    Config { ring_bytes: 256 << 10, ..small_config() }
}

fn cell(number: u64) -> Place {
    Place::Cell(Database(0), Key::new(&number.to_le_bytes()))
}

fn change(world: &mut World, numbers: impl IntoIterator<Item = u64>, record: Option<&[u8]>) {
    for number in numbers {
        while world.stores[0].is_full() {
            world.poll();
        }
        match record {
            Some(record) => world.stores[0].put(&cell(number), record),
            None => world.stores[0].remove(&cell(number)),
        }
        world.stores[0].submit();
        world.poll();
    }
    world.settle();
}

fn check(world: &mut World, stays: impl Fn(u64) -> bool, record: &[u8]) {
    for number in 0..RECORDS {
        let found = world.load(&cell(number));
        let wanted = match stays(number) {
            true => Load::Found(record.to_vec().into()),
            false => Load::Absent,
        };
        assert_eq!(found, wanted, "{number}");
    }
    let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
    assert!(report.is_good() && report.leaked_units == 0, "{report:?}");
}

fn pages(world: &World) -> usize {
    world.disk.file_len(File::Slots) / PAGE
}

#[test]
fn a_store_becomes_smaller_and_larger_again() {
    let stays = |number: u64| number.is_multiple_of(40);
    let mut world = World::create(SimDisk::new(1, 3), 1, &config());
    let mut full = 0;
    for tide in 0..3_u8 {
        let record = vec![tide; 300];
        change(&mut world, 0..RECORDS, Some(&record));
        check(&mut world, |_| true, &record);
        full = full.max(pages(&world));
        assert!(pages(&world) * 10 > full * 9, "{} pages, {full} before", pages(&world));
        change(&mut world, (0..RECORDS).filter(|&number| !stays(number)), None);
        assert!(pages(&world) * 10 < full, "{} pages of {full} are left", pages(&world));
        check(&mut world, stays, &record);
        let mut again = World::open(world.disk.crashed(u64::from(tide)), 1, &config());
        check(&mut again, stays, &record);
        assert_eq!(world.scrub_all(1 << 20).damaged, 0);
    }
}

/// It was ended before it had come to that.
#[test]
fn a_start_goes_on_where_a_store_is_too_large() {
    let record = [7; 300];
    let mut world = World::create(SimDisk::new(1, 3), 1, &config());
    change(&mut world, 0..RECORDS, Some(&record));
    let full = pages(&world);
    let mut world = World::open(world.disk.copy(), 1, &Config { fill_percent: 20, ..config() });
    change(&mut world, 100..RECORDS, None);
    let left = pages(&world);
    assert!(left < full / 4);
    let mut world = World::open(world.disk.copy(), 1, &Config { fill_percent: 90, ..config() });
    assert!(world.guard.is_dirty());
    world.settle();
    assert!(pages(&world) < left, "{} pages of {left} are left", pages(&world));
    check(&mut world, |number| number < 100, &record);
}

/// A store that is always busy becomes smaller, too.
#[test]
fn buckets_are_joined_without_a_rest() {
    let mut world = World::create(SimDisk::new(1, 3), 1, &config());
    let record = [7; 300];
    change(&mut world, 0..RECORDS, Some(&record));
    let full = pages(&world);
    for number in (100..RECORDS).chain((0..40_000).map(|number| number % 100)) {
        while world.stores[0].is_full() {
            world.poll();
        }
        match number {
            0..100 => world.stores[0].put(&cell(number), &record),
            _ => world.stores[0].remove(&cell(number)),
        }
        world.stores[0].submit();
        world.poll();
    }
    assert!(pages(&world) < full / 4, "{} pages of {full} are left", pages(&world));
    world.settle();
    check(&mut world, |number| number < 100, &record);
}

/// A pass of the scrub knows the references of a bucket, though it had looked at only one of the
/// two.
#[test]
fn a_survey_hears_of_what_buckets_take_with_them() {
    let mut world = World::create(SimDisk::new(1, 3), 1, &Config { first_fit: true, ..config() });
    let (small, large) = ([7; 300], [8; 6_000]);
    change(&mut world, 0..RECORDS, Some(&small));
    change(&mut world, 0..100, Some(&large));
    assert_eq!(world.scrub_all(1 << 20).damaged, 0);
    let full = pages(&world);
    world.heard[0].clear();
    world.ask_scrub(40 * PAGE as u64);
    while world.is_scrubbing() {
        world.poll();
    }
    change(&mut world, 100..RECORDS, None);
    assert!(pages(&world) < full / 4);
    assert_eq!(world.scrub_all(1 << 20).damaged, 0);
    world.settle();
    check(&mut world, |number| number < 100, &large);
    change(&mut world, 100..200, Some(&large));
    check(&mut world, |number| number < 200, &large);
}

/// The join itself finds the damage, and waits for no mark.
#[test]
fn what_a_damaged_bucket_has_left_is_mended_before_it_is_joined() {
    for seed in seeds(20) {
        join_damaged(seed, true, seed % 10);
    }
}

/// The join itself finds the damage, and the loss is marked before all of its buckets have come in.
#[test]
fn a_mark_in_time_lets_no_damaged_bucket_be_joined() {
    for seed in seeds(40) {
        join_damaged(seed, false, [2, 4, 9, 40][seed as usize / 7 % 4]);
    }
}

fn join_damaged(seed: u64, is_forgotten: bool, delay: u64) {
    println!("seed {seed}");
    let config = Config { fill_percent: 20, ..config() };
    let mut world = World::create(SimDisk::new(seed, 0), 1, &config);
    change(&mut world, 0..1_000, Some(&[7; 100]));
    for shard in (0..=255).filter(|_| is_forgotten) {
        world.stores[0].set_forgotten(Database(0), Shard(shard), true);
        world.stores[0].submit();
        world.poll();
    }
    world.settle();
    let disk = world.disk.copy();
    let buckets = disk.file_len(File::Slots) as u64 / PAGE as u64 - 2;
    let place = disk.file_len(File::Slots) - PAGE;
    disk.rot(File::Slots, |bytes| bytes[place + 30] ^= 1);
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    disk.set_delay(delay);
    let mut world = World::open(disk, 1, &Config { fill_percent: 90, ..config });
    let mask = buckets.next_power_of_two() - 1;
    let hash = |number: u64| Key::new(&number.to_le_bytes()).hash().reverse_bits();
    let is_of_last = |number: &u64| hash(*number) & mask == buckets - 1;
    let numbers: Vec<u64> = (1_000..).filter(is_of_last).take(5).collect();
    for &number in &numbers {
        world.stores[0].put(&cell(number), &[250; 100]);
    }
    world.stores[0].submit();
    let mut prng = Prng::new(seed);
    for _ in 0..prng.below(40 + 4 * delay) {
        if prng.chance(0.02) {
            world.guard.rest();
        }
        world.poll();
    }
    let mut newest = vec![250; numbers.len()];
    for version in 0..prng.between(1, 12) as u8 {
        let at = usize::from(version) % numbers.len();
        newest[at] = version;
        world.stores[0].put(&cell(numbers[at]), &[version; 100]);
        world.stores[0].submit();
        world.poll();
    }
    (0..300).for_each(|_| world.poll());
    let check = |world: &mut World| {
        for (&number, &version) in numbers.iter().zip(&newest) {
            assert_eq!(world.load(&cell(number)), Load::Found(vec![version; 100].into()));
        }
    };
    check(&mut world);
    world.settle();
    check(&mut world);
    assert!(world.disk.file_len(File::Slots) / 2 < place, "most are joined by then");
    check(&mut World::open(world.disk.copy(), 1, &config));
}

/// Pages that become surplus while the file is being cut are cut afterwards.
#[test]
fn a_cut_that_takes_long_is_followed_by_another() {
    for seed in seeds(100) {
        let config = Config { fill_percent: 20, ..config() };
        let mut world = World::create(SimDisk::new(seed, 0), 1, &config);
        change(&mut world, 0..1_000, Some(&[7; 100]));
        let disk = world.disk.copy();
        disk.set_delay(40);
        let mut world = World::open(disk, 1, &Config { fill_percent: 90, ..config });
        world.settle();
        let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
        assert_eq!(pages(&world) as u64, report.buckets + 2, "seed {seed}");
    }
}
