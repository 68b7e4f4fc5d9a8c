//! Without faults the medium is a map that survives restarts.

use std::path::Path;

use base::Prng;
use proptest::prelude::*;
use storage::pmem::layout::Geometry;
use storage::pmem::verify::verify_memory;
use storage::volatile::Beginning;
use storage::{Completion, Load, Place, Share, Store};
use types::positions::hidden_key;
use types::{Key, Shard, Ticket};

use crate::support::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn it_is_a_map_across_restarts_whatever_worker_owns_a_shard(seed: u64) {
        let mut prng = Prng::new(seed);
        let (memory, mut pmem) = format();
        let places = places(40);
        let mut model = Model::new();
        for round in 0..25_u32 {
            let mut store = pmem.store(round % 2);
            for _ in 0..prng.between(1, 8) {
                change(&mut store, &places, &mut model, 30, &mut prng);
                check_all(&mut store, &places, &model);
                store.submit();
            }
            check_all(&mut store, &places, &model);
            drop(store);
            if prng.chance_ppm(500_000) {
                pmem = open(&memory);
            }
        }
    }
}

#[test]
fn a_ticket_is_durable_after_its_submit() {
    let (_, pmem) = format();
    let mut store = pmem.store(0);
    store.submit();
    assert_eq!(poll(&mut store), []);
    for expected in 1..4 {
        assert_eq!(store.ticket(), Ticket(expected));
        store.put(&cell(b"a"), b"record");
        store.submit();
        assert_eq!(poll(&mut store), [Completion::Stored(Ticket(expected))]);
    }
}

#[test]
fn forgetting_is_durable_and_makes_absence_prove_nothing() {
    let (memory, pmem) = format();
    let mut store = pmem.store(0);
    let (kept, gone) = (cell(b"kept"), cell(b"gone"));
    let shards = [b"kept", b"gone"].map(|key| Key::new(key).shard());
    store.put(&kept, b"record");
    shards.iter().for_each(|&shard| store.set_forgotten(DATABASE, shard, true));
    assert_eq!(store.load(&gone), Load::Lost);
    store.submit();
    drop(store);
    let pmem = {
        drop(pmem);
        open(&memory)
    };
    let mut store = pmem.store(1);
    assert!(store.is_forgotten(DATABASE, shards[1]));
    assert_eq!(found(store.load(&kept)), Some(b"record".to_vec()));
    assert_eq!(store.load(&gone), Load::Lost);
    store.set_forgotten(DATABASE, shards[1], false);
    store.submit();
    assert_eq!(store.load(&gone), Load::Absent);
    drop(store);
    assert!(!open(&memory).store(0).is_forgotten(DATABASE, shards[1]));
}

#[test]
fn a_medium_that_replaces_a_lost_one_starts_forgotten() {
    let memory = storage::pmem::modelled::Modelled::new(1 << 20);
    let pmem = storage::pmem::Pmem::format(memory, SMALL, BINDING, Beginning::Forgotten);
    let mut store = pmem.expect("there is room").store(0);
    assert_eq!(store.load(&cell(b"a")), Load::Lost);
    assert_eq!(store.load(&Place::Meta(DATABASE, Shard(9))), Load::Lost);
}

#[test]
fn a_shard_with_many_registers_divides_its_leaves_and_keeps_order() {
    let geometry = Geometry { segment_len: 8 << 20, ..SMALL };
    let (memory, pmem) = format_with(geometry, 256 << 20);
    let keys = keys_of(Shard(77), 6_000);
    let mut store = pmem.store(0);
    for (index, key) in keys.iter().enumerate() {
        store.put(&Place::Cell(DATABASE, key.clone()), &index.to_le_bytes());
        if index % 700 == 0 {
            store.submit();
        }
    }
    store.submit();
    drop(store);
    let mut store = open(&memory).store(1);
    for (index, key) in keys.iter().enumerate() {
        let record = found(store.load(&Place::Cell(DATABASE, key.clone())));
        assert_eq!(record, Some(index.to_le_bytes().to_vec()));
    }
    let listed: Vec<Key> =
        scan_all(&mut store, Shard(77), 100).into_iter().map(|(key, _)| key).collect();
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(listed, sorted);
}

