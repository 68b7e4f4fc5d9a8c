//! The records of a store: where the newest of each is, and how a damaged one is lost.

use std::collections::BTreeSet;

use bytes::Bytes;
use types::{Database, Key, Shard};

use super::buckets::Buckets;
use super::clock::Clock;
use super::contents::Contents;
use super::losses::Losses;
use super::redone::Redone;
use super::staged::Staged;
use crate::Load;
use crate::disk::entry::{
    Entry, Identity, Mark, Reference, content_checksum, entry_checksum, fingerprint,
};
use crate::disk::extents::{Extents, Map};
use crate::disk::page::BadRecord;
use crate::disk::place::map_place;
use crate::disk::replies::Replies;
use crate::mutation::{self, Mutation};

/// The state that all parts of the engine work on.
#[derive(Debug)]
pub(super) struct Records {
    /// Names the node and cluster; every checksum depends on it.
    pub(super) binding: u64,
    pub(super) staged: Staged,
    pub(super) buckets: Buckets,
    pub(super) extents: Extents,
    pub(super) contents: Contents,
    pub(super) losses: Losses,
    /// Paces write-backs by the ring.
    pub(super) clock: Clock,
    /// The last process's write-back, until it is in place.
    pub(super) redone: Option<Redone>,
}

/// The newest version of a record.
pub(super) enum Newest {
    Absent,
    Record(Bytes),
    Extent(Reference),
}

impl Records {
    /// The newest record of a place: in the ring, else in its bucket. `None` if the bucket has to
    /// be read first.
    pub(super) fn find(&mut self, identity: &Identity) -> Option<Newest> {
        let entry = match self.staged.index().find(identity) {
            Some(entry) => Some(entry),
            None => {
                let bucket = self.buckets.directory().bucket_of(identity.hash);
                let homes = self.buckets.cache_mut().touch(bucket)?;
                homes.entries().find(|entry| identity.matches(entry))
            }
        };
        Some(match entry {
            Some(entry) if !entry.kind.is_remove() => match entry.reference() {
                Some(reference) => Newest::Extent(reference),
                None => Newest::Record(Bytes::copy_from_slice(entry.record())),
            },
            _ => Newest::Absent,
        })
    }

    /// Key and record of a content; `None` if the reference does not match.
    pub(super) fn open_content(
        &self,
        identity: &Identity,
        reference: Reference,
        content: &Bytes,
    ) -> Option<(Key, Bytes)> {
        if content_checksum(self.binding, identity.hash, content) != reference.checksum {
            return None;
        }
        let key = content.get(..reference.key_len as usize)?;
        let is_its_key = if identity.kind.has_long_key() {
            fingerprint(self.binding, key)[..] == identity.key[..]
        } else {
            *key == identity.key[..]
        };
        is_its_key
            .then(|| (Key::at(identity.hash, key), content.slice(reference.key_len as usize..)))
    }

    /// The answer to a load.
    pub(super) fn load_of(&self, identity: &Identity, record: Option<Bytes>) -> Load {
        let is_forgotten = self.losses.has(Database(identity.database), Shard(identity.shard()));
        match record {
            Some(record) => Load::Found(record),
            None if is_forgotten && !mutation::is(Mutation::LostIsAbsent) => Load::Lost,
            None => Load::Absent,
        }
    }

    fn forget(&mut self, mark: Mark, replies: &mut Replies) -> u64 {
        self.losses.forget(mark, self.staged.ring_mut(), replies)
    }

    /// The pages of a bucket are damaged: forgets every shard that its interval touches. Returns
    /// the batch that makes it durable, as the other losses do.
    pub(super) fn lose_bucket(&mut self, bucket: u64, replies: &mut Replies) -> u64 {
        let (first, last) = self.buckets.directory().interval(bucket);
        let (first, last) = ((first >> 56) as u8, (last >> 56) as u8);
        self.forget(Mark { forgotten: true, databases: u64::MAX, first, last }, replies)
    }

    /// Records of a bucket are damaged, each of a known shard.
    pub(super) fn lose_records(
        &mut self,
        bad: Vec<BadRecord>,
        replies: &mut Replies,
    ) -> Option<u64> {
        let shards: BTreeSet<(u8, u8)> = bad.iter().map(|bad| (bad.database, bad.shard)).collect();
        let mark = |(database, shard)| Mark::of(Database(database), Shard(shard), true);
        shards.into_iter().map(|shard| self.forget(mark(shard), replies)).max()
    }

    /// The content of a record is damaged: forgets its shard, and removes the record so that its
    /// reference is not used again.
    pub(super) fn lose_record(
        &mut self,
        identity: &Identity,
        reference: Reference,
        replies: &mut Replies,
    ) {
        self.extents.doubt((reference.unit, reference.checksum));
        let kind = identity.kind.removing();
        let (hash, database, body) = (identity.hash, identity.database, &identity.key[..]);
        let checksum = entry_checksum(self.binding, hash, database, kind, body);
        let mut raw = Vec::new();
        Entry { hash, checksum, kind, database, key_len: body.len(), body }.append_to(&mut raw);
        self.forget(Mark::of(Database(database), Shard(identity.shard()), true), replies);
        let len = raw.len();
        self.staged.ring_mut().reserve(len);
        self.staged.add_entries(raw, len);
    }

    /// Keeps a damaged bucket in memory until its pages are rewritten, once this batch is durable.
    pub(super) fn repair_after(&mut self, bucket: u64, stripe: u64) {
        self.losses.repair_after(bucket, stripe, &mut self.buckets);
    }

    /// Entries that are longer than this, and too long for a page, go to extents before the ring.
    /// `None` for no entries.
    pub(super) fn extent_len(&self) -> Option<usize> {
        // Until the last process's write-back is in place there may be no extents to give.
        let may_give = self.redone.is_none();
        may_give.then(|| self.clock.extent_len(self.staged.ring(), self.buckets.count())).flatten()
    }

    /// True if new batches have to wait for write-backs.
    pub(super) fn is_far_behind(&self) -> bool {
        self.clock.is_far_behind(self.staged.ring(), self.buckets.count())
    }

    /// True if the pages of a bucket must not be rewritten yet.
    pub(super) fn awaits_mark(&self, bucket: u64) -> bool {
        self.losses.awaits_mark(bucket, self.staged.ring().durable)
    }

    /// Takes the map of a group that was read, if it is whole.
    pub(super) fn learn_map(&mut self, group: u64, map: Option<Map>, replies: &mut Replies) {
        let is_damaged = map.is_none();
        self.extents.learn(group, map);
        if is_damaged {
            self.warn_of_map(group, replies);
        }
    }

    pub(super) fn warn_of_map(&self, group: u64, replies: &mut Replies) {
        let text = match self.extents.is_lost(group) {
            true => {
                "a space map is damaged; its space is not used until a scrub has rebuilt the map"
            }
            false => "a space map was damaged; it is repaired from memory",
        };
        replies.warn(map_place(group), text);
    }
}
