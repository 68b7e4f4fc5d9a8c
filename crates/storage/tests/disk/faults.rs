//! Every single request to the device fails once, while a store runs and while it opens.
//! Acknowledged records are there when it opens again, whether power was lost or not.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Model, brief, place, record};
use crate::rot;
use crate::support::{BINDING, Fault, SimDisk, World, seeds};
use base::Prng;
use storage::disk::{Config, File, LocalGuard, OpenError, verify};
use storage::{Completion, Load, Place, Store};
use types::{Database, Shard, Ticket};

const WORKERS: usize = 2;
const STEPS: u64 = 160;

type Change = (Place, Option<Vec<u8>>);

/// A store, and its completions.
struct Run {
    prng: Prng,
    config: Config,
    world: World,
    /// The certain records, and those behind them by ticket.
    base: Model,
    batches: Vec<Vec<(Ticket, Vec<Change>)>>,
    stored: Vec<Ticket>,
    has_failed: [bool; WORKERS],
    asked: BTreeMap<Place, usize>,
    keys: u64,
    removals: f64,
    in_batch: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut prng = Prng::new(seed);
        let delay = *prng.pick(&[0, 1, 3, 12]);
        let config = Config {
            ring_bytes: *prng.pick(&[64 << 10, 64 << 10, 256 << 10]),
            spare_pages: *prng.pick(&[32, 32, 64]),
            initial_level: *prng.pick(&[1, 2, 3]) as u32,
            cache_bytes: *prng.pick(&[0, 16 << 10, 64 << 10]),
            fill_percent: *prng.pick(&[20, 60, 90]),
            first_fit: seed % 2 == 1,
        };
        let world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
        Run {
            keys: *prng.pick(&[20, 100, 400]),
            in_batch: if config.ring_bytes > 128 << 10 { 30 } else { 3 },
            prng,
            config,
            world,
            base: Model::new(),
            batches: vec![Vec::new(); WORKERS],
            stored: vec![Ticket::DURABLE; WORKERS],
            has_failed: [false; WORKERS],
            asked: BTreeMap::new(),
            removals: 0.2,
        }
    }

    fn change(&mut self) {
        let mut changes: Vec<Vec<Change>> = vec![Vec::new(); WORKERS];
        if self.prng.chance(0.05) {
            self.removals = *self.prng.pick(&[0.0, 0.2, 0.9]);
        }
        for _ in 0..self.prng.between(1, self.in_batch) {
            let place = place(&mut self.prng, self.keys, true);
            let owner = self.world.owner(&place);
            if self.prng.chance(self.removals) {
                self.world.stores[owner].remove(&place);
                changes[owner].push((place, None));
            } else {
                let record = record(&mut self.prng);
                self.world.stores[owner].put(&place, &record);
                changes[owner].push((place, Some(record)));
            }
        }
        for (worker, changes) in changes.into_iter().enumerate() {
            let ticket = self.world.stores[worker].ticket();
            self.world.stores[worker].submit();
            if !changes.is_empty() {
                assert!(self.world.stores[worker].ticket() != ticket);
                self.batches[worker].push((ticket, changes));
            }
        }
    }

    fn ask(&mut self) {
        let place = place(&mut self.prng, self.keys, true);
        if self.asked.contains_key(&place) {
            return;
        }
        let owner = self.world.owner(&place);
        let from = self.batches[owner].len();
        match self.world.stores[owner].load(&place) {
            Load::Pending => drop(self.asked.insert(place, from)),
            load => self.judge(&place, &load, from),
        }
    }

    /// A loaded record was the newest at some time since the request.
    fn judge(&self, place: &Place, load: &Load, from: usize) {
        let mut value = self.base.get(place).cloned();
        let mut is_one = false;
        let owner = self.world.owner(place);
        let fits = |value: &Option<Vec<u8>>| match (load, value) {
            (Load::Found(found), Some(value)) => found[..] == value[..],
            (Load::Absent, None) => true,
            _ => false,
        };
        for (at, (_, changes)) in self.batches[owner].iter().enumerate() {
            if at == from {
                is_one |= fits(&value);
            }
            for (_, change) in changes.iter().filter(|(of, _)| of == place) {
                value.clone_from(change);
                is_one |= at >= from && fits(&value);
            }
        }
        if from == self.batches[owner].len() {
            is_one |= fits(&value);
        }
        assert!(is_one, "{place:?}: {} is not what was put", brief(load));
    }

    fn hear(&mut self) {
        for worker in 0..WORKERS {
            for completion in std::mem::take(&mut self.world.heard[worker]) {
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
                    Completion::Loaded { place, load } => {
                        let from = self.asked.remove(&place).expect("it was asked for");
                        self.judge(&place, &load, from);
                    }
                    Completion::Warning(_) | Completion::Scanned { .. } => {}
                }
            }
        }
    }

    fn step(&mut self) {
        match self.prng.below(100) {
            0..60 => {
                if !self.world.stores[0].is_full() {
                    self.change();
                }
                self.world.poll();
            }
            60..70 => self.ask(),
            70..73 => self.world.guard.rest(),
            73 => self.world.settle(),
            74..77 if self.world.scrubs == 0 => {
                let bytes = self.prng.between(1, 200_000);
                self.world.ask_scrub(bytes);
            }
            77 => {
                let shard = Shard(self.prng.below(128) as u8 * 2);
                self.world.stores[0].scan(9, Database(0), shard.first_hash(), 20);
            }
            _ => self.world.poll(),
        }
        let is_scrubbed = |it: &Completion| matches!(it, Completion::Scrubbed(_));
        if self.world.heard[0].iter().any(is_scrubbed) {
            self.world.scrubs = 0;
        }
        self.hear();
    }

    /// The store opens on this. It holds all acknowledged records, and all of a worker's batches up
    /// to some later one.
    fn open(&mut self, disk: SimDisk, what: &str) {
        self.world = World::open(disk, WORKERS, &self.config);
        (self.has_failed, self.asked) = ([false; WORKERS], BTreeMap::new());
        for worker in 0..WORKERS {
            let mut model = self.base.clone();
            model.retain(|place, _| self.world.owner(place) == worker);
            let batches = std::mem::take(&mut self.batches[worker]);
            let stored = std::mem::replace(&mut self.stored[worker], Ticket::DURABLE);
            let mut places: BTreeSet<Place> = model.keys().cloned().collect();
            places.extend(batches.iter().flat_map(|(_, it)| it.iter().map(|it| it.0.clone())));
            let mut found = Model::new();
            for place in places {
                match self.world.load(&place) {
                    Load::Found(record) => drop(found.insert(place, record.to_vec())),
                    Load::Absent => {}
                    load => panic!("{what}: {place:?} is {}", brief(&load)),
                }
            }
            let mut is_one = false;
            for at in 0..=batches.len() {
                let ticket = if at == 0 { Ticket::DURABLE } else { batches[at - 1].0 };
                is_one |= ticket >= stored && model == found;
                if let Some((_, changes)) = batches.get(at) {
                    for (place, change) in changes {
                        match change {
                            Some(record) => drop(model.insert(place.clone(), record.clone())),
                            None => drop(model.remove(place)),
                        }
                    }
                }
            }
            assert!(is_one, "{what}: worker {worker} has a state that is none or older");
            self.base.retain(|place, _| self.world.owner(place) != worker);
            self.base.extend(found);
        }
        self.world.heard.iter_mut().for_each(|heard| {
            heard.retain(|it| !matches!(it, Completion::Loaded { .. } | Completion::Stored(_)));
        });
        self.hear();
    }

    /// Entries come home as they are, and no space is lost.
    fn end(&mut self, what: &str) {
        self.world.settle();
        self.hear();
        assert!(!self.has_failed[0], "{what}: failed again");
        let report = verify(&mut self.world.disk.copy(), &mut |_| ());
        let report = report.expect("there is a store");
        assert!(report.is_good(), "{what}: {}", report.bad[0]);
        assert_eq!(report.leaked_units, 0, "{what}");
        let disk = self.world.disk.copy();
        self.open(disk, what);
    }
}

