//! Lives of a store that is killed, or loses power, with much in its ring, beside a model of each
//! place's history.

use std::collections::BTreeMap;

use base::Prng;
use storage::disk::{Config, File};
use storage::{Completion, Load, Place, Store};
use types::{Database, Key, Shard, Ticket};

use crate::support::{SECTOR, SimDisk, Withheld, World, seeds, small_config};

/// The number of the record that a place holds, if it holds one.
type Value = Option<u64>;

/// Values that a place may have held since the last start, in order.
struct History {
    values: Vec<(Ticket, Value)>,
    /// So many of them the start may have found.
    found: usize,
    /// How many there were when the load that is under way was asked.
    asked: Option<usize>,
}

impl History {
    fn new() -> History {
        History { values: vec![(Ticket::DURABLE, None)], found: 1, asked: None }
    }

    /// Takes an answer that is not older than the place's value when the load was asked for.
    fn answer(&mut self, value: Value) -> bool {
        let asked = self.asked.take().expect("one load of a place at a time");
        let first = if asked > self.found { asked - 1 } else { 0 };
        let is_it = |&(_, held): &(Ticket, Value)| held == value;
        let (found, later) = self.values.split_at(self.found.max(first));
        if later.iter().any(is_it) {
            return true;
        }
        let Some(&held) = found[first..].iter().find(|&held| is_it(held)) else { return false };
        // So the start found this one.
        self.values.splice(..self.found, [held]);
        self.found = 1;
        true
    }

    /// Power is lost: the acknowledged value is there, or a later one.
    fn crash(&mut self, stored: Ticket) {
        let is_stored = |&(ticket, _): &(Ticket, Value)| ticket <= stored;
        let newest = self.values.iter().rposition(is_stored).unwrap_or(0);
        let first = if newest < self.found { 0 } else { newest };
        self.values.drain(..first);
        self.values.iter_mut().for_each(|(ticket, _)| *ticket = Ticket::DURABLE);
        (self.found, self.asked) = (self.values.len(), None);
    }
}

struct Lives {
    prng: Prng,
    config: Config,
    workers: usize,
    world: World,
    places: Vec<Place>,
    histories: BTreeMap<Place, History>,
    stored: Vec<Ticket>,
    last: u64,
    has_rot: bool,
}