#[test]
fn keys_made_to_collide_are_chained_and_still_found() {
    let colliding = colliding(60);
    let (memory, pmem) = format();
    let mut store = pmem.store(0);
    for key in &colliding {
        store.put(&Place::Cell(DATABASE, key.clone()), key.bytes());
    }
    store.submit();
    drop(store);
    let mut store = open(&memory).store(0);
    for key in &colliding {
        let record = found(store.load(&Place::Cell(DATABASE, key.clone())));
        assert_eq!(record.as_deref(), Some(key.bytes()));
    }
    assert_eq!(scan_all(&mut store, Shard(1), 10).len(), colliding.len());
}

#[test]
fn space_is_reused_across_overwrites_moves_and_removals() {
    let (memory, mut pmem) = format();
    let places = places(60);
    let mut prng = Prng::new(5);
    let mut model = Model::new();
    let mut len_after_warm_up = 0;
    for round in 0..400 {
        let mut store = pmem.store(0);
        change(&mut store, &places, &mut model, 60, &mut prng);
        store.submit();
        if round % 10 == 0 {
            drop(store);
            pmem = open(&memory);
        }
        if round == 200 {
            len_after_warm_up = storage::pmem::memory::Memory::len(&memory);
        }
    }
    let grown = storage::pmem::memory::Memory::len(&memory) - len_after_warm_up;
    assert!(grown <= SMALL.segment_len, "{grown} bytes more after the same load");
}

#[test]
fn a_full_medium_fails_and_says_no_more() {
    let (_, pmem) = format_with(SMALL, SMALL.segments_at() + SMALL.segment_len);
    let mut store = pmem.store(0);
    let mut stored = Ticket::DURABLE;
    for key in keys_of(Shard(4), 300) {
        store.put(&Place::Cell(DATABASE, key), &[1; 1000]);
        store.submit();
        for completion in poll(&mut store) {
            match completion {
                Completion::Stored(ticket) => stored = ticket,
                Completion::Failed(_) => {
                    store.put(&cell(b"later"), b"record");
                    store.submit();
                    assert_eq!(poll(&mut store), []);
                    assert!(store.ticket() > stored);
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("it never became full");
}

#[test]
fn large_records_come_back() {
    let geometry = Geometry { segment_len: 8 << 20, ..SMALL };
    let (memory, pmem) = format_with(geometry, 64 << 20);
    let mut store = pmem.store(0);
    let large: Vec<u8> = (0..1_100_000_u32).map(|n| (n * 7) as u8).collect();
    let key = vec![7; 64 * 1024];
    store.put(&cell(&key), &large);
    store.submit();
    store.put(&cell(&key), b"small again");
    store.submit();
    store.put(&cell(b"other"), &large);
    store.submit();
    drop(store);
    let mut store = open(&memory).store(0);
    assert_eq!(found(store.load(&cell(&key))).as_deref(), Some(&b"small again"[..]));
    assert_eq!(found(store.load(&cell(b"other"))), Some(large));
}

/// Their keys have positions of their own.
#[test]
fn hidden_keyspaces_are_listed_and_verified() {
    let database = DATABASE.hidden();
    let databases = u32::from(database.0) + 1;
    let (memory, pmem) = format_with(Geometry { databases, ..SMALL }, 64 << 20);
    let keys: Vec<Key> = (0..200_u8).map(|it| hidden_key(&[7, it])).collect();
    let mut store = pmem.store(0);
    for key in &keys {
        store.put(&Place::Cell(database, key.clone()), key.bytes());
    }
    store.submit();
    drop((store, pmem));
    let mut store = open(&memory).store(0);
    for key in &keys {
        let place = Place::Cell(database, key.clone());
        assert_eq!(found(store.load(&place)).as_deref(), Some(key.bytes()));
    }
    poll(&mut store);
    store.scan(1, database, Shard(7).first_hash(), 1_000);
    let listed = poll(&mut store).into_iter().find_map(|completion| match completion {
        Completion::Scanned { records, .. } => Some(records),
        _ => None,
    });
    let mut expected: Vec<Key> = keys.clone();
    expected.sort();
    let listed: Vec<Key> = listed.unwrap_or_default().into_iter().map(|(key, _)| key).collect();
    assert_eq!(listed, expected);
    let mut registers = 0;
    while registers < keys.len() as u64 {
        store.scrub(Share { worker: 0, workers: 1 }, 1 << 20);
        for completion in poll(&mut store) {
            let Completion::Scrubbed(step) = completion else { panic!("{completion:?}") };
            registers += step.registers;
            assert!(registers == keys.len() as u64 || !step.has_ended, "{registers}");
        }
    }
    let report = verify_memory(memory.stopped(), Path::new("modelled")).expect("it is ours");
    assert_eq!((report.faults_count, report.registers), (0, keys.len() as u64));
}
