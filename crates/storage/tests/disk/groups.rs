//! Groups of extents that are new, or that a superblock does not count.

use base::Prng;
use storage::disk::{Config, File, LocalGuard};
use storage::{Completion, Place, Store};
use types::{Database, Key};

use crate::support::{BINDING, SimDisk, World, cell, of_bucket, seeds, small_config};

/// A medium that may keep pages from going home, and forgets large records.
#[derive(Clone)]
struct Gate {
    disk: SimDisk,
    held: std::sync::Arc<std::sync::Mutex<(bool, Vec<storage::disk::Io>)>>,
}

impl storage::disk::Medium for Gate {
    fn submit(&mut self, io: storage::disk::Io) {
        use storage::disk::Io;
        let mut held = self.held.lock().expect("no panic holds it");
        match io {
            Io::Store { flush, .. } if held.0 && flush.contains(File::Slots) => held.1.push(io),
            Io::Store { id, writes, flush } => {
                let writes = writes.into_iter().filter(|write| write.bytes.len() < 4 << 20);
                self.disk.submit(Io::Store { id, writes: writes.collect(), flush });
            }
            io => self.disk.submit(io),
        }
    }

    fn poll(&mut self, done: &mut Vec<storage::disk::Done>) {
        let mut held = self.held.lock().expect("no panic holds it");
        if !held.0 {
            held.1.drain(..).for_each(|io| self.disk.submit(io));
        }
        self.disk.poll(done);
    }

    fn wait(&mut self, done: &mut Vec<storage::disk::Done>) {
        self.disk.wait(done);
    }
}

/// Large records open new groups of extents while a write-back that was built waits for the one
/// before: each group is one page more for the double-write buffer.
#[test]
fn groups_that_are_added_while_a_write_back_waits_find_room_in_the_spare() {
    const VALUE: usize = 16 << 20; // two do not fit a group
    let mut failures = Vec::new();
    for seed in seeds(6) {
        let mut prng = Prng::new(seed);
        let config = Config {
            ring_bytes: 1 << 20,
            spare_pages: 32,
            initial_level: prng.between(2, 5) as u32,
            cache_bytes: 1 << 20,
            fill_percent: *prng.pick(&[60, 90]),
            first_fit: seed % 2 == 1,
        };
        let gate = Gate { disk: SimDisk::new(1, 0), held: std::sync::Arc::default() };
        storage::disk::create(&mut gate.clone(), BINDING, &config).expect("it is empty");
        let (guard, mut stores) =
            LocalGuard::open(gate.clone(), BINDING, 1, &config).expect("it was made");
        let mut heard = Vec::new();
        let put = |stores: &mut Vec<storage::disk::LocalStore<Gate>>, number: u64, len: usize| {
            let key = Key::new(&number.to_le_bytes());
            stores[0].put(&Place::Cell(Database(0), key), &vec![7; len]);
            stores[0].submit();
        };
        let (before, after) = (prng.between(100, 3_000), prng.between(200, 1_500));
        let len = prng.between(100, 900) as usize;
        for number in 0..before + after {
            if number == before {
                gate.held.lock().expect("no panic holds it").0 = true;
            }
            for _ in 0..20 {
                if stores[0].is_full() {
                    stores[0].poll(&mut heard);
                }
            }
            if !stores[0].is_full() {
                put(&mut stores, number, len);
            }
            stores[0].poll(&mut heard);
        }
        for number in 0..12 {
            put(&mut stores, 1 << 32 | number, VALUE);
            (0..4).for_each(|_| stores[0].poll(&mut heard));
        }
        gate.held.lock().expect("no panic holds it").0 = false;
        (0..40).for_each(|_| stores[0].poll(&mut heard));
        for completion in &heard {
            if let Completion::Failed(reason) = completion {
                failures.push((seed, reason.clone()));
            }
        }
        drop(guard);
    }
    assert!(failures.is_empty(), "{failures:?}");
}

/// A new store in the place of an old one has none of its records.
#[test]
fn a_store_that_is_made_anew_owns_no_groups_of_the_one_before() {
    let config = Config { ring_bytes: 1 << 20, ..small_config() };
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    for number in 0..8_u64 {
        world.stores[0]
            .put(&Place::Cell(Database(0), Key::new(&number.to_le_bytes())), &[7; 900_000]);
        world.stores[0].submit();
        world.settle();
    }
    let disk = world.disk.copy();
    disk.rot(File::Slots, |bytes| bytes.clear());
    let mut world = World::create(disk, 1, &config);
    world.stores[0].put(&Place::Cell(Database(0), Key::new(b"one")), &[1; 20_000]);
    world.stores[0].submit();
    world.settle();
    let report =
        storage::disk::verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
    assert!(report.is_good(), "{:?}", report.bad);
    assert_eq!(report.leaked_units, 0);
}

