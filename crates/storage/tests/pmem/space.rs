//! The file follows its live records: pages of runs that have become empty go to other shards and
//! lengths.

use std::collections::BTreeMap;
use std::path::Path;

use base::Prng;
use storage::pmem::PmemStore;
use storage::pmem::memory::Memory;
use storage::pmem::modelled::{Modelled, Moment};
use storage::pmem::verify::verify_memory;
use storage::{Completion, Load, Place, Share, Store};
use types::Key;

use crate::support::*;

const KEYS: u64 = 200;

struct Life {
    prng: Prng,
    memory: Modelled,
    store: PmemStore<Modelled>,
    model: BTreeMap<u64, Vec<u8>>,
}

fn place(number: u64) -> Place {
    Place::Cell(DATABASE, Key::new(&number.to_le_bytes()))
}

impl Life {
    fn new(seed: u64) -> Life {
        let (memory, pmem) = format();
        Life { prng: Prng::new(seed), memory, store: pmem.store(0), model: BTreeMap::new() }
    }

    /// Lengths of all classes: short ones often, long ones now and then.
    fn change(&mut self, turns: u64) {
        for _ in 0..turns {
            for _ in 0..self.prng.between(1, 6) {
                let number = self.prng.below(KEYS);
                if self.prng.chance(0.2) {
                    self.store.remove(&place(number));
                    self.model.remove(&number);
                    continue;
                }
                let longest = 1 << self.prng.between(4, 14);
                let record = vec![number as u8; self.prng.between(1, longest) as usize];
                self.store.put(&place(number), &record);
                self.model.insert(number, record);
            }
            self.store.submit();
            poll(&mut self.store);
        }
    }

    fn scrub(&mut self) {
        let mut has_ended = false;
        while !has_ended {
            self.store.scrub(Share { worker: 0, workers: 1 }, 1 << 20);
            has_ended = poll(&mut self.store).iter().any(|it| match it {
                Completion::Scrubbed(step) => {
                    assert_eq!(step.damaged, 0);
                    step.has_ended
                }
                other => panic!("{other:?}"),
            });
        }
    }

    fn restart(&mut self, worker: u32) {
        let memory = self.memory.stopped();
        self.store = open(&memory).store(worker);
        self.memory = memory;
    }

    fn check(&mut self) {
        for number in 0..KEYS {
            let (load, _) = load(&mut self.store, &place(number));
            match self.model.get(&number) {
                Some(record) => assert_eq!(load, Load::Found(record.clone().into()), "{number}"),
                None => assert_eq!(load, Load::Absent, "{number}"),
            }
        }
    }
}

#[test]
fn a_file_does_not_grow_with_what_is_overwritten() {
    for seed in 0..1 {
        let mut life = Life::new(seed);
        life.change(2_000);
        let before = life.memory.len();
        life.change(6_000);
        life.check();
        let after = life.memory.len();
        assert!(after * 4 <= before * 5, "seed {seed}: {before} and {after} bytes");
    }
}

#[test]
fn nor_with_restarts_where_a_scrub_finds_what_is_empty() {
    for seed in 0..1 {
        let mut life = Life::new(seed);
        life.change(2_000);
        let mut before = 0;
        for round in 0..20 {
            if round == 10 {
                before = life.memory.len();
            }
            life.change(300);
            life.restart(1 - round % 2);
            life.check();
            life.scrub();
            life.check();
        }
        let after = life.memory.len();
        assert!(after * 4 <= before * 5, "seed {seed}: {before} and {after} bytes");
    }
}

/// Space that one length has left serves another.
#[test]
fn deleted_records_make_room_for_others() {
    let mut life = Life::new(9);
    let mut before = 0;
    for (round, len) in [100, 1_000, 5_000, 20_000, 300].into_iter().enumerate() {
        let count = 2_000_000 / len as u64;
        for number in 0..count {
            life.store.put(&place(number), &vec![7; len]);
            life.store.submit();
        }
        poll(&mut life.store);
        let used = life.memory.len();
        assert!(round == 0 || used <= before * 2, "{len}: {before} and {used} bytes");
        before = before.max(used);
        for number in 0..count {
            life.store.remove(&place(number));
            life.store.submit();
        }
        poll(&mut life.store);
    }
}

/// Kills and losses of power while pages change hands: every record is as before the turn or as after it.
#[test]
fn pages_that_change_hands_lose_nothing_in_a_crash() {
    for seed in 0..2 {
        println!("seed {seed}");
        let mut life = Life::new(seed);
        life.change(300);
        for round in 0..120 {
            let before = life.model.clone();
            let span = *life.prng.pick(&[30, 300, 3_000]);
            let moment = life.memory.events() + life.prng.below(span);
            life.memory.capture_at(Moment::Event(moment));
            match life.prng.below(4) {
                0 => life.scrub(),
                _ => life.change(1),
            }
            let Some(captured) = life.memory.captured() else { continue };
            let image = captured.crash(&mut life.prng);
            image.capture_at(Moment::Event(life.prng.below(40)));
            drop(open(&image));
            life.memory = match image.captured() {
                Some(captured) => captured.crash(&mut life.prng),
                None => image,
            };
            life.store = open(&life.memory).store(round % 2);
            for number in 0..KEYS {
                let record = found(life.store.load(&place(number)));
                let (old, new) = (before.get(&number), life.model.get(&number));
                assert!(record.as_ref() == old || record.as_ref() == new, "{number}");
                match record {
                    Some(record) => life.model.insert(number, record),
                    None => life.model.remove(&number),
                };
            }
            assert!(poll(&mut life.store).is_empty(), "a crash is no damage");
            let report = verify_memory(life.memory.stopped(), Path::new("modelled"));
            assert_eq!(report.expect("it is ours").faults_count, 0);
        }
        life.check();
    }
}

/// How many short records a medium takes before it has three segments.
fn room(memory: &Modelled) -> u64 {
    let mut store = open(memory).store(1);
    let len_max = SMALL.segments_at() + 2 * SMALL.segment_len;
    (1_000..)
        .take_while(|number| {
            store.put(&place(*number), &[7; 1_500]);
            store.submit();
            memory.len() <= len_max
        })
        .count() as u64
}

/// The rest of a segment is too short for a long record, and free for others.
#[test]
fn a_crash_costs_no_rest_of_a_segment() {
    let (memory, pmem) = format();
    let mut store = pmem.store(0);
    (0..5).for_each(|number| store.put(&place(number), &[7; 100]));
    store.submit();
    drop((store, pmem));
    let put_long = |memory: &Modelled| {
        let mut store = open(memory).store(0);
        store.put(&place(0), &[7; 100_000]);
        store.submit();
    };
    let after = memory.stopped();
    put_long(&after);
    let least = room(&after.stopped());
    let mut prng = Prng::new(1);
    // Behind these the pages are fenced, and only the record is written.
    for event in (0..400).step_by(3) {
        let crashed = memory.stopped();
        crashed.capture_at(Moment::Event(event));
        put_long(&crashed);
        let persistent = crashed.captured().expect("a long record takes longer");
        for _ in 0..2 {
            let room = room(&persistent.crash(&mut prng));
            assert!(room >= least, "event {event}: {room} instead of {least} records");
        }
    }
}
