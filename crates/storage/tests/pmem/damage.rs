//! Damage at rest: every load gives the newest record or says that it is lost.

use std::collections::BTreeSet;
use std::path::Path;

use base::Prng;
use proptest::prelude::*;
use storage::pmem::modelled::{Modelled, Moment};
use storage::pmem::verify::verify_memory;
use storage::pmem::{Fault, Pmem, PmemError};
use storage::{Completion, Load, Place, Store};
use types::Key;

use crate::support::*;

fn shard_of(place: &Place) -> types::Shard {
    match place {
        Place::Cell(_, key) => key.shard(),
        Place::Meta(_, shard) => *shard,
    }
}

/// A medium after some turns, with removed, moved and absent places in it.
pub fn lived_in(seed: u64) -> (Modelled, Vec<Place>, Model) {
    let mut prng = Prng::new(seed);
    let (memory, pmem) = format();
    let places = places(24);
    let mut model = Model::new();
    let mut store = pmem.store(0);
    for _ in 0..25 {
        change(&mut store, &places, &mut model, 12, &mut prng);
        store.submit();
    }
    (memory, places, model)
}

/// Opens a damaged medium and asks for everything: newest or lost, and a loss is told.
pub fn check_damaged(image: &Modelled, places: &[Place], model: &Model) {
    for worker in 0..2 {
        let mut store = open(image).store(worker);
        let mut lost = Vec::new();
        for place in places {
            let (load, told) = load(&mut store, place);
            assert!(told.iter().all(|it| matches!(it, Completion::Forgotten { .. })), "{told:?}");
            match load {
                Load::Found(record) => {
                    assert_eq!(Some(&record[..]), model.get(place).map(|r| &r[..]))
                }
                Load::Absent => assert!(!model.contains_key(place), "{place:?} became absent"),
                Load::Lost => lost.push(shard_of(place)),
                Load::Pending => panic!("a load ends"),
            }
        }
        for shard in lost {
            assert!(store.is_forgotten(DATABASE, shard));
        }
        let is_warning = |it: &Completion| matches!(it, Completion::Warning(_));
        let said = poll(&mut store);
        assert!(said.len() <= 1 && said.iter().all(is_warning), "{said:?}");
    }
}

/// Offsets of the words that hold something.
pub fn used_words(memory: &Modelled) -> Vec<u64> {
    let len = storage::pmem::memory::Memory::len(memory);
    let is_used = |at: &u64| storage::pmem::memory::Memory::load(memory, *at) != 0;
    (0..len).step_by(8).filter(is_used).collect()
}