/// Large records may open more groups than a write-back has room for maps.
#[test]
fn more_new_groups_than_the_spare_has_room_for_go_home_by_and_by() {
    // The same with the sizes of every store takes a minute.
    let is_default = std::env::var_os("DISK_GROUPS").is_some();
    let small = Config { ring_bytes: 1 << 20, spare_pages: 32, ..small_config() };
    let (config, groups) = if is_default { (Config::default(), 1_100_u64) } else { (small, 40) };
    let gate = Gate { disk: SimDisk::new(1, 0), held: std::sync::Arc::default() };
    storage::disk::create(&mut gate.clone(), BINDING, &config).expect("it is empty");
    let mut failures = Vec::new();
    for start in 0..2 {
        let (guard, mut stores) =
            LocalGuard::open(gate.clone(), BINDING, 1, &config).expect("it was made");
        let mut heard = Vec::new();
        for number in 0..if start == 0 { groups } else { 0 } {
            let key = Key::new(&number.to_le_bytes());
            stores[0].put(&Place::Cell(Database(0), key), &vec![7; 16 << 20]);
            stores[0].submit();
            (0..4).for_each(|_| stores[0].poll(&mut heard));
        }
        for _ in 0..200 {
            guard.rest();
            stores[0].poll(&mut heard);
        }
        for completion in &heard {
            if let Completion::Failed(reason) = completion {
                failures.push((start, reason.clone()));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

/// Bytes of a record that takes so many units.
fn len_of(units: usize) -> usize {
    units * 1024 - 8
}

/// A store with the least spare, and a bucket whose overflow pages are in as many groups.
struct Chained {
    config: Config,
    gate: Gate,
    guard: LocalGuard<Gate>,
    stores: Vec<storage::disk::LocalStore<Gate>>,
    heard: Vec<Completion>,
}

impl Chained {
    const LEVEL: u32 = 5;

    /// So many large records of one bucket leave little of each group; another bucket has so many
    /// small ones.
    fn new(large: usize, bucket: u64, small: usize) -> Chained {
        let config = Config {
            ring_bytes: 1 << 20,
            spare_pages: 32,
            first_fit: true,
            initial_level: Chained::LEVEL,
            cache_bytes: 1 << 20,
            fill_percent: 90,
        };
        let gate = Gate { disk: SimDisk::new(1, 0), held: std::sync::Arc::default() };
        storage::disk::create(&mut gate.clone(), BINDING, &config).expect("it is empty");
        let mut chained = Chained::open(gate, config);
        // Two leave a page of a group.
        let lens = [16_000, 16_248].map(len_of).into_iter().cycle();
        for (number, len) in of_bucket(Chained::LEVEL, 5).zip(lens).take(large) {
            chained.stores[0].put(&cell(number), &vec![7; len]);
            chained.rest();
        }
        chained.put(bucket, small);
        chained.rest();
        chained
    }

    fn open(gate: Gate, config: Config) -> Chained {
        let opened = LocalGuard::open(gate.clone(), BINDING, 1, &config);
        let (guard, stores) = opened.expect("it was made");
        Chained { config, gate, guard, stores, heard: Vec::new() }
    }

    /// Small records of a bucket.
    fn put(&mut self, bucket: u64, count: usize) {
        for number in of_bucket(Chained::LEVEL, bucket).take(count) {
            self.stores[0].put(&cell(number), &[7; 990]);
        }
    }

    fn rest(&mut self) {
        self.stores[0].submit();
        for _ in 0..100 {
            self.guard.rest();
            self.stores[0].poll(&mut self.heard);
        }
    }

    fn poll(&mut self) {
        (0..20).for_each(|_| self.stores[0].poll(&mut self.heard));
    }

    fn failure(&self) -> Option<&Completion> {
        self.heard.iter().find(|heard| matches!(heard, Completion::Failed(_)))
    }
}

/// A chain finds each of its pages in another group, whose map is written with it.
#[test]
fn a_chain_in_many_groups_finds_room_in_the_spare() {
    for small in [46, 47] {
        let chained = Chained::new(36, 3, small);
        assert_eq!(chained.failure(), None, "{small} records");
        let of_all = chained.gate.disk.file_len(File::Extents);
        assert!(of_all > (17 * 32_256) << 10, "they are in {of_all} bytes");
    }
}

/// The map of a group of which all is in use is damaged.
#[test]
fn the_map_of_a_full_group_is_made_anew() {
    let config = Config { ring_bytes: 256 << 10, first_fit: true, ..small_config() };
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    // With the map's own page that is all of the first group.
    for (number, units) in [(1, 16_000), (2, 16_252)] {
        world.stores[0].put(&cell(number), &vec![7; len_of(units)]);
        world.stores[0].submit();
        world.settle();
    }
    let disk = world.disk.copy();
    assert_eq!(disk.file_len(File::Extents), 32_256 << 10);
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    disk.rot(File::Extents, |bytes| bytes[100] ^= 1);
    let mut world = World::open(disk, 1, &config);
    world.scrub_all(1 << 20);
    world.settle();
    let disk = world.disk.copy();
    disk.rot(File::Spare, |bytes| bytes[3] ^= 1);
    let report = storage::disk::verify(&mut disk.clone(), &mut |_| ()).expect("there is a store");
    assert!(report.is_good() && report.leaked_units == 0, "{report:?}");
}

/// The ring is lost, so that all pages are void: a chain whose pages are in many groups gives them
/// all back at once.
#[test]
fn a_void_chain_in_many_groups_leaves_room_in_the_spare() {
    let mut chained = Chained::new(30, 31, 46);
    // The newest ring batch is needed.
    chained.put(1, 1);
    chained.stores[0].submit();
    chained.poll();
    let Chained { gate, config, .. } = chained;
    gate.disk.rot(File::Ring, |bytes| bytes.fill(0x55));
    for start in 0..3 {
        let mut chained = Chained::open(gate.clone(), config);
        chained.poll();
        if start == 0 {
            // It recovers.
            (0..5).chain(6..8).for_each(|bucket| chained.put(bucket, 10));
            chained.put(31, 1);
        }
        chained.rest();
        assert_eq!(chained.failure(), None, "start {start}");
    }
}
