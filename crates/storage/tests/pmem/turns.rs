//! Damage that a turn meets where it looks up one register, and that costs the way to another.

use std::collections::BTreeMap;

use base::Prng;
use storage::pmem::PmemStore;
use storage::pmem::layout::ShardId;
use storage::pmem::memory::Memory;
use storage::pmem::modelled::Modelled;
use storage::{Completion, Load, Place, Store};
use types::{Key, Shard};

use crate::damage::used_words;
use crate::support::*;

const SHARD: Shard = Shard(6);
const KEYS: usize = 400;
const PAGE: u64 = 4096;

type Model = BTreeMap<usize, Vec<u8>>;

fn place_of(key: &Key) -> Place {
    Place::Cell(DATABASE, key.clone())
}

/// Where the entry of a key is: its hash, then the word with the slot.
fn entry_of(memory: &Modelled, key: &Key) -> Option<u64> {
    let hash = key.hash().to_le_bytes();
    let is_it = |at: &u64| (0..).zip(hash).all(|(i, byte)| memory.byte(at + i) == byte);
    (SMALL.segments_at()..memory.len()).step_by(16).find(is_it)
}

/// The line of a leaf in which the entries of a key begin.
fn home_line(key: &Key) -> u64 {
    ((key.hash() & 0xffff_ffff) * 63) >> 32
}

/// The damage on the way to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rot {
    Head,
    Entry,
}

fn rot(memory: &Modelled, key: &Key, what: Rot) {
    let entry = entry_of(memory, key).expect("it has an entry");
    memory.flip(if what == Rot::Head { entry / PAGE * PAGE } else { entry + 8 }, 1);
}

fn tells_of_damage(told: &[Completion]) -> bool {
    told.contains(&Completion::Forgotten { database: DATABASE, shard: SHARD })
}

fn put_all(store: &mut PmemStore<Modelled>, records: &[(&Place, &[u8])]) -> Vec<Completion> {
    records.iter().for_each(|(place, record)| store.put(place, record));
    store.submit();
    poll(store)
}

/// As a node does: forgotten records are put anew, and then storage is told.
fn recover(store: &mut PmemStore<Modelled>, records: &[(&Place, &[u8])]) {
    put_all(store, records);
    store.set_forgotten(DATABASE, SHARD, false);
    store.submit();
    poll(store);
}

/// One turn writes a register whose way has rotted unnoticed, and a new one that is looked for
/// where the damage is.
#[test]
fn a_register_that_was_recovered_is_there_after_a_restart() {
    for what in [Rot::Head, Rot::Entry] {
        let (memory, pmem) = format();
        let keys = keys_of(SHARD, 2_000);
        let is_near = |key: &&Key| what == Rot::Head || home_line(key) == home_line(&keys[0]);
        let other = keys.iter().skip(1).find(is_near).expect("there are enough");
        let [one, two] = [&keys[0], other].map(place_of);
        let mut store = pmem.store(0);
        put_all(&mut store, &[(&one, b"the first")]);
        rot(&memory, &keys[0], what);
        let told = put_all(&mut store, &[(&one, b"the newer"), (&two, b"the other")]);
        assert!(tells_of_damage(&told), "{told:?}");
        recover(&mut store, &[(&one, b"the newest"), (&two, b"the other")]);
        assert_eq!(found(store.load(&one)), Some(b"the newest".to_vec()), "{what:?}");
        drop(store);
        let mut store = open(&memory.stopped()).store(1);
        assert_eq!(found(load(&mut store, &one).0), Some(b"the newest".to_vec()), "{what:?}");
        assert!(!store.is_forgotten(DATABASE, SHARD));
    }
}

/// The only slot that seems to be free is that of a register of the same turn.
#[test]
fn two_registers_of_one_turn_do_not_share_a_slot() {
    const FULL: usize = 128;
    let (memory, pmem) = format();
    let keys = keys_of(SHARD, 3_000);
    let is_near = |key: &&Key| home_line(key) == home_line(&keys[0]);
    let [one, two] =
        [&keys[0], keys.iter().skip(FULL).find(is_near).expect("enough")].map(place_of);
    let places: Vec<Place> = keys[..FULL].iter().map(place_of).collect();
    let records: Vec<(&Place, &[u8])> = places.iter().map(|it| (it, &b"a record"[..])).collect();
    put_all(&mut pmem.store(0), &records);
    let image = memory.stopped();
    let mut store = open(&image).store(0);
    assert_eq!(found(store.load(&one)), Some(b"a record".to_vec()));
    rot(&image, &keys[0], Rot::Entry);
    let told = put_all(&mut store, &[(&one, b"the newer"), (&two, b"the other")]);
    assert!(tells_of_damage(&told), "{told:?}");
    recover(&mut store, &[(&one, b"the newest")]);
    let mut restarted = open(&image.stopped()).store(1);
    for store in [&mut store, &mut restarted] {
        assert_eq!(found(load(store, &one).0), Some(b"the newest".to_vec()));
        assert_eq!(found(load(store, &two).0), Some(b"the other".to_vec()));
    }
}

