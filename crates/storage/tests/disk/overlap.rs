//! As `model.rs`, where the next write-back is nearly always built while one is written: many buckets, a small spare, a
//! slow medium, hardly any rest, and a look at what a loss of power would leave at many moments.

use std::collections::BTreeMap;

use crate::support::{SimDisk, World, seeds, small_config};
use base::Prng;
use storage::disk::Config;
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard, Ticket};

type Model = BTreeMap<Place, Vec<u8>>;

struct Run {
    prng: Prng,
    world: World,
    /// The state after each batch of each worker, by ticket: a crash may leave any state from the last
    /// acknowledged one on.
    states: Vec<Vec<(Ticket, Model)>>,
    stored: Vec<Ticket>,
    keys: u64,
    long_keys: bool,
    /// A batch that fills more than a stripe would not be atomic.
    is_small: bool,
    /// What other nodes send has to be taken also while the store is full.
    heeds_full: bool,
    config: Config,
    has_failed: [bool; WORKERS],
}

const WORKERS: usize = 2;

fn place(prng: &mut Prng, keys: u64, long: bool) -> Place {
    let database = Database(*prng.pick(&[0, 0, 0, 1, 15]));
    if prng.chance(0.05) {
        return Place::Meta(database, Shard(prng.below(256) as u8));
    }
    let number = prng.below(keys);
    let mut bytes = format!("key-{number}").into_bytes();
    if long && number.is_multiple_of(7) {
        bytes.resize(600 + number as usize, b'.');
    }
    Place::Cell(database, Key::new(&bytes))
}

