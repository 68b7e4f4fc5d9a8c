//! Rot is not age: whatever byte of whatever file is damaged, a load finds the newest record, or
//! says that it is lost.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::support::{BINDING, SECTOR, SimDisk, World, seeds, small_config};
use base::Prng;
use storage::disk::{Config, File, LocalGuard, OpenError, verify};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard};

pub const WORKERS: usize = 2;

pub type Model = BTreeMap<Place, Option<Vec<u8>>>;

fn place(prng: &mut Prng) -> Place {
    let database = Database(*prng.pick(&[0, 0, 3]));
    if prng.chance(0.05) {
        return Place::Meta(database, Shard(prng.below(8) as u8));
    }
    let number = prng.below(300);
    let mut bytes = format!("key-{number}").into_bytes();
    if number.is_multiple_of(31) {
        bytes.resize(700, b'.');
    }
    Place::Cell(database, Key::new(&bytes))
}

pub fn config() -> Config {
    Config { ring_bytes: 256 << 10, ..small_config() }
}

/// Changes some places and waits until all of it is acknowledged.
pub fn change(world: &mut World, prng: &mut Prng, model: &mut Model, changes: u64) {
    for _ in 0..changes {
        let place = place(prng);
        let owner = world.owner(&place);
        if prng.chance(0.2) {
            world.stores[owner].remove(&place);
            model.insert(place, None);
        } else {
            let large = prng.chance(0.1);
            let len = if large { prng.between(1_000, 24_000) } else { prng.between(0, 150) };
            let record: Vec<u8> = (0..len).map(|_| prng.next_u64() as u8).collect();
            world.stores[owner].put(&place, &record);
            model.insert(place, Some(record));
        }
        if prng.chance(0.3) {
            submit(world);
        }
        if prng.chance(0.1) {
            world.poll();
        }
    }
    submit(world);
    await_stored(world);
}

pub fn submit(world: &mut World) {
    for store in &mut world.stores {
        store.submit();
    }
}

pub fn await_stored(world: &mut World) {
    for worker in 0..WORKERS {
        let wanted = world.stores[worker].ticket().0 - 1;
        let mut stored = wanted == 0;
        for _ in 0..100_000 {
            stored |= world.heard[worker].iter().any(
                |completion| matches!(completion, Completion::Stored(ticket) if ticket.0 == wanted),
            );
            if stored {
                break;
            }
            world.poll();
        }
        assert!(stored, "batch {wanted} of worker {worker} is not stored");
    }
}

fn is_forgotten(world: &World, place: &Place) -> bool {
    let (database, shard) = match place {
        Place::Cell(database, key) => (*database, key.shard()),
        Place::Meta(database, shard) => (*database, *shard),
    };
    world.stores[world.owner(place)].is_forgotten(database, shard)
}

/// Every place is the newest or lost; returns how many are lost.
pub fn check(world: &mut World, model: &Model, what: &str) -> usize {
    let mut lost = 0;
    for (place, newest) in model {
        let load = world.load(place);
        match (&load, newest) {
            (Load::Found(found), Some(newest)) => {
                assert!(found[..] == newest[..], "{what}: {place:?} is another record");
            }
            (Load::Absent, None) => assert!(!is_forgotten(world, place), "{what}: {place:?}"),
            (Load::Lost, _) => {
                assert!(is_forgotten(world, place), "{what}: {place:?} is lost, its shard is not");
                lost += 1;
            }
            _ => panic!(
                "{what}: {place:?} is {load:?}, was {:?} bytes",
                newest.as_ref().map(Vec::len)
            ),
        }
    }
    lost
}

