//! Crashes at any store, write-back or fence, each line as old or as new as the cache may leave it.

use base::Prng;
use proptest::prelude::*;
use storage::pmem::PmemStore;
use storage::pmem::modelled::{Modelled, Moment, Persistent};
use storage::{Place, Store};
use types::{Key, Shard};

use crate::support::*;

/// Each place is as it was before the interrupted batch or as it is after it; says which.
fn settle(
    store: &mut PmemStore<Modelled>,
    places: &[Place],
    (before, after): (&Model, &Model),
) -> Model {
    let mut settled = Model::new();
    for place in places {
        let record = found(store.load(place));
        let (old, new) = (before.get(place).cloned(), after.get(place).cloned());
        assert!(record == old || record == new, "{record:?} is neither {old:?} nor {new:?}");
        settled.extend(record.map(|record| (place.clone(), record)));
    }
    assert_eq!(poll(store), [], "a crash is no damage");
    settled
}

fn removals_imply_metas(places: &[Place], (before, after): (&Model, &Model), settled: &Model) {
    let has_removed = places.iter().any(|place| {
        matches!(place, Place::Cell(..))
            && before.contains_key(place)
            && !after.contains_key(place)
            && !settled.contains_key(place)
    });
    let metas = places.iter().filter(|place| matches!(place, Place::Meta(..)));
    for meta in metas.filter(|meta| has_removed && after.contains_key(meta)) {
        assert_eq!(settled.get(meta), after.get(meta), "a removal is durable before {meta:?}");
    }
}

fn crash_again_and_again(seed: u64, cells: usize, changes: u64) {
    let mut prng = Prng::new(seed);
    let (mut memory, pmem) = format();
    let places = places(cells);
    let mut store = pmem.store(0);
    let mut model = Model::new();
    for _ in 0..40 {
        let before = model.clone();
        change(&mut store, &places, &mut model, changes, &mut prng);
        let span = *prng.pick(&[20, 200, 2_000, 6_000]);
        memory.capture_at(Moment::Event(memory.events() + prng.below(span)));
        store.submit();
        let Some(captured) = memory.captured() else {
            let mut crashed = open(&memory.persistent().crash(&mut prng)).store(0);
            check_all(&mut crashed, &places, &model);
            continue;
        };
        let image = captured.crash(&mut prng);
        image.capture_at(Moment::Event(prng.below(40)));
        let reopened = open(&image);
        // Recovery can be interrupted as well.
        memory = match image.captured() {
            Some(captured) => captured.crash(&mut prng),
            None => image,
        };
        drop(reopened);
        store = open(&memory).store(prng.below(2) as u32);
        let settled = settle(&mut store, &places, (&before, &model));
        removals_imply_metas(&places, (&before, &model), &settled);
        model = settled;
        check_all(&mut store, &places, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_was_submitted_survives_and_what_was_not_is_old_or_new(seed: u64) {
        crash_again_and_again(seed, 12, 6);
    }

    #[test]
    fn the_same_while_the_directory_grows(seed: u64) {
        crash_again_and_again(seed, 450, 200);
    }
}

/// A medium, its records, and a key whose put changes the directory's pages.
struct Restructuring {
    base: Modelled,
    before: Model,
    place: Place,
}

impl Restructuring {
    /// Puts the key and crashes before the fence that is asked for; says how many fences it took.
    fn put(&self, fence: Option<u64>) -> (Option<Persistent>, u64) {
        let memory = self.base.stopped();
        let mut store = open(&memory).store(0);
        let begun = memory.fences();
        fence.into_iter().for_each(|fence| memory.capture_at(Moment::Fence(begun + fence)));
        store.put(&self.place, b"after");
        store.submit();
        (memory.captured(), memory.fences() - begun)
    }

    fn crash_at_every_fence(&self, prng: &mut Prng) {
        let mut after = self.before.clone();
        after.insert(self.place.clone(), b"after".to_vec());
        let places: Vec<Place> = after.keys().cloned().collect();
        for fence in 0..self.put(None).1 {
            let captured = self.put(Some(fence)).0.expect("the fence comes");
            for _ in 0..40 {
                let image = captured.crash(prng);
                let mut store = open(&image).store(1);
                let mut settled = settle(&mut store, &places, (&self.before, &after));
                store.put(&self.place, b"once more");
                store.submit();
                settled.insert(self.place.clone(), b"once more".to_vec());
                check_all(&mut store, &places, &settled);
            }
        }
    }
}

/// The puts of `keys`, one after the other, that make pages.
fn restructurings(keys: &[Key]) -> Vec<Restructuring> {
    // A page of the directory is more than 500 stores, any other put of a small record far fewer.
    const EVENTS_MIN: u64 = 500;
    let (mut memory, _) = format();
    let mut model = Model::new();
    let mut found = Vec::new();
    for key in keys {
        let place = Place::Cell(DATABASE, key.clone());
        let base = memory.stopped();
        let mut store = open(&memory).store(0);
        let begun = memory.events();
        store.put(&place, b"before");
        store.submit();
        if memory.events() - begun > EVENTS_MIN {
            found.push(Restructuring { base, before: model.clone(), place: place.clone() });
        }
        model.insert(place, b"before".to_vec());
        drop(store);
        memory = memory.stopped();
    }
    found
}

#[test]
fn a_leaf_that_is_made_or_divided_is_whole_at_every_fence() {
    let found = restructurings(&keys_of(Shard(9), 420));
    assert!(found.len() >= 3, "the first leaf and two divisions");
    let mut prng = Prng::new(3);
    found.iter().for_each(|put| put.crash_at_every_fence(&mut prng));
}

#[test]
fn a_page_that_is_chained_is_whole_at_every_fence() {
    let found = restructurings(&colliding(40));
    assert!(found.len() >= 3, "the first leaf and two chained pages");
    let mut prng = Prng::new(4);
    found.iter().for_each(|put| put.crash_at_every_fence(&mut prng));
}