fn record(number: u64) -> Vec<u8> {
    let len = [8, 100, 300, 900, 5_000, 20_000][number as usize % 23 % 6];
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn place(number: u64) -> Place {
    let database = Database((number % 2) as u8);
    match number % 10 {
        0 => Place::Meta(database, Shard((number / 10 % 256) as u8)),
        1 => Place::Cell(database, Key::new(format!("{number:.>600}").as_bytes())),
        // One hash in two databases.
        _ => Place::Cell(database, Key::new(format!("{}", number / 2).as_bytes())),
    }
}

impl Lives {
    fn new(seed: u64) -> Lives {
        let mut prng = Prng::new(seed);
        let config = Config {
            ring_bytes: *prng.pick(&[128 << 10, 256 << 10, 1 << 20, (200 << 10) + 512]),
            spare_pages: *prng.pick(&[64, 128]),
            initial_level: prng.between(1, 6) as u32,
            first_fit: prng.chance(0.5),
            ..small_config()
        };
        let workers = prng.between(1, 2) as usize;
        let delay = *prng.pick(&[0, 1, 4, 20]);
        let world = World::create(SimDisk::new(seed, delay), workers, &config);
        let count = *prng.pick(&[20, 100, 600, 3_000]);
        let places: Vec<Place> = (0..count).map(place).collect();
        let histories = places.iter().map(|place| (place.clone(), History::new())).collect();
        Lives {
            prng,
            config,
            workers,
            world,
            places,
            histories,
            stored: vec![Ticket::DURABLE; workers],
            last: 0,
            has_rot: false,
        }
    }

    fn change(&mut self, most: u64) {
        for _ in 0..self.prng.between(1, most) {
            let place = self.prng.pick(&self.places).clone();
            let owner = self.world.owner(&place);
            let value = self.prng.chance(0.8).then_some(self.last);
            self.last += 1;
            match value {
                Some(number) => self.world.stores[owner].put(&place, &record(number)),
                None => self.world.stores[owner].remove(&place),
            }
            let ticket = self.world.stores[owner].ticket();
            self.history(&place).values.push((ticket, value));
        }
        self.world.stores.iter_mut().for_each(Store::submit);
    }

    fn history(&mut self, place: &Place) -> &mut History {
        self.histories.get_mut(place).expect("places do not change")
    }

    fn ask(&mut self, place: &Place) {
        let history = self.history(place);
        if history.asked.is_none() {
            history.asked = Some(history.values.len());
            let owner = self.world.owner(place);
            let load = self.world.stores[owner].load(place);
            if load != Load::Pending {
                self.answer(place, &load);
            }
        }
    }

    fn ask_some(&mut self, most: u64) {
        for _ in 0..self.prng.between(1, most) {
            let place = self.prng.pick(&self.places).clone();
            self.ask(&place);
        }
    }

    fn poll(&mut self) {
        self.world.poll();
        for worker in 0..self.workers {
            for heard in std::mem::take(&mut self.world.heard[worker]) {
                match heard {
                    Completion::Stored(ticket) => self.stored[worker] = ticket,
                    Completion::Loaded { place, load } => self.answer(&place, &load),
                    Completion::Warning(text) => assert!(text.contains("parity"), "{text}"),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn answer(&mut self, place: &Place, load: &Load) {
        let value = match load {
            Load::Absent => None,
            Load::Found(found) => {
                let number = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
                assert_eq!(found[..], record(number), "{place:?}");
                Some(number)
            }
            other => panic!("{place:?} is {other:?}"),
        };
        let history = self.history(place);
        assert!(history.answer(value), "{place:?} is {value:?}, not one of {:?}", history.values);
    }

    /// Waits for everything.
    fn settle(&mut self) {
        self.world.disk.release();
        for _ in 0..50_000 {
            self.poll();
            let is_asked = self.histories.values().any(|history| history.asked.is_some());
            if !is_asked && !self.world.guard.is_committing() {
                return;
            }
        }
        panic!("something is never answered");
    }

    fn check_all(&mut self) {
        for place in self.places.clone() {
            self.ask(&place);
        }
        self.settle();
    }

    /// No record goes home, so that the ring keeps many.
    fn fill(&mut self) {
        let most = *self.prng.pick(&[2, 10, 20]);
        self.world.disk.withhold(Withheld::Reads(File::Slots));
        for _ in 0..self.prng.between(5, 150) {
            if !self.world.stores[0].is_full() {
                self.change(most);
            }
            self.poll();
        }
        self.world.disk.release();
    }

    fn restart(&mut self) {
        let is_kill = self.prng.chance(0.25);
        let disk = match is_kill {
            true => self.world.disk.copy(),
            false => self.world.disk.crashed(self.prng.next_u64()),
        };
        for (place, history) in &mut self.histories {
            history.crash(self.stored[self.world.owner(place)]);
        }
        self.damage(&disk);
        self.stored.fill(Ticket::DURABLE);
        self.world = World::open(disk, self.workers, &self.config);
        if self.prng.chance(0.5) {
            // Loads are answered from the ring, or wait.
            self.world.disk.withhold(Withheld::Reads(File::Slots));
        }
    }

    /// Damage that costs no record: one sector of the ring in a store's time.
    fn damage(&mut self, disk: &SimDisk) {
        if !self.has_rot && self.prng.chance(0.2) {
            self.has_rot = true;
            let at = self.prng.below(disk.file_len(File::Ring) as u64) as usize / SECTOR;
            disk.rot(File::Ring, |ring| ring[at * SECTOR + 17] ^= 1);
        }
    }

    fn live(&mut self) {
        let steps = *self.prng.pick(&[1, 10, 40, 150]);
        let release = *self.prng.pick(&[0, 2, 20]);
        let polls = *self.prng.pick(&[1, 1, 5]);
        let most = *self.prng.pick(&[1, 4, 15]);
        if self.prng.chance(0.5) {
            self.ask_some(60);
        }
        for _ in 0..steps {
            match self.prng.below(100) {
                drawn if drawn < release => self.world.disk.release(),
                20..70 if !self.world.stores[0].is_full() => self.change(most),
                70..90 => self.ask_some(5),
                90..95 => {
                    // Asked for, changed while it is looked for, and asked for again.
                    self.ask_some(3);
                    self.poll();
                    self.change(3);
                    self.ask_some(3);
                }
                95 => self.world.guard.rest(),
                _ => {}
            }
            (0..polls).for_each(|_| self.poll());
        }
    }
}

#[test]
fn answers_after_a_start_are_durable() {
    for seed in seeds(30) {
        println!("seed {seed}");
        let mut lives = Lives::new(seed);
        for _ in 0..lives.prng.between(2, 10) {
            lives.fill();
            lives.restart();
            lives.live();
            if lives.prng.chance(0.2) {
                lives.check_all();
            }
        }
        lives.restart();
        lives.check_all();
    }
}
