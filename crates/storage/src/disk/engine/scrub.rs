//! The scrub: superblocks, pages, large records and maps, read past every cache and verified again
//! and again.
//!
//! One read at a time, as many as the step pays for. A page that fails is not judged by that alone:
//! it may have been rewritten while it was read. A bucket in the cache is written again. Any other
//! is read once more as a load reads it, and forgotten as far as it is damaged. The scrub skips the
//! ring and the double-write buffer: memory has their contents too, and they go home soon.
//!
//! Pages tell a survey ([`crate::disk::survey`]) which units they refer to; the maps, which come
//! last, are held against that.

use std::collections::VecDeque;

use bytes::Bytes;
use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX};

use super::lookup::Lookups;
use super::records::Records;
use super::superblocks::{SUPERBLOCK_UNUSABLE, Superblocks};
use super::write_back::{Since, WriteBack};
use crate::disk::entry::{Identity, Kind, Reference};
use crate::disk::extents::Map;
use crate::disk::io::File;
use crate::disk::page::{Bucket, PageHead};
use crate::disk::place::{
    COPIES, PAGE, PAGE_UNITS, PagePlace, map_place, overflow_place, primary_place,
};
use crate::disk::replies::{Out, Replies};
use crate::mutation::{self, Mutation};
use crate::{Completion, Scrubbed};

/// Primary pages of one read.
const PAGES_AT_ONCE: u64 = 16;

/// How far the scrub has come, and which worker pays for it.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    asked: Option<Asked>,
    /// Bytes paid for, less those read: a large record is read whole.
    credit: i64,
    next: Next,
    /// Parts of the pages that were read last.
    parts: VecDeque<Part>,
    read: Option<(u64, Read)>,
    /// Second looks under way.
    looks: usize,
}

#[derive(Debug)]
struct Asked {
    worker: usize,
    done: Scrubbed,
}

/// The part that is read next.
#[derive(Clone, Copy, Default, Debug)]
enum Next {
    #[default]
    Superblocks,
    Buckets(u64),
    Map(u64),
}

#[derive(Debug)]
enum Part {
    Chain(Chain),
    Content(Identity, Reference),
}

/// A bucket of several pages, of which the next is to be read.
#[derive(Debug)]
struct Chain {
    bucket: u64,
    pages: Vec<Bytes>,
    first: PageHead,
    next: u64,
    since: Since,
}

/// The read under way.
#[derive(Debug)]
enum Read {
    Superblocks(Since),
    Buckets { first: u64, since: Since },
    Chain(Chain),
    Content(Identity, Reference),
    Map { group: u64, since: Since },
}

/// The parts of the engine that a scrub works with.
pub(super) struct Around<'e> {
    pub(super) records: &'e mut Records,
    pub(super) lookups: &'e mut Lookups,
    pub(super) write_back: &'e mut WriteBack,
    pub(super) out: &'e mut Out,
}

impl Scrub {
    /// Takes a worker's request for a step.
    pub(super) fn ask(&mut self, worker: usize, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(bytes).min(bytes);
        self.asked = Some(Asked { worker, done: Scrubbed::default() });
    }

    /// Reads on while there is credit. Until the last process's write-back is in place the device
    /// has other pages.
    pub(super) fn step(&mut self, around: &mut Around<'_>) {
        let is_busy = self.read.is_some() || self.looks > 0;
        if self.asked.is_none() || is_busy || around.records.redone.is_some() {
            return;
        }
        if self.credit <= 0 {
            return self.answer(false, around);
        }
        match self.parts.pop_front() {
            Some(Part::Chain(chain)) => {
                self.read(overflow_place(chain.next), PAGE, Read::Chain(chain), around);
            }
            Some(Part::Content(identity, reference)) => {
                let records = &around.records;
                // A batch, or a write-back of its bucket, may be writing the same record there.
                let bucket = records.buckets.directory().bucket_of(identity.hash);
                let is_stale = records.contents.unwritten(reference).is_some()
                    || records.buckets.cache().is_pinned(bucket);
                let (place, len) = (overflow_place(reference.unit), reference.content_len());
                let io = self.read(place, len, Read::Content(identity, reference), around);
                around.records.contents.begin_read(io, reference, is_stale);
            }
            None => self.read_next(around),
        }
    }

