//! Lives in which memory rots and power is lost: every record is there or known to be lost.

use std::collections::{BTreeMap, BTreeSet};

use base::Prng;
use storage::pmem::layout::Geometry;
use storage::pmem::memory::Memory;
use storage::pmem::modelled::{Modelled, Moment, Persistent};
use storage::pmem::{Pmem, PmemError, PmemStore};
use storage::{Completion, Load, Place, Share, Store};
use types::{Database, Key, Shard};

use crate::support::{BINDING, format_with};

const GEOMETRY: Geometry = Geometry { workers: 3, databases: 2, segment_len: 256 << 10 };

type Model = BTreeMap<Place, Vec<u8>>;
type ShardOf = (Database, Shard);

fn shard_of(place: &Place) -> ShardOf {
    match place {
        Place::Cell(database, key) => (*database, key.shard()),
        Place::Meta(database, shard) => (*database, *shard),
    }
}

struct Life {
    prng: Prng,
    memory: Modelled,
    stores: Vec<PmemStore<Modelled>>,
    places: Vec<Place>,
    model: Model,
    /// Found forgotten, and not recovered yet.
    forgotten: BTreeSet<ShardOf>,
    lost: u64,
    /// One of the superblocks was damaged since the last opening.
    has_bad_superblock: bool,
}

impl Life {
    fn new(seed: u64, keys: usize) -> Life {
        let (memory, pmem) = format_with(GEOMETRY, 256 << 20);
        let stores = (0..2).map(|worker| pmem.store(worker)).collect();
        let mut places = Vec::new();
        for (database, shard) in [(0, 3), (0, 4), (1, 3)] {
            let (database, shard) = (Database(database), Shard(shard));
            places.push(Place::Meta(database, shard));
            let all = (0_u64..).map(|n| Key::new(&n.to_le_bytes()));
            let of = all.filter(|key| key.shard() == shard).take(keys);
            places.extend(of.map(|key| Place::Cell(database, key)));
        }
        Life {
            prng: Prng::new(seed),
            memory,
            stores,
            places,
            model: Model::new(),
            forgotten: BTreeSet::new(),
            lost: 0,
            has_bad_superblock: false,
        }
    }

    fn store_of(&mut self, (_, shard): ShardOf) -> &mut PmemStore<Modelled> {
        let worker = usize::from(shard.0) % self.stores.len();
        &mut self.stores[worker]
    }

    fn turn(&mut self, most: u64) {
        for _ in 0..self.prng.between(1, most) {
            let place = self.prng.pick(&self.places).clone();
            if self.prng.chance(0.3) {
                self.store_of(shard_of(&place)).remove(&place);
                self.model.remove(&place);
            } else {
                let mut record = self.prng.next_u64().to_le_bytes().to_vec();
                let longest = 1 << self.prng.between(1, 12);
                record.resize(self.prng.below(longest) as usize, 7);
                self.store_of(shard_of(&place)).put(&place, &record);
                self.model.insert(place, record);
            }
        }
        self.stores.iter_mut().for_each(Store::submit);
        self.hear();
    }

    fn scrub(&mut self) {
        let workers = self.stores.len();
        for worker in 0..workers {
            self.stores[worker].scrub(Share { worker, workers }, 1 << 20);
        }
        self.hear();
    }

    fn hear(&mut self) {
        let mut said = Vec::new();
        self.stores.iter_mut().for_each(|store| store.poll(&mut said));
        for completion in said {
            match completion {
                Completion::Forgotten { database, shard } => {
                    self.forgotten.insert((database, shard));
                }
                Completion::Failed(text) => panic!("{text}"),
                _ => {}
            }
        }
    }

    /// Damages bytes: a single one always shows, and so do zeros and a line of another place.
    fn rot(&mut self) {
        let memory = self.memory.clone();
        let is_used = |at: &u64| memory.load(*at) != 0;
        let used: Vec<u64> = (0..memory.len()).step_by(8).filter(is_used).collect();
        let word = match self.prng.below(5) {
            // Intents and the words before them.
            0 => {
                let front: Vec<u64> = used.iter().copied().filter(|at| *at < 6 * 4096).collect();
                *self.prng.pick(&front)
            }
            1 => {
                let database = self.prng.below(2) as u8;
                let shard = *self.prng.pick(&[3, 4]);
                let id = storage::pmem::layout::ShardId {
                    database: Database(database),
                    shard: Shard(shard),
                };
                GEOMETRY.root_at(id) + 8 * self.prng.below(64)
            }
            2 => {
                let leaf: Vec<u64> = used.iter().copied().filter(|at| *at % 4096 == 0).collect();
                *self.prng.pick(&leaf)
            }
            _ => *self.prng.pick(&used),
        };
        let superblock = word < 8192;
        if superblock && self.has_bad_superblock {
            return;
        }
        self.has_bad_superblock |= superblock;
        let (at, len) = match self.prng.below(6) {
            0 => (word, 8),
            1 => (word / 64 * 64, 64),
            2 if !superblock => (word / 4096 * 4096, 4096),
            _ => {
                let (byte, mask) = (self.prng.below(8), self.prng.between(1, 255) as u8);
                return memory.flip(word + byte, mask);
            }
        };
        (at..at + len).for_each(|at| memory.damage(at, |_| 0));
    }

