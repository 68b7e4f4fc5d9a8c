//! Damage becomes forgetting: whatever was damaged, absence proves nothing in its shards any more.
//!
//! A mark in the ring makes that durable, after everything that the ring says of the shard. Only then the
//! damaged pages are rewritten; until then they stay as they are, so that a crash finds the damage again.

use std::collections::BTreeSet;

use types::{Database, Shard};

use super::{Engine, shard_index};
use crate::Completion;
use crate::disk::entry::{Entry, Identity, Mark, Reference, entry_checksum};
use crate::disk::extents::Map;
use crate::disk::io::File;
use crate::disk::page::BadRecord;
use crate::disk::place::{PagePlace, map_place};
use crate::disk::recovery::Restored;
use crate::disk::stripe::SECTOR;

/// A crash may leave that, too.
pub(super) const SUPERBLOCK_UNUSABLE: &str =
    "one of two superblocks was damaged or half written; the other one is used and repairs it";

impl Engine {
    /// Damage that costs no record.
    pub(super) fn remark(&mut self, place: PagePlace, what: &str) {
        let (file, offset) = (place.file.name(), place.offset);
        self.completions[0].push(Completion::Remark(format!("{file} at {offset}: {what}")));
    }

    /// Takes the map of a group that was read, if it is whole.
    pub(super) fn learn_map(&mut self, group: u64, map: Option<Map>) {
        let is_damaged = map.is_none();
        self.extents.learn(group, map);
        if is_damaged {
            self.remark_map(group);
        }
    }

    pub(super) fn remark_map(&mut self, group: u64) {
        let what = match self.extents.is_lost(group) {
            true => {
                "a space map is damaged; its space is not used until a scrub has rebuilt the map"
            }
            false => "a space map was damaged; it is repaired from memory",
        };
        self.remark(map_place(group), what);
    }

    /// Sectors of the ring.
    pub(super) fn remark_restored(&mut self, restored: &[Restored]) {
        let Some(Restored { position: first, .. }) = restored.first() else { return };
        base::sometimes!("disk: a start finds sectors that parity restores");
        let offset = first % self.ring.sectors * SECTOR as u64;
        let count = restored.len();
        let what = format!("{count} damaged sectors from here on; they are repaired from parity");
        self.remark(PagePlace { file: File::Ring, offset }, &what);
    }

    /// Forgets shards; returns the stripe that makes it durable, 0 where it is. It is not the last one, for those before may wait for
    /// the room that the damaged bucket takes; so no word on the shards that did not know of this may come after it.
    pub(super) fn forget(&mut self, mark: Mark) -> u64 {
        self.scrub.note_damage();
        self.announce(mark);
        self.set_flags(mark);
        self.ring.take_back(mark);
        if self.is_durably_forgotten(mark) {
            // Starts that meet the same damage again and again would fill the ring with what it says already.
            return 0;
        }
        let stripe = self.ring.first_open();
        stripe.add_mark(mark);
        stripe.number
    }

    /// True where a start would find these shards forgotten, now and when the stripe under way is durable.
    fn is_durably_forgotten(&self, mark: Mark) -> bool {
        let is_forgotten = |(database, shard)| self.flags_durable.has(database, shard);
        !self.ring.is_saying_known(mark) && mark.shards().all(is_forgotten)
    }

    /// Nothing that stands in a page counts any more. To be called before the process has written anything back.
    pub(super) fn void_pages(&mut self) {
        assert!(!self.is_numbered, "pages of this process are not void");
        self.batch += 1;
        (self.floor, self.batch_in_place) = (self.batch, self.batch);
        self.used = 0;
    }

    /// Tells workers that shards of theirs are forgotten.
    pub(super) fn announce(&mut self, mark: Mark) {
        for (database, shard) in mark.shards() {
            self.announce_one(database, shard);
        }
    }

    pub(super) fn announce_one(&mut self, database: Database, shard: Shard) {
        self.losses[shard_index(database, shard)] += 1;
        let owner = self.owner_of(shard);
        self.completions[owner].push(Completion::Forgotten { database, shard });
    }

    /// A bucket's pages are damaged: every shard that its interval touches is forgotten.
    pub(super) fn lose_bucket(&mut self, bucket: u64) -> u64 {
        let (first, last) = self.directory.interval(bucket);
        self.forget(Mark {
            forgotten: true,
            databases: u64::MAX,
            first: (first >> 56) as u8,
            last: (last >> 56) as u8,
        })
    }

    /// Records of a bucket are damaged, each of a known shard; returns the stripe that says the last of it.
    pub(super) fn lose_records(&mut self, bad: Vec<BadRecord>) -> Option<u64> {
        let shards: BTreeSet<(u8, u8)> = bad.iter().map(|bad| (bad.database, bad.shard)).collect();
        let mut stripe = None;
        for (database, shard) in shards {
            let said_by = self.forget(Mark::of(Database(database), Shard(shard), true));
            stripe = stripe.max(Some(said_by));
        }
        stripe
    }

    /// A record's extent is damaged: it is forgotten, and removed so that nobody finds its old reference.
    pub(super) fn lose_record(&mut self, identity: &Identity, reference: Reference) {
        self.extents.doubt((reference.unit, reference.checksum));
        let mark = Mark::of(Database(identity.database), Shard(identity.shard()), true);
        let kind = identity.kind.removing();
        let (hash, database, body) = (identity.hash, identity.database, &identity.key[..]);
        let checksum = entry_checksum(self.binding, hash, database, kind, body);
        let mut raw = Vec::new();
        Entry { hash, checksum, kind, database, key_len: body.len(), body }.append_to(&mut raw);
        self.forget(mark);
        self.ring.reserve(raw.len());
        let len = raw.len();
        self.add_entries(raw, len);
    }

    /// Keeps what is whole of a damaged bucket in memory until its pages are rewritten, which may not happen
    /// before this stripe is durable.
    pub(super) fn repair_after(&mut self, bucket: u64, stripe: u64) {
        self.note_repair();
        let known = self.repairs.get(&bucket).copied();
        if known.is_none() {
            self.cache.pin(bucket);
        }
        self.repairs.insert(bucket, stripe.max(known.unwrap_or(0)));
    }

    /// A repair is to be done, or has become possible.
    pub(super) fn note_repair(&mut self) {
        (self.fruitless, self.met_repair) = (None, true);
    }

    /// True if the pages of a bucket must not be rewritten yet.
    pub(super) fn awaits_mark(&self, bucket: u64) -> bool {
        self.repairs.get(&bucket).is_some_and(|&stripe| stripe > self.ring.durable)
    }
}
