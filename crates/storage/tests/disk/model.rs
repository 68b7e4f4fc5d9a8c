//! The disk store against a plain map: random changes, delays, losses of power at any moment, restarts.

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
        let delay = *prng.pick(&[0, 1, 3, 12]);
        let config = Config { ring_bytes: *prng.pick(&[64 << 10, 256 << 10]), ..small_config() };
        let world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
        let keys = *prng.pick(&[5, 60, 400, 2_000]);
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
            is_small: config.ring_bytes == 64 << 10,
            heeds_full,
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
                        self.stored[worker] = ticket;
                    }
                    Completion::Failed(reason) => panic!("failed: {reason}"),
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
        self.world = World::open(disk, WORKERS, &small_config());
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

    /// Nothing is damaged, whatever is being written meanwhile.
    fn scrub(&mut self) {
        for _ in 0..self.prng.between(1, 4) {
            let bytes = self.prng.between(1, 200_000);
            self.world.ask_scrub(bytes);
            while self.world.is_scrubbing() {
                if self.prng.chance(0.5) {
                    self.change();
                }
                self.world.settle();
            }
            self.hear();
            self.world.scrubs = 0;
        }
    }

    fn step(&mut self) {
        match self.prng.below(100) {
            0..70 => {
                if !self.heeds_full || !self.world.stores[0].is_full() {
                    self.change();
                }
                self.world.poll();
            }
            70..80 => {
                let place = place(&mut self.prng, self.keys, self.long_keys);
                self.check_load(&place);
            }
            80..95 => self.world.poll(),
            95 => self.world.keeper.rest(),
            96 => self.scrub(),
            97 => self.world.settle(),
            98 if self.prng.chance(0.2) => self.check_listing(),
            98 => {}
            _ => self.crash(),
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
    let config = small_config();
    run.world = World::open(run.world.disk.copy(), WORKERS, &config);
    run.check_all();
}

#[test]
fn a_store_is_a_map_whatever_happens_to_its_power() {
    for seed in seeds(150) {
        run(seed, 400);
    }
}

#[test]
fn many_short_lives_lose_nothing() {
    for seed in seeds(1_000) {
        run(seed + 1_000_000, 25);
    }
}

/// Every entry of a full ring may be replaced by one that waits for room: then the older one has to go home.
#[test]
fn a_ring_that_only_waits_for_its_own_successors_gets_room() {
    for seed in seeds(20) {
        let mut prng = Prng::new(seed);
        let mut world = World::create(SimDisk::new(seed, 40), 1, &small_config());
        // More than the ring holds, so that a place's next entry waits for room while its last one is in the ring.
        let places: Vec<Place> = (0..prng.between(250, 500))
            .map(|number| Place::Cell(Database(0), Key::new(&number.to_le_bytes())))
            .collect();
        let mut model = Model::new();
        for batch in 0..150 {
            for i in 0..10 {
                let place = &places[(batch * 10 + i) % places.len()];
                let record = vec![prng.next_u64() as u8; 200];
                world.stores[0].put(place, &record);
                model.insert(place.clone(), record);
            }
            world.stores[0].submit();
        }
        world.settle();
        for (place, record) in &model {
            assert_eq!(world.load(place), Load::Found(record.clone().into()), "seed {seed}");
        }
    }
}

/// The tail of a ring cannot move before the hand has been everywhere, which takes long where nothing is cached.
#[test]
fn a_store_that_ended_when_it_was_full_takes_writes_before_it_has_read_a_page() {
    let config = Config { ring_bytes: 256 << 10, ..small_config() };
    let mut world = World::create(SimDisk::new(1, 3), 1, &config);
    fill(&mut world, 2_000);
    // Each start but the first falls into the first lap of the one before.
    for start in 1..=3 {
        world = World::open(world.disk.crashed(start), 1, &config);
        world.disk.withhold_pages();
        assert!(!world.stores[0].is_full(), "start {start}");
        fill(&mut world, 1);
        (0..100).for_each(|_| world.poll());
        let is_stored = |heard: &Completion| matches!(heard, Completion::Stored(_));
        assert!(world.heard[0].iter().any(is_stored), "start {start}");
        fill(&mut world, 200);
    }
}

/// Writes as much as a store takes in so many polls.
fn fill(world: &mut World, polls: u64) {
    for _ in 0..polls {
        if !world.stores[0].is_full() {
            for _ in 0..8 {
                let number = world.stores[0].ticket().0;
                let place = Place::Cell(Database(0), Key::new(&number.to_le_bytes()));
                world.stores[0].put(&place, &[7; 200]);
                world.stores[0].submit();
            }
        }
        world.poll();
    }
}

/// A store of two buckets, whose hand has few places to go, is emptied before anybody has to rest.
#[test]
fn a_store_of_few_buckets_takes_more_than_its_ring_without_a_rest() {
    // A store that nobody asks anything of rests after as many polls.
    const POLLS_MAX: u32 = 60;
    let mut world = World::create(SimDisk::new(1, 0), 1, &small_config());
    for number in 0..2_000_u64 {
        let mut polls = 0;
        while world.stores[0].is_full() {
            polls += 1;
            assert!(polls < POLLS_MAX, "full at record {number}, and nobody empties it");
            world.poll();
        }
        let place = Place::Cell(Database(0), Key::new(&(number % 8).to_le_bytes()));
        world.stores[0].put(&place, &[number as u8; 200]);
        world.stores[0].submit();
    }
}
