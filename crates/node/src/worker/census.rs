//! Estimates how many keys a database has at this node, without listing them.
//!
//! A [`Census`] counts part of a worker's hash space and keeps that part's sums exact. Each write
//! of a register adds its new weight and subtracts its old one. After a start the part grows by
//! short scans of storage, one at a time. It stops when all is counted, or a [`SAMPLE`] of keys.
//! Sums are then scaled by the part that was counted.
//!
//! The count is exact while the worker's part of a database has fewer keys than [`SAMPLE`]. Above
//! that, keys lie evenly in the hash space. The standard deviation is 0.32 %, and the error is
//! under 1 % in 997 of 1,000 cases. A volatile database has counted all from the start. If
//! deletions make the sample small, the part grows on.
//!
//! The count describes one replica. A replica that missed a write counts it once it is repaired,
//! and an expired key counts until it is removed. Damage makes a shard's sums void, and the shard
//! is counted again.

use base::Nanos;
use protocols::{Scan, Weight};
use types::key::SHARDS;
use types::{Key, Shard};

use super::Worker;
use super::worker_state::WorkerState;
use crate::status::DatabaseFigures;

/// Keys after which a worker counts no further.
pub const SAMPLE: u64 = 100_000;

/// Records of one scan.
const STEP: usize = 512;
/// Time for requests after a scan, for each of its records and as many more.
const PAUSE: Nanos = Nanos::from_micros(10);
const PAUSE_RECORDS: u64 = 16;
/// The same after a scan of a forgotten shard whose amnesia is not announced yet.
const PAUSE_HIDDEN: Nanos = Nanos::from_millis(50);

/// A whole shard, in the unit of [`Census::covered`].
const WHOLE: u64 = 1 << 24;

#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    keys: u64,
    expiring: u64,
    bytes: u64,
}

impl Sums {
    fn add(&mut self, weight: Weight) {
        self.keys += u64::from(weight.is_key());
        self.expiring += u64::from(weight.expires());
        self.bytes += weight.bytes();
    }

    /// Damaged records were counted and are not taken off one by one, so sums do not wrap.
    fn take_off(&mut self, weight: Weight) {
        self.keys = self.keys.saturating_sub(u64::from(weight.is_key()));
        self.expiring = self.expiring.saturating_sub(u64::from(weight.expires()));
        self.bytes = self.bytes.saturating_sub(weight.bytes());
    }

    fn merge(&mut self, other: Sums) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Sums) {
        self.keys = self.keys.saturating_sub(other.keys);
        self.expiring = self.expiring.saturating_sub(other.expiring);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// The counted part of one shard.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Below this position; `None`: all of it.
    below: Option<u64>,
    sums: Sums,
}

impl Counted {
    fn none(shard: Shard) -> Counted {
        Counted { below: Some(shard.first_hash()), sums: Sums::default() }
    }

    fn has(&self, hash: u64) -> bool {
        self.below.is_none_or(|below| hash < below)
    }

    fn covered(&self) -> u64 {
        self.below.map_or(WHOLE, |below| (below << 8) >> 40)
    }
}

/// The count of one database at one worker.
#[derive(Debug)]
pub(crate) struct Census {
    /// By shard; those of other workers stay empty.
    shards: Vec<Counted>,
    sums: Sums,
    /// How much of the worker's hash space was counted.
    covered: u64,
    /// The same if all was.
    whole: u64,
}

impl Census {
    /// Creates the census of worker `index` of `workers`. An empty store needs no scan.
    pub(crate) fn new(index: usize, workers: usize, is_empty: bool) -> Census {
        let owned = (index..SHARDS).step_by(workers).count() as u64;
        let below = |shard: Shard| if is_empty { None } else { Some(shard.first_hash()) };
        let shards = (0..=u8::MAX).map(Shard);
        Census {
            shards: shards.map(|it| Counted { below: below(it), sums: Sums::default() }).collect(),
            sums: Sums::default(),
            covered: if is_empty { owned * WHOLE } else { 0 },
            whole: owned * WHOLE,
        }
    }

    fn is_done(&self) -> bool {
        self.covered == self.whole
    }

