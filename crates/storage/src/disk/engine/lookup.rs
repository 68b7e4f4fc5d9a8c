//! A record is found: in the index of the ring, else in its bucket, else in an extent that either refers to.
//!
//! After every read the question is asked again from the start, because what it depends on may have changed.

use bytes::Bytes;
use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX};
use types::{Database, Key, Shard};

use super::Engine;
use super::scrub::ScrubRead;
use crate::disk::entry::{Identity, Reference, content_checksum, fingerprint};
use crate::disk::extents::{Map, PAGE_DOUBTED};
use crate::disk::io::{File, Io};
use crate::disk::page::{BadRecord, Bucket, CheckedPage, PageHead};
use crate::disk::place::{
    PAGE, PagePlace, UNIT, map_place, overflow_place, primary_place, units_for,
};
use crate::mutation::{self, Mutation};
use crate::{Completion, Load, Place};

/// Pages that are read together.
const RUN_MAX: usize = 32;

/// Maps that are read together.
const MAPS_AT_ONCE: usize = 8;

/// Somebody wants a record.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) who: Who,
    pub(super) identity: Identity,
    /// What was read for a reference that the record had then.
    pub(super) content: Option<(Reference, Bytes)>,
}

#[derive(Debug)]
pub(super) enum Who {
    Worker { worker: usize, place: Place },
    Listing { listing: u64, item: usize },
    Scrub,
}

/// Somebody waits for a bucket.
#[derive(Debug)]
pub(super) enum Waiter {
    Ask(Ask),
    Listing,
    WriteBack,
    Scrub { was_still: bool },
}

/// A bucket that is being read, page by page.
#[derive(Debug, Default)]
pub(super) struct Loading {
    pages: Vec<Bytes>,
    overflow: Vec<u64>,
    first: Option<PageHead>,
    waiters: Vec<Waiter>,
}

/// A read under way.
#[derive(Debug)]
pub(super) enum Reading {
    /// `image` is what the page holds if it may not be in place yet.
    Page {
        bucket: u64,
        place: PagePlace,
        image: Option<Bytes>,
    },
    /// Primary pages of buckets that follow each other.
    Run {
        first: u64,
    },
    Content {
        ask: Ask,
        reference: Reference,
        /// Something was given these units since, which may be the same record.
        is_stale: bool,
    },
    Map {
        group: u64,
    },
    Scrub(ScrubRead),
}

impl Reading {
    /// What is as good as what cannot be read.
    pub(super) fn stand_in(&self) -> Option<Bytes> {
        match self {
            Reading::Page { image, .. } => image.clone(),
            // It costs no more than a damaged one.
            Reading::Map { .. } => Some(Bytes::from_static(&[0; PAGE])),
            // They are written again.
            Reading::Scrub(ScrubRead::Superblocks(_) | ScrubRead::Map { .. }) => Some(Bytes::new()),
            Reading::Run { .. } | Reading::Content { .. } | Reading::Scrub(_) => None,
        }
    }
}

/// Where the newest record of a place was found.
enum Found {
    Nothing,
    Record(Bytes),
    Extent(Reference),
}

impl Engine {
    pub(super) fn load(&mut self, worker: usize, place: Place) {
        let identity = Identity::of(self.binding, &place);
        self.resolve(Ask { who: Who::Worker { worker, place }, identity, content: None });
    }

    /// Answers a load at once if all that it takes is in memory. Only where the engine has taken all that the worker asked
    /// for before, and the worker has taken all that the engine told it: else something newer might be missed, or a record
    /// be absent that was lost.
    pub(in crate::disk) fn look(&mut self, worker: usize, place: &Place) -> Option<Load> {
        if self.failure.is_some() || self.has_completions(worker) {
            return None;
        }
        let identity = Identity::of(self.binding, place);
        match self.find(&identity)? {
            Found::Nothing => Some(self.load_of(&identity, None)),
            Found::Record(record) => Some(self.load_of(&identity, Some(record))),
            Found::Extent(_) => None,
        }
    }

    pub(super) fn resolve(&mut self, ask: Ask) {
        match self.find(&ask.identity) {
            None => {
                let bucket = self.directory.bucket_of(ask.identity.hash);
                self.wait_for(bucket, Waiter::Ask(ask));
            }
            Some(Found::Nothing) => self.answer(ask, None),
            Some(Found::Record(record)) => {
                let key = ask.identity.short_key();
                self.answer(ask, key.map(|key| (key, record)));
            }
            Some(Found::Extent(reference)) => self.resolve_extent(ask, reference),
        }
    }

