//! Room that has to be there: for the marks of losses while the ring is full, and for large records
//! after a restart.

use base::Prng;
use storage::disk::{Config, File, verify};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key};

use crate::support::{SECTOR, SimDisk, Withheld, World, small_config};

const PAGE: usize = 4096;
/// Buckets of the stores below, each the home of the hashes with the same seven bits at their top.
const BUCKETS: u64 = 128;
/// Those from here on have pages that rot.
const ROTTEN: u64 = 100;

fn cell(number: u64) -> Place {
    Place::Cell(Database(0), Key::new(&number.to_le_bytes()))
}

fn top(place: &Place) -> u64 {
    match place {
        Place::Cell(_, key) => key.hash() >> 57,
        Place::Meta(..) => unreachable!("only cells are made here"),
    }
}

/// The number of a bucket of level 7 counts its bits the other way round.
fn bucket(place: &Place) -> u64 {
    top(place).reverse_bits() >> 57
}

struct Full {
    world: World,
    places: Vec<Vec<Place>>,
    config: Config,
}

impl Full {
    /// A store with three records in each bucket, of which these many, that are in no memory, rot;
    /// the last of them has a newer record in the ring.
    fn new(rotten: u64) -> Full {
        let config = Config {
            ring_bytes: 64 << 10,
            spare_pages: 128,
            initial_level: 7,
            cache_bytes: 0,
            ..small_config()
        };
        let mut world = World::create(SimDisk::new(1, 0), 1, &config);
        let mut places = vec![Vec::new(); BUCKETS as usize];
        for place in (0..2_000).map(cell) {
            places[bucket(&place) as usize].push(place);
        }
        for places in &places {
            places[..3].iter().for_each(|place| world.stores[0].put(place, &[1; 30]));
            world.stores[0].submit();
            world.poll();
        }
        world.settle();
        let mut world = World::open(world.disk.copy(), 1, &config);
        assert_eq!(world.disk.file_len(File::Slots) / PAGE, 2 + BUCKETS as usize, "none divided");
        world.disk.rot(File::Slots, |bytes| {
            for number in ROTTEN..ROTTEN + rotten {
                bytes[(2 + number as usize) * PAGE + 30] ^= 0xff;
            }
        });
        let last = &places[(ROTTEN + rotten - 1) as usize];
        world.stores[0].put(&last[0], &[2; 30]);
        world.stores[0].submit();
        (0..5).for_each(|_| world.poll());
        Full { world, places, config }
    }

    /// Writes to whole buckets until the ring is at its limit, and no entry gets home meanwhile;
    /// one record is longer.
    fn fill(&mut self, count: usize, longer: usize) {
        self.world.disk.withhold(Withheld::Stores(File::Slots));
        for number in 0..count {
            let len = if number == longer { 600 } else { 300 };
            let place = &self.places[number % 90][1];
            self.world.stores[0].put(place, &vec![3; len]);
            self.world.stores[0].submit();
            self.world.poll();
        }
    }

    fn kill(&mut self, seed: u64) {
        self.world = World::open(self.world.disk.crashed(seed), 1, &self.config);
    }

    /// Asks for something of each rotten bucket, one after the other.
    fn meet(&mut self, rotten: u64) {
        for number in ROTTEN..ROTTEN + rotten {
            let load = self.world.load(&self.places[number as usize][2]);
            assert_eq!(load, Load::Lost, "bucket {number}");
            (0..20).for_each(|_| self.world.poll());
        }
    }

    /// The last request is durable after a while.
    fn is_written(&mut self) -> bool {
        self.world.disk.release();
        let wanted = self.world.stores[0].ticket().0 - 1;
        let is_it =
            |it: &Completion| matches!(it, Completion::Stored(ticket) if ticket.0 == wanted);
        (0..20_000).any(|_| {
            self.world.poll();
            self.world.heard[0].iter().any(is_it)
        })
    }
}

/// Whatever waits for room, losses are told, and then it goes on.
#[test]
fn losses_find_room_in_a_ring_that_is_full() {
    for rotten in [2, 12] {
        for longer in 24..34 {
            let mut full = Full::new(rotten);
            full.fill(400, longer);
            full.meet(rotten);
            assert!(full.is_written(), "{rotten} buckets, {longer}");
            let staging = full.world.stores[0].staging().expect("the first one says");
            assert!(staging.used <= staging.len);
        }
    }
}