fn record(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(20) {
        0 => prng.between(1_000, 1_100),
        1 => prng.between(1_025, 20_000),
        2 => 0,
        _ => prng.between(1, 200),
    };
    let fill = prng.next_u64().to_le_bytes();
    (0..len as usize).map(|i| fill[i % 8]).collect()
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut prng = Prng::new(seed);
        let delay = *prng.pick(&[2, 6, 12, 40, 120]);
        let config = Config {
            ring_bytes: *prng.pick(&[64 << 10, 64 << 10, 128 << 10, 256 << 10]),
            spare_pages: *prng.pick(&[32, 32, 40, 64, 128]),
            initial_level: *prng.pick(&[1, 2, 3, 4, 5, 6]) as u32,
            cache_bytes: *prng.pick(&[0, 16 << 10, 64 << 10, 1 << 20]),
            fill_percent: *prng.pick(&[20, 60, 60, 90]),
        };
        let world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
        let keys = *prng.pick(&[5, 60, 200, 400, 1_000]);
        let states = vec![vec![(Ticket::DURABLE, Model::new())]; WORKERS];
        let long_keys = prng.chance(0.3);
        let heeds_full = prng.chance(0.6);
        Run {
            prng,
            world,
            states,
            stored: vec![Ticket::DURABLE; WORKERS],
            keys,
            long_keys,
            is_small: config.ring_bytes <= 128 << 10,
            heeds_full,
            config,
            has_failed: [false; WORKERS],
        }
    }

    fn change(&mut self) {
        let mut models: Vec<Model> =
            self.states.iter().map(|states| states.last().expect("one").1.clone()).collect();
        let largest = *self.prng.pick(if self.is_small { &[1, 3, 3] } else { &[1, 3, 30] });
        for _ in 0..self.prng.between(1, largest) {
            let place = place(&mut self.prng, self.keys, self.long_keys);
            let owner = self.world.owner(&place);
            if self.prng.chance(0.2) {
                self.world.stores[owner].remove(&place);
                models[owner].remove(&place);
            } else {
                let record = record(&mut self.prng);
                self.world.stores[owner].put(&place, &record);
                models[owner].insert(place, record);
            }
        }
        for (worker, model) in models.into_iter().enumerate() {
            let ticket = self.world.stores[worker].ticket();
            self.world.stores[worker].submit();
            if self.world.stores[worker].ticket() != ticket {
                self.states[worker].push((ticket, model));
            }
        }
    }

    fn newest(&self, place: &Place) -> Option<&Vec<u8>> {
        self.states[self.world.owner(place)].last().expect("one").1.get(place)
    }

    fn check_load(&mut self, place: &Place) {
        let wanted =
            self.newest(place).map_or(Load::Absent, |record| Load::Found(record.clone().into()));
        let found = self.world.load(place);
        assert!(found == wanted, "{place:?}: found {}, wanted {}", brief(&found), brief(&wanted));
    }

    fn check_all(&mut self) {
        let mut prng = Prng::new(1);
        let mut places: Vec<Place> =
            (0..20).map(|_| place(&mut prng, self.keys, self.long_keys)).collect();
        places.extend(
            self.states.iter().flat_map(|states| states.last().expect("one").1.keys().cloned()),
        );
        for place in &places {
            self.check_load(place);
        }
    }

    /// Lists a database and compares.
    fn check_listing(&mut self) {
        let database = Database(*self.prng.pick(&[0, 1, 15]));
        let limit = self.prng.between(1, 40) as usize;
        let mut found = Vec::new();
        for shard in 0..=255_u8 {
            let mut next = Some(Shard(shard).first_hash());
            let owner = usize::from(shard) % WORKERS;
            while let Some(from) = next {
                self.world.stores[owner].scan(9, database, from, limit);
                next = self.await_listing(owner, from, &mut found);
            }
        }
        let models = self.states.iter().map(|states| &states.last().expect("one").1);
        let mut wanted: Vec<(Key, Vec<u8>)> = models
            .flatten()
            .filter_map(|(place, record)| match place {
                Place::Cell(of, key) if *of == database => Some((key.clone(), record.clone())),
                _ => None,
            })
            .collect();
        wanted.sort();
        assert!(found == wanted, "listed {} of {} records", found.len(), wanted.len());
    }

    fn await_listing(
        &mut self,
        owner: usize,
        from: u64,
        found: &mut Vec<(Key, Vec<u8>)>,
    ) -> Option<u64> {
        self.world.heard[owner].clear();
        for _ in 0..10_000 {
            self.world.poll();
            for completion in std::mem::take(&mut self.world.heard[owner]) {
                match completion {
                    Completion::Scanned { id: 9, records, next_hash } => {
                        assert!(records.iter().all(|(key, _)| key.hash() >= from));
                        assert!(next_hash.is_none_or(|next| next > from));
                        found.extend(
                            records.into_iter().map(|(key, record)| (key, record.to_vec())),
                        );
                        return next_hash;
                    }
                    other => self.world.heard[owner].push(other),
                }
            }
            self.hear();
        }
        panic!("a listing does not end");
    }

    fn hear(&mut self) {
        for (worker, heard) in self.world.heard.iter_mut().enumerate() {
            for completion in heard.drain(..) {
                match completion {
                    Completion::Stored(ticket) => {
                        assert!(ticket > self.stored[worker], "tickets rise");
                        assert!(!self.has_failed[worker], "acknowledged after a failure");
                        self.stored[worker] = ticket;
                    }
                    Completion::Failed(reason) => {
                        assert_eq!(reason, "the disk says no");
                        self.has_failed[worker] = true;
                    }
                    Completion::Forgotten { database, shard } => {
                        panic!("nothing was damaged, yet {shard:?} of {database:?} is forgotten");
                    }
                    Completion::Scrubbed(scrubbed) => assert_eq!(scrubbed.damaged, 0),
                    Completion::Loaded { .. } | Completion::Scanned { .. } => {}
                }
            }
        }
    }

    /// A loss of power costs neither records nor space.
    fn verify(&self, disk: &SimDisk) {
        let report =
            storage::disk::verify(&mut disk.copy(), &mut |_| ()).expect("there is a store");
        assert!(report.is_good(), "{}", report.bad[0]);
        assert_eq!(report.leaked_units, 0);
    }

    /// Loses power, opens again, and finds out which of the possible states each worker is in.
    fn crash(&mut self) {
        self.hear();
        let disk = self.world.disk.crashed(self.prng.next_u64());
        self.verify(&disk);
        self.has_failed = [false; WORKERS];
        self.world = World::open(disk, WORKERS, &self.config);
        for worker in 0..WORKERS {
            let stored = self.stored[worker];
            let candidates: Vec<(Ticket, Model)> = std::mem::take(&mut self.states[worker])
                .into_iter()
                .filter(|(ticket, _)| *ticket >= stored)
                .collect();
            let places: std::collections::BTreeSet<Place> =
                candidates.iter().flat_map(|(_, model)| model.keys().cloned()).collect();
            let mut found = Model::new();
            for place in places {
                match self.world.load(&place) {
                    Load::Found(record) => drop(found.insert(place, record.to_vec())),
                    Load::Absent => {}
                    load => panic!("{place:?} is {}", brief(&load)),
                }
            }
            let state = candidates.into_iter().find(|(_, model)| *model == found);
            let (_, model) =
                state.expect("what is found is a state at or after the last acknowledged one");
            self.states[worker] = vec![(Ticket::DURABLE, model)];
            self.stored[worker] = Ticket::DURABLE;
        }
        self.hear();
    }

    /// Looks at what a loss of power would leave now, and goes on.
    fn look(&mut self) {
        self.hear();
        let disk = self.world.disk.crashed(self.prng.next_u64());
        self.verify(&disk);
        let mut world = World::open(disk, WORKERS, &self.config);
        for worker in 0..WORKERS {
            let stored = self.stored[worker];
            let candidates: Vec<&Model> = self.states[worker]
                .iter()
                .filter(|(ticket, _)| *ticket >= stored)
                .map(|(_, model)| model)
                .collect();
            let places: std::collections::BTreeSet<Place> =
                candidates.iter().flat_map(|model| model.keys().cloned()).collect();
            let mut found = Model::new();
            for place in places {
                match world.load(&place) {
                    Load::Found(record) => drop(found.insert(place, record.to_vec())),
                    Load::Absent => {}
                    load => panic!("{place:?} is {}", brief(&load)),
                }
            }
            assert!(candidates.into_iter().any(|model| *model == found), "an older state");
        }
        // And what goes home from there harms nothing.
        world.settle();
        let report =
            storage::disk::verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
        assert!(report.is_good(), "{}", report.bad[0]);
        assert_eq!(report.leaked_units, 0);
    }

    /// A flush fails, sooner or later.
    fn fail(&mut self) {
        self.world.disk.fail_after(self.prng.below(12));
        for _ in 0..3_000 {
            self.change();
            self.world.poll();
            self.hear();
            if self.has_failed[0] {
                return self.crash();
            }
        }
        panic!("no flush fails");
    }

    fn scrub(&mut self) {
        for _ in 0..self.prng.between(1, 4) {
            let bytes = self.prng.between(1, 200_000);
            self.world.ask_scrub(bytes);
            while self.world.is_scrubbing() {
                if self.prng.chance(0.5) && (!self.heeds_full || !self.world.stores[0].is_full()) {
                    self.change();
                }
                self.world.poll();
                // Takes the answers out, but for those of the scrub.
                for worker in 0..WORKERS {
                    for completion in std::mem::take(&mut self.world.heard[worker]) {
                        match completion {
                            Completion::Stored(ticket) => self.stored[worker] = ticket,
                            Completion::Scrubbed(scrubbed) => {
                                assert_eq!(scrubbed.damaged, 0);
                                self.world.heard[worker].push(Completion::Scrubbed(scrubbed));
                            }
                            Completion::Failed(reason) => panic!("failed: {reason}"),
                            Completion::Forgotten { .. } => panic!("forgotten"),
                            _ => {}
                        }
                    }
                }
            }
            self.hear();
            self.world.scrubs = 0;
        }
    }

    fn step(&mut self) {
        // States that can no longer be what a crash leaves.
        for (states, stored) in self.states.iter_mut().zip(&self.stored) {
            let from = states.partition_point(|(ticket, _)| ticket < stored);
            let from = from.min(states.len() - 1);
            states.drain(..from);
        }
        match self.prng.below(1_000) {
            0..700 => {
                if !self.heeds_full || !self.world.stores[0].is_full() {
                    self.change();
                }
                self.world.poll();
            }
            700..740 => {
                let place = place(&mut self.prng, self.keys, self.long_keys);
                self.check_load(&place);
            }
            740..960 => self.world.poll(),
            960..963 => self.world.keeper.rest(),
            963..970 => self.scrub(),
            970..972 => self.world.settle(),
            972..973 => self.check_listing(),
            973..993 => self.look(),
            993..994 => self.fail(),
            994..999 => self.crash(),
            _ => (0..100).for_each(|_| self.world.poll()),
        }
        self.hear();
    }
}