#[test]
fn a_flip_of_any_byte_never_brings_back_an_old_record_or_hides_one() {
    let (memory, places, model) = lived_in(11);
    let mut prng = Prng::new(12);
    let from = SMALL.segments_at();
    // The roots of shards without records are left out: no damage could be found there.
    let roots: Vec<u64> = [3, 200]
        .iter()
        .flat_map(|shard| {
            let id =
                storage::pmem::layout::ShardId { database: DATABASE, shard: types::Shard(*shard) };
            let root = SMALL.root_at(id);
            (root..root + 128).step_by(8)
        })
        .collect();
    let intents = (0..5 * 4096).step_by(8);
    let slots = used_words(&memory).into_iter().filter(|&at| at >= from);
    for word in intents.chain(roots).chain(slots) {
        let image = memory.stopped();
        let mask = prng.between(1, 255) as u8;
        image.flip(word + prng.below(8), mask);
        check_damaged(&image, &places, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn lines_and_pages_of_zeros_or_garbage_or_from_elsewhere_are_noticed(seed: u64) {
        let mut prng = Prng::new(seed);
        let (memory, places, model) = lived_in(prng.below(4));
        let image = memory.stopped();
        let words = used_words(&memory);
        let len = *prng.pick(&[64, 256, 4096]);
        let aligned = |at: u64| at - at % len;
        let from = 5 * 4096;
        let at = aligned(*prng.pick(&words)).max(from);
        let other = aligned(*prng.pick(&words)).max(from);
        let kind = prng.below(3);
        for offset in 0..len {
            let byte = match kind {
                0 => 0,
                1 => prng.next_u64() as u8,
                _ => memory.byte(other + offset),
            };
            image.damage(at + offset, |_| byte);
        }
        check_damaged(&image, &places, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Damage under a running store: a register is as it was last put, or lost until it is put
    /// again.
    #[test]
    fn damage_while_it_runs_loses_registers_and_never_changes_one(seed: u64) {
        let mut prng = Prng::new(seed);
        let (memory, pmem) = format();
        let places = places(24);
        let mut model = Model::new();
        let mut lost = BTreeSet::new();
        let mut store = pmem.store(0);
        for round in 0..60 {
            let before = model.clone();
            change(&mut store, &places, &mut model, 8, &mut prng);
            let is_changed = |place: &&Place| before.get(*place) != model.get(*place);
            for place in places.iter().filter(is_changed) {
                lost.remove(place);
            }
            store.submit();
            if round % 3 == 0 {
                let word = *prng.pick(&used_words(&memory));
                memory.flip(word.max(5 * 4096) + prng.below(8), prng.between(1, 255) as u8);
            }
            if round % 20 == 19 {
                drop(store);
                store = open(&memory).store(1);
            }
            for place in &places {
                match load(&mut store, place).0 {
                    Load::Found(record) => {
                        prop_assert!(!lost.contains(place), "{:?} came back", place);
                        prop_assert_eq!(Some(&record[..]), model.get(place).map(|it| &it[..]));
                    }
                    Load::Absent => prop_assert!(!model.contains_key(place)),
                    Load::Lost => {
                        prop_assert!(store.is_forgotten(DATABASE, shard_of(place)));
                        lost.insert(place.clone());
                    }
                    Load::Pending => panic!("a load ends"),
                }
            }
        }
    }
}

#[test]
fn damage_to_the_newest_version_is_amnesia_even_right_after_its_turn() {
    let (memory, pmem) = format();
    let place = cell(b"counter");
    let mut store = pmem.store(0);
    for record in [b"first version", b"newer version"] {
        store.put(&place, record);
        store.submit();
    }
    let newest = position_of(&memory, b"newer version");
    for image in [memory.stopped(), memory.persistent().crash(&mut Prng::new(1))] {
        image.flip(newest, 1);
        let mut store = open(&image).store(0);
        assert_eq!(store.load(&place), Load::Pending, "nobody has heard of the loss");
        let shard = Key::new(b"counter").shard();
        let forgotten = Completion::Forgotten { database: DATABASE, shard };
        let lost = Completion::Loaded { place: place.clone(), load: Load::Lost };
        assert_eq!(poll(&mut store), [forgotten, lost]);
        assert_eq!(store.load(&place), Load::Lost);
        // Records from a quorum are kept, and the shard is whole again.
        store.put(&place, b"recovered");
        store.set_forgotten(DATABASE, shard, false);
        store.submit();
        drop(store);
        let mut store = open(&image).store(1);
        assert_eq!(found(store.load(&place)), Some(b"recovered".to_vec()));
        assert!(!store.is_forgotten(DATABASE, shard));
    }
}

/// Damages a medium, looks at everything, and lets the power fail in the middle of that.
fn lose_power_while_damage_is_noticed(seed: u64) {
    let mut prng = Prng::new(seed);
    let (memory, places, model) = lived_in(seed % 4);
    let image = memory.stopped();
    let word = *prng.pick(&used_words(&memory));
    image.flip(word.max(5 * 4096) + prng.below(8), prng.between(1, 255) as u8);
    let mut store = open(&image).store(0);
    image.capture_at(Moment::Fence(image.fences() + prng.below(3)));
    for place in &places {
        load(&mut store, place);
    }
    if let Some(persistent) = image.captured() {
        for _ in 0..8 {
            check_damaged(&persistent.crash(&mut prng), &places, &model);
        }
    }
}

#[test]
fn a_loss_of_power_while_damage_is_noticed_hides_nothing() {
    (0..400).for_each(lose_power_while_damage_is_noticed);
}

#[cfg(feature = "mutations")]
mod mistakes {
    use storage::mutation::{Mutation, set};

    #[test]
    fn damage_that_is_cleared_before_its_shard_is_durably_forgotten_shows() {
        set(Some(Mutation::ForgottenUnfenced));
        let lose_power = super::lose_power_while_damage_is_noticed;
        let shows = (0..400).any(|seed| std::panic::catch_unwind(|| lose_power(seed)).is_err());
        set(None);
        assert!(shows);
    }
}

pub fn position_of(memory: &Modelled, bytes: &[u8]) -> u64 {
    let len = storage::pmem::memory::Memory::len(memory);
    let is_here = |at: &u64| (0..).zip(bytes).all(|(i, &byte)| memory.byte(at + i) == byte);
    (SMALL.segments_at()..len - bytes.len() as u64).find(is_here).expect("it was written")
}

#[test]
fn a_recovery_that_was_declared_finished_does_not_hide_damage_found_with_it() {
    let (memory, pmem) = format();
    let keys = keys_of(types::Shard(6), 2);
    let [one, two] = [&keys[0], &keys[1]].map(|key| Place::Cell(DATABASE, key.clone()));
    let mut store = pmem.store(0);
    store.put(&one, b"the first of them");
    store.submit();
    memory.flip(position_of(&memory, b"the first of them"), 4);
    store.put(&two, b"the second");
    store.set_forgotten(DATABASE, types::Shard(6), false);
    assert_eq!(store.load(&one), Load::Pending);
    store.submit();
    assert!(store.is_forgotten(DATABASE, types::Shard(6)));
    poll(&mut store);
    assert_eq!(store.load(&one), Load::Lost);
}

#[test]
fn a_recovery_declared_finished_before_its_worker_heard_of_damage_does_not_hide_it() {
    let (memory, pmem) = format();
    let (shard, key) = (types::Shard(6), &keys_of(types::Shard(6), 1)[0]);
    let place = Place::Cell(DATABASE, key.clone());
    let mut store = pmem.store(0);
    store.put(&place, b"the only one");
    store.submit();
    poll(&mut store);
    memory.flip(position_of(&memory, b"the only one"), 4);
    assert_eq!(store.load(&place), Load::Pending);
    store.set_forgotten(DATABASE, shard, false);
    store.submit();
    drop(store);
    let mut store = open(&memory.stopped()).store(1);
    assert!(store.is_forgotten(DATABASE, shard));
    assert_eq!(store.load(&place), Load::Lost);
    store.set_forgotten(DATABASE, shard, false);
    store.submit();
    assert_eq!(store.load(&place), Load::Absent, "who has heard of it may say so");
}

#[test]
fn verification_names_each_bad_slot_and_changes_nothing() {
    let (memory, pmem) = format();
    let mut store = pmem.store(0);
    for key in [b"a", b"b", b"c"] {
        store.put(&cell(key), format!("record of {key:?}").as_bytes());
    }
    store.put(&Place::Meta(DATABASE, types::Shard(1)), b"meta");
    store.submit();
    let whole = verify_memory(memory.stopped(), Path::new("modelled")).expect("it is ours");
    assert_eq!((whole.registers, whole.metas, whole.faults_count), (3, 1, 0));
    let at = position_of(&memory, format!("record of {:?}", b"b").as_bytes());
    let damaged = memory.stopped();
    damaged.flip(at, 1);
    let before = damaged.events();
    let report = verify_memory(damaged.clone(), Path::new("modelled")).expect("it is ours");
    assert_eq!(damaged.events(), before, "nothing was stored");
    assert_eq!(report.registers, 2);
    let [Fault::Register { hash, slot, .. }] = report.faults[..] else {
        panic!("{:?}", report.faults);
    };
    assert_eq!(hash, Key::new(b"b").hash());
    assert!(at - slot < 512, "the slot at {slot} holds byte {at}");
}

#[test]
fn a_file_of_another_directory_is_refused_and_one_superblock_is_enough() {
    let (memory, _) = format();
    let foreign = Pmem::from_memory(memory.clone(), BINDING + 1, Path::new("modelled"));
    assert!(matches!(foreign, Err(PmemError::Foreign(_))));
    for copy in [0, 4096] {
        memory.flip(copy + 20, 1);
        let said = poll(&mut open(&memory).store(0));
        let is_named = |it: &Completion| matches!(it, Completion::Warning(text) if text.starts_with(&format!("pmem at {copy}: one of two superblocks")));
        assert!(said.len() == 1 && is_named(&said[0]), "{said:?}");
        assert!(poll(&mut open(&memory).store(0)).is_empty(), "it is mended");
    }
    memory.flip(20, 1);
    memory.flip(4096 + 20, 1);
    let damaged = Pmem::from_memory(memory, BINDING, Path::new("modelled"));
    assert!(matches!(damaged, Err(PmemError::Damaged(_))));
}

/// A shard whose pointers lead to one leaf thousands of times, and that leaf is damaged: it is met
/// once.
#[test]
fn a_damaged_leaf_is_named_once_and_costs_no_time() {
    let (memory, pmem) = format();
    let mut store = pmem.store(0);
    let keys = keys_of(types::Shard(9), 40);
    for key in &keys {
        store.put(&Place::Cell(DATABASE, key.clone()), b"a record");
    }
    store.submit();
    let slots = verify_memory(memory.stopped(), Path::new("modelled")).expect("it is ours");
    assert_eq!((slots.registers, slots.faults_count), (40, 0));
    // One entry: the others of its leaf are still looked at.
    let hash = keys[7].hash().to_le_bytes();
    let entry = position_of(&memory, &hash);
    let damaged = memory.stopped();
    damaged.flip(entry + 8, 1);
    let report = verify_memory(damaged, Path::new("modelled")).expect("it is ours");
    assert_eq!(report.registers, 39);
    assert!(matches!(report.faults[..], [Fault::Directory { at, .. }] if at == entry));
    // The whole leaf, by its head.
    let damaged = memory.stopped();
    damaged.flip(entry / 4096 * 4096, 1);
    let report = verify_memory(damaged, Path::new("modelled")).expect("it is ours");
    assert_eq!(report.faults_count, 1, "{:?}", report.faults);
}

/// A full file system, or the end of a process, has left a file that grew by a part of a segment.
/// Then the word that tells the allocated part is damaged.
#[test]
fn what_is_given_out_behind_a_file_that_grew_in_part_is_no_part_of_a_header() {
    use storage::pmem::layout::{BUMP_AT, Geometry};
    use storage::pmem::memory::Memory;
    let geometry = Geometry { workers: 2, databases: 1, segment_len: 4 << 20 };
    let (memory, pmem) = format_with(geometry, 64 << 20);
    let mut store = pmem.store(0);
    store.put(&cell(b"first"), b"record");
    store.submit();
    drop((store, pmem));
    let memory = memory.stopped();
    memory.grow(memory.len() + 4096).expect("there is room");
    memory.store(BUMP_AT, 0);
    let places: Vec<Place> = (0..400_u64).map(|n| cell(&n.to_le_bytes())).collect();
    let mut store = open(&memory).store(0);
    for (n, place) in places.iter().enumerate() {
        store.put(place, &vec![n as u8; 30 * n]);
        store.submit();
    }
    let said = poll(&mut store);
    assert!(!said.iter().any(|it| matches!(it, Completion::Failed(_))), "{said:?}");
    drop(store);
    let memory = memory.stopped();
    let mut store = open(&memory).store(0);
    let mut lost = Vec::new();
    for (n, place) in places.iter().enumerate() {
        match load(&mut store, place).0 {
            Load::Found(record) => assert_eq!(record[..], vec![n as u8; 30 * n]),
            other => lost.push((n, other)),
        }
    }
    assert!(lost.is_empty(), "{lost:?}");
}
