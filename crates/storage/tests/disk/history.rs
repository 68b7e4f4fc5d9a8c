//! The life of a store beside a plain map: random changes, delays, losses of power at any moment,
//! failed flushes, restarts.

use std::collections::BTreeMap;

use crate::support::{SimDisk, World, small_config};
use base::Prng;
use storage::disk::Config;
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard, Ticket};

pub type Model = BTreeMap<Place, Vec<u8>>;

/// The events in the life of a store.
#[derive(Clone, Copy)]
pub enum Life {
    /// A bit of everything.
    Mixed,
    /// The next write-back is nearly always built while one is written: many buckets, a small
    /// double-write buffer, a slow medium, and hardly any rest. The states after a loss of power
    /// are looked at at many moments.
    Busy,
    /// Most records come and most of them go again: buckets become more and fewer.
    Tidal,
}

impl Life {
    fn draw(self, prng: &mut Prng) -> (u64, Config) {
        match self {
            Life::Mixed => {
                let delay = *prng.pick(&[0, 1, 3, 12]);
                let ring_bytes = *prng.pick(&[64 << 10, 256 << 10]);
                (delay, Config { ring_bytes, ..small_config() })
            }
            Life::Busy => {
                let delay = *prng.pick(&[2, 6, 12, 40, 120]);
                let config = Config {
                    ring_bytes: *prng.pick(&[64 << 10, 64 << 10, 128 << 10, 256 << 10]),
                    spare_pages: *prng.pick(&[32, 32, 40, 64, 128]),
                    initial_level: *prng.pick(&[1, 2, 3, 4, 5, 6]) as u32,
                    cache_bytes: *prng.pick(&[0, 16 << 10, 64 << 10, 1 << 20]),
                    fill_percent: *prng.pick(&[20, 60, 60, 90]),
                    first_fit: false,
                };
                (delay, config)
            }
            Life::Tidal => {
                let delay = *prng.pick(&[0, 2, 12, 40]);
                let config = Config {
                    ring_bytes: 256 << 10,
                    spare_pages: *prng.pick(&[32, 64, 128]),
                    initial_level: *prng.pick(&[1, 1, 2, 4]) as u32,
                    cache_bytes: *prng.pick(&[0, 64 << 10]),
                    fill_percent: *prng.pick(&[20, 60, 90]),
                    first_fit: false,
                };
                (delay, config)
            }
        }
    }

    fn keys(self) -> &'static [u64] {
        match self {
            Life::Mixed => &[5, 60, 400, 2_000],
            Life::Busy => &[5, 60, 200, 400, 1_000],
            Life::Tidal => &[300, 1_000, 2_000],
        }
    }

    /// The kinds of a step, in thousandths; the rest are polls.
    fn odds(self) -> [(Step, u64); 9] {
        use Step::{Change, Crash, Fail, List, Load, Look, Rest, Scrub, Settle};
        let of = match self {
            Life::Mixed => [700, 100, 10, 10, 10, 2, 0, 0, 10],
            Life::Busy => [700, 40, 3, 7, 2, 1, 20, 1, 5],
            Life::Tidal => [600, 40, 60, 7, 20, 3, 20, 1, 10],
        };
        let steps = [Change, Load, Rest, Scrub, Settle, List, Look, Fail, Crash];
        std::array::from_fn(|at| (steps[at], of[at]))
    }
}

#[derive(Clone, Copy)]
enum Step {
    Change,
    Load,
    Rest,
    Scrub,
    Settle,
    List,
    Look,
    Fail,
    Crash,
}

struct Run {
    life: Life,
    prng: Prng,
    world: World,
    /// The state after each batch of each worker, by ticket: a crash may leave any state from the
    /// last acknowledged one on.
    states: Vec<Vec<(Ticket, Model)>>,
    stored: Vec<Ticket>,
    keys: u64,
    long_keys: bool,
    /// A batch that fills more than a ring batch would not be atomic.
    is_small: bool,
    /// Changes of other nodes have to be taken also while the store is full.
    heeds_full: bool,
    config: Config,
    has_failed: [bool; WORKERS],
    /// How often a change removes something.
    removals: f64,
}

pub const WORKERS: usize = 2;

pub fn place(prng: &mut Prng, keys: u64, long: bool) -> Place {
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

pub fn record(prng: &mut Prng) -> Vec<u8> {
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
    fn new(seed: u64, life: Life) -> Run {
        let mut prng = Prng::new(seed);
        let (delay, config) = life.draw(&mut prng);
        let config = Config { first_fit: seed % 2 == 1, ..config };
        let world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
        world.disk.read_early(seed.is_multiple_of(3));
        let keys = *prng.pick(life.keys());
        let states = vec![vec![(Ticket::DURABLE, Model::new())]; WORKERS];
        let long_keys = prng.chance(0.3);
        let heeds_full = prng.chance(0.6);
        Run {
            life,
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
            removals: 0.2,
        }
    }

    fn change(&mut self) {
        let mut models: Vec<Model> =
            self.states.iter().map(|states| states.last().expect("one").1.clone()).collect();
        let largest = *self.prng.pick(if self.is_small { &[1, 3, 3] } else { &[1, 3, 30] });
        let largest = if matches!(self.life, Life::Tidal) { 60 } else { largest };
        if matches!(self.life, Life::Tidal) && self.prng.chance(0.03) {
            self.removals = *self.prng.pick(&[0.0, 0.1, 0.9, 1.0]);
        }
        for _ in 0..self.prng.between(1, largest) {
            let place = place(&mut self.prng, self.keys, self.long_keys);
            let owner = self.world.owner(&place);
            if self.prng.chance(self.removals) {
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
                    // A loss of power may have torn a superblock.
                    Completion::Warning(_)
                    | Completion::Loaded { .. }
                    | Completion::Scanned { .. } => {}
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

    /// Looks at the state after a loss of power now, and goes on.
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
        // And write-backs from there do no harm.
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
        // States that a crash can no longer leave.
        for (states, stored) in self.states.iter_mut().zip(&self.stored) {
            let from = states.partition_point(|(ticket, _)| ticket < stored);
            let from = from.min(states.len() - 1);
            states.drain(..from);
        }
        let mut drawn = self.prng.below(1_000);
        let step = self.life.odds().into_iter().find_map(|(step, odds)| {
            let is_this = drawn < odds;
            drawn = drawn.saturating_sub(odds);
            is_this.then_some(step)
        });
        match step {
            None => self.world.poll(),
            Some(Step::Change) => {
                if !self.heeds_full || !self.world.stores[0].is_full() {
                    self.change();
                }
                self.world.poll();
            }
            Some(Step::Load) => {
                let place = place(&mut self.prng, self.keys, self.long_keys);
                self.check_load(&place);
            }
            Some(Step::Rest) => self.world.guard.rest(),
            Some(Step::Scrub) => self.scrub(),
            Some(Step::Settle) => self.world.settle(),
            Some(Step::List) => self.check_listing(),
            Some(Step::Look) => self.look(),
            Some(Step::Fail) => self.fail(),
            Some(Step::Crash) => self.crash(),
        }
        self.hear();
    }
}

pub fn brief(load: &Load) -> String {
    match load {
        Load::Found(record) => format!("{} bytes of {:?}", record.len(), record.first()),
        other => format!("{other:?}"),
    }
}

pub fn run(seed: u64, steps: u64, life: Life) {
    println!("seed {seed}");
    let mut run = Run::new(seed, life);
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