fn brief(load: &Load) -> String {
    match load {
        Load::Found(record) => format!("{} bytes of {:?}", record.len(), record.first()),
        other => format!("{other:?}"),
    }
}

fn run(seed: u64, steps: u64) {
    println!("seed {seed}");
    let mut run = Run::new(seed);
    for _ in 0..steps {
        run.step();
    }
    run.check_all();
    run.check_listing();
    run.crash();
    run.check_all();
    run.world.settle();
    run.hear();
    run.check_all();
    run.verify(&run.world.disk);
    run.world = World::open(run.world.disk.copy(), WORKERS, &run.config);
    run.check_all();
}

#[test]
fn a_store_whose_write_backs_overlap_is_a_map() {
    for seed in seeds(20) {
        run(seed, 1_500);
    }
}

fn rot_run(seed: u64) -> usize {
    use crate::rot::{change, check, damage, recover};
    println!("rot seed {seed}");
    let mut prng = Prng::new(seed);
    let delay = *prng.pick(&[9, 40, 120]);
    let config = Config {
        ring_bytes: *prng.pick(&[64 << 10, 128 << 10, 256 << 10]),
        spare_pages: *prng.pick(&[32, 64]),
        initial_level: *prng.pick(&[1, 3, 5]) as u32,
        cache_bytes: *prng.pick(&[0, 64 << 10]),
        ..small_config()
    };
    let mut world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
    let mut model = crate::rot::Model::new();
    let mut lost = 0;
    for life in 0..5 {
        let changes = *prng.pick(&[20, 60, 500, 900]);
        change(&mut world, &mut prng, &mut model, changes);
        (0..prng.below(200)).for_each(|_| world.poll());
        let disk = world.disk.crashed(prng.next_u64());
        let mut what = format!("life {life}, {}", damage(&disk, &mut prng));
        if prng.chance(0.3) {
            what = format!("{what}; {}", damage(&disk, &mut prng));
        }
        match storage::disk::LocalKeeper::open(
            disk.copy(),
            crate::support::BINDING,
            WORKERS,
            &config,
        ) {
            Ok(_) => {}
            Err(storage::disk::OpenError::Damaged) => return lost, // two damages
            Err(error) => panic!("{what}: {error}"),
        }
        world = World::open(disk, WORKERS, &config);
        lost += check(&mut world, &model, &what);
        // Without recovery: what is written while buckets are damaged.
        let changes = *prng.pick(&[0, 100, 500]);
        change(&mut world, &mut prng, &mut model, changes);
        lost += check(&mut world, &model, &format!("{what}, later"));
        if prng.chance(0.5) {
            let disk = world.disk.crashed(prng.next_u64());
            world = World::open(disk, WORKERS, &config);
            check(&mut world, &model, &format!("{what}, again"));
        }
        if prng.chance(0.5) {
            recover(&mut world, &model);
            assert_eq!(check(&mut world, &model, "recovered"), 0, "{what}");
        }
    }
    recover(&mut world, &model);
    world.settle();
    world = World::open(world.disk.copy(), WORKERS, &config);
    assert_eq!(check(&mut world, &model, "at the end"), 0);
    let report =
        storage::disk::verify(&mut world.disk.copy(), &mut |_| ()).expect("there is a store");
    drop(report);
    lost
}