/// Damages some bytes of a file; returns a description.
pub fn damage(disk: &SimDisk, prng: &mut Prng) -> String {
    let files: Vec<File> = File::ALL.into_iter().filter(|&file| disk.file_len(file) > 0).collect();
    let file = *prng.pick(&files);
    let len = disk.file_len(file) as u64;
    // The busy parts of long files more often than the rest.
    let reach = *prng.pick(&[len, len, 16_384.min(len)]);
    let at = prng.below(reach) as usize;
    let sector = at / SECTOR * SECTOR;
    let end = (sector + SECTOR).min(len as usize);
    let how = prng.below(6);
    let fill = prng.next_u64();
    // From elsewhere in the file, and from the same place of another node's. Another node's
    // superblock is not taken for damage: the store is refused as foreign then.
    let elsewhere = prng.below(len) as usize / SECTOR * SECTOR;
    let is_superblock = file == File::Slots && sector < 8192;
    let foreign = if how == 5 && !is_superblock { foreign(file) } else { &[] };
    disk.rot(file, |bytes| match how {
        0 => bytes[at] ^= 1 << (fill % 8),
        1 => bytes[at] = bytes[at].wrapping_add(fill as u8 | 1),
        2 => bytes[sector..end].fill(0),
        4 if elsewhere + (end - sector) <= bytes.len() => {
            bytes.copy_within(elsewhere..elsewhere + (end - sector), sector);
        }
        5 if end <= foreign.len() => bytes[sector..end].copy_from_slice(&foreign[sector..end]),
        _ => {
            let mut garbage = Prng::new(fill);
            bytes[sector..end].fill_with(|| garbage.next_u64() as u8);
        }
    });
    format!("{file:?} at {at}, manner {how}")
}

/// The files of another node, with some of everything.
fn foreign(file: File) -> &'static [u8] {
    static FILES: OnceLock<[Vec<u8>; 4]> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let disk = SimDisk::new(0, 0);
        let made = storage::disk::create(&mut disk.clone(), BINDING + 1, &config());
        made.expect("the disk is empty");
        let opened = LocalGuard::open(disk.clone(), BINDING + 1, WORKERS, &config());
        let (guard, stores) = opened.expect("it was made");
        let heard = vec![Vec::new(); WORKERS];
        let mut world = World { disk, guard, stores, heard, scrubs: 0 };
        change(&mut world, &mut Prng::new(0), &mut Model::new(), 200);
        world.settle();
        File::ALL.map(|file| world.disk.bytes(file))
    });
    &files[file as usize]
}

/// The node recovers: it writes everything again and declares the shards known.
pub fn recover(world: &mut World, model: &Model) {
    for (place, newest) in model {
        let owner = world.owner(place);
        match newest {
            Some(record) => world.stores[owner].put(place, record),
            None => world.stores[owner].remove(place),
        }
        submit(world);
        if world.stores[0].is_full() {
            await_stored(world);
        }
    }
    await_stored(world);
    world.settle();
    for database in 0..16 {
        for shard in 0..=255_u8 {
            let owner = usize::from(shard) % WORKERS;
            if world.stores[owner].is_forgotten(Database(database), Shard(shard)) {
                world.stores[owner].set_forgotten(Database(database), Shard(shard), false);
            }
        }
        submit(world);
        await_stored(world);
    }
}

/// Maybe loses power, and maybe recovers.
pub fn go_on(world: &mut World, prng: &mut Prng, model: &Model, config: &Config, what: &str) {
    if prng.chance(0.5) {
        // Lost records stay lost, with or without the power.
        let disk = world.disk.crashed(prng.next_u64());
        *world = World::open(disk, WORKERS, config);
        check(world, model, &format!("{what}, again"));
    }
    if prng.chance(0.5) {
        recover(world, model);
        assert_eq!(check(world, model, "recovered"), 0, "{what}");
    }
}

/// Recovers everything, for good.
pub fn end(mut world: World, model: &Model, config: &Config) {
    recover(&mut world, model);
    world.settle();
    world = World::open(world.disk.copy(), WORKERS, config);
    assert_eq!(check(&mut world, model, "at the end"), 0);
}

