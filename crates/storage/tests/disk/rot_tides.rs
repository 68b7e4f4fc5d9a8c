//! Rot while a store becomes larger and smaller, is scrubbed and loses power. A load finds the
//! newest record or says that it is lost, and recovered records stay.

use base::Prng;
use storage::disk::{Bad, Config, File, verify};
use storage::{Place, Store};
use types::{Database, Key, Shard};

use crate::rot::{Model, WORKERS, await_stored, check, damage, recover, submit};
use crate::support::{SimDisk, World, seeds};

/// The properties that are drawn for a run.
struct Tides {
    keys: u64,
    has_large: bool,
}

impl Tides {
    fn place(&self, prng: &mut Prng) -> Place {
        if prng.chance(0.02) {
            return Place::Meta(Database(0), Shard(prng.below(8) as u8));
        }
        let key = format!("key-{}", prng.below(self.keys));
        Place::Cell(Database(*prng.pick(&[0, 0, 3])), Key::new(key.as_bytes()))
    }

    fn record(&self, prng: &mut Prng) -> Vec<u8> {
        let is_large = self.has_large && prng.chance(0.05);
        let len = if is_large { prng.between(1_000, 24_000) } else { prng.between(0, 300) };
        let mut record = vec![prng.next_u64() as u8; len as usize];
        let drawn = prng.next_u64().to_le_bytes();
        record.iter_mut().zip(drawn).for_each(|(byte, drawn)| *byte = drawn);
        record
    }

    /// Changes that add or take away, with steps of the scrub and rests between.
    fn turn(&self, world: &mut World, prng: &mut Prng, model: &mut Model) {
        let removals = *prng.pick(&[0.0, 0.2, 0.9, 1.0]);
        let scrubs = *prng.pick(&[0.0, 0.05, 0.3]);
        let rests = *prng.pick(&[0.0, 0.05, 0.5]);
        for _ in 0..prng.between(10, self.keys * 2) {
            let place = self.place(prng);
            let record = (!prng.chance(removals)).then(|| self.record(prng));
            let store = world.owner(&place);
            match &record {
                Some(record) => world.stores[store].put(&place, record),
                None => world.stores[store].remove(&place),
            }
            model.insert(place, record);
            submit(world);
            if prng.chance(scrubs) && !world.is_scrubbing() {
                world.ask_scrub(prng.between(1, 300_000));
            }
            if prng.chance(rests) {
                world.guard.rest();
            }
            if prng.chance(0.3) {
                world.poll();
            }
            let mut polls = 0;
            while world.stores.iter().any(|store| store.is_full()) {
                world.poll();
                polls += 1;
                assert!(polls < 200_000, "it stays full");
            }
        }
        await_stored(world);
    }
}

fn config(seed: u64, spare_pages: u64, prng: &mut Prng) -> Config {
    Config {
        ring_bytes: 256 << 10,
        spare_pages,
        initial_level: *prng.pick(&[1, 1, 3, 5]),
        cache_bytes: *prng.pick(&[0, 0, 16 << 10, 64 << 10]),
        fill_percent: *prng.pick(&[20, 40, 60, 90]),
        first_fit: seed % 2 == 1,
    }
}

/// Damages a page of a bucket, of the last ones more often, or anything else.
fn strike(disk: &SimDisk, prng: &mut Prng) -> String {
    let len = disk.file_len(File::Slots) as u64;
    let from = *prng.pick(&[8_192, len.saturating_sub(40_000).max(8_192)]);
    if len <= from || prng.chance(0.5) {
        return damage(disk, prng);
    }
    let at = prng.between(from, len - 1) as usize;
    disk.rot(File::Slots, |bytes| bytes[at] ^= 1);
    format!("byte {at} of the slots")
}

fn run(seed: u64) {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let delay = |prng: &mut Prng| *prng.pick(&[0, 2, 9, 40]);
    let tides = Tides { keys: *prng.pick(&[100, 400, 1_000]), has_large: prng.chance(0.5) };
    let spare_pages = *prng.pick(&[32, 64, 128]);
    let first = config(seed, spare_pages, &mut prng);
    let disk = SimDisk::new(seed, delay(&mut prng));
    let mut world = World::create(disk, WORKERS, &first);
    let mut model = Model::new();
    for life in 0..5 {
        for _ in 0..prng.between(1, 3) {
            tides.turn(&mut world, &mut prng, &mut model);
            if prng.chance(0.5) {
                world.settle();
            }
            if prng.chance(0.3) {
                check(&mut world, &model, &format!("life {life}"));
            }
        }
        let disk = world.disk.crashed(prng.next_u64());
        let what = match prng.chance(0.8) {
            true => strike(&disk, &mut prng),
            false => "nothing".to_owned(),
        };
        world = World::open(disk, WORKERS, &config(seed, spare_pages, &mut prng));
        world.disk.set_delay(delay(&mut prng));
        let what = format!("after life {life}, damaged: {what}");
        match prng.below(4) {
            0 => {
                check(&mut world, &model, &what);
            }
            1 => world.settle(),
            2 => tides.turn(&mut world, &mut prng, &mut model),
            _ => {}
        }
        if prng.chance(0.3) {
            recover(&mut world, &model);
            check(&mut world, &model, &format!("{what}, recovered"));
        }
    }
    check(&mut world, &model, "in the end");
    recover(&mut world, &model);
    world.settle();
    assert_eq!(check(&mut world, &model, "in the end, recovered"), 0);
    // The first pass may have begun before the last write-back was in place.
    for _ in 0..2 {
        world.scrub_all(1 << 20);
    }
    world.settle();
    assert_eq!(check(&mut world, &model, "in the end, scrubbed"), 0);
    let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
    let is_scrubbed = |bad: &Bad| matches!(bad.file, File::Slots | File::Extents);
    assert!(!report.bad.iter().any(is_scrubbed), "{report:?}");
}

#[test]
fn tides_of_a_store_that_rots() {
    seeds(20).for_each(run);
}