    fn reopen(&mut self, memory: Modelled) {
        self.stores.clear();
        let opened = Pmem::from_memory(memory.clone(), BINDING, "modelled".as_ref());
        let pmem = match opened {
            Ok(pmem) => pmem,
            Err(PmemError::Damaged(_)) => panic!("one superblock is whole"),
            Err(other) => panic!("{other}"),
        };
        self.has_bad_superblock = false;
        let workers = self.prng.between(1, 3) as u32;
        self.stores = (0..workers).map(|worker| pmem.store(worker)).collect();
        self.memory = memory;
        for at in [(0, 3), (0, 4), (1, 3)] {
            let at = (Database(at.0), Shard(at.1));
            if self.store_of(at).is_forgotten(at.0, at.1) {
                self.forgotten.insert(at);
            }
        }
        self.hear();
    }

    fn left(&mut self, persistent: &Persistent) -> Modelled {
        match self.prng.chance(0.3) {
            true => persistent.killed(),
            false => persistent.crash(&mut self.prng),
        }
    }

    /// Ends in some way, and recovers, perhaps not at once, and perhaps with further damage.
    fn end(&mut self, persistent: &Persistent, rots: bool) -> Modelled {
        let mut image = self.left(persistent);
        while self.prng.chance(0.5) {
            if rots && self.prng.chance(0.3) {
                self.memory = image.clone();
                self.rot();
            }
            image.capture_at(Moment::Event(image.events() + self.prng.below(60)));
            drop(Pmem::from_memory(image.clone(), BINDING, "modelled".as_ref()));
            let Some(captured) = image.captured() else { break };
            image = self.left(&captured);
        }
        image.capture_at(Moment::Event(u64::MAX));
        image
    }

    fn look(&mut self, before: &Model) {
        let mut settled = Model::new();
        for place in self.places.clone() {
            let (old, new) = (before.get(&place), self.model.get(&place).cloned());
            let store = self.store_of(shard_of(&place));
            let mut loaded = store.load(&place);
            if loaded == Load::Pending {
                let mut said = Vec::new();
                store.poll(&mut said);
                assert!(said.iter().any(|it| matches!(it, Completion::Forgotten { .. })));
                for completion in said {
                    match completion {
                        Completion::Forgotten { database, shard } => {
                            self.forgotten.insert((database, shard));
                        }
                        Completion::Loaded { place: of, load } if of == place => loaded = load,
                        Completion::Failed(text) => panic!("{text}"),
                        _ => {}
                    }
                }
            }
            let record = match loaded {
                Load::Found(record) => Some(record.to_vec()),
                Load::Absent => None,
                Load::Lost => {
                    let (database, shard) = shard_of(&place);
                    assert!(self.store_of((database, shard)).is_forgotten(database, shard));
                    assert!(self.forgotten.contains(&(database, shard)), "{place:?} untold");
                    self.lost += 1;
                    settled.extend(new.map(|record| (place, record)));
                    continue;
                }
                Load::Pending => panic!("{place:?} is never loaded"),
            };
            assert!(
                record.as_ref() == old || record == new,
                "{place:?}: {record:?} is neither {old:?} nor {new:?}"
            );
            settled.extend(record.map(|record| (place, record)));
        }
        self.model = settled;
    }

    fn recover(&mut self) {
        for _ in 0..20 {
            let Some(&at) = self.forgotten.iter().next() else { return };
            self.forgotten.remove(&at);
            let of: Vec<Place> =
                self.places.iter().filter(|it| shard_of(it) == at).cloned().collect();
            for place in of {
                match self.model.get(&place).cloned() {
                    Some(record) => self.store_of(at).put(&place, &record),
                    None => self.store_of(at).remove(&place),
                }
            }
            self.store_of(at).submit();
            self.hear();
            if !self.forgotten.contains(&at) {
                self.store_of(at).set_forgotten(at.0, at.1, false);
                self.store_of(at).submit();
                self.hear();
            }
        }
    }
}

fn live(seed: u64, rounds: u64) -> u64 {
    let keys = [3, 20, 150, 400][(seed % 4) as usize];
    let mut life = Life::new(seed, keys);
    for _ in 0..rounds {
        let before = life.model.clone();
        if life.prng.chance(0.3) {
            life.rot();
        }
        let crashes = life.prng.chance(0.4);
        if crashes {
            let span = *life.prng.pick(&[5, 50, 300, 3_000]);
            let moment = match life.prng.chance(0.3) {
                true => Moment::Fence(life.memory.fences() + life.prng.below(8)),
                false => Moment::Event(life.memory.events() + life.prng.below(span)),
            };
            life.memory.capture_at(moment);
        }
        let kind = life.prng.below(8);
        match kind {
            0 => life.scrub(),
            1 => life.turn(if keys > 100 { 300 } else { 30 }),
            2 => life.look(&before.clone()),
            3 => life.recover(),
            _ => life.turn(6),
        }
        match life.memory.captured().filter(|_| crashes) {
            Some(captured) => {
                let rots = life.prng.chance(0.5);
                let image = life.end(&captured, rots);
                life.reopen(image);
                life.look(&before);
            }
            None => {
                life.memory.capture_at(Moment::Event(u64::MAX));
                if life.prng.chance(0.1) {
                    let image = life.memory.stopped();
                    life.reopen(image);
                    life.look(&life.model.clone());
                }
            }
        }
        if life.prng.chance(0.5) {
            life.recover();
        }
    }
    life.lost
}

#[test]
fn what_rots_is_known_to_be_lost_whatever_ends_a_life() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (from, seeds) = (number("PMEM_FROM").unwrap_or(0), number("PMEM_SEEDS").unwrap_or(8));
    let mut lost = 0;
    for seed in from..from + seeds {
        println!("seed {seed}");
        lost += live(seed, 60);
    }
    assert!(lost > 10 * seeds, "{lost} times a record was lost");
}