fn run(seed: u64) -> usize {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let delay = *prng.pick(&[0, 2, 9]);
    let config = Config { first_fit: seed % 2 == 1, ..config() };
    let mut world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
    let mut model = Model::new();
    for i in 0..40 {
        let place = Place::Cell(Database(0), Key::new(format!("never-{i}").as_bytes()));
        model.insert(place, None);
    }
    let mut lost = 0;
    for life in 0..4 {
        let changes = *prng.pick(&[1, 5, 60, 500]);
        change(&mut world, &mut prng, &mut model, changes);
        if prng.chance(0.4) {
            world.settle();
        }
        let disk = world.disk.crashed(prng.next_u64());
        let what = format!("life {life}, {}", damage(&disk, &mut prng));
        let report = verify(&mut disk.copy(), &mut |_| ());
        world = World::open(disk, WORKERS, &config);
        let now = check(&mut world, &model, &what);
        // In a shard that damage of an earlier life had forgotten, absence is a loss without any
        // more of it.
        let is_named = report.is_ok_and(|it| !it.is_good() || it.forgotten_shards > 0);
        assert!(now == 0 || is_named, "{what}: nobody names the damage");
        let is_first = life == 0;
        let is_mended = what.contains("Ring") || what.contains("Spare");
        assert!(
            !(is_first && is_mended) || now == 0,
            "{what}: a mended sector costs {now} records"
        );
        lost += now;
        go_on(&mut world, &mut prng, &model, &config, &what);
    }
    end(world, &model, &config);
    lost
}

#[test]
fn a_damaged_sector_and_a_loss_of_power_never_show_an_old_record() {
    let lost: usize = seeds(130).map(run).sum();
    assert!(lost > 0, "no damage was ever noticed");
}

#[cfg(feature = "mutations")]
mod mistakes {
    use storage::mutation::{Mutation, set};

    #[test]
    fn a_check_of_the_disk_that_is_left_out_shows() {
        let checks = [
            Mutation::SectorUnchecked,
            Mutation::PageUnchecked,
            Mutation::RecordUnchecked,
            Mutation::LostIsAbsent,
        ];
        for check in checks {
            set(Some(check));
            let fails = |seed| std::panic::catch_unwind(|| super::run(seed)).is_err();
            let shows = (0..2_000).any(fails);
            set(None);
            assert!(shows, "{}", check.name());
        }
    }
}

/// A store with some of everything, and its records.
pub fn sample(seed: u64, settled: bool) -> (SimDisk, Model) {
    let mut prng = Prng::new(seed);
    let mut world = World::create(SimDisk::new(seed, 0), WORKERS, &config());
    let mut model = Model::new();
    change(&mut world, &mut prng, &mut model, 400);
    if settled {
        world.settle();
        change(&mut world, &mut prng, &mut model, 20);
    }
    (world.disk.copy(), model)
}

#[test]
fn two_damaged_sectors_of_one_stripe_forget_everything_older() {
    let (disk, model) = sample(3, true);
    let before = disk.bytes(File::Ring);
    let live: Vec<usize> =
        (0..before.len() / SECTOR).filter(|i| before[i * SECTOR..].starts_with(b"PSTR")).collect();
    let mut amnesia = 0;
    for first in live {
        let disk = disk.copy();
        disk.rot(File::Ring, |bytes| {
            for sector in [first, (first + 1) % (bytes.len() / SECTOR)] {
                bytes[sector * SECTOR + 9] ^= 0xff;
            }
        });
        let mut world = World::open(disk, WORKERS, &config());
        let lost = check(&mut world, &model, &format!("stripe at sector {first}"));
        amnesia += usize::from(lost > 0);
        recover(&mut world, &model);
        world.settle();
        let mut world = World::open(world.disk.copy(), WORKERS, &config());
        assert_eq!(check(&mut world, &model, "after recovery"), 0);
    }
    assert!(amnesia > 0, "some of these stripes were needed");
}

#[test]
fn truncated_files_are_noticed() {
    for (seed, file) in File::ALL.into_iter().cycle().take(24).enumerate() {
        let (disk, model) = sample(seed as u64, seed % 3 == 0);
        let mut prng = Prng::new(seed as u64);
        let len = disk.file_len(file) as u64;
        let left = prng.below(len.max(1)) as usize;
        disk.rot(file, |bytes| bytes.truncate(left));
        let what = format!("{file:?} cut to {left} of {len}");
        match LocalGuard::open(disk.clone(), BINDING, WORKERS, &config()) {
            Ok(_) => {
                let mut world = World::open(disk, WORKERS, &config());
                check(&mut world, &model, &what);
                recover(&mut world, &model);
                assert_eq!(check(&mut world, &model, &what), 0);
            }
            Err(error) => assert!(
                file == File::Slots && left < 8192 && error != OpenError::Foreign,
                "{what}: {error}"
            ),
        }
    }
}