    /// The newest record of a place; `None` where its bucket has to be read for that.
    fn find(&mut self, identity: &Identity) -> Option<Found> {
        let bucket = self.directory.bucket_of(identity.hash);
        let entry = match self.index.find(identity) {
            Some(entry) => Some(entry),
            None => self.cache.touch(bucket)?.entries().find(|entry| identity.matches(entry)),
        };
        Some(match entry {
            Some(entry) if !entry.kind.is_remove() => match entry.reference() {
                Some(reference) => Found::Extent(reference),
                None => Found::Record(Bytes::copy_from_slice(entry.record())),
            },
            _ => Found::Nothing,
        })
    }

    fn resolve_extent(&mut self, mut ask: Ask, reference: Reference) {
        if reference.content_len() > RECORD_LEN_MAX + KEY_LEN_MAX {
            self.lose_record(&ask.identity, reference);
            return self.answer(ask, None);
        }
        let unwritten =
            self.unwritten.get(&reference.unit).map(|content| (reference, content.clone()));
        match unwritten.or(ask.content.take()) {
            Some((of, content)) if of == reference => {
                let found = self.open_content(&ask.identity, reference, &content);
                if found.is_none() {
                    self.lose_record(&ask.identity, reference);
                }
                self.answer(ask, found);
            }
            _ => {
                let id = self.take_io_id();
                let (offset, len) = (reference.unit * UNIT, reference.content_len());
                self.ios.push(Io::Read { id, file: File::Extents, offset, len });
                let is_stale = false;
                self.reads.insert(id, Reading::Content { ask, reference, is_stale });
            }
        }
    }

    /// Key and record of an extent; `None` where they are not what the reference promises.
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

    fn answer(&mut self, ask: Ask, found: Option<(Key, Bytes)>) {
        match ask.who {
            Who::Worker { worker, place } => {
                let load = self.load_of(&ask.identity, found.map(|(_, record)| record));
                self.completions[worker].push(Completion::Loaded { place, load });
            }
            Who::Listing { listing, item } => self.list_item(listing, item, found),
            Who::Scrub => self.scrub_answered(),
        }
    }

    /// What a worker is told of a record.
    fn load_of(&self, identity: &Identity, record: Option<Bytes>) -> Load {
        let is_forgotten = self.flags.has(Database(identity.database), Shard(identity.shard()));
        match record {
            Some(record) => Load::Found(record),
            None if is_forgotten && !mutation::is(Mutation::LostIsAbsent) => Load::Lost,
            None => Load::Absent,
        }
    }

    /// Reads a bucket unless it is being read, and remembers who waits for it.
    pub(super) fn wait_for(&mut self, bucket: u64, waiter: Waiter) {
        let is_new = !self.loading.contains_key(&bucket);
        self.loading.entry(bucket).or_default().waiters.push(waiter);
        if is_new {
            self.read_page(bucket, primary_place(bucket));
        }
    }

    /// Reads the buckets that write-back wants, in order; those that lie side by side together.
    pub(super) fn wait_for_all(&mut self, buckets: &[u64]) {
        let mut rest = buckets;
        while let [first, ..] = *rest {
            let goes_on = |(at, &bucket): (usize, &u64)| bucket == first + at as u64;
            let is_new = |bucket: &u64| !self.loading.contains_key(bucket);
            let len = rest.iter().take(RUN_MAX).enumerate();
            let len =
                len.take_while(|&(at, bucket)| goes_on((at, bucket)) && is_new(bucket)).count();
            if len < 2 {
                self.wait_for(first, Waiter::WriteBack);
                rest = &rest[1..];
                continue;
            }
            for &bucket in &rest[..len] {
                self.loading.entry(bucket).or_default().waiters.push(Waiter::WriteBack);
            }
            let id = self.take_io_id();
            let PagePlace { file, offset } = primary_place(first);
            self.ios.push(Io::Read { id, file, offset, len: len * PAGE });
            self.reads.insert(id, Reading::Run { first });
            rest = &rest[len..];
        }
    }

    fn read_page(&mut self, bucket: u64, place: PagePlace) {
        let id = self.take_io_id();
        self.ios.push(Io::Read { id, file: place.file, offset: place.offset, len: PAGE });
        let image = self.write_back.image(place).cloned();
        self.reads.insert(id, Reading::Page { bucket, place, image });
    }

    /// Looks for room in groups that a start has left alone: when those that are known have none, or nothing else is to be
    /// done.
    pub(super) fn step_maps(&mut self) {
        let may_read = !self.write_back.is_redone();
        let is_time = self.extents.seeks_room() || self.is_resting;
        if may_read && is_time && self.maps.is_empty() && self.extents.unknown().next().is_some() {
            let groups: Vec<u64> = self.extents.unknown().take(MAPS_AT_ONCE).collect();
            groups.into_iter().for_each(|group| self.read_map(group));
        }
    }

    pub(super) fn read_map(&mut self, group: u64) {
        if !self.maps.insert(group) {
            return;
        }
        let id = self.take_io_id();
        let place = map_place(group);
        self.ios.push(Io::Read { id, file: place.file, offset: place.offset, len: PAGE });
        self.reads.insert(id, Reading::Map { group });
    }