/// The contents after a failure, with power lost or not.
fn left(disk: &SimDisk, prng: &mut Prng) -> SimDisk {
    let seed = prng.next_u64();
    if prng.chance(0.5) { disk.crashed(seed) } else { disk.restarted(seed) }
}

/// Opens with one failure; returns its remains if it came to it.
fn fail_to_open(
    disk: &SimDisk,
    config: &Config,
    fault: Fault,
    after: u64,
    prng: &mut Prng,
) -> Option<SimDisk> {
    disk.fail_once(fault, after);
    let opened = LocalGuard::open(disk.clone(), BINDING, WORKERS, config);
    if !disk.has_failed() {
        return None;
    }
    match opened {
        Err(OpenError::Io(reason)) => assert_eq!(reason, "the disk says no"),
        Err(other) => panic!("{other}"),
        // It was read again, or a twin of it.
        Ok(_) if fault == Fault::Read => {}
        Ok(_) => panic!("it opened though {fault:?} {after} failed"),
    }
    Some(left(disk, prng))
}

/// True if the run had such a request.
fn run(seed: u64, fault: Fault, after: u64) -> bool {
    let what = format!("seed {seed}, {fault:?} {after}");
    let mut run = Run::new(seed);
    let disk = run.world.disk.clone();
    disk.fail_once(fault, after);
    for _ in 0..STEPS {
        run.step();
        if run.has_failed[0] {
            break;
        }
    }
    disk.fail_no_more();
    (0..20).for_each(|_| run.world.poll());
    run.hear();
    // A store goes on without a discard, and without a scrub's reads of superblocks and maps.
    let may_go_on = matches!(fault, Fault::Discard | Fault::Verify);
    assert!(run.has_failed[0] || !disk.has_failed() || may_go_on, "{what}");
    assert_eq!(run.has_failed[0], run.has_failed[1], "{what}");
    let mut prng = Prng::new(seed ^ after << 20);
    let mut disk_left = left(&disk, &mut prng);
    let report = verify(&mut disk_left.copy(), &mut |_| ()).expect("a store");
    assert!(report.is_good(), "{what}: {}", report.bad[0]);
    assert_eq!(report.leaked_units, 0, "{what}");
    // And it fails again while it opens, at any step.
    if after.is_multiple_of(5) {
        for fault in [Fault::Read, Fault::Write, Fault::Flush] {
            let mut step = 0;
            while let Some(next) =
                fail_to_open(&disk_left.copy(), &run.config, fault, step, &mut prng)
            {
                if prng.chance(0.3) {
                    disk_left = next;
                }
                step += 1;
            }
        }
    }
    run.open(disk_left, &what);
    if prng.chance(0.5) {
        let fault = *prng.pick(&Fault::ALL);
        run.world.disk.fail_once(fault, prng.below(40));
    }
    for _ in 0..40 {
        run.step();
    }
    if run.has_failed[0] {
        let next = left(&run.world.disk, &mut prng);
        run.open(next, &what);
    }
    let next = left(&run.world.disk, &mut prng);
    run.open(next, &what);
    run.end(&what);
    disk.has_failed()
}