#[test]
fn a_foreign_store_is_refused_and_not_changed() {
    let (disk, _) = sample(1, false);
    let before = File::ALL.map(|file| disk.bytes(file));
    let refused = LocalGuard::open(disk.clone(), BINDING + 1, WORKERS, &config());
    assert_eq!(refused.err(), Some(OpenError::Foreign));
    let again = storage::disk::create(&mut disk.clone(), BINDING + 1, &config());
    assert_eq!(again, Err(OpenError::Exists));
    assert!(before == File::ALL.map(|file| disk.bytes(file)));
    let none = LocalGuard::open(SimDisk::new(1, 0), BINDING, WORKERS, &config());
    assert_eq!(none.err(), Some(OpenError::Missing));
}

#[test]
fn a_store_without_superblocks_is_refused() {
    let (disk, _) = sample(1, true);
    disk.rot(File::Slots, |bytes| {
        bytes[100] ^= 1;
        bytes[4096 + 100] ^= 1;
    });
    assert!(
        LocalGuard::open(disk.copy(), BINDING, WORKERS, &config()).is_ok(),
        "the spare has them"
    );
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    let refused = LocalGuard::open(disk.clone(), BINDING, WORKERS, &config());
    assert_eq!(refused.err(), Some(OpenError::Damaged));
    assert_eq!(
        storage::disk::create(&mut disk.clone(), BINDING, &config()),
        Err(OpenError::Exists)
    );
}

#[test]
fn a_failed_flush_ends_all_acknowledgements() {
    for flushes in 0..12 {
        let mut world = World::create(SimDisk::new(flushes, 1), WORKERS, &small_config());
        world.disk.fail_after(flushes);
        for i in 0..300_u32 {
            let place = Place::Cell(Database(0), Key::new(format!("key-{}", i % 9).as_bytes()));
            let owner = world.owner(&place);
            world.stores[owner].put(&place, &[7; 300]);
            submit(&mut world);
            world.poll();
        }
        for heard in &world.heard {
            let failed = heard.iter().position(|c| matches!(c, Completion::Failed(_)));
            let failed = failed.expect("every worker hears of it");
            assert_eq!(heard.len(), failed + 1, "nothing is acknowledged after the failure");
        }
    }
}

#[test]
fn a_store_at_rest_writes_nothing() {
    let (disk, _) = sample(5, false);
    let mut world = World::open(disk, WORKERS, &config());
    world.settle();
    let before = world.disk.stores();
    for _ in 0..1_000 {
        world.poll();
        world.guard.rest();
    }
    assert_eq!(world.disk.stores(), before);
}

/// A write-back may leave entries in the ring: a bucket's damage is not durably known, or its
/// images find no room. It finds them again, whatever becomes of the bucket meanwhile.
#[test]
fn buckets_that_are_divided_before_they_take_in_the_ring_take_it_in_later() {
    let config = Config {
        ring_bytes: 64 << 10,
        spare_pages: 32,
        cache_bytes: 0,
        fill_percent: 20,
        first_fit: false,
        ..small_config()
    };
    for seed in seeds(100) {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let delay = *prng.pick(&[0, 2, 9, 40]);
        let mut world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
        let mut model = Model::new();
        for life in 0..3 {
            let changes = prng.between(10, 300);
            change(&mut world, &mut prng, &mut model, changes);
            let disk = world.disk.crashed(prng.next_u64());
            // Behind the superblocks.
            let at = prng.between(2 * 4096, disk.file_len(File::Slots) as u64 - 1) as usize;
            disk.rot(File::Slots, |bytes| bytes[at] ^= 1);
            world = World::open(disk, WORKERS, &config);
            if prng.chance(0.5) {
                check(&mut world, &model, &format!("seed {seed}, life {life}, slots at {at}"));
            }
        }
        change(&mut world, &mut prng, &mut model, 300);
        world.settle();
        check(&mut world, &model, &format!("seed {seed}"));
        end(world, &model, &config);
    }
}