    pub(crate) fn wants_more(&self) -> bool {
        !self.is_done() && self.sums.keys < SAMPLE
    }

    /// The next scan among the shards of worker `index` of `workers`.
    fn next(&self, index: usize, workers: usize) -> Option<u64> {
        let mut owned = self.shards[index..].iter().step_by(workers);
        self.wants_more().then(|| owned.find_map(|counted| counted.below)).flatten()
    }

    /// A register has another weight.
    pub(crate) fn change(&mut self, key: &Key, old: Weight, new: Weight) {
        let counted = &mut self.shards[usize::from(key.shard().0)];
        if counted.has(key.hash()) {
            for sums in [&mut counted.sums, &mut self.sums] {
                sums.take_off(old);
                sums.add(new);
            }
        }
    }

    /// A scan of `shard` has reached `below`, `None` for its end.
    fn count(&mut self, shard: Shard, below: Option<u64>, weights: impl Iterator<Item = Weight>) {
        let mut sums = Sums::default();
        weights.for_each(|weight| sums.add(weight));
        let counted = &mut self.shards[usize::from(shard.0)];
        self.covered -= counted.covered();
        counted.below = below;
        self.covered += counted.covered();
        counted.sums.merge(sums);
        self.sums.merge(sums);
    }

    /// Discards the sums of a shard.
    pub(crate) fn reset(&mut self, shard: Shard) {
        let counted = &mut self.shards[usize::from(shard.0)];
        self.sums.subtract(counted.sums);
        self.covered -= counted.covered();
        *counted = Counted::none(shard);
    }

    /// `None` before anything was counted.
    pub(crate) fn figures(&self, index: u8) -> Option<DatabaseFigures> {
        let (covered, whole) = (u128::from(self.covered), u128::from(self.whole));
        let scale = |sum: u64| (u128::from(sum) * whole).checked_div(covered).map(|it| it as u64);
        let Sums { keys, expiring, bytes } = self.sums;
        Some(DatabaseFigures {
            index,
            keys: scale(keys)?,
            expiring: scale(expiring)?,
            bytes: scale(bytes)?,
        })
    }

    /// Adds the result of a scan. `stored` are the records in storage. The sums of resident
    /// registers replace theirs, because storage may not know the latest writes.
    pub(crate) fn take(
        &mut self,
        shard: Shard,
        below: Option<u64>,
        stored: impl Iterator<Item = Weight>,
        resident: impl Iterator<Item = Weight>,
    ) {
        self.count(shard, below, stored.chain(resident));
    }
}

/// When a worker takes the next step of a census.
#[derive(Debug)]
pub(super) struct Counting {
    is_on: bool,
    is_under_way: bool,
    at: Nanos,
}

impl Counting {
    pub(super) fn new(is_on: bool, now: Nanos) -> Counting {
        Counting { is_on, is_under_way: false, at: now }
    }

    pub(super) fn next(&self, shared: &WorkerState) -> Option<Nanos> {
        (self.is_on && !self.is_under_way && shared.census_wanted).then_some(self.at)
    }

    fn end(&mut self, now: Nanos, pause: Nanos) {
        self.is_under_way = false;
        // Never within the same turn: a store that answers at once would be asked for ever.
        self.at = now + pause;
    }
}

impl Worker {
    /// Begins the next step, when it is due.
    pub(super) fn count_keys(&mut self) {
        if self.counting.next(&self.shared).is_none_or(|at| at > self.shared.now) {
            return;
        }
        let (index, workers) = (self.shared.index, self.shared.workers);
        let wanted = |at: &usize| {
            let engine = &self.engines.all()[*at];
            let census = engine.database().is_of_users().then(|| engine.census())?;
            census.next(index, workers).map(|from_hash| (*at, from_hash))
        };
        let Some((engine, from_hash)) = (0..self.engines.len()).find_map(|at| wanted(&at)) else {
            self.shared.census_wanted = false;
            return;
        };
        let scan = Scan { id: 0, from_hash, limit: STEP };
        self.engines.all()[engine].start_count(&mut self.shared, scan);
        self.counting.is_under_way = true;
    }