    fn read_next(&mut self, around: &mut Around<'_>) {
        let since = around.write_back.since();
        let buckets = around.records.buckets.count();
        match self.next {
            Next::Superblocks => {
                around.records.extents.begin_survey(since.batch());
                self.next = Next::Buckets(0);
                let place = PagePlace { file: File::Slots, offset: 0 };
                self.read(place, COPIES as usize * PAGE, Read::Superblocks(since), around);
            }
            Next::Buckets(first) if first < buckets => {
                if first == 0 {
                    around.records.extents.look_at_pages(around.write_back.in_place());
                }
                let count = PAGES_AT_ONCE.min(buckets - first);
                self.next = Next::Buckets(first + count);
                let read = Read::Buckets { first, since };
                self.read(primary_place(first), count as usize * PAGE, read, around);
            }
            Next::Buckets(_) => {
                self.next = Next::Map(0);
                self.step(around);
            }
            Next::Map(group) if group < around.records.extents.groups() => {
                self.next = Next::Map(group + 1);
                self.read(map_place(group), PAGE, Read::Map { group, since }, around);
            }
            Next::Map(_) => {
                self.next = Next::Superblocks;
                if around.records.extents.dirty() > 0 {
                    around.write_back.call();
                }
                around.records.extents.end_survey();
                self.answer(true, around);
            }
        }
    }

    fn answer(&mut self, has_ended: bool, around: &mut Around<'_>) {
        let Some(Asked { worker, done }) = self.asked.take() else { return };
        let damaged = around.records.losses.take_damaged();
        let scrubbed = Scrubbed { damaged, has_ended, ..done };
        around.out.replies.push(worker, Completion::Scrubbed(scrubbed));
    }

    fn read(&mut self, place: PagePlace, len: usize, read: Read, around: &mut Around<'_>) -> u64 {
        let io = around.out.device.verify(place, len);
        self.read = Some((io, read));
        self.credit -= len as i64;
        if let Some(asked) = &mut self.asked {
            asked.done.bytes += len as u64;
        }
        io
    }

    /// Bytes that are as good as those of a failed read: superblocks and maps are written again.
    pub(super) fn stand_in(&self, io: u64) -> Option<Bytes> {
        let (of, read) = self.read.as_ref()?;
        let is_mended = matches!(read, Read::Superblocks(_) | Read::Map { .. });
        (*of == io && is_mended).then(Bytes::new)
    }

    /// A request is done; false if it is not the scrub's.
    pub(super) fn done(&mut self, io: u64, bytes: &Bytes, around: &mut Around<'_>) -> bool {
        let Some((_, read)) = self.read.take_if(|(of, _)| *of == io) else { return false };
        if mutation::is(Mutation::DiskScrubBlind) {
            return true;
        }
        match read {
            Read::Superblocks(since) => judge_superblocks(since, bytes, around),
            Read::Buckets { first, since } => {
                for (bucket, at) in (first..).zip((0..bytes.len()).step_by(PAGE)) {
                    self.judge_primary(bucket, since, bytes.slice(at..at + PAGE), around);
                }
            }
            Read::Chain(chain) => self.judge_overflow(chain, bytes.clone(), around),
            Read::Content(identity, reference) => {
                let records = &mut around.records;
                if records.open_content(&identity, reference, bytes).is_some() {
                    records.contents.end_read(io);
                    return true;
                }
                // It counts only if the record still refers to it.
                self.looks += 1;
                let Around { records, lookups, out, .. } = around;
                let (of, read) = ((identity, reference), (io, bytes.clone()));
                lookups.check(of, read, records, out);
            }
            Read::Map { group, since } => self.judge_map(group, since, bytes, around),
        }
        true
    }

    fn judge_primary(&mut self, bucket: u64, since: Since, page: Bytes, around: &mut Around<'_>) {
        let buckets = &around.records.buckets;
        if bucket >= buckets.count() {
            return; // its records are in another one now, and the survey knows them
        }
        // It is about to be rewritten, or is being.
        if buckets.cache().is_pinned(bucket) {
            return survey_known(bucket, around.records);
        }
        let level = buckets.directory().local_level(bucket);
        let head = PageHead::read(&page, primary_place(bucket), around.records.binding).ok();
        match head.filter(|head| head.is_next_of(bucket, level, 0, None)) {
            None => self.suspect(bucket, since, around),
            Some(first) if first.next == 0 => {
                self.judge_records(bucket, since, (first, vec![page]), around);
            }
            Some(first) => {
                let (next, pages) = (first.next, vec![page]);
                self.parts.push_back(Part::Chain(Chain { bucket, pages, first, next, since }));
            }
        }
    }

    fn judge_overflow(&mut self, mut chain: Chain, page: Bytes, around: &mut Around<'_>) {
        let Chain { bucket, first, since, .. } = chain;
        let buckets = &around.records.buckets;
        if bucket >= buckets.count() {
            return;
        }
        if buckets.cache().is_pinned(bucket) {
            return survey_known(bucket, around.records);
        }
        let level = buckets.directory().local_level(bucket);
        let head = PageHead::read(&page, overflow_place(chain.next), around.records.binding).ok();
        let index = chain.pages.len();
        let head = head.filter(|head| head.is_next_of(bucket, level, index, Some(first)));
        let Some(head) = head else { return self.suspect(bucket, since, around) };
        around.records.extents.survey_run((chain.next, PAGE_UNITS));
        chain.pages.push(page);
        if head.next == 0 {
            return self.judge_records(bucket, since, (first, chain.pages), around);
        }
        chain.next = head.next;
        self.parts.push_front(Part::Chain(chain));
    }