#[test]
fn a_check_names_each_bad_slot() {
    let (disk, _) = sample(7, true);
    let clean = verify(&mut disk.copy(), &mut |_| ()).expect("there is a store");
    assert!(clean.is_good() && clean.records > 100 && clean.large_records > 5 && clean.stripes > 0);
    // The images of the last write-back would mend its pages.
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    let bad_after = |file: File, offset: usize| {
        let disk = disk.copy();
        disk.rot(file, |bytes| bytes[offset] ^= 1);
        verify(&mut disk.copy(), &mut |_| ()).expect("there is a store").bad
    };
    for (file, offset, wanted) in [
        (File::Slots, 200, "slots at 0: a superblock is damaged"),
        (File::Slots, 4096 + 200, "slots at 4096: a superblock is damaged"),
        (File::Slots, 3 * 4096 + 30, "slots at 12288 (bucket 1): the page head or directory fails"),
        (File::Slots, 4 * 4096 - 1, "slots at 12288 (bucket 1): a record of database"),
        (File::Ring, 1000, "ring at 512: a sector"),
        (File::Extents, 70, "extents at 0: the map of a group"),
    ] {
        let bad = bad_after(file, offset);
        let text: Vec<String> = bad.iter().map(ToString::to_string).collect();
        assert!(text.iter().any(|bad| bad.starts_with(wanted)), "{wanted}: {text:?}");
    }
}

/// Damage that costs no record is told all the same.
#[test]
fn a_start_names_what_a_twin_or_parity_makes_good() {
    let (disk, model) = sample(7, true);
    // The images of the last write-back would mend its pages.
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    let is_in_use = |sector: &usize| {
        let disk = disk.copy();
        disk.rot(File::Ring, |bytes| bytes[sector * SECTOR] ^= 1);
        let report = verify(&mut disk.copy(), &mut |_| ()).expect("there is a store");
        report.bad.iter().any(|bad| bad.reason.contains("parity restores it"))
    };
    let in_use = (0..disk.file_len(File::Ring) / SECTOR).find(is_in_use).expect("it has stripes");
    let sector = in_use * SECTOR;
    for (file, offset, wanted) in [
        (File::Slots, 200, "slots at 0: one of two superblocks"),
        (File::Slots, 4096 + 200, "slots at 4096: one of two superblocks"),
        (File::Ring, sector, &format!("ring at {sector}: 1 damaged sectors from here on;")),
        (File::Extents, 70, "extents at 0: a space map"),
    ] {
        let disk = disk.copy();
        disk.rot(file, |bytes| bytes[offset] ^= 1);
        let mut world = World::open(disk, WORKERS, &config());
        assert_eq!(check(&mut world, &model, wanted), 0);
        world.settle();
        let said = world.heard.iter().flatten().filter_map(|completion| match completion {
            Completion::Warning(text) => Some(text.as_str()),
            _ => None,
        });
        let said: Vec<&str> = said.collect();
        assert!(said.len() == 1 && said[0].starts_with(wanted), "{wanted}: {said:?}");
    }
}

#[test]
fn images_that_rot_while_pages_are_written_are_noticed() {
    let mut lost = 0;
    for seed in 0..16 {
        let mut prng = Prng::new(seed);
        let mut world = World::create(SimDisk::new(seed, 3), WORKERS, &config());
        let mut model = Model::new();
        change(&mut world, &mut prng, &mut model, 100);
        world.settle();
        change(&mut world, &mut prng, &mut model, 300);
        for _ in 0..60 {
            world.guard.rest();
            world.poll();
            let disk = world.disk.crashed(prng.next_u64());
            disk.rot(File::Spare, |bytes| bytes.fill(0x55));
            let mut after = World::open(disk, WORKERS, &config());
            lost += check(&mut after, &model, &format!("seed {seed}"));
            after.settle();
            let mut after = World::open(after.disk.copy(), WORKERS, &config());
            check(&mut after, &model, &format!("seed {seed}, again"));
        }
    }
    assert!(lost > 0, "no write-back was interrupted");
}

/// Number of the write-back that a file speaks of.
fn batch_at(disk: &SimDisk, file: File, offset: usize) -> u64 {
    let bytes = disk.bytes(file);
    u64::from_le_bytes(bytes[offset + 24..][..8].try_into().expect("eight bytes"))
}