/// After kills, each of which leaves less of the ring.
#[test]
fn losses_find_room_after_kills() {
    for kills in [1, 2, 4] {
        for rotten in [3, 6] {
            let mut full = Full::new(rotten);
            for seed in 0..kills {
                full.fill(200, 28);
                full.kill(seed);
            }
            full.fill(200, 28);
            full.meet(rotten);
            assert!(full.is_written(), "{kills} kills, {rotten} buckets");
        }
    }
}

/// Every life meets the same damage and ends before anything has gone home.
#[test]
fn starts_that_meet_the_same_damage_do_not_fill_the_ring_with_it() {
    for (rotten, count, kills) in [(1, 0, 64), (1, 5, 16), (3, 200, 8), (12, 0, 16)] {
        let mut full = Full::new(rotten);
        for seed in 0..kills {
            full.fill(count, 28);
            full.meet(rotten);
            full.kill(seed);
        }
        full.fill(200, 28);
        full.meet(rotten);
        assert!(full.is_written(), "{rotten} buckets, {count} writes a life, {kills} kills");
    }
}

/// A loss that was told ahead of waiting batches is known after a kill, whatever was said of the
/// shard before.
#[test]
fn a_loss_that_was_told_ahead_outlives_the_process() {
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let rotten = prng.between(1, 12);
        let mut full = Full::new(rotten);
        full.fill(prng.between(60, 300) as usize, prng.between(20, 40) as usize);
        full.meet(rotten);
        if prng.chance(0.5) {
            full.world.disk.release();
            (0..prng.below(60)).for_each(|_| full.world.poll());
        }
        for life in 0..2 {
            full.kill(prng.next_u64());
            for number in ROTTEN..ROTTEN + rotten {
                let load = full.world.load(&full.places[number as usize][2]);
                assert_eq!(load, Load::Lost, "seed {seed}, life {life}, bucket {number}");
            }
            for places in &full.places[..90] {
                let load = full.world.load(&places[0]);
                let is_right = load == Load::Found(vec![1; 30].into()) || load == Load::Lost;
                assert!(is_right, "seed {seed}, life {life}: {load:?}");
            }
        }
    }
}

/// Every life overwrites the same large records and ends at rest; sizes of the extents in MiB.
fn sizes(restarts: bool) -> Vec<usize> {
    let config =
        Config { ring_bytes: 1 << 20, spare_pages: 1024, initial_level: 8, ..small_config() };
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    let record = vec![7_u8; 3 << 20];
    let mut sizes = Vec::new();
    for _ in 0..4 {
        for number in 0..40 {
            world.stores[0].put(&cell(number), &record);
            world.stores[0].submit();
            world.poll();
        }
        world.settle();
        world.heard[0].clear();
        sizes.push(world.disk.file_len(File::Extents) >> 20);
        if restarts {
            world = World::open(world.disk.copy(), 1, &config);
        }
    }
    let report = verify(&mut world.disk.clone(), &mut |_| ()).expect("there is a store");
    assert!(report.is_good() && report.leaked_units == 0, "{report:?}");
    sizes
}

#[test]
fn space_is_found_again_after_a_restart() {
    let (one_life, lives) = (sizes(false), sizes(true));
    // Two groups more, until the room in others has been found.
    assert!(lives[3] <= one_life[3] + 64, "{one_life:?} {lives:?}");
}

fn rest(world: &mut World, polls: usize) {
    for _ in 0..polls {
        world.guard.rest();
        world.poll();
    }
}

fn writes_at_rest(world: &mut World) -> u64 {
    rest(world, 500);
    let before = world.disk.stores();
    rest(world, 200);
    world.disk.stores() - before
}

