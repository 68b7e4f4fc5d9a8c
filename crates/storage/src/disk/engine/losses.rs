//! Damage becomes forgetting: absence is no proof in a shard that has lost a record.
//!
//! A mark in the ring makes that durable, after everything else that the ring says of the shard.
//! Only then are damaged pages rewritten: a crash before finds the damage again.

use std::collections::BTreeMap;

use types::key::SHARDS;
use types::limits::SPACES;
use types::{Database, Shard};

use super::buckets::Buckets;
use crate::disk::entry::Mark;
use crate::disk::replies::Replies;
use crate::disk::request::ShardMark;
use crate::disk::ring::Ring;
use crate::disk::superblock::Flags;

#[derive(Debug)]
pub(super) struct Losses {
    /// Forgotten shards as workers see them.
    flags: Flags,
    /// The same as the durable batches have them.
    durable: Flags,
    /// Losses that workers were told of, by database and shard.
    told: Vec<u32>,
    /// Damaged buckets, and the batch whose marks must be durable before their pages are rewritten.
    repairs: BTreeMap<u64, u64>,
    /// Counts repairs that came up or became possible.
    news: u64,
    /// Places found damaged since the last scrub step.
    damaged: u64,
}

impl Losses {
    pub(super) fn new(flags: &Flags) -> Losses {
        Losses {
            flags: flags.clone(),
            durable: flags.clone(),
            told: vec![0; SPACES * SHARDS],
            repairs: BTreeMap::new(),
            news: 0,
            damaged: 0,
        }
    }

    pub(super) fn has(&self, database: Database, shard: Shard) -> bool {
        self.flags.has(database, shard)
    }

    /// True if a shard of the database is forgotten, as workers see it or as a start would find it.
    pub(super) fn has_any(&self, database: Database) -> bool {
        self.flags.has_any(database) || self.durable.has_any(database)
    }

    pub(super) fn durable(&self) -> &Flags {
        &self.durable
    }

    /// Turns a worker's word on a shard into a mark, unless the worker has not heard of the latest
    /// loss.
    pub(super) fn admit(&self, mark: &ShardMark) -> Option<Mark> {
        let has_heard = self.told[told_at(mark.database, mark.shard)] == mark.losses_heard;
        (mark.forgotten || has_heard).then(|| Mark::of(mark.database, mark.shard, mark.forgotten))
    }

    /// Takes a mark as workers see it.
    pub(super) fn set(&mut self, mark: Mark) {
        for (database, shard) in mark.shards() {
            self.flags.set(database, shard, mark.forgotten);
        }
    }

    /// Takes marks that have become durable.
    pub(super) fn set_durable(&mut self, marks: &[Mark]) {
        for mark in marks {
            for (database, shard) in mark.shards() {
                self.durable.set(database, shard, mark.forgotten);
            }
        }
    }

    /// Tells workers of every forgotten shard: the process before may have ended before it acted on
    /// that.
    pub(super) fn tell_all(&mut self, replies: &mut Replies) {
        for database in (0..SPACES as u8).map(Database) {
            for shard in (0..=u8::MAX).map(Shard) {
                if self.flags.has(database, shard) {
                    self.tell(database, shard, replies);
                }
            }
        }
    }

    fn tell(&mut self, database: Database, shard: Shard, replies: &mut Replies) {
        self.told[told_at(database, shard)] += 1;
        replies.forgotten(database, shard);
    }

    /// Forgets shards. Returns the batch that makes it durable, 0 if it is durable already.
    pub(super) fn forget(&mut self, mark: Mark, ring: &mut Ring, replies: &mut Replies) -> u64 {
        self.damaged += 1;
        for (database, shard) in mark.shards() {
            self.tell(database, shard, replies);
        }
        self.set(mark);
        ring.take_back(mark);
        let is_durable = mark.shards().all(|(database, shard)| self.durable.has(database, shard));
        if is_durable && !ring.is_saying_known(mark) {
            // A start that meets the same damage again must not fill the ring with marks.
            return 0;
        }
        // Not the last batch: it may wait for the room that the damaged bucket takes.
        let stripe = ring.first_open();
        stripe.add_mark(mark);
        stripe.number
    }

    /// Keeps a damaged bucket in memory until its pages are rewritten, once this batch is durable.
    pub(super) fn repair_after(&mut self, bucket: u64, stripe: u64, buckets: &mut Buckets) {
        self.note_repair();
        let known = self.repairs.get(&bucket).copied();
        if known.is_none() {
            buckets.cache_mut().pin(bucket);
        }
        self.repairs.insert(bucket, stripe.max(known.unwrap_or(0)));
    }

    /// The pages of a bucket are rewritten and in place.
    pub(super) fn repaired(&mut self, bucket: u64, buckets: &mut Buckets) {
        if self.repairs.remove(&bucket).is_some() {
            buckets.cache_mut().unpin(bucket);
        }
    }

    /// The marks of these buckets are durable, though their batch is not.
    pub(super) fn set_ready(&mut self, buckets: &[u64]) {
        self.note_repair();
        for bucket in buckets {
            if let Some(stripe) = self.repairs.get_mut(bucket) {
                *stripe = 0;
            }
        }
    }

    fn note_repair(&mut self) {
        self.news += 1;
    }

    /// Differs from an earlier answer if a repair came up or became possible since.
    pub(super) fn news(&self) -> u64 {
        self.news
    }

    pub(super) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    pub(super) fn is_repaired_later(&self, bucket: u64) -> bool {
        self.repairs.contains_key(&bucket)
    }

    /// True if the pages of a bucket must not be rewritten yet.
    pub(super) fn awaits_mark(&self, bucket: u64, durable: u64) -> bool {
        self.repairs.get(&bucket).is_some_and(|&stripe| stripe > durable)
    }

    /// Damaged buckets whose marks are durable with this batch.
    pub(super) fn ready(&self, durable: u64) -> impl Iterator<Item = u64> {
        let ready = self.repairs.iter().filter(move |&(_, &stripe)| stripe <= durable);
        ready.map(|(&bucket, _)| bucket)
    }

    /// Damaged buckets whose marks are not durable with this batch.
    pub(super) fn waiting(&self, durable: u64) -> impl Iterator<Item = u64> {
        let waiting = self.repairs.iter().filter(move |&(_, &stripe)| stripe > durable);
        waiting.map(|(&bucket, _)| bucket)
    }

    /// Counts damage that costs no record.
    pub(super) fn note_damage(&mut self) {
        self.damaged += 1;
    }

    pub(super) fn take_damaged(&mut self) -> u64 {
        std::mem::take(&mut self.damaged)
    }
}

fn told_at(database: Database, shard: Shard) -> usize {
    usize::from(database.0) % SPACES * SHARDS + usize::from(shard.0)
}
