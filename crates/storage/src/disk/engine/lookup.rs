//! A record is found: in the index of the ring, else in its bucket, else in the extent that either
//! refers to.
//!
//! Every read asks the question again from the start: the answer may have changed meanwhile.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use hashbrown::HashMap;
use types::Key;
use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX};

use super::records::{Newest, Records};
use crate::disk::cache::ByNumber;
use crate::disk::device::Device;
use crate::disk::entry::{Identity, Reference};
use crate::disk::extents::{Map, PAGE_DOUBTED};
use crate::disk::page::{BadRecord, Bucket, CheckedPage, PageHead};
use crate::disk::place::{PAGE, PagePlace, map_place, overflow_place, primary_place};
use crate::disk::replies::{Out, Replies};
use crate::{Completion, Load, Place};

/// Pages that are read together.
const RUN_MAX: usize = 32;
/// Maps that are read together.
const MAPS_AT_ONCE: usize = 8;

/// A question for a record.
#[derive(Debug)]
pub(super) struct Ask {
    by: Asker,
    identity: Identity,
    read: Option<Content>,
}

/// Where the answer goes.
#[derive(Debug)]
pub(super) enum Asker {
    Worker { worker: usize, place: Place },
    Listing { listing: u64, item: usize },
    Scrub,
}

/// A content that was read for the reference that a record had then.
#[derive(Debug)]
struct Content {
    io: u64,
    reference: Reference,
    bytes: Bytes,
}

/// A question or a part that waits for a bucket.
#[derive(Debug)]
enum Waiter {
    Ask(Ask),
    Listing,
    WriteBack,
    Scrub { was_still: bool },
}

/// A bucket that is being read, page by page.
#[derive(Debug, Default)]
struct Loading {
    pages: Vec<Bytes>,
    overflow: Vec<u64>,
    first: Option<PageHead>,
    waiters: Vec<Waiter>,
}

/// A read under way.
#[derive(Debug)]
enum Reading {
    /// `image` is the content of the page if it may not be in place yet.
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
    },
    Map {
        group: u64,
    },
}

/// An answer for another part of the engine.
#[derive(Debug)]
pub(super) enum Answer {
    /// A record of a listing, if it is there.
    Item { listing: u64, item: usize, found: Option<(Key, Bytes)> },
    /// A bucket for the write-back is in memory.
    Target(u64),
    /// The map of a group is known.
    Map(u64),
    /// A record that the scrub suspected has been looked up.
    Checked,
    /// A bucket that the scrub suspected is in memory, and forgotten as far as it was damaged.
    SecondLook { bucket: u64, is_lost: bool, was_still: bool },
}

/// Reads under way, and answers that the engine hands on.
#[derive(Default, Debug)]
pub(super) struct Lookups {
    /// By bucket.
    loading: HashMap<u64, Loading, ByNumber>,
    /// By request.
    reads: HashMap<u64, Reading, ByNumber>,
    /// Groups whose maps are being read.
    maps: BTreeSet<u64>,
    answers: VecDeque<Answer>,
}

impl Lookups {
    pub(super) fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    pub(super) fn load(
        &mut self,
        (worker, place): (usize, Place),
        records: &mut Records,
        out: &mut Out,
    ) {
        let identity = Identity::of(records.binding, &place);
        self.ask(Asker::Worker { worker, place }, identity, records, out);
    }

    /// Looks a record up, now or when its bytes have been read.
    pub(super) fn ask(
        &mut self,
        by: Asker,
        identity: Identity,
        records: &mut Records,
        out: &mut Out,
    ) {
        self.resolve(Ask { by, identity, read: None }, records, out);
    }

    /// The same for the scrub, which has read a content.
    pub(super) fn check(
        &mut self,
        (identity, reference): (Identity, Reference),
        (io, bytes): (u64, Bytes),
        records: &mut Records,
        out: &mut Out,
    ) {
        let read = Some(Content { io, reference, bytes });
        self.resolve(Ask { by: Asker::Scrub, identity, read }, records, out);
    }