#[test]
fn rot_while_write_backs_overlap_never_shows_an_old_record() {
    let lost: usize = seeds(60).map(rot_run).sum();
    assert!(lost > 0);
}

/// Damage under what memory holds is mended though something is always being written elsewhere.
#[test]
fn a_scrub_mends_what_is_in_memory_while_others_write() {
    const LAPS_MAX: u64 = 100;
    let config = Config {
        ring_bytes: 256 << 10,
        spare_pages: 64,
        initial_level: 6,
        cache_bytes: 4 << 20,
        fill_percent: 90,
    };
    let mut laps_of = Vec::new();
    for seed in 0..8 {
        let mut prng = Prng::new(seed);
        let mut world = World::create(SimDisk::new(seed, 8), 1, &config);
        let keys: Vec<Place> = (0..600_u64)
            .map(|number| Key::new(&number.to_le_bytes()))
            .map(|key| Place::Cell(Database(0), key))
            .collect();
        for key in &keys {
            world.stores[0].put(key, &[1; 100]);
            world.stores[0].submit();
            world.poll();
        }
        world.settle();
        keys.iter().for_each(|key| drop(world.load(key)));
        world.heard[0].clear();
        let others: Vec<Place> = keys
            .iter()
            .filter(|place| matches!(place, Place::Cell(_, key) if key.shard().0 >= 8))
            .cloned()
            .collect();
        assert!(others.len() > 500);
        let mut laps = 0;
        let mut damaged = 0;
        let mut is_rotten = false;
        let mut steps = 0;
        while laps < LAPS_MAX && damaged == 0 {
            steps += 1;
            if !is_rotten && steps == 2_000 {
                is_rotten = true;
                world
                    .disk
                    .rot_lasting(storage::disk::File::Slots, |bytes| bytes[2 * 4096 + 9] ^= 1);
                world.ask_scrub(64 << 10);
            }
            if !world.stores[0].is_full() {
                for _ in 0..4 {
                    world.stores[0].put(prng.pick(&others), &[steps as u8; 100]);
                }
                world.stores[0].submit();
            }
            world.poll();
            let mut asks = false;
            for completion in std::mem::take(&mut world.heard[0]) {
                if let Completion::Scrubbed(step) = completion {
                    laps += u64::from(step.has_ended);
                    damaged += step.damaged;
                    asks = true;
                }
            }
            if asks {
                world.ask_scrub(64 << 10);
            }
        }
        laps_of.push((laps, damaged));
    }
    println!("laps and damage found: {laps_of:?}");
    assert!(laps_of.iter().all(|&(_, damaged)| damaged > 0), "{laps_of:?}");
}

