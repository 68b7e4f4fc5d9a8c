//! Crashes at any store, write-back or fence, each line as old or as new as the cache may leave it.

use base::Prng;
use proptest::prelude::*;
use storage::pmem::PmemStore;
use storage::pmem::modelled::Modelled;
use storage::{Place, Store};

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
        memory.capture_at(memory.events() + prng.below(span));
        store.submit();
        let Some(captured) = memory.captured() else {
            let mut crashed = open(&memory.persistent().crash(&mut prng)).store(0);
            check_all(&mut crashed, &places, &model);
            continue;
        };
        let image = captured.crash(&mut prng);
        image.capture_at(prng.below(40));
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
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_was_submitted_survives_and_what_was_not_is_old_or_new(seed: u64) {
        crash_again_and_again(seed, 12, 6);
    }

    #[test]
    fn the_same_while_the_directory_grows(seed: u64) {
        crash_again_and_again(seed, 450, 200);
    }
}

#[test]
fn every_event_of_a_turn_that_divides_a_leaf_can_be_the_last() {
    let places: Vec<Place> =
        keys_of(types::Shard(9), 400).into_iter().map(|key| Place::Cell(DATABASE, key)).collect();
    let run = |capture: Option<u64>| {
        let (memory, pmem) = format();
        let mut store = pmem.store(0);
        for place in &places[..120] {
            store.put(place, b"before");
        }
        store.submit();
        for place in &places[120..] {
            store.put(place, b"after");
        }
        let begun = memory.events();
        capture.into_iter().for_each(|event| memory.capture_at(begun + event));
        store.submit();
        (memory.captured(), memory.events() - begun)
    };
    let (_, events) = run(None);
    let mut prng = Prng::new(3);
    let before: Model = places[..120].iter().map(|it| (it.clone(), b"before".to_vec())).collect();
    let mut after = before.clone();
    after.extend(places[120..].iter().map(|place| (place.clone(), b"after".to_vec())));
    // Every one would take a minute; the stride is prime to all periods of the turn.
    for event in (0..events).step_by(37) {
        let captured = run(Some(event)).0.expect("the event comes");
        for _ in 0..3 {
            let image = captured.crash(&mut prng);
            let mut store = open(&image).store(0);
            let settled = settle(&mut store, &places, (&before, &after));
            check_all(&mut store, &places, &settled);
        }
    }
}
