//! Every crash of a history: earlier stores are there, and any sectors of the store under way.
//!
//! Each such state must open and be the log before or after the store under way. The crash of that
//! opening is tried too, and the log goes on from there.

use base::Prng;
use bytes::Bytes;
use storage::log::{Log, Store, verify};

use crate::support::*;

/// As many subsets are tried one by one; of sets that have more, some are drawn.
const SUBSETS_MAX: u64 = 64;
const SUBSETS_DRAWN: u64 = 12;

/// A store, and the log before and after it.
struct Step {
    store: Store,
    before: Model,
    after: Model,
}

/// A history: the device before it, and its stores.
fn history(seed: u64, sectors: u64, changes: u64) -> (Memory, Vec<Step>) {
    let mut prng = Prng::new(seed);
    let start = Memory::with_log(sectors);
    let mut memory = start.clone();
    let mut steps = Vec::new();
    let mut log = Log::open(&mut memory, BINDING).expect("it opens");
    let (mut durable, mut model) = (Model::default(), Model::default());
    let mut stored = Vec::new();
    for _ in 0..changes {
        let change = draw(&mut prng, &model, log.engine.batch_len_max());
        // One batch per store, so that each step has one state before and one after it.
        if let Change::Append { from, records } = &change
            && log.engine.append(*from, records.clone()).is_ok()
        {
            model.append(*from, records);
        } else {
            let half = model.first + (model.next() - model.first) / 2;
            let upto = if let Change::CutFront { upto } = change { upto } else { half };
            log.engine.cut_front(upto);
            model.cut_front(upto);
            // Without a store: it holds from now on whatever is found.
            durable.cut_front(upto);
        }
        while let Some(store) = log.engine.next_store() {
            log.engine.on_stored(Ok(()));
            stored.push(store.clone());
            let is_stripe = store.writes.iter().all(|write| write.offset >= 8_192);
            let after = if is_stripe { model.clone() } else { durable.clone() };
            steps.push(Step { store, before: durable.clone(), after: after.clone() });
            durable = after;
        }
        assert_eq!(durable, model, "all of it is stored");
    }
    drop(log);
    (start, steps)
}

/// Subsets of `count` things: all of them, or some.
fn subsets(count: usize, prng: &mut Prng) -> Vec<Vec<bool>> {
    let all = 1_u64.checked_shl(count as u32).unwrap_or(u64::MAX);
    let bits = |set: u64| (0..count).map(|at| set >> at & 1 == 1).collect();
    if all <= SUBSETS_MAX {
        return (0..all).map(bits).collect();
    }
    let drawn = |_| {
        let ppm = *prng.pick(&[20_000, 300_000, 700_000, 980_000]);
        (0..count).map(|_| prng.chance_ppm(ppm)).collect()
    };
    let mut sets: Vec<Vec<bool>> = (0..SUBSETS_DRAWN).map(drawn).collect();
    sets.extend([vec![false; count], vec![true; count]]);
    sets
}

fn with_part(memory: &Memory, store: &Store, part: &[bool]) -> Memory {
    let mut memory = Memory { bytes: memory.bytes.clone(), ..Memory::default() };
    for ((offset, bytes), _) in Memory::sectors(store).iter().zip(part).filter(|(_, is_in)| **is_in)
    {
        memory.write(*offset, bytes);
    }
    memory
}

/// Opens a crash state, which must be one of these; which one it is.
fn open<'m>(memory: &mut Memory, allowed: &[&'m Model], what: &str) -> &'m Model {
    let log = Log::open(&mut *memory, BINDING).unwrap_or_else(|error| panic!("{what}: {error}"));
    let differences: Vec<_> = allowed.iter().map(|model| model.difference(&log.engine)).collect();
    let found = differences.iter().position(Option::is_none);
    allowed[found.unwrap_or_else(|| panic!("{what}: {differences:?}"))]
}

/// The log goes on after a crash, and remains of the crash do not come up again: not behind a
/// shorter batch either.
fn go_on(mut memory: Memory, rotten: u64, prng: &mut Prng, what: &str) {
    let mut model = Model::default();
    for len in [1, prng.below(900), prng.below(900)] {
        let mut log = Log::open(&mut memory, BINDING).expect("it opened before");
        model.first = log.engine.first();
        model.records = log.engine.range(0..=u64::MAX).map(|(_, record)| record.clone()).collect();
        let (from, record) = (model.next(), Bytes::from(vec![len as u8; len as usize]));
        if log.engine.append(from, vec![record.clone()]).is_ok() {
            model.append(from, &[record]);
        }
        log.flush().expect("the device does not fail");
        drop(log);
        open(&mut memory, &[&model], &format!("{what}, gone on"));
        let report = verify(&mut memory).expect("it is a log");
        let is_well = report.faults_count <= rotten && report.unfinished == 0;
        assert!(is_well, "{what}: {report:?}");
    }
}

