//! A listing walks the buckets of a shard in hash order and gives the newest records, those in the ring included.

use bytes::Bytes;
use types::{Database, Key};

use super::Engine;
use super::lookup::{Ask, Waiter, Who};
use crate::Completion;
use crate::disk::entry::{Entry, Identity, Kind, Reference};
use crate::disk::request::ScanRequest;
use crate::store::LISTED_LEN_MAX;

/// A listing under way.
#[derive(Debug)]
pub(super) struct Listing {
    worker: usize,
    id: u64,
    database: Database,
    from: Option<u64>, // `None` once the shard is done
    limit: usize,
    records: Vec<(Key, Bytes)>,
    len: usize, // bytes of them
    items_missing: usize,
    items: Vec<Option<(Key, Bytes)>>,
    is_asking: bool,
}

impl Engine {
    pub(super) fn list(&mut self, worker: usize, scan: ScanRequest) {
        self.next_listing += 1;
        self.listings.insert(
            self.next_listing,
            Listing {
                worker,
                id: scan.id,
                database: scan.database,
                from: Some(scan.from_hash),
                limit: scan.limit.max(1),
                records: Vec::new(),
                len: 0,
                items_missing: 0,
                items: Vec::new(),
                is_asking: false,
            },
        );
    }

    pub(super) fn step_listings(&mut self) {
        let numbers: Vec<u64> = self.listings.keys().copied().collect();
        for number in numbers {
            while self.step_listing(number) {}
        }
    }

    /// One bucket of a listing; false once it waits or is done.
    fn step_listing(&mut self, number: u64) -> bool {
        let Some(listing) = self.listings.get_mut(&number) else { return false };
        if listing.items_missing > 0 || listing.is_asking {
            return false;
        }
        for (key, record) in listing.items.drain(..).flatten() {
            listing.len += key.bytes().len() + record.len();
            listing.records.push((key, record));
        }
        let is_full = listing.records.len() >= listing.limit || listing.len >= LISTED_LEN_MAX;
        let is_done = listing.from.is_none() || is_full;
        let Some(from) = listing.from.filter(|_| !is_done) else {
            let mut listing = self.listings.remove(&number).expect("it was there just now");
            // Long keys were read in any order.
            listing.records.sort_by(|(a, _), (b, _)| a.cmp(b));
            let Listing { worker, id, records, from: next_hash, .. } = listing;
            self.completions[worker].push(Completion::Scanned { id, records, next_hash });
            return false;
        };
        let bucket = self.directory.bucket_of(from);
        if !self.cache.has(bucket) {
            if !self.loading.contains_key(&bucket) {
                self.wait_for(bucket, Waiter::Listing);
            }
            return false;
        }
        self.list_bucket(number, bucket, from);
        true
    }

    /// Asks for the records of a bucket from a hash on, up to the listing's limit.
    fn list_bucket(&mut self, number: u64, bucket: u64, from: u64) {
        let listing = &self.listings[&number];
        let (database, shard_last) = (listing.database, from | u64::MAX >> 8);
        let last = self.directory.interval(bucket).1.min(shard_last);
        let (room, room_len) =
            (listing.limit - listing.records.len(), LISTED_LEN_MAX - listing.len);
        let mut records = self.records(database, bucket, from, last);
        records.sort_by_key(|(identity, _)| identity.hash);
        let mut len = 0;
        let fits = |(_, record_len): &&(Identity, usize)| {
            len += record_len;
            len <= room_len
        };
        let room = records.iter().take(room).take_while(fits).count();
        let mut identities: Vec<Identity> = records.into_iter().map(|(it, _)| it).collect();
        let mut next = (last < shard_last).then(|| last + 1);
        if let Some(cut) = identities.get(room).map(|identity| identity.hash) {
            // A hash is never divided: all of this one come with this listing, or none.
            let keep = identities.partition_point(|identity| identity.hash < cut);
            let end = identities.partition_point(|identity| identity.hash <= cut);
            identities.truncate(if keep == 0 { end } else { keep });
            let listed_last = identities.last().expect("one hash at least is listed").hash;
            next = (listed_last < shard_last).then(|| listed_last + 1);
        }
        let listing = self.listings.get_mut(&number).expect("it was there just now");
        listing.from = next;
        listing.items = identities.iter().map(|_| None).collect();
        listing.items_missing = identities.len();
        listing.is_asking = true;
        for (item, identity) in identities.into_iter().enumerate() {
            self.resolve(Ask {
                who: Who::Listing { listing: number, item },
                identity,
                content: None,
            });
        }
        if let Some(listing) = self.listings.get_mut(&number) {
            listing.is_asking = false;
        }
    }

    /// The cells of a database in part of a bucket, those in the ring included, and how long their records are.
    fn records(
        &self,
        database: Database,
        bucket: u64,
        from: u64,
        last: u64,
    ) -> Vec<(Identity, usize)> {
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
        let staged = self.index.range(from, last).map(|(_, slot)| slot.entry());
        let mut records: Vec<(Identity, usize)> = staged
            .filter(|entry| is_asked(entry) && !entry.kind.is_remove())
            .map(|entry| record_of(&entry))
            .collect();
        let homes = self.cache.peek(bucket).expect("it was in memory just now");
        for entry in homes.entries().filter(is_asked) {
            let record = record_of(&entry);
            if self.index.find(&record.0).is_none() {
                records.push(record);
            }
        }
        records
    }

    pub(super) fn list_item(&mut self, number: u64, item: usize, found: Option<(Key, Bytes)>) {
        let listing = self.listings.get_mut(&number).expect("it waits for its items");
        listing.items[item] = found;
        listing.items_missing -= 1;
    }
}
