//! Lives of two workers whose pages change hands, with kills, losses of power in turns, in scrubs and in recoveries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base::Prng;
use storage::pmem::PmemStore;
use storage::pmem::layout::{Class, Geometry, PAGE, PageKind, PageUse, ShardId};
use storage::pmem::memory::Memory;
use storage::pmem::modelled::{Modelled, Moment, Persistent};
use storage::pmem::verify::verify_memory;
use storage::{Completion, Load, Place, Share, Store};
use types::{Database, Key, Shard};

use crate::support::{format_with, open, poll};

const GEOMETRY: Geometry = Geometry { workers: 3, databases: 2, segment_len: 256 << 10 };
const MASK: u64 = (1 << 48) - 1;

type Model = BTreeMap<Place, Vec<u8>>;

fn shard_of(place: &Place) -> (Database, Shard) {
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
    crashes: u64,
}

/// The possible outcomes of the turns under way.
struct Under {
    before: Model,
    after: Model,
}

impl Life {
    fn new(seed: u64, keys: usize, len_max: u64) -> Life {
        let (memory, pmem) = format_with(GEOMETRY, len_max);
        let stores = (0..2).map(|worker| pmem.store(worker)).collect();
        let mut places = Vec::new();
        for (database, shard) in [(0, 3), (0, 4), (1, 3), (1, 200), (0, 255)] {
            let (database, shard) = (Database(database), Shard(shard));
            places.push(Place::Meta(database, shard));
            let all = (0_u64..).map(|n| Key::new(&n.to_le_bytes()));
            let of = all.filter(|key| key.shard() == shard).take(keys);
            places.extend(of.map(|key| Place::Cell(database, key)));
        }
        let model = Model::new();
        Life { prng: Prng::new(seed), memory, stores, places, model, crashes: 0 }
    }

    fn store_of(&mut self, place: &Place) -> &mut PmemStore<Modelled> {
        let (_, shard) = shard_of(place);
        let worker = usize::from(shard.0) % self.stores.len();
        &mut self.stores[worker]
    }

    fn draw_len(&mut self) -> usize {
        let bits = match self.prng.below(40) {
            0 => 16,
            1..=3 => 14,
            4..=10 => 11,
            _ => 8,
        };
        let longest = 1 << self.prng.between(1, bits);
        self.prng.below(longest) as usize
    }

    fn turn(&mut self, most: u64) {
        for _ in 0..self.prng.between(1, most) {
            let place = self.prng.pick(&self.places).clone();
            if self.prng.chance(0.35) {
                self.store_of(&place).remove(&place);
                self.model.remove(&place);
            } else {
                let mut record = self.prng.next_u64().to_le_bytes().to_vec();
                let len = self.draw_len();
                let fill = *self.prng.pick(&[0_u8, 0xff, 7]);
                record.resize(len, fill);
                self.store_of(&place).put(&place, &record);
                self.model.insert(place, record);
            }
        }
        self.stores.iter_mut().for_each(Store::submit);
    }

    fn scrub(&mut self, bytes: u64) {
        let workers = self.stores.len();
        for worker in 0..workers {
            self.stores[worker].scrub(Share { worker, workers }, bytes);
        }
    }

