//! Records that are never asked for are verified all the same, and damage is found where it is.

use base::Prng;
use std::path::Path;
use storage::pmem::PmemStore;
use storage::pmem::memory::Memory;
use storage::pmem::modelled::Modelled;
use storage::pmem::verify::verify_memory;
use storage::{Completion, Load, Place, Scrubbed, Share, Store};

use types::Shard;

use crate::damage::{lived_in, position_of, used_words};
use crate::support::*;

const ALONE: Share = Share { worker: 0, workers: 1 };

/// Scrubs everything once, from the beginning; the sums of all steps, and the shards that were
/// forgotten.
fn scrub_all(store: &mut PmemStore<Modelled>, bytes: u64) -> (Scrubbed, usize) {
    let (mut sum, mut forgotten) = (Scrubbed::default(), 0);
    while !sum.has_ended {
        store.scrub(ALONE, bytes);
        for completion in poll(store) {
            match completion {
                Completion::Scrubbed(step) => {
                    sum.bytes += step.bytes;
                    sum.registers += step.registers;
                    sum.damaged += step.damaged;
                    sum.has_ended |= step.has_ended;
                }
                Completion::Forgotten { .. } => forgotten += 1,
                Completion::Warning(text) => {
                    assert!(text.contains("at 4096: one of two superblocks"), "{text}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
    (sum, forgotten)
}

fn faults(memory: &Modelled) -> u64 {
    verify_memory(memory.stopped(), Path::new("modelled")).expect("it is ours").faults_count
}

/// True if the damage was found.
fn run(seed: u64) -> bool {
    let mut prng = Prng::new(seed);
    let (memory, places, model) = lived_in(seed % 4);
    let image = memory.stopped();
    let mut store = open(&image).store(0);
    let word = *prng.pick(&used_words(&memory));
    let roots = [3, 200].map(|shard| {
        let shard = Shard(shard);
        SMALL.root_at(storage::pmem::layout::ShardId { database: DATABASE, shard })
    });
    let at = if word < SMALL.segments_at() { *prng.pick(&roots) + prng.below(3) * 8 } else { word };
    image.flip(at + prng.below(8), prng.between(1, 255) as u8);
    let known = faults(&image);
    let (scrubbed, forgotten) = scrub_all(&mut store, prng.between(1, 20_000));
    assert!(known == 0 || (scrubbed.damaged > 0 && forgotten > 0), "seed {seed}: it is not found");
    assert!(known > 0 || scrubbed.damaged == 0, "seed {seed}: damage is invented");
    assert_eq!(faults(&image), 0, "seed {seed}: it is not cleared away");
    for place in &places {
        match load(&mut store, place).0 {
            Load::Found(record) => {
                assert_eq!(Some(&record[..]), model.get(place).map(|it| &it[..]))
            }
            Load::Absent => assert!(!model.contains_key(place)),
            Load::Lost => assert!(forgotten > 0),
            Load::Pending => panic!("a load ends"),
        }
    }
    scrubbed.damaged > 0
}

#[test]
fn damage_that_nobody_asks_for_is_found() {
    let found = (0..300).filter(|&seed| run(seed)).count();
    assert!(found > 30, "{found}");
}

#[test]
fn a_damaged_older_version_and_a_damaged_superblock_are_found() {
    let (memory, pmem) = format();
    let mut store = pmem.store(0);
    for record in [b"first version", b"newer version"] {
        store.put(&cell(b"counter"), record);
        store.submit();
    }
    poll(&mut store);
    memory.flip(4096 + 20, 1);
    assert_eq!(scrub_all(&mut store, 4096), (Scrubbed { damaged: 1, ..clean(&memory) }, 0));
    assert_eq!(faults(&memory), 0, "its twin stood in for it");
    memory.flip(position_of(&memory, b"first version"), 1);
    let (scrubbed, forgotten) = scrub_all(&mut store, 4096);
    assert_eq!((scrubbed.damaged, forgotten), (1, 1));
}

/// The answer of a scrub of a whole medium.
fn clean(memory: &Modelled) -> Scrubbed {
    scrub_all(&mut open(&memory.stopped()).store(1), 4096).0
}

#[test]
fn a_scrub_counts_every_register_and_writes_nothing() {
    let (memory, _, model) = lived_in(3);
    let image = memory.stopped();
    let mut store = open(&image).store(0);
    let cells = model.keys().filter(|place| matches!(place, Place::Cell(..))).count() as u64;
    // Runs that have become empty are given back first.
    scrub_all(&mut store, 1 << 20);
    let events = image.events();
    for step in [1, 700, 1 << 20] {
        let (scrubbed, forgotten) = scrub_all(&mut store, step);
        assert_eq!((scrubbed.registers, scrubbed.damaged, forgotten), (cells, 0, 0));
    }
    assert_eq!(image.events(), events);
}

#[test]
fn workers_share_the_shards() {
    let (memory, _, model) = lived_in(3);
    let pmem = open(&memory.stopped());
    let mut registers = 0;
    for worker in 0..2 {
        let mut store = pmem.store(worker as u32);
        store.scrub(Share { worker, workers: 2 }, u64::MAX);
        for completion in poll(&mut store) {
            let Completion::Scrubbed(step) = completion else { panic!("{completion:?}") };
            assert!(step.has_ended);
            registers += step.registers;
        }
    }
    let cells = model.keys().filter(|place| matches!(place, Place::Cell(..))).count() as u64;
    assert_eq!(registers, cells);
}

#[cfg(feature = "mutations")]
#[test]
fn a_scrub_that_does_not_verify_shows() {
    use storage::mutation::{Mutation, set};
    set(Some(Mutation::PmemScrubBlind));
    let shows = (0..300).any(|seed| std::panic::catch_unwind(|| run(seed)).is_err());
    set(None);
    assert!(shows);
}

fn ends(store: &mut PmemStore<Modelled>) -> bool {
    (0..3).any(|_| {
        store.scrub(Share { worker: 0, workers: 1 }, 1 << 20);
        poll(store).iter().any(|it| matches!(it, Completion::Scrubbed(step) if step.has_ended))
    })
}

/// A run that was given back is the first of its slab again: a line of words from before makes the
/// chain a cycle.
#[test]
fn a_scrub_ends_whatever_line_comes_back() {
    let (memory, pmem) = format();
    let places: Vec<Place> =
        keys_of(Shard(6), 3).into_iter().map(|key| Place::Cell(DATABASE, key)).collect();
    let mut store = pmem.store(0);
    let put = |store: &mut PmemStore<Modelled>, at: usize| {
        store.put(&places[at], &[at as u8; 20_000]);
        store.submit();
        poll(store);
    };
    put(&mut store, 0);
    put(&mut store, 1);
    let before = memory.stopped();
    store.remove(&places[0]);
    store.submit();
    poll(&mut store);
    assert!(ends(&mut store), "nothing is damaged");
    put(&mut store, 2);
    for line in (0..before.len().min(memory.len())).step_by(64) {
        if (line..line + 64).all(|at| before.byte(at) == memory.byte(at)) {
            continue;
        }
        let image = memory.stopped();
        (line..line + 64).for_each(|at| image.damage(at, |_| before.byte(at)));
        assert!(ends(&mut open(&image).store(0)), "line {line:x}");
    }
}