#[test]
fn a_start_serves_a_write_back_from_its_images_and_puts_it_in_place_later() {
    const SECOND_SUPERBLOCK: usize = 4096;
    let mut cut_off = 0;
    for seed in 0..12 {
        let mut prng = Prng::new(seed);
        let mut world = World::create(SimDisk::new(seed, 30), WORKERS, &config());
        let mut model = Model::new();
        change(&mut world, &mut prng, &mut model, 100);
        world.settle();
        change(&mut world, &mut prng, &mut model, 300);
        for _ in 0..60 {
            let before = world.disk.bytes(File::Slots);
            let images = batch_at(&world.disk, File::Spare, 0);
            world.guard.rest();
            world.poll();
            let disk = world.disk.crashed(prng.next_u64());
            // Homes are written only after the images were flushed.
            let is_cut_off = batch_at(&disk, File::Slots, SECOND_SUPERBLOCK) < images
                && disk.bytes(File::Slots) != before;
            if !is_cut_off {
                continue;
            }
            cut_off += 1;
            let what = format!("seed {seed}");
            let torn = disk.bytes(File::Slots);
            let mut after = World::open(disk.clone(), WORKERS, &config());
            assert_eq!(disk.bytes(File::Slots), torn, "{what}: a start waited for the device");
            let mut model = model.clone();
            assert_eq!(check(&mut after, &model, &what), 0);
            let changes = prng.below(40);
            change(&mut after, &mut prng, &mut model, changes);
            // The next one may find its images rotten, wherever it was then.
            for is_rotten in [false, true] {
                let disk = after.disk.crashed(prng.next_u64());
                if is_rotten {
                    disk.rot(File::Spare, |bytes| bytes.fill(0x55));
                }
                let mut next = World::open(disk, WORKERS, &config());
                let lost = check(&mut next, &model, &format!("{what}, again"));
                assert!(lost == 0 || is_rotten, "{what}: {lost} records are lost");
            }
            after.settle();
            assert!(batch_at(&after.disk, File::Slots, SECOND_SUPERBLOCK) >= images, "{what}");
            let mut next = World::open(after.disk.copy(), WORKERS, &config());
            assert_eq!(check(&mut next, &model, &what), 0);
        }
    }
    assert!(cut_off > 0, "no write-back was interrupted");
}

/// After a crash the ring may hold records that are home already, in pages that damage elsewhere in
/// the ring made void.
#[test]
fn what_the_ring_refers_to_behind_damage_keeps_its_extent() {
    let large = |number: u64| Place::Cell(Database(0), Key::new(&number.to_le_bytes()));
    let mut world = World::create(SimDisk::new(1, 4), 1, &small_config());
    for number in 0..20 {
        world.stores[0].put(&large(number), &[4; 20_000]);
        world.stores[0].submit();
        world.poll();
    }
    let mut recovered = 0;
    for moment in seeds(15) {
        world.guard.rest();
        world.poll();
        let crashed = world.disk.crashed(moment);
        let ring = crashed.bytes(File::Ring);
        let stripes = ring.chunks(SECTOR).enumerate().filter(|(_, head)| head.starts_with(b"PSTR"));
        for (stripe, _) in stripes {
            let disk = crashed.copy();
            disk.rot(File::Ring, |bytes| {
                for sector in [stripe, stripe + 1] {
                    let at = (sector * SECTOR + 9) % bytes.len();
                    bytes[at] ^= 0xff;
                }
            });
            recovered += check_extents(disk, large, &format!("moment {moment}, stripe {stripe}"));
        }
    }
    assert!(recovered > 0, "every record was lost");
}

/// The records that a start finds stay, whatever is written later. Returns how many they are.
fn check_extents(disk: SimDisk, large: impl Fn(u64) -> Place, what: &str) -> usize {
    let mut world = World::open(disk, 1, &small_config());
    world.settle();
    let is_found = |world: &mut World, number| matches!(world.load(&large(number)), Load::Found(_));
    let found: Vec<u64> = (0..20).filter(|&number| is_found(&mut world, number)).collect();
    for number in 20..40 {
        world.stores[0].put(&large(number), &[9; 20_000]);
        world.stores[0].submit();
        world.settle();
    }
    for &number in &found {
        assert!(is_found(&mut world, number), "{what}: record {number} is lost later");
    }
    found.len()
}