    fn resolve(&mut self, mut ask: Ask, records: &mut Records, out: &mut Out) {
        let Some(newest) = records.find(&ask.identity) else {
            let bucket = records.buckets.directory().bucket_of(ask.identity.hash);
            return self.wait_for(bucket, Waiter::Ask(ask), records, &mut out.device);
        };
        let read = ask.read.take().filter(|read| records.contents.end_read(read.io));
        let found = match newest {
            Newest::Absent => None,
            Newest::Record(record) => {
                let key = ask.identity.short_key();
                key.map(|key| (key, record))
            }
            Newest::Extent(reference) => {
                let is_possible = reference.content_len() <= RECORD_LEN_MAX + KEY_LEN_MAX;
                let unwritten = records.contents.unwritten(reference).cloned();
                let read = read.filter(|read| read.reference == reference).map(|it| it.bytes);
                let content = unwritten.or(read);
                if content.is_none() && is_possible {
                    let len = reference.content_len();
                    let id = out.device.read(overflow_place(reference.unit), len);
                    records.contents.begin_read(id, reference, false);
                    self.reads.insert(id, Reading::Content { ask, reference });
                    return;
                }
                let content = content.filter(|_| is_possible);
                let found =
                    content.and_then(|it| records.open_content(&ask.identity, reference, &it));
                if found.is_none() {
                    records.lose_record(&ask.identity, reference, &mut out.replies);
                }
                found
            }
        };
        self.answer(ask, found, records, &mut out.replies);
    }

    fn answer(
        &mut self,
        ask: Ask,
        found: Option<(Key, Bytes)>,
        records: &Records,
        replies: &mut Replies,
    ) {
        match ask.by {
            Asker::Worker { worker, place } => {
                let load = records.load_of(&ask.identity, found.map(|(_, record)| record));
                replies.push(worker, Completion::Loaded { place, load });
            }
            Asker::Listing { listing, item } => {
                self.answers.push_back(Answer::Item { listing, item, found });
            }
            Asker::Scrub => self.answers.push_back(Answer::Checked),
        }
    }

    /// Answers a load at once if memory has all that it takes. The engine must have taken all
    /// requests of the worker, and the worker all completions. Else a newer record could be missed,
    /// or a lost one called absent.
    pub(super) fn try_load(place: &Place, records: &mut Records) -> Option<Load> {
        let identity = Identity::of(records.binding, place);
        match records.find(&identity)? {
            Newest::Absent => Some(records.load_of(&identity, None)),
            Newest::Record(record) => Some(records.load_of(&identity, Some(record))),
            Newest::Extent(_) => None,
        }
    }

    /// Reads a bucket for a listing unless it is being read.
    pub(super) fn read_for_listing(&mut self, bucket: u64, records: &Records, device: &mut Device) {
        if !self.loading.contains_key(&bucket) {
            self.wait_for(bucket, Waiter::Listing, records, device);
        }
    }

    /// Reads a bucket that the scrub suspects.
    pub(super) fn look_again(
        &mut self,
        (bucket, was_still): (u64, bool),
        records: &Records,
        device: &mut Device,
    ) {
        self.wait_for(bucket, Waiter::Scrub { was_still }, records, device);
    }

    fn wait_for(&mut self, bucket: u64, waiter: Waiter, records: &Records, device: &mut Device) {
        let is_new = !self.loading.contains_key(&bucket);
        self.loading.entry(bucket).or_default().waiters.push(waiter);
        if is_new {
            self.read_page(bucket, primary_place(bucket), records, device);
        }
    }

    /// Reads the buckets that write-back wants, in order; neighbours are read together.
    pub(super) fn read_targets(&mut self, buckets: &[u64], records: &Records, device: &mut Device) {
        let mut rest = buckets;
        while let [first, ..] = *rest {
            let goes_on = |(at, &bucket): (usize, &u64)| bucket == first + at as u64;
            let is_new = |bucket: &u64| !self.loading.contains_key(bucket);
            let len = rest.iter().take(RUN_MAX).enumerate();
            let len =
                len.take_while(|&(at, bucket)| goes_on((at, bucket)) && is_new(bucket)).count();
            if len < 2 {
                self.wait_for(first, Waiter::WriteBack, records, device);
                rest = &rest[1..];
                continue;
            }
            for &bucket in &rest[..len] {
                self.loading.entry(bucket).or_default().waiters.push(Waiter::WriteBack);
            }
            let id = device.read(primary_place(first), len * PAGE);
            self.reads.insert(id, Reading::Run { first });
            rest = &rest[len..];
        }
    }
    fn read_page(&mut self, bucket: u64, place: PagePlace, records: &Records, device: &mut Device) {
        let id = device.read(place, PAGE);
        let image = records.redone.as_ref().and_then(|redone| redone.image(place)).cloned();
        self.reads.insert(id, Reading::Page { bucket, place, image });
    }

    /// Reads maps that a start has left alone, a few at a time.
    pub(super) fn read_unknown_maps(&mut self, records: &Records, device: &mut Device) {
        if self.maps.is_empty() {
            let groups: Vec<u64> = records.extents.unknown().take(MAPS_AT_ONCE).collect();
            groups.into_iter().for_each(|group| self.read_map(group, device));
        }
    }

