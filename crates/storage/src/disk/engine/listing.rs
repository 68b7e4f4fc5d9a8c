//! A listing takes the buckets of a shard in hash order and gives the newest records, those in the
//! ring included.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Database, Key};

use super::lookup::{Asker, Lookups};
use super::records::Records;
use crate::Completion;
use crate::disk::entry::{Entry, Identity, Kind, Reference};
use crate::disk::replies::{Out, Replies};
use crate::disk::request::ScanRequest;
use crate::store::LISTED_LEN_MAX;

/// Listings under way, by number.
#[derive(Default, Debug)]
pub(super) struct Listings {
    listings: BTreeMap<u64, Listing>,
    last: u64,
}

#[derive(Debug)]
struct Listing {
    worker: usize,
    id: u64,
    database: Database,
    from: Option<u64>, // `None` once the shard is done
    limit: usize,
    records: Vec<(Key, Bytes)>,
    len: usize, // bytes of them
    items: Vec<Option<(Key, Bytes)>>,
    items_missing: usize,
}

impl Listings {
    pub(super) fn add(&mut self, worker: usize, scan: ScanRequest) {
        self.last += 1;
        let listing = Listing {
            worker,
            id: scan.id,
            database: scan.database,
            from: Some(scan.from_hash),
            limit: scan.limit.max(1),
            records: Vec::new(),
            len: 0,
            items: Vec::new(),
            items_missing: 0,
        };
        self.listings.insert(self.last, listing);
    }

    /// Takes a record that a listing has asked for.
    pub(super) fn take_item(&mut self, number: u64, item: usize, found: Option<(Key, Bytes)>) {
        let listing = self.listings.get_mut(&number).expect("it waits for its items");
        listing.items[item] = found;
        listing.items_missing -= 1;
    }

    /// Lists a bucket for each listing that can go on; false if none can.
    pub(super) fn step(
        &mut self,
        records: &mut Records,
        lookups: &mut Lookups,
        out: &mut Out,
    ) -> bool {
        let mut has_moved = false;
        let numbers: Vec<u64> = self.listings.keys().copied().collect();
        for number in numbers {
            let listing = self.listings.get_mut(&number).expect("it is under way");
            if listing.items_missing > 0 {
                continue;
            }
            listing.take_records();
            let Some(from) = listing.from.filter(|_| !listing.is_full()) else {
                let done = self.listings.remove(&number).expect("it is under way");
                done.finish(&mut out.replies);
                continue;
            };
            let bucket = records.buckets.directory().bucket_of(from);
            if !records.buckets.cache().has(bucket) {
                lookups.read_for_listing(bucket, records, &mut out.device);
                continue;
            }
            for (item, identity) in listing.take_bucket(bucket, from, records).enumerate() {
                let by = Asker::Listing { listing: number, item };
                lookups.ask(by, identity, records, out);
            }
            has_moved = true;
        }
        has_moved
    }
}

impl Listing {
    fn take_records(&mut self) {
        for (key, record) in self.items.drain(..).flatten() {
            self.len += key.bytes().len() + record.len();
            self.records.push((key, record));
        }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.limit || self.len >= LISTED_LEN_MAX
    }

    fn finish(mut self, replies: &mut Replies) {
        // Long keys were read in any order.
        self.records.sort_by(|(a, _), (b, _)| a.cmp(b));
        let Listing { worker, id, records, from: next_hash, .. } = self;
        replies.push(worker, Completion::Scanned { id, records, next_hash });
    }

    /// Chooses the records of a bucket from a hash on, up to the limit; waits for them from now on.
    fn take_bucket(
        &mut self,
        bucket: u64,
        from: u64,
        of: &Records,
    ) -> impl Iterator<Item = Identity> + use<> {
        let shard_last = from | u64::MAX >> 8;
        let last = of.buckets.directory().interval(bucket).1.min(shard_last);
        let (room, room_len) = (self.limit - self.records.len(), LISTED_LEN_MAX - self.len);
        let mut records = records_in(self.database, bucket, (from, last), of);
        records.sort_by_key(|(identity, _)| identity.hash);
        let mut len = 0;
        let fits = |(_, record_len): &&(Identity, usize)| {
            len += record_len;
            len <= room_len
        };
        let room = records.iter().take(room).take_while(fits).count();
        let mut identities: Vec<Identity> = records.into_iter().map(|(it, _)| it).collect();
        self.from = (last < shard_last).then(|| last + 1);
        if let Some(cut) = identities.get(room).map(|identity| identity.hash) {
            // A hash is never divided: all of this one come with this listing, or none.
            let keep = identities.partition_point(|identity| identity.hash < cut);
            let end = identities.partition_point(|identity| identity.hash <= cut);
            identities.truncate(if keep == 0 { end } else { keep });
            let listed_last = identities.last().expect("one hash at least is listed").hash;
            self.from = (listed_last < shard_last).then(|| listed_last + 1);
        }
        self.items = identities.iter().map(|_| None).collect();
        self.items_missing = identities.len();
        identities.into_iter()
    }
}

/// The cells of a database in part of a bucket, those in the ring included, and the lengths of
/// their records.
fn records_in(
    database: Database,
    bucket: u64,
    (from, last): (u64, u64),
    of: &Records,
) -> Vec<(Identity, usize)> {
    let index = of.staged.index();
    let is_asked = |entry: &Entry<'_>| {
        entry.database == database.0
            && entry.kind.class() == Kind::CELL
            && (from..=last).contains(&entry.hash)
    };
    let record_of = |entry: &Entry<'_>| {
        let large = |it: Reference| it.key_len as usize + it.record_len as usize;
        let len = entry.reference().map_or(entry.len(), large);
        (entry.identity(), len)
    };
    let staged = index.range(from, last).map(|(_, slot)| slot.entry());
    let mut records: Vec<(Identity, usize)> = staged
        .filter(|entry| is_asked(entry) && !entry.kind.is_remove())
        .map(|entry| record_of(&entry))
        .collect();
    let homes = of.buckets.cache().peek(bucket).expect("it was in memory just now");
    for entry in homes.entries().filter(is_asked) {
        let record = record_of(&entry);
        if index.find(&record.0).is_none() {
            records.push(record);
        }
    }
    records
}