/// Many pointers lead to one leaf.
#[test]
fn a_leaf_whose_head_rots_is_forgotten_once() {
    let (memory, pmem) = format();
    let keys = keys_of(SHARD, 3_000);
    let places: Vec<Place> = keys.iter().map(place_of).collect();
    let records: Vec<(&Place, &[u8])> =
        places[..300].iter().map(|it| (it, &b"a record"[..])).collect();
    put_all(&mut pmem.store(0), &records);
    rot(&memory, &keys[0], Rot::Head);
    let mut store = open(&memory).store(1);
    let mut times = 0;
    for place in &places {
        let (_, mut told) = load(&mut store, place);
        told.extend(poll(&mut store));
        if tells_of_damage(&told) {
            times += 1;
            recover(&mut store, &records);
        }
    }
    assert_eq!(times, 1);
}

/// A history of one shard whose damage is told only by the turns that meet it.
struct History {
    prng: Prng,
    memory: Modelled,
    store: PmemStore<Modelled>,
    keys: Vec<Key>,
    model: Model,
}

impl History {
    fn new(seed: u64) -> History {
        let (memory, pmem) = format();
        let keys = keys_of(SHARD, KEYS);
        History { prng: Prng::new(seed), memory, store: pmem.store(0), keys, model: Model::new() }
    }

    fn place(&self, number: usize) -> Place {
        place_of(&self.keys[number])
    }

    fn rot(&mut self) {
        let root = SMALL.root_at(ShardId { database: DATABASE, shard: SHARD });
        let is_of_shard = |at: &u64| (root..root + 512).contains(at) || *at >= SMALL.segments_at();
        let words: Vec<u64> = used_words(&self.memory).into_iter().filter(is_of_shard).collect();
        let mut word = *self.prng.pick(&words);
        let held: Vec<usize> = self.model.keys().copied().collect();
        if self.prng.chance(0.7) && !held.is_empty() {
            let key = &self.keys[*self.prng.pick(&held)];
            if let Some(entry) = entry_of(&self.memory, key) {
                word = if self.prng.chance(0.5) { entry + 8 } else { entry / PAGE * PAGE };
            }
        }
        self.memory.flip(word + self.prng.below(8), self.prng.between(1, 255) as u8);
    }

    fn turn(&mut self) -> Vec<Completion> {
        for _ in 0..self.prng.between(1, 6) {
            let number = self.prng.below(KEYS as u64) as usize;
            let place = self.place(number);
            if self.prng.chance(0.2) {
                self.store.remove(&place);
                self.model.remove(&number);
            } else {
                let record = record(&mut self.prng);
                self.store.put(&place, &record);
                self.model.insert(number, record);
            }
        }
        self.store.submit();
        poll(&mut self.store)
    }

    /// Storage has the record that was put last, or says that it is lost.
    fn check(&mut self) -> Vec<Completion> {
        let mut told = Vec::new();
        for number in 0..KEYS {
            let place = self.place(number);
            let (load, more) = load(&mut self.store, &place);
            told.extend(more);
            match (load, self.model.get(&number)) {
                (Load::Found(record), Some(put)) => assert_eq!(record[..], put[..]),
                (Load::Lost, _) | (Load::Absent, None) => {}
                (other, put) => panic!("{number}: {other:?} where {put:?} was put"),
            }
        }
        told
    }

    fn recover(&mut self, mut told: Vec<Completion>) {
        while tells_of_damage(&told) || self.store.is_forgotten(DATABASE, SHARD) {
            for (number, record) in &self.model {
                self.store.put(&place_of(&self.keys[*number]), record);
                self.store.submit();
            }
            for number in (0..KEYS).filter(|number| !self.model.contains_key(number)) {
                self.store.remove(&place_of(&self.keys[number]));
            }
            self.store.submit();
            told = poll(&mut self.store);
            if !tells_of_damage(&told) {
                self.store.set_forgotten(DATABASE, SHARD, false);
                self.store.submit();
                told = poll(&mut self.store);
            }
        }
    }
}

#[test]
fn nothing_is_lost_in_silence_where_turns_meet_damage() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut history = History::new(seed);
        for round in 0..40 {
            if history.prng.chance(0.5) {
                history.rot();
            }
            let mut told = history.turn();
            if history.prng.chance(0.3) {
                told.extend(history.check());
            }
            history.recover(told);
            if history.prng.chance(0.2) {
                let memory = history.memory.clone();
                history.store = open(&memory).store(round % 2);
                let told = history.check();
                history.recover(told);
            }
        }
    }
}

/// The word that tells the use of a page, in the middle of a run of slots.
#[test]
fn slots_of_a_page_whose_word_rots_are_not_given_out_again() {
    let (memory, pmem) = format();
    let keys = keys_of(SHARD, 128);
    let places: Vec<Place> = keys.iter().map(place_of).collect();
    let records: Vec<(&Place, &[u8])> = places.iter().map(|it| (it, &b"a record"[..])).collect();
    put_all(&mut pmem.store(0), &records);
    let slot_of = |key: &Key| {
        let entry = entry_of(&memory, key).expect("it has an entry");
        (memory.load(entry + 8) & ((1 << 48) - 1)) * 64
    };
    let run = keys.iter().map(slot_of).min().expect("there are some") / PAGE * PAGE;
    memory.flip(SMALL.page_word_at(run + PAGE) + 2, 1);
    for life in 0..3 {
        let mut store = open(&memory).store(life % 2);
        let lost = places.iter().filter(|place| load(&mut store, place).0 == Load::Lost).count();
        assert_eq!(lost > 0, life == 0, "{lost} in life {life}");
        poll(&mut store);
        recover(&mut store, &records);
    }
}