    pub(super) fn read_map(&mut self, group: u64, device: &mut Device) {
        if self.maps.insert(group) {
            let id = device.read(map_place(group), PAGE);
            self.reads.insert(id, Reading::Map { group });
        }
    }

    /// Bytes that are as good as those of a failed read.
    pub(super) fn stand_in(&self, io: u64) -> Option<Bytes> {
        match self.reads.get(&io)? {
            Reading::Page { image, .. } => image.clone(),
            // It costs no more than a damaged one.
            Reading::Map { .. } => Some(Bytes::from_static(&[0; PAGE])),
            Reading::Run { .. } | Reading::Content { .. } => None,
        }
    }

    /// A request is done; `pages` are its bytes if they were checked elsewhere. False if it is not
    /// one of these.
    pub(super) fn done(
        &mut self,
        io: u64,
        (bytes, pages): (&Bytes, Option<Vec<CheckedPage>>),
        records: &mut Records,
        out: &mut Out,
    ) -> bool {
        let Some(reading) = self.reads.remove(&io) else { return false };
        match reading {
            Reading::Page { bucket, place, image } => {
                let bytes = image.unwrap_or_else(|| bytes.clone());
                let page = CheckedPage::of(bytes, place, records.binding);
                self.page_read(bucket, page, records, out);
            }
            Reading::Run { first } => {
                let check = || CheckedPage::run(bytes, primary_place(first), records.binding);
                for (bucket, page) in (first..).zip(pages.unwrap_or_else(check)) {
                    self.page_read(bucket, page, records, out);
                }
            }
            Reading::Content { mut ask, reference } => {
                ask.read = Some(Content { io, reference, bytes: bytes.clone() });
                self.resolve(ask, records, out);
            }
            Reading::Map { group } => {
                self.maps.remove(&group);
                records.learn_map(
                    group,
                    Map::read(bytes, group, records.binding),
                    &mut out.replies,
                );
                self.answers.push_back(Answer::Map(group));
            }
        }
        true
    }

    fn page_read(&mut self, number: u64, page: CheckedPage, records: &mut Records, out: &mut Out) {
        let level = records.buckets.directory().local_level(number);
        let loading = self.loading.get_mut(&number).expect("its page was asked for");
        let CheckedPage { page, head, bucket } = page;
        let (index, first) = (loading.pages.len(), loading.first);
        let Some(head) = head.filter(|head| head.is_next_of(number, level, index, first)) else {
            return self.bucket_read((number, true), None, records, out);
        };
        loading.pages.push(page);
        loading.first.get_or_insert(head);
        if head.next == 0 {
            return self.bucket_read((number, false), bucket, records, out);
        }
        loading.overflow.push(head.next);
        self.read_page(number, overflow_place(head.next), records, &mut out.device);
    }

    /// Takes a bucket into memory: its whole part, with the rest forgotten. `checked` is the
    /// outcome of a check of its only page.
    fn bucket_read(
        &mut self,
        (number, is_damaged): (u64, bool),
        checked: Option<(Bucket, Vec<BadRecord>)>,
        records: &mut Records,
        out: &mut Out,
    ) {
        let loading = self.loading.remove(&number).expect("its pages were asked for");
        let is_void = loading.first.is_some_and(|head| head.batch < records.buckets.floor());
        if let Some(&unit) = loading.overflow.last().filter(|_| is_damaged) {
            records.extents.doubt((unit, PAGE_DOUBTED));
        }
        let check = || Bucket::check(loading.pages, loading.overflow, records.binding);
        let (mut bucket, bad) = checked.unwrap_or_else(check);
        if let Some(unknown) = bucket.unknown {
            return out.fail(&format!("slots: {unknown}"));
        }
        if is_void {
            bucket = bucket.void();
        }
        records.buckets.cache_mut().put(number, bucket);
        let mut stripe = is_damaged.then(|| records.lose_bucket(number, &mut out.replies));
        if !is_void {
            stripe = stripe.max(records.lose_records(bad, &mut out.replies));
        }
        let is_lost = stripe.is_some();
        if let Some(stripe) = stripe {
            records.repair_after(number, stripe);
        }
        for waiter in loading.waiters {
            match waiter {
                Waiter::Ask(ask) => self.resolve(ask, records, out),
                Waiter::Listing => {}
                Waiter::WriteBack => self.answers.push_back(Answer::Target(number)),
                Waiter::Scrub { was_still } => {
                    let bucket = number;
                    self.answers.push_back(Answer::SecondLook { bucket, is_lost, was_still });
                }
            }
        }
    }
}