    fn judge_records(
        &mut self,
        bucket: u64,
        since: Since,
        (first, pages): (PageHead, Vec<Bytes>),
        around: &mut Around<'_>,
    ) {
        let (whole, bad) = Bucket::check(pages, Vec::new(), around.records.binding);
        if let Some(unknown) = whole.unknown {
            return around.out.fail(&format!("slots: {unknown}"));
        }
        around.records.extents.survey_records(&whole);
        if !bad.is_empty() {
            return self.suspect(bucket, since, around);
        }
        if first.batch < around.records.buckets.floor() {
            return;
        }
        let cells = whole.entries().filter(|entry| entry.kind.class() == Kind::CELL).count();
        if let Some(asked) = &mut self.asked {
            asked.done.registers += cells as u64;
        }
        for entry in whole.entries() {
            let Some(reference) = entry.reference() else { continue };
            if reference.content_len() <= RECORD_LEN_MAX + KEY_LEN_MAX {
                self.parts.push_back(Part::Content(entry.identity(), reference));
            }
        }
    }

    /// The pages of a bucket failed. A bucket in memory is written again; for any other a second
    /// look decides.
    fn suspect(&mut self, bucket: u64, since: Since, around: &mut Around<'_>) {
        let is_still = around.write_back.is_still(since);
        if !around.records.buckets.cache().has(bucket) {
            self.looks += 1;
            let Around { records, lookups, out, .. } = around;
            return lookups.look_again((bucket, is_still), records, &mut out.device);
        }
        survey_known(bucket, around.records);
        if is_still {
            base::sometimes!("disk: a scrub finds damage under what is in memory");
            mend_bucket(bucket, around.records, &mut around.out.replies);
        }
    }

    /// A second look is done: the bucket is in memory, and forgotten as far as it was damaged.
    pub(super) fn looked_again(
        &mut self,
        bucket: u64,
        (is_lost, was_still): (bool, bool),
        records: &mut Records,
        replies: &mut Replies,
    ) {
        self.looks -= 1;
        survey_known(bucket, records);
        if is_lost {
            base::sometimes!("disk: a scrub finds damage");
            records.extents.survey_in_part();
        } else if was_still {
            base::sometimes!("disk: a scrub finds damage that a cache does not show");
            mend_bucket(bucket, records, replies);
        }
    }

    /// A record is looked up: forgotten, if its content was damaged.
    pub(super) fn checked(&mut self) {
        self.looks -= 1;
    }

    /// A damaged map that is known is written again; an unknown one closes its group. A map that
    /// could not be read is treated alike, and counts as no damage.
    fn judge_map(&mut self, group: u64, since: Since, page: &[u8], around: &mut Around<'_>) {
        // A write-back that is being built has accounted for no more maps.
        if !around.write_back.has_room_for_map(around.records) {
            self.next = Next::Map(group);
            return self.answer(false, around);
        }
        let Around { records, write_back, out, .. } = around;
        let is_read = !page.is_empty();
        let map = if is_read { Map::read(page, group, records.binding) } else { None };
        if map.is_none() && write_back.is_still(since) && records.extents.renew(group) {
            base::sometimes!("disk: a scrub finds a damaged map");
            if is_read {
                records.losses.note_damage();
            }
            write_back.call();
            records.warn_of_map(group, &mut out.replies);
        }
        // All pages were looked at.
        records.extents.call_surplus();
        if records.extents.correct(group, map) == Some(true) {
            base::sometimes!("disk: a map calls units free that are in use");
            records.losses.note_damage();
            let text = "a space map called used space free; it is repaired";
            out.replies.warn(map_place(group), text);
        }
    }
}

/// Superblocks that could not be read are written again, and count as no damage.
fn judge_superblocks(since: Since, bytes: &[u8], around: &mut Around<'_>) {
    if bytes.is_empty() {
        return around.write_back.call();
    }
    if !around.write_back.is_still(since) {
        return;
    }
    for offset in Superblocks::of(bytes).unusable() {
        base::sometimes!("disk: a scrub finds a damaged superblock");
        around.records.losses.note_damage();
        around.write_back.call();
        around.out.replies.warn(PagePlace { file: File::Slots, offset }, SUPERBLOCK_UNUSABLE);
    }
}

/// The survey takes a bucket from memory.
fn survey_known(bucket: u64, records: &mut Records) {
    match records.buckets.cache().peek(bucket) {
        Some(bucket) => records.extents.survey_bucket(bucket, true),
        None => records.extents.survey_in_part(),
    }
}

/// A bucket in memory is written again.
fn mend_bucket(bucket: u64, records: &mut Records, replies: &mut Replies) {
    records.losses.note_damage();
    replies.warn(primary_place(bucket), "a bucket was damaged; it is repaired from memory");
    records.repair_after(bucket, 0);
}
