//! Writers that ignore a full store: all their changes are stored as long as the device answers,
//! though the store never rests.

use base::Prng;
use storage::disk::{Config, LocalGuard, OpenError};
use storage::{Completion, Place, Share, Store};
use types::{Database, Key, Shard};

use crate::support::{BINDING, SimDisk, World, seeds};

/// Drives in a row without a ticket.
const DRIVES_MAX: u64 = 6_000;
const LIVES: u64 = 6;

struct Writer {
    prng: Prng,
    world: World,
    keys: Vec<Key>,
    len: usize,
    /// The part of records that are long.
    large: f64,
    /// Newest tickets, by worker.
    stored: Vec<u64>,
    wanted: Vec<u64>,
    is_scrubbing: bool,
}

fn draw_config(prng: &mut Prng) -> Config {
    Config {
        ring_bytes: *prng.pick(&[64 << 10, 64 << 10, 96 << 10, 128 << 10, 256 << 10]),
        spare_pages: *prng.pick(&[32, 32, 64, 128]),
        initial_level: prng.between(1, 7) as u32,
        cache_bytes: *prng.pick(&[0, 64 << 10, 1 << 20]),
        fill_percent: *prng.pick(&[20, 60, 90]),
        first_fit: true,
    }
}

impl Writer {
    fn new(mut prng: Prng, delay: u64, config: &Config) -> Writer {
        let count = *prng.pick(&[1, 2, 3, 30, 300, 3_000_u64]);
        let workers = prng.between(1, 2) as usize;
        Writer {
            keys: (0..count).map(|number| Key::new(&number.to_le_bytes())).collect(),
            len: prng.between(1, 950) as usize,
            large: *prng.pick(&[0.0, 0.0, 0.02, 0.2]),
            world: World::create(SimDisk::new(prng.next_u64(), delay), workers, config),
            stored: vec![0; workers],
            wanted: vec![0; workers],
            is_scrubbing: false,
            prng,
        }
    }

    fn change(&mut self, key: usize) {
        let place = match self.prng.chance(0.02) {
            true => Place::Meta(Database(0), Shard(self.prng.below(8) as u8)),
            false => Place::Cell(Database(self.prng.below(2) as u8), self.keys[key].clone()),
        };
        let is_large = self.prng.chance(self.large);
        let len = if is_large { self.prng.between(1_100, 40_000) as usize } else { self.len };
        let owner = self.world.owner(&place);
        if self.prng.chance(0.1) {
            self.world.stores[owner].remove(&place);
        } else {
            self.world.stores[owner].put(&place, &vec![len as u8; len]);
        }
    }

    fn submit(&mut self) {
        for (store, wanted) in self.world.stores.iter_mut().zip(&mut self.wanted) {
            store.submit();
            *wanted = store.ticket().0 - 1;
        }
    }

    /// Changes some registers in one batch or several, and asks for this and that.
    fn burst(&mut self) {
        let count = *self.prng.pick(&[1, 1, 4, 20, 100]);
        let each = *self.prng.pick(&[1, 4, 30]);
        let is_hot = self.prng.chance(0.3);
        for number in 0..count {
            let key = if is_hot { 0 } else { self.prng.below(self.keys.len() as u64) as usize };
            self.change(key);
            if number % each == 0 || number + 1 == count {
                self.submit();
            }
        }
        if self.prng.chance(0.1) && !self.is_scrubbing {
            let share = Share { worker: 0, workers: self.world.stores.len() };
            self.world.stores[0].scrub(share, 64 << 10);
            self.is_scrubbing = true;
        }
        if self.prng.chance(0.1) {
            let place = Place::Cell(Database(0), self.prng.pick(&self.keys).clone());
            let owner = self.world.owner(&place);
            let _ = self.world.stores[owner].load(&place);
        }
        if self.prng.chance(0.05) {
            self.world.guard.rest();
        }
        self.hear();
    }

    /// Takes completions, without moving the store on; true if there are tickets among them.
    fn hear(&mut self) -> bool {
        let before = self.stored.clone();
        for (worker, stored) in self.stored.iter_mut().enumerate() {
            if self.world.guard.has_completions(worker) {
                self.world.stores[worker].poll(&mut self.world.heard[worker]);
            }
            for completion in self.world.heard[worker].drain(..) {
                match completion {
                    Completion::Stored(ticket) => *stored = ticket.0,
                    Completion::Scrubbed(_) => self.is_scrubbing = false,
                    Completion::Failed(reason) => panic!("failed: {reason}"),
                    _ => {}
                }
            }
        }
        before != self.stored
    }

    /// Moves the store on, and does no more, until all is stored.
    fn await_stored(&mut self) {
        let mut drives = 0;
        while self.stored != self.wanted {
            let is_asleep = self.world.guard.is_still() && self.world.guard.is_committing();
            assert!(!is_asleep, "nothing is under way, and {:?} is not stored", self.wanted);
            assert!(drives < DRIVES_MAX, "{:?} is not stored", self.wanted);
            self.world.guard.drive();
            drives = if self.hear() { 0 } else { drives + 1 };
        }
    }

    /// The records after a loss of power, or a stop, and maybe some damage. `None` if no store can
    /// be opened.
    fn start_again(mut self, config: &Config, rots: bool) -> Option<Writer> {
        let workers = self.world.stores.len();
        let disk = match self.prng.chance(0.8) {
            true => self.world.disk.crashed(self.prng.next_u64()),
            false => {
                self.world.settle();
                self.world.disk.copy()
            }
        };
        if rots {
            let damages = self.prng.between(0, 3);
            (0..damages).for_each(|_| drop(crate::rot::damage(&disk, &mut self.prng)));
            if let Err(error) = LocalGuard::open(disk.copy(), BINDING, workers, config) {
                assert_eq!(error, OpenError::Damaged);
                return None;
            }
        }
        let world = World::open(disk, workers, config);
        let none = vec![0; workers];
        Some(Writer { world, stored: none.clone(), wanted: none, is_scrubbing: false, ..self })
    }
}

fn run(seed: u64, rots: bool) {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let config = draw_config(&mut prng);
    let delay = *prng.pick(&[0, 0, 1, 4, 20, 60]);
    let mut writer = Writer::new(prng, delay, &config);
    for _ in 0..LIVES {
        for _ in 0..writer.prng.between(1, 60) {
            writer.burst();
            if writer.prng.chance(0.7) {
                writer.await_stored();
            }
        }
        let Some(again) = writer.start_again(&config, rots) else { return };
        writer = again;
    }
}

#[test]
fn what_is_submitted_is_stored_without_a_rest() {
    seeds(60).for_each(|seed| run(seed, false));
}

#[test]
fn what_is_submitted_is_stored_where_pages_rot() {
    seeds(30).for_each(|seed| run(seed, true));
}