    pub(super) fn on_counted(&mut self, records: usize, is_taken: bool) {
        let pause = match is_taken {
            true => Nanos(PAUSE.0 * (PAUSE_RECORDS + records as u64)),
            false => PAUSE_HIDDEN,
        };
        self.counting.end(self.shared.now, pause);
    }

    /// This worker's part of each database; `None` for a database that is not counted yet.
    pub fn figures(&self) -> impl Iterator<Item = Option<DatabaseFigures>> {
        let engines = self.engines.all().iter();
        engines.filter(|engine| engine.database().is_of_users()).map(|engine| engine.figures())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: usize = 2;

    fn key(number: u64) -> Key {
        Key::new(&number.to_le_bytes())
    }

    fn is_owned(key: &Key) -> bool {
        usize::from(key.shard().0).is_multiple_of(WORKERS)
    }

    /// Counts `keys` in scans of `limit` until it wants no more; returns how many scans it took.
    fn count(census: &mut Census, keys: &[Key], limit: usize) -> usize {
        let mut scans = 0;
        while let Some(from) = census.next(0, WORKERS) {
            let shard = Shard((from >> 56) as u8);
            let mut found: Vec<&Key> =
                keys.iter().filter(|it| it.shard() == shard && it.hash() >= from).collect();
            found.sort();
            let below = found.get(limit).map(|key| key.hash());
            let weights = found.iter().take(limit).map(|_| Weight::of_key(10, true));
            census.take(shard, below, weights, std::iter::empty());
            scans += 1;
        }
        scans
    }

    #[test]
    fn samples_estimate_within_one_percent_and_survive_deletion() {
        let all: Vec<Key> = (0..1_000_000).map(key).filter(is_owned).collect();
        let mut census = Census::new(0, WORKERS, false);
        assert_eq!(census.figures(3), None);
        count(&mut census, &all, STEP);
        let near = |found: u64, expected: usize| {
            let (found, expected) = (found as f64, expected as f64);
            (found - expected).abs() <= expected / 100.0
        };
        let figures = census.figures(3).expect("much was counted");
        assert!(near(figures.keys, all.len()) && near(figures.expiring, all.len()), "{figures:?}");
        assert!(near(figures.bytes, 10 * all.len()), "{figures:?}");
        assert!(census.covered < census.whole / 3, "a sample is enough");

        // Half of the keys lose their time to live, then nine of ten go.
        for key in &all[..all.len() / 2] {
            census.change(key, Weight::of_key(10, true), Weight::of_key(10, false));
        }
        let figures = census.figures(3).expect("much was counted");
        assert!(near(figures.expiring, all.len() / 2), "{figures:?}");
        let (left, gone) = all.split_at(all.len() / 10);
        let old = |at: usize| Weight::of_key(10, at + left.len() >= all.len() / 2);
        gone.iter().enumerate().for_each(|(at, it)| census.change(it, old(at), Weight::NONE));
        count(&mut census, left, STEP);
        assert!(census.is_done());
        assert_eq!(census.figures(3).map(|it| it.keys), Some(left.len() as u64));
        for key in left {
            census.change(key, Weight::of_key(10, false), Weight::NONE);
        }
        assert_eq!(census.figures(3).map(|it| (it.keys, it.bytes)), Some((0, 0)));
    }

    #[test]
    fn small_steps_count_the_same() {
        let keys: Vec<Key> = (0..5_000).map(key).filter(is_owned).collect();
        for limit in [1, 7, STEP] {
            let mut census = Census::new(0, WORKERS, false);
            count(&mut census, &keys, limit);
            assert_eq!(census.figures(0).map(|it| it.keys), Some(keys.len() as u64));
        }
    }

    #[test]
    fn empty_databases_need_no_scan() {
        let mut census = Census::new(0, WORKERS, true);
        assert_eq!((census.next(0, WORKERS), census.figures(0).map(|it| it.keys)), (None, Some(0)));
        let owned = (0..).map(key).find(is_owned).expect("half of all keys");
        census.change(&owned, Weight::NONE, Weight::of_key(5, false));
        assert_eq!(census.figures(0).map(|it| (it.keys, it.bytes)), Some((1, 5)));
    }
}