/// A bucket that nearly fills the double-write buffer, of records of all lengths.
#[test]
fn a_store_at_rest_writes_nothing_though_a_bucket_just_fits() {
    for (spare_pages, len) in [(32, 412), (32, 60), (48, 100), (64, 0), (64, 164)] {
        let config =
            Config { ring_bytes: 512 << 10, spare_pages, initial_level: 7, ..small_config() };
        let mut world = World::create(SimDisk::new(1, 0), 1, &config);
        let (each, most) = (32 + len, (spare_pages as usize + 4) * 4032 / 2);
        let places = (0..).map(cell).filter(|place| top(place) == 5).take(most / each);
        for (number, place) in places.enumerate() {
            world.stores[0].put(&place, &vec![1; len]);
            if number % 20 != 0 && number * each * 4 < most * 3 {
                continue;
            }
            world.stores[0].submit();
            rest(&mut world, 40);
            if world.stores[0].is_full() {
                // A batch that waits for room keeps the hand going.
                break;
            }
            let before = world.disk.stores();
            rest(&mut world, 10);
            if world.disk.stores() > before {
                assert_eq!(writes_at_rest(&mut world), 0, "{number} records of {len} bytes");
            }
        }
    }
}

/// The same with a bucket that fits no more, and is damaged.
#[test]
fn a_store_at_rest_writes_nothing_though_damage_cannot_be_mended() {
    let config = Config {
        ring_bytes: 256 << 10,
        spare_pages: 32,
        initial_level: 7,
        cache_bytes: 0,
        ..small_config()
    };
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    let places: Vec<Place> = (0..).map(cell).filter(|place| top(place) == 5).take(44).collect();
    for place in &places {
        world.stores[0].put(place, &vec![1; 990]);
        world.stores[0].submit();
        rest(&mut world, 20);
    }
    rest(&mut world, 2_000);
    let mut world = World::open(world.disk.copy(), 1, &config);
    rest(&mut world, 2_000);
    let end = (2 + bucket(&places[0]) as usize + 1) * PAGE;
    for round in 0..3 {
        world.disk.rot(File::Slots, |bytes| bytes[end - 1] ^= 0xff);
        places.iter().for_each(|place| _ = world.load(place));
        assert_eq!(writes_at_rest(&mut world), 0, "round {round}");
        let mut again = World::open(world.disk.crashed(1), 1, &config);
        places.iter().for_each(|place| _ = again.load(place));
        assert_eq!(writes_at_rest(&mut again), 0, "round {round}, after a restart");
    }
}

/// A bucket whose records are too long for the double-write buffer stays in the ring.
#[test]
fn a_store_at_rest_writes_nothing_though_a_bucket_cannot_go_home() {
    let config =
        Config { ring_bytes: 256 << 10, spare_pages: 32, initial_level: 7, ..small_config() };
    for (len, keys, stays) in [(300, 30, false), (990, 44, true), (990, 60, true)] {
        let mut world = World::create(SimDisk::new(1, 0), 1, &config);
        for place in (0..).map(cell).filter(|place| top(place) == 5).take(keys) {
            world.stores[0].put(&place, &vec![1; len]);
            world.stores[0].submit();
            rest(&mut world, 20);
        }
        rest(&mut world, 2_000);
        let before = world.disk.stores();
        rest(&mut world, 1_000);
        assert_eq!(world.disk.stores(), before, "{keys} of {len} bytes");
        let used = world.stores[0].staging().expect("the first one says").used;
        assert_eq!(used > 0, stays, "{} sectors", used / SECTOR as u64);
    }
}

/// Records that are too long for a page go to extents where the ring batch would be too long with
/// them.
#[test]
fn a_batch_of_long_records_is_one_stripe_as_long_as_it_can_be() {
    // The longest ring batch of this ring carries some 3,100 bytes.
    let (config, lens) = (small_config(), [900, 2_300, 1_500, 5_000, 40]);
    let mut world = World::create(SimDisk::new(1, 0), 1, &config);
    let record = |number: usize, len: usize| vec![number as u8; len];
    for (number, &len) in lens.iter().enumerate() {
        world.stores[0].put(&cell(number as u64), &record(number, len));
    }
    world.stores[0].submit();
    (0..20).for_each(|_| world.poll());
    let report = verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
    assert!(report.is_good());
    assert_eq!((report.stripes, report.staged_records), (1, lens.len() as u64));
    let mut after = World::open(world.disk.crashed(0), 1, &config);
    for world in [&mut world, &mut after] {
        world.settle();
        for (number, &len) in lens.iter().enumerate() {
            let wanted = Load::Found(record(number, len).into());
            assert!(world.load(&cell(number as u64)) == wanted, "{number}");
        }
    }
}