    pub(super) fn read_done(&mut self, reading: Reading, bytes: Bytes) {
        match reading {
            Reading::Page { bucket, place, image } => {
                let page = CheckedPage::of(image.unwrap_or(bytes), place, self.binding);
                self.page_read(bucket, page);
            }
            Reading::Run { first } => {
                let pages = CheckedPage::run(&bytes, primary_place(first), self.binding);
                self.run_read(first, pages);
            }
            Reading::Content { mut ask, reference, is_stale } => {
                ask.content = (!is_stale).then_some((reference, bytes));
                self.resolve(ask);
            }
            Reading::Map { group } => {
                self.maps.remove(&group);
                self.learn_map(group, Map::read(&bytes, group, self.binding));
                self.map_known(group);
            }
            Reading::Scrub(read) => self.scrub_read(read, bytes),
        }
    }

    /// What was read of these units, or is being read, may be what stood there before.
    pub(super) fn note_placed(&mut self, unit: u64, count: u64) {
        let is_of_it = |reference: &Reference| {
            let end = reference.unit + units_for(reference.content_len());
            reference.unit < unit + count && unit < end
        };
        for reading in self.reads.values_mut() {
            if let Reading::Content { reference, is_stale, .. }
            | Reading::Scrub(ScrubRead::Content { reference, is_stale, .. }) = reading
            {
                *is_stale |= is_of_it(reference);
            }
        }
        for waiter in self.loading.values_mut().flat_map(|loading| &mut loading.waiters) {
            if let Waiter::Ask(ask) = waiter {
                ask.content.take_if(|(reference, _)| is_of_it(reference));
            }
        }
    }

    /// Primary pages of buckets that follow each other have been read.
    pub(super) fn run_read(&mut self, first: u64, pages: Vec<CheckedPage>) {
        for (bucket, page) in (first..).zip(pages) {
            self.page_read(bucket, page);
        }
    }

    fn page_read(&mut self, number: u64, page: CheckedPage) {
        let level = self.directory.local_level(number);
        let loading = self.loading.get_mut(&number).expect("its page was asked for");
        let CheckedPage { page, head, bucket } = page;
        let head =
            head.filter(|head| is_page_of(head, number, level, loading.pages.len(), loading.first));
        let Some(head) = head else {
            return self.bucket_read(number, true, None);
        };
        loading.pages.push(page);
        loading.first.get_or_insert(head);
        if head.next == 0 {
            return self.bucket_read(number, false, bucket);
        }
        loading.overflow.push(head.next);
        self.read_page(number, overflow_place(head.next));
    }

    /// Takes a bucket into memory: what is whole of it, with the rest forgotten. `checked` is what a look at its only page
    /// has found.
    fn bucket_read(
        &mut self,
        number: u64,
        is_damaged: bool,
        checked: Option<(Bucket, Vec<BadRecord>)>,
    ) {
        let loading = self.loading.remove(&number).expect("its pages were asked for");
        let is_void = loading.first.is_some_and(|head| head.batch < self.floor);
        if let Some(&unit) = loading.overflow.last().filter(|_| is_damaged) {
            self.extents.doubt((unit, PAGE_DOUBTED));
        }
        let (mut bucket, bad) =
            checked.unwrap_or_else(|| Bucket::check(loading.pages, loading.overflow, self.binding));
        if let Some(unknown) = bucket.unknown {
            return self.fail(&format!("slots: {unknown}"));
        }
        if is_void {
            bucket = bucket.void();
        }
        self.cache.put(number, bucket);
        let mut stripe = is_damaged.then(|| self.lose_bucket(number));
        if !is_void {
            stripe = stripe.max(self.lose_records(bad));
        }
        let is_lost = stripe.is_some();
        if let Some(stripe) = stripe {
            self.repair_after(number, stripe);
        }
        for waiter in loading.waiters {
            match waiter {
                Waiter::Ask(ask) => self.resolve(ask),
                Waiter::Listing => {}
                Waiter::WriteBack => self.target_known(number),
                Waiter::Scrub { was_still } => self.scrub_known(number, is_lost, was_still),
            }
        }
    }
}

/// True if a page is the next one of its bucket.
pub(in crate::disk) fn is_page_of(
    head: &PageHead,
    bucket: u64,
    level: u32,
    index: usize,
    first: Option<PageHead>,
) -> bool {
    let first = first.unwrap_or(*head);
    let is_last = usize::from(head.index) + 1 == usize::from(head.pages);
    head.bucket == bucket
        && head.level == level
        && usize::from(head.index) == index
        && head.batch == first.batch
        && head.pages == first.pages
        && is_last == (head.next == 0)
}