#[test]
fn any_request_that_fails_once_costs_nothing() {
    for seed in seeds(30) {
        let fault = Fault::ALL[seed as usize % Fault::ALL.len()];
        for after in (seed / 6..).step_by(29) {
            println!("seed {seed}, {fault:?} {after}");
            if !run(seed, fault, after) {
                break;
            }
        }
    }
}

/// A store that was damaged opens at last, after one failure at each step of that, and with another
/// one behind it.
fn open_damaged(seed: u64) -> usize {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let delay = *prng.pick(&[0, 2, 9]);
    let config = Config {
        first_fit: seed % 2 == 1,
        ring_bytes: *prng.pick(&[64 << 10, 256 << 10]),
        ..rot::config()
    };
    let mut world = World::create(SimDisk::new(seed, delay), WORKERS, &config);
    let mut model = rot::Model::new();
    let mut failures = 0;
    for life in 0..3 {
        let changes = *prng.pick(&[1, 5, 60, 500]);
        rot::change(&mut world, &mut prng, &mut model, changes);
        if prng.chance(0.4) {
            world.settle();
        }
        let mut disk = left(&world.disk, &mut prng);
        let mut what = format!("seed {seed} life {life}");
        for _ in 0..prng.between(1, 3) {
            what = format!("{what}, {}", rot::damage(&disk, &mut prng));
        }
        if prng.chance(0.3) {
            let at = prng.below(disk.file_len(File::Ring) as u64 - 2048) as usize;
            disk.rot(File::Ring, |bytes| bytes[at..at + 2048].fill(0x55));
            what = format!("{what}, ring at {at}");
        }
        if LocalGuard::open(disk.copy(), BINDING, WORKERS, &config).is_err() {
            // Both superblocks.
            return failures;
        }
        let kinds = [Fault::Read, Fault::Write, Fault::Flush];
        for fault in kinds {
            let mut k = 0;
            while let Some(next) = fail_to_open(&disk.copy(), &config, fault, k, &mut prng) {
                failures += 1;
                let here = format!("{what}, {fault:?} {k}");
                // Once more, elsewhere.
                let other = *prng.pick(&kinds);
                let again = fail_to_open(&next.copy(), &config, other, prng.below(6), &mut prng);
                let next = again.unwrap_or(next);
                if prng.chance(0.1) {
                    disk = next.copy();
                }
                let mut world = World::open(next, WORKERS, &config);
                rot::check(&mut world, &model, &here);
                let mut model = model.clone();
                if prng.chance(0.3) {
                    rot::change(&mut world, &mut prng, &mut model, 20);
                }
                if prng.chance(0.5) {
                    world.settle();
                }
                let next = left(&world.disk, &mut prng);
                let mut world = World::open(next, WORKERS, &config);
                rot::check(&mut world, &model, &format!("{here}, again"));
                k += 1;
            }
        }
        world = World::open(disk, WORKERS, &config);
        rot::check(&mut world, &model, &what);
        if prng.chance(0.5) {
            rot::recover(&mut world, &model);
        }
    }
    rot::recover(&mut world, &model);
    world.settle();
    // Damage in front of the ring's head may be taken for a ring batch.
    world = World::open(world.disk.copy(), WORKERS, &config);
    rot::check(&mut world, &model, "at the end");
    failures
}

#[test]
fn a_damaged_store_opens_whatever_fails_while_it_does() {
    let failures: usize = seeds(30).map(open_damaged).sum();
    assert!(failures > 0);
}