/// A store that is full becomes less so as long as its device answers: nobody has to rest for it.
#[test]
fn a_store_is_never_full_for_nothing() {
    let mut polls_of_all = 0_u64;
    for seed in seeds(200) {
        let mut prng = Prng::new(seed);
        let config = Config {
            ring_bytes: *prng.pick(&[64 << 10, 128 << 10, 256 << 10]),
            spare_pages: *prng.pick(&[32, 64, 128]),
            initial_level: prng.between(1, 7) as u32,
            cache_bytes: *prng.pick(&[0, 64 << 10, 1 << 20]),
            fill_percent: *prng.pick(&[20, 60, 90]),
        };
        let delay = *prng.pick(&[0, 1, 4, 20, 60]);
        let keys = *prng.pick(&[1, 3, 30, 300, 3_000]);
        let len = prng.between(1, 900) as usize;
        let mut world = World::create(SimDisk::new(seed, delay), 1, &config);
        for number in 0..1_500_u64 {
            let mut idle = 0;
            while world.stores[0].is_full() {
                let is_idle = world.keeper.under_way() == 0;
                idle = if is_idle { idle + 1 } else { 0 };
                assert!(idle < 20, "seed {seed}: full at record {number}, {config:?}, {keys} keys");
                world.poll();
                polls_of_all += 1;
            }
            let place = Place::Cell(Database(0), Key::new(&prng.below(keys).to_le_bytes()));
            world.stores[0].put(&place, &vec![number as u8; len]);
            world.stores[0].submit();
            // In the smallest rings a store is full before it is no longer held back after a start, whoever writes it.
            if config.ring_bytes > 128 << 10 && prng.chance(0.005) {
                world = World::open(world.disk.crashed(seed), 1, &config);
            }
        }
        // And it comes to rest, also where it rests while one write-back is built and another written.
        world.settle();
    }
    println!("{polls_of_all} polls");
}