    /// Completions without damage; true if the medium is full.
    fn said(&mut self) -> bool {
        let mut is_full = false;
        for store in &mut self.stores {
            for completion in poll(store) {
                match completion {
                    Completion::Stored(_) => {}
                    Completion::Scrubbed(step) => assert_eq!(step.damaged, 0),
                    Completion::Failed(text) => {
                        assert!(text.contains("full"), "{text}");
                        is_full = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        is_full
    }

    fn reopen(&mut self, memory: Modelled) {
        self.stores.clear();
        let pmem = open(&memory);
        let workers = self.prng.between(1, 3) as u32;
        self.stores = (0..workers).map(|worker| pmem.store(worker)).collect();
        memory.capture_at(Moment::Event(u64::MAX));
        self.memory = memory;
    }

    /// Ends in some way, and recovers, perhaps not at once.
    fn end(&mut self, persistent: &Persistent) -> Modelled {
        self.crashes += 1;
        let mut image = self.left(persistent);
        while self.prng.chance(0.5) {
            let begun = image.events();
            image.capture_at(Moment::Event(begun + self.prng.below(60)));
            drop(open(&image));
            let Some(captured) = image.captured() else { break };
            image.capture_at(Moment::Event(u64::MAX));
            image = self.left(&captured);
        }
        image.capture_at(Moment::Event(u64::MAX));
        image
    }

    fn left(&mut self, persistent: &Persistent) -> Modelled {
        match self.prng.chance(0.3) {
            true => persistent.killed(),
            false => persistent.crash(&mut self.prng),
        }
    }

    fn settle(&mut self, under: &Under) {
        let mut settled = Model::new();
        for place in self.places.clone() {
            let record = match self.store_of(&place).load(&place) {
                Load::Found(record) => Some(record.to_vec()),
                Load::Absent => None,
                other => panic!("{other:?} of {place:?}"),
            };
            let (old, new) = (under.before.get(&place), under.after.get(&place));
            assert!(
                record.as_ref() == old || record.as_ref() == new,
                "{place:?}: {record:?} is neither {old:?} nor {new:?}"
            );
            settled.extend(record.map(|record| (place, record)));
        }
        self.model = settled;
        assert!(!self.said());
    }

    fn check(&mut self) {
        let same = Under { before: self.model.clone(), after: self.model.clone() };
        self.settle(&same);
        let report = verify_memory(self.memory.stopped(), Path::new("modelled")).expect("ours");
        assert_eq!((report.faults_count, report.unfinished), (0, 0), "{:?}", report.faults);
        let cells = self.model.keys().filter(|it| matches!(it, Place::Cell(..))).count();
        assert_eq!(report.registers, cells as u64);
        assert_eq!(report.metas, (self.model.len() - cells) as u64);
        self.check_runs();
    }

    /// Chains lead to runs of their own, and none to another's.
    fn check_runs(&self) {
        let memory = &self.memory;
        let payload = |at: u64| memory.load(at) & MASK;
        let mut owned = BTreeSet::new();
        for database in (0..2).map(Database) {
            for shard in (0..=255).map(Shard) {
                let id = ShardId { database, shard };
                for class in Class::all() {
                    let mut at = GEOMETRY.chain_at(id, class);
                    while payload(at) != MASK {
                        let run = payload(at) * 64;
                        for index in 0..class.run_pages() {
                            let page = run + index * PAGE;
                            assert!(owned.insert(page), "page {page:#x} has two owners");
                            let word = payload(GEOMETRY.page_word_at(page));
                            let is = PageUse { kind: PageKind::Slab(class), shard: id, index };
                            assert_eq!(PageUse::from_payload(word), Some(is));
                        }
                        at = GEOMETRY.next_word_at(run);
                    }
                }
            }
        }
    }
}

fn live(seed: u64, rounds: u64) -> u64 {
    let mut prng = Prng::new(seed ^ 0xadf0);
    let keys = *prng.pick(&[5, 20, 120, 500]);
    let len_max = match prng.below(3) {
        0 => GEOMETRY.segments_at() + prng.between(2, 8) * GEOMETRY.segment_len,
        _ => 256 << 20,
    };
    let mut life = Life::new(seed, keys, len_max);
    for round in 0..rounds {
        let before = life.model.clone();
        let span = *life.prng.pick(&[5, 50, 300, 3_000, 20_000]);
        let crashes = life.prng.chance(0.6);
        if crashes {
            let moment = match life.prng.chance(0.3) {
                true => Moment::Fence(life.memory.fences() + life.prng.below(6)),
                false => Moment::Event(life.memory.events() + life.prng.below(span)),
            };
            life.memory.capture_at(moment);
        }
        match life.prng.below(6) {
            0 => life.scrub(1 << 20),
            1 => life.scrub(9_000),
            2 => life.turn(if keys > 100 { 700 } else { 40 }),
            _ => life.turn(6),
        }
        let under = Under { before, after: life.model.clone() };
        let is_full = life.said();
        let captured = life.memory.captured().filter(|_| crashes);
        match captured {
            Some(captured) => {
                let image = life.end(&captured);
                life.reopen(image);
                life.settle(&under);
            }
            None if is_full => {
                let persistent = life.memory.persistent();
                let image = life.end(&persistent);
                life.reopen(image);
                life.settle(&under);
            }
            None if life.prng.chance(0.1) => {
                let image = life.memory.stopped();
                life.reopen(image);
            }
            None => {
                // A captured state stays captured: forget it.
                life.memory.capture_at(Moment::Event(u64::MAX));
            }
        }
        if round % 8 == 0 {
            life.check();
        }
    }
    life.check();
    life.crashes
}

#[test]
fn nothing_is_lost_whatever_ends_a_life() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (from, seeds) = (number("PMEM_FROM").unwrap_or(0), number("PMEM_SEEDS").unwrap_or(8));
    let mut crashes = 0;
    for seed in from..from + seeds {
        println!("seed {seed}");
        crashes += live(seed, 60);
    }
    assert!(crashes > 10 * seeds, "{crashes} crashes");
}