fn try_all(seed: u64, sectors: u64, changes: u64) -> u64 {
    let (mut memory, steps) = history(seed, sectors, changes);
    let mut prng = Prng::new(seed ^ 0xc4a5);
    let mut states = 0;
    for (number, Step { store, before, after }) in steps.iter().enumerate() {
        let count = Memory::sectors(store).len();
        for part in subsets(count, &mut prng) {
            let what = format!("seed {seed}, {sectors} sectors, store {number}, part {part:?}");
            let mut crashed = with_part(&memory, store, &part);
            let as_found = crashed.clone();
            let is_whole = part.iter().all(|&is_in| is_in);
            let allowed: &[&Model] = if is_whole { &[after] } else { &[before, after] };
            let found = open(&mut crashed, allowed, &what);
            states += 1;
            for repair in std::mem::take(&mut crashed.stores) {
                for part in subsets(Memory::sectors(&repair).len(), &mut prng) {
                    let mut again = with_part(&as_found, &repair, &part);
                    open(&mut again, &[found], &format!("{what}, opening crashed at {part:?}"));
                    states += 1;
                }
            }
            go_on(crashed, 0, &mut prng, &what);
        }
        memory = with_part(&memory, store, &vec![true; count]);
    }
    states
}

#[test]
fn every_crash_of_small_histories_leaves_the_log_before_or_after() {
    let seeds = std::env::var("LOG_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let states: u64 = (0..seeds).map(|seed| try_all(seed, SMALL + seed, 80)).sum();
    assert!(states > seeds * 300, "{states} states");
}

#[test]
fn crashes_of_large_histories_leave_the_log_before_or_after() {
    for seed in 0..2 {
        try_all(1_000 + seed, 1_024, 60);
    }
}

/// A torn store and one sector that rots before the log is opened, or after that while it is put in order.
#[test]
fn a_torn_store_and_a_rotten_sector_never_make_it_another_log() {
    let seeds = std::env::var("LOG_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let mut opened = 0_u64;
    for seed in 0..seeds {
        let (mut memory, steps) = history(2_000 + seed, SMALL + seed % 12, 60);
        let mut prng = Prng::new(seed ^ 0x0207);
        for (number, Step { store, before, after }) in steps.iter().enumerate() {
            let sectors = Memory::sectors(store);
            for part in subsets(sectors.len(), &mut prng) {
                let mut crashed = with_part(&memory, store, &part);
                let near = prng.pick(&sectors).0 + SECTOR * prng.below(3) as usize;
                let any = prng.below((crashed.bytes.len() / SECTOR) as u64) as usize * SECTOR;
                let at =
                    if prng.chance(0.7) { near.min(crashed.bytes.len() - SECTOR) } else { any };
                let mut damage = crashed.bytes[at..at + SECTOR].to_vec();
                match prng.below(3) {
                    0 => damage.fill(0),
                    1 => damage[prng.below(SECTOR as u64) as usize] ^= 1 << prng.below(8),
                    _ => {
                        let from = prng.below((memory.bytes.len() / SECTOR) as u64) as usize;
                        let from = from * SECTOR;
                        damage.copy_from_slice(&crashed.bytes[from..from + SECTOR]);
                    }
                }
                crashed.write(at, &damage);
                let what = format!("seed {seed}, store {number}, part {part:?}, byte {at}");
                let is_whole = part.iter().all(|&is_in| is_in);
                let allowed: &[&Model] = if is_whole { &[after] } else { &[before, after] };
                let again = crashed.clone();
                match Log::open(&mut crashed, BINDING) {
                    Ok(log) => {
                        let differences: Vec<_> =
                            allowed.iter().map(|model| model.difference(&log.engine)).collect();
                        assert!(differences.contains(&None), "{what}: {differences:?}");
                        opened += 1;
                    }
                    Err(_) => continue,
                }
                for repair in std::mem::take(&mut crashed.stores) {
                    for part in subsets(Memory::sectors(&repair).len(), &mut prng) {
                        let mut again = with_part(&again, &repair, &part);
                        open(&mut again, allowed, &format!("{what}, opening crashed at {part:?}"));
                    }
                }
                go_on(crashed, 1, &mut prng, &what);
            }
            memory = with_part(&memory, store, &vec![true; sectors.len()]);
        }
    }
    assert!(opened > 300 * seeds, "{opened} states opened");
}
