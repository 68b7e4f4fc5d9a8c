//! Damage to any sector: the log is the same, or refused; it is never another one.

use base::Prng;
use storage::log::{Log, OpenError, verify};

use crate::support::*;

/// A log at rest after some laps, and its wanted records.
fn log(seed: u64) -> (Memory, Model) {
    let mut prng = Prng::new(seed);
    let mut memory = Memory::with_log(SMALL);
    let mut model = Model::default();
    let mut log = Log::open(&mut memory, BINDING).expect("it opens");
    for _ in 0..150 {
        let change = draw(&mut prng, &model, log.engine.batch_len_max());
        apply(&mut log, &mut model, &change);
        log.flush().expect("the device does not fail");
    }
    drop(log);
    (memory, model)
}

/// The states that one damaged sector may turn into.
fn damages(memory: &Memory, at: usize, prng: &mut Prng) -> Vec<Vec<u8>> {
    let before = memory.bytes[at..at + SECTOR].to_vec();
    let mut flipped = before.clone();
    flipped[prng.below(SECTOR as u64) as usize] ^= 1 << prng.below(8);
    let garbage = (0..SECTOR).map(|_| prng.next_u64() as u8).collect();
    let from = prng.below((memory.bytes.len() / SECTOR) as u64) as usize * SECTOR;
    let misplaced = memory.bytes[from..from + SECTOR].to_vec();
    let all = [flipped, garbage, vec![0; SECTOR], misplaced];
    all.into_iter().filter(|damage| *damage != before).collect()
}

fn check(memory: &mut Memory, model: &Model, what: &str) -> bool {
    match Log::open(&mut *memory, BINDING) {
        Ok(log) => {
            assert_eq!(model.difference(&log.engine), None, "{what}");
            true
        }
        Err(OpenError::Damaged { .. } | OpenError::Superblocks) => false,
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Offsets of all sectors that mean something: the superblocks' and the ring's.
fn sectors(memory: &Memory) -> Vec<usize> {
    [0, 4_096].into_iter().chain((8_192..memory.bytes.len()).step_by(SECTOR)).collect()
}

#[test]
fn one_damaged_sector_costs_nothing_is_named_and_is_mended() {
    for seed in 0..6 {
        let (memory, model) = log(seed);
        let mut prng = Prng::new(seed);
        for at in sectors(&memory) {
            for damage in damages(&memory, at, &mut prng) {
                let what = format!("seed {seed}, byte {at}");
                let mut damaged = memory.clone();
                damaged.write(at, &damage);
                let report = verify(&mut damaged).expect("one superblock is whole");
                assert!(report.faults_count > 0, "{what}: unnoticed");
                assert!(check(&mut damaged, &model, &what), "{what}: refused");
                let report = verify(&mut damaged).expect("one superblock is whole");
                let is_mended = report.faults_count == 0;
                // Sectors of the free part are written anew before they count.
                assert!(is_mended || report.faults_count == 1, "{what}: {report:?}");
            }
        }
    }
}

#[test]
fn two_damaged_sectors_never_make_it_another_log() {
    let mut refused = 0;
    for seed in 0..6 {
        let (memory, model) = log(seed);
        let mut prng = Prng::new(seed);
        let sectors = sectors(&memory);
        for (number, &at) in sectors.iter().enumerate() {
            // Neighbours share a stripe.
            for &other in sectors.iter().skip(number + 1).take(4) {
                let mut damaged = memory.clone();
                for at in [at, other] {
                    let damages = damages(&memory, at, &mut prng);
                    let damage: &Vec<u8> = prng.pick(&damages);
                    damaged.write(at, damage);
                }
                let what = format!("seed {seed}, bytes {at} and {other}");
                let report = verify(&mut damaged);
                assert!(report.is_err() || report.is_ok_and(|r| r.faults_count > 0), "{what}");
                refused += u64::from(!check(&mut damaged, &model, &what));
            }
        }
    }
    assert!(refused > 50, "{refused} logs with two damaged neighbours were refused");
}

#[test]
fn an_old_whole_sector_is_noticed_in_all_but_the_newest_stripe() {
    let mut tried = 0;
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let mut memory = Memory::with_log(SMALL);
        let mut model = Model::default();
        let mut log = Log::open(&mut memory, BINDING).expect("it opens");
        for _ in 0..60 {
            let change = draw(&mut prng, &model, log.engine.batch_len_max());
            apply(&mut log, &mut model, &change);
            log.flush().expect("the device does not fail");
        }
        let next = log.engine.next_index();
        let before = log.engine.append(next, vec![vec![1; 900].into()]);
        if before.is_err() {
            continue;
        }
        drop(log);
        let old = memory.clone();
        let mut log = Log::open(&mut memory, BINDING).expect("it opens");
        for record in [vec![1; 900], vec![2; 10]] {
            let next = log.engine.next_index();
            let record = bytes::Bytes::from(record);
            log.engine.append(next, vec![record.clone()]).expect("there was room");
            model.append(next, &[record]);
            log.flush().expect("the device does not fail");
        }
        drop(log);
        let newer = memory.stores.iter().rev().nth(1).expect("two were stored").clone();
        for (at, _) in Memory::sectors(&newer) {
            let mut lost = memory.clone();
            lost.write(at, &old.bytes[at..at + SECTOR]);
            let what = format!("seed {seed}, byte {at}");
            assert!(verify(&mut lost).is_ok_and(|report| report.faults_count > 0), "{what}");
            assert!(check(&mut lost, &model, &what), "{what}: refused");
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried} sectors");
}
