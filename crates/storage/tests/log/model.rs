//! Random changes, some of them waiting together, and restarts: always the same as a plain list.

use base::Prng;
use bytes::Bytes;
use storage::log::{AppendError, Log, OpenError, verify};

use crate::support::*;

fn run(seed: u64, sectors: u64, changes: u64) {
    let mut prng = Prng::new(seed);
    let mut memory = Memory::with_log(sectors);
    let mut model = Model::default();
    let mut left = changes;
    while left > 0 {
        let mut log = Log::open(&mut memory, BINDING).expect("it opens");
        if let Some(what) = model.difference(&log.engine) {
            panic!("seed {seed}: after a restart {what}");
        }
        // A restart may bring back records that were given up, and may have forgotten that the log
        // begins further on.
        model.first = log.engine.first();
        model.records = log.engine.range(0..=u64::MAX).map(|(_, record)| record.clone()).collect();
        for _ in 0..prng.between(1, 30).min(left) {
            left -= 1;
            let change = draw(&mut prng, &model, log.engine.batch_len_max());
            apply(&mut log, &mut model, &change);
            assert_eq!(model.difference(&log.engine), None, "seed {seed}: {change:?}");
            assert_eq!(log.engine.first(), model.first, "seed {seed}");
            if prng.chance_ppm(600_000) {
                log.flush().expect("the device does not fail");
            }
        }
        log.flush().expect("the device does not fail");
        drop(log);
        let report = verify(&mut &mut memory).expect("it is a log");
        assert_eq!((report.faults_count, report.unfinished), (0, 0), "seed {seed}: {report:?}");
    }
    assert_eq!(memory.bytes.len() as u64, 8192 + sectors * SECTOR as u64, "it never grows");
}

#[test]
fn it_is_a_list_across_restarts_and_many_laps() {
    let seeds = std::env::var("LOG_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    for seed in 0..seeds {
        run(seed, SMALL + seed % 50, 200);
    }
    run(seeds, 4_096, 2_000);
}

#[test]
fn batches_that_wait_together_are_one_store() {
    let mut memory = Memory::with_log(4_096);
    let mut log = Log::open(&mut memory, BINDING).expect("it opens");
    let mut last = None;
    for from in 1..=100 {
        last = log.engine.append(from, vec![Bytes::from(vec![7; 100])]).ok();
    }
    log.flush().expect("the device does not fail");
    assert_eq!(Some(log.engine.durable()), last);
    assert_eq!(memory.stores.len(), 1);
}

#[test]
fn what_cannot_be_appended_changes_nothing() {
    let mut memory = Memory::with_log(SMALL);
    let mut log = Log::open(&mut memory, BINDING).expect("it opens");
    log.engine.append(1, vec![Bytes::from_static(b"a"); 4]).expect("there is room");
    log.engine.cut_front(2);
    for from in [0, 2, 6] {
        let error = AppendError::Misplaced { from, first: 3, next: 5 };
        assert_eq!(log.engine.append(from, Vec::new()), Err(error));
    }
    let max = log.engine.batch_len_max();
    let long = vec![Bytes::from(vec![0; max - 19])];
    let error = AppendError::TooLong { len: max + 1, max };
    assert_eq!(log.engine.append(5, long), Err(error));
    assert!(log.engine.append(5, vec![Bytes::from(vec![0; max - 20])]).is_ok());
    let mut from = 6;
    while log.engine.append(from, vec![Bytes::from(vec![0; 1_000])]).is_ok() {
        from += 1;
    }
    assert_eq!(log.engine.append(from, vec![Bytes::from(vec![0; 1_000])]), Err(AppendError::Full));
    log.flush().expect("the device does not fail");
    log.engine.cut_front(from - 1);
    assert!(
        log.engine.append(from, vec![Bytes::from(vec![0; 1_000])]).is_ok(),
        "there is room again"
    );
    log.flush().expect("the device does not fail");
    assert!(log.engine.range(0..=u64::MAX).eq([(from, &Bytes::from(vec![0; 1_000]))]));
}

#[test]
fn a_failed_store_poisons_the_log() {
    let mut memory = Memory::with_log(SMALL);
    let mut log = Log::open(memory.clone(), BINDING).expect("it opens");
    log.engine.append(1, vec![Bytes::from_static(b"a")]).expect("there is room");
    log.flush().expect("the device does not fail");
    let durable = log.engine.durable();
    log.engine.append(2, vec![Bytes::from_static(b"b")]).expect("there is room");
    assert!(log.engine.next_store().is_some());
    assert!(log.engine.next_store().is_none(), "one store is under way");
    log.engine.on_stored(Err("the disk is gone".to_owned()));
    assert!(log.engine.next_store().is_none(), "nothing is tried again");
    assert!(matches!(log.engine.append(3, Vec::new()), Err(AppendError::Failed(_))));
    assert_eq!(log.flush(), Err("the disk is gone".to_owned()));
    assert_eq!(log.engine.durable(), durable);
    memory.fails = true;
    let mut log = Log::open(&mut memory, BINDING).expect("opening a whole log stores nothing");
    log.engine.append(1, Vec::new()).expect("there is room");
    assert!(log.flush().is_err() && log.engine.failure().is_some());
}

#[test]
fn another_nodes_log_is_refused_as_such() {
    let mut memory = Memory::with_log(SMALL);
    assert_eq!(Log::open(&mut memory, BINDING + 1).err(), Some(OpenError::Foreign));
    memory.bytes[12] = 9;
    let mut other = memory.bytes[..SECTOR].to_vec();
    let sum = base::checksum::checksum(0, &other[8..]);
    other[..8].copy_from_slice(&sum.to_le_bytes());
    memory.write(0, &other);
    let before = memory.bytes.clone();
    let Err(error) = Log::open(&mut memory, BINDING) else { panic!("it is unknown") };
    assert_eq!(error, OpenError::UnknownFormat(9));
    assert!(error.to_string().contains("has format 9, this version knows 1:"), "{error}");
    assert_eq!(verify(&mut memory).err(), Some(error));
    assert!(memory.bytes == before, "it was changed");
}

#[test]
fn the_bytes_of_a_log_are_these() {
    let mut memory = Memory::with_log(SMALL);
    let mut log = Log::open(&mut memory, BINDING).expect("it opens");
    log.engine
        .append(1, vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")])
        .expect("room");
    log.engine.append(2, vec![Bytes::from_static(b"other")]).expect("room");
    log.flush().expect("the device does not fail");
    log.engine.cut_front(1);
    log.engine.append(3, vec![Bytes::from(vec![3; 1_000])]).expect("room");
    log.flush().expect("the device does not fail");
    let hash = base::checksum::hash(&memory.bytes);
    assert_eq!(hash, GOLDEN, "the format changed: {hash:#x}");
}

const GOLDEN: u64 = 0xde33_1006_a778_5694;
