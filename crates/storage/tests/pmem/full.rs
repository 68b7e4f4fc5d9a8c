//! A medium that cannot grow any more: its free space is found before it is given up.

use storage::pmem::modelled::Modelled;
use storage::{Completion, Place, Store};
use types::{Key, Shard};

use crate::support::*;

const SHARD: Shard = Shard(6);

fn place(key: &Key) -> Place {
    Place::Cell(DATABASE, key.clone())
}

/// A medium that has no page left, and the keys in it.
fn filled(len_max: u64) -> (Modelled, Vec<Key>) {
    let keys = keys_of(SHARD, 2_000);
    let fits = |count: usize| {
        let (memory, pmem) = format_with(SMALL, len_max);
        let mut store = pmem.store(0);
        for key in &keys[..count] {
            store.put(&place(key), &[1; 100]);
            store.submit();
            if poll(&mut store).iter().any(|it| matches!(it, Completion::Failed(_))) {
                return None;
            }
        }
        Some(memory)
    };
    let (mut most, mut too_many) = (1, keys.len());
    while most + 1 < too_many {
        let count = (most + too_many) / 2;
        match fits(count) {
            Some(_) => most = count,
            None => too_many = count,
        }
    }
    (fits(most).expect("so many fit"), keys[..most].to_vec())
}

/// The runs that are looked at first are full; others have room.
#[test]
fn a_full_medium_takes_what_its_free_slots_hold() {
    let len_max = SMALL.segments_at() + 2 * SMALL.segment_len;
    let (memory, keys) = filled(len_max);
    let mut store = open(&memory).store(0);
    let (old, newest) = keys.split_at(keys.len() / 2);
    let (removed, kept): (Vec<_>, Vec<_>) = old.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    for (_, key) in &removed {
        store.remove(&place(key));
        store.submit();
    }
    drop(store);
    let mut store = open(&memory).store(0);
    for (_, key) in &removed {
        store.put(&place(key), &[2; 100]);
        store.submit();
    }
    let said = poll(&mut store);
    assert!(!said.iter().any(|it| matches!(it, Completion::Failed(_))), "{said:?}");
    for key in kept.iter().map(|(_, key)| *key).chain(newest) {
        assert_eq!(found(store.load(&place(key))), Some(vec![1; 100]));
    }
}

/// Runs that a worker keeps for lengths that change to and fro.
#[test]
fn a_full_medium_takes_what_its_empty_runs_hold() {
    let len_max = SMALL.segments_at() + 2 * SMALL.segment_len;
    let (memory, keys) = filled(len_max);
    let mut store = open(&memory).store(0);
    let (removed, kept) = keys.split_at(keys.len() / 2);
    for key in removed {
        store.remove(&place(key));
        store.submit();
    }
    for key in &removed[..10] {
        store.put(&place(key), &[2; 2_000]);
        store.submit();
    }
    let said = poll(&mut store);
    assert!(!said.iter().any(|it| matches!(it, Completion::Failed(_))), "{said:?}");
    for key in kept {
        assert_eq!(found(store.load(&place(key))), Some(vec![1; 100]));
    }
}
