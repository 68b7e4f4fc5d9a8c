//! The scrub: superblocks, pages, large records and maps, read past every cache and verified again and again.
//!
//! One read at a time, as many as the step pays for. A page that fails is not judged by that alone, for it may have been
//! rewritten while it was read: what is in the cache is written anew, everything else is read once more as any load
//! reads it, and is forgotten there if it is damaged. The ring and the spare are not looked at: what they hold is in
//! memory too, and goes home soon.
//!
//! Pages that are looked at tell a survey ([`crate::disk::survey`]) which units they refer to, and the maps, which come
//! last, are held against that.

use std::collections::VecDeque;

use bytes::Bytes;
use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX};

use super::Engine;
use super::lookup::{Ask, Reading, Waiter, Who, is_page_of};
use super::loss::SUPERBLOCK_UNUSABLE;
use super::superblocks::Superblocks;
use super::write_back::WriteBack;
use crate::disk::entry::{Identity, Kind, Reference};
use crate::disk::extents::Map;
use crate::disk::io::{File, Io};
use crate::disk::page::{Bucket, PageHead};
use crate::disk::place::{
    COPIES, PAGE, PAGE_UNITS, PagePlace, UNIT, map_place, overflow_place, primary_place,
};
use crate::mutation::{self, Mutation};
use crate::{Completion, Scrubbed};

/// Primary pages of one read.
const PAGES_AT_ONCE: u64 = 16;

/// How far the scrub has come, and who pays for it.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    asked: Option<Asked>,
    /// Bytes paid for, less those read: a large record is read whole.
    credit: i64,
    next: Next,
    /// What the pages read last lead to.
    parts: VecDeque<Part>,
    /// Reads and second looks under way.
    waiting: usize,
    /// Places found damaged since the last answer.
    damaged: u64,
    /// A superblock or a map is to be written again though nothing else is.
    pub(super) is_torn: bool,
}

#[derive(Debug)]
struct Asked {
    worker: usize,
    done: Scrubbed,
}

/// What is looked at next.
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
pub(super) struct Chain {
    bucket: u64,
    pages: Vec<Bytes>,
    first: PageHead,
    next: u64,
    since: Since,
}

/// What write-back was doing when a read began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    batch: u64,
    is_quiet: bool,
}

/// A read of the scrub.
#[derive(Debug)]
pub(super) enum ScrubRead {
    Superblocks(Since),
    Buckets { first: u64, since: Since },
    Chain(Chain),
    Content { identity: Identity, reference: Reference, is_stale: bool },
    Map { group: u64, since: Since },
}

impl Scrub {
    /// Something was found damaged, by whomever.
    pub(super) fn note_damage(&mut self) {
        self.damaged += 1;
    }
}

impl Engine {
    /// Takes a worker's request for a step.
    pub(super) fn ask_scrub(&mut self, worker: usize, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.scrub.credit = self.scrub.credit.saturating_add(bytes).min(bytes);
        self.scrub.asked = Some(Asked { worker, done: Scrubbed::default() });
    }

    /// Reads on while there is credit. Until the last process's write-back is in place its pages are not what the
    /// device holds.
    pub(super) fn step_scrub(&mut self) {
        if self.scrub.asked.is_none() || self.scrub.waiting > 0 || self.write_back.is_redone() {
            return;
        }
        if self.scrub.credit <= 0 {
            return self.answer_scrub(false);
        }
        match self.scrub.parts.pop_front() {
            Some(Part::Chain(chain)) => {
                let place = overflow_place(chain.next);
                self.scrub_from(place.file, place.offset, PAGE, ScrubRead::Chain(chain));
            }
            Some(Part::Content(identity, reference)) => {
                let (offset, len) = (reference.unit * UNIT, reference.content_len());
                // The same record may be on its way there, by a stripe or by a write-back of its bucket.
                let bucket = self.directory.bucket_of(identity.hash);
                let is_stale =
                    self.unwritten.contains_key(&reference.unit) || self.cache.is_pinned(bucket);
                let read = ScrubRead::Content { identity, reference, is_stale };
                self.scrub_from(File::Extents, offset, len, read);
            }
            None => self.scrub_next(),
        }
    }

    fn scrub_next(&mut self) {
        let since = self.since();
        match self.scrub.next {
            Next::Superblocks => {
                self.begin_survey();
                self.scrub.next = Next::Buckets(0);
                let len = COPIES as usize * PAGE;
                self.scrub_from(File::Slots, 0, len, ScrubRead::Superblocks(since));
            }
            Next::Buckets(first) if first < self.directory.buckets() => {
                if first == 0 {
                    self.look_at_pages();
                }
                let count = PAGES_AT_ONCE.min(self.directory.buckets() - first);
                self.scrub.next = Next::Buckets(first + count);
                let offset = primary_place(first).offset;
                let len = count as usize * PAGE;
                self.scrub_from(File::Slots, offset, len, ScrubRead::Buckets { first, since });
            }
            Next::Buckets(_) => {
                self.scrub.next = Next::Map(0);
                self.step_scrub();
            }
            Next::Map(group) if group < self.extents.groups() => {
                self.scrub.next = Next::Map(group + 1);
                let place = map_place(group);
                self.scrub_from(place.file, place.offset, PAGE, ScrubRead::Map { group, since });
            }
            Next::Map(_) => {
                self.scrub.next = Next::Superblocks;
                self.scrub.is_torn |= self.extents.dirty() > 0;
                self.extents.end_survey();
                self.answer_scrub(true);
            }
        }
    }

    fn answer_scrub(&mut self, has_ended: bool) {
        let Some(Asked { worker, done }) = self.scrub.asked.take() else { return };
        let damaged = std::mem::take(&mut self.scrub.damaged);
        let scrubbed = Scrubbed { damaged, has_ended, ..done };
        self.completions[worker].push(Completion::Scrubbed(scrubbed));
    }

    fn scrub_from(&mut self, file: File, offset: u64, len: usize, read: ScrubRead) {
        let id = self.take_io_id();
        self.ios.push(Io::Verify { id, file, offset, len });
        self.reads.insert(id, Reading::Scrub(read));
        self.scrub.waiting += 1;
        self.scrub.credit -= len as i64;
        if let Some(asked) = &mut self.scrub.asked {
            asked.done.bytes += len as u64;
        }
    }

    fn since(&self) -> Since {
        let is_building = !matches!(self.write_back, WriteBack::Idle | WriteBack::Gather(_));
        let is_quiet = !is_building && self.writing.is_none();
        Since { batch: self.batch, is_quiet }
    }

    /// Nothing can have been rewritten since then.
    fn is_still(&self, since: Since) -> bool {
        since.is_quiet && self.since().is_quiet && self.batch == since.batch
    }

    pub(super) fn scrub_read(&mut self, read: ScrubRead, bytes: Bytes) {
        self.scrub.waiting -= 1;
        if mutation::is(Mutation::DiskScrubBlind) {
            return;
        }
        match read {
            ScrubRead::Superblocks(since) => self.scrub_superblocks(since, &bytes),
            ScrubRead::Buckets { first, since } => {
                for (index, at) in (0..bytes.len()).step_by(PAGE).enumerate() {
                    let bucket = first + index as u64;
                    self.scrub_primary(bucket, since, bytes.slice(at..at + PAGE));
                }
            }
            ScrubRead::Chain(chain) => self.scrub_overflow(chain, bytes),
            ScrubRead::Content { identity, reference, is_stale } => {
                let content = (!is_stale).then_some(bytes);
                self.scrub_content(identity, reference, content);
            }
            ScrubRead::Map { group, since } => self.scrub_map(group, since, &bytes),
        }
    }

    /// Those that could not be read are written again, and count as no damage.
    fn scrub_superblocks(&mut self, since: Since, bytes: &[u8]) {
        if bytes.is_empty() {
            self.scrub.is_torn = true;
            return;
        }
        if !self.is_still(since) {
            return;
        }
        for offset in Superblocks::of(bytes).unusable() {
            base::sometimes!("disk: a scrub finds a damaged superblock");
            self.scrub.damaged += 1;
            self.scrub.is_torn = true;
            self.remark(PagePlace { file: File::Slots, offset }, SUPERBLOCK_UNUSABLE);
        }
    }

    fn scrub_primary(&mut self, bucket: u64, since: Since, page: Bytes) {
        if bucket >= self.directory.buckets() {
            return; // its records are in another one now, and were told of
        }
        // It is about to be rewritten, or is being.
        if self.cache.is_pinned(bucket) {
            return self.survey_known(bucket);
        }
        let level = self.directory.local_level(bucket);
        let head = PageHead::read(&page, primary_place(bucket), self.binding)
            .ok()
            .filter(|head| is_page_of(head, bucket, level, 0, None));
        match head {
            None => self.suspect(bucket, since),
            Some(first) if first.next == 0 => self.scrub_records(bucket, since, first, vec![page]),
            Some(first) => {
                let (next, pages) = (first.next, vec![page]);
                let chain = Chain { bucket, pages, first, next, since };
                self.scrub.parts.push_back(Part::Chain(chain));
            }
        }
    }

    fn scrub_overflow(&mut self, mut chain: Chain, page: Bytes) {
        let Chain { bucket, first, since, .. } = chain;
        if bucket >= self.directory.buckets() {
            return;
        }
        if self.cache.is_pinned(bucket) {
            return self.survey_known(bucket);
        }
        let level = self.directory.local_level(bucket);
        let head = PageHead::read(&page, overflow_place(chain.next), self.binding)
            .ok()
            .filter(|head| is_page_of(head, bucket, level, chain.pages.len(), Some(first)));
        let Some(head) = head else { return self.suspect(bucket, since) };
        self.survey_run((chain.next, PAGE_UNITS));
        chain.pages.push(page);
        if head.next == 0 {
            return self.scrub_records(bucket, since, first, chain.pages);
        }
        chain.next = head.next;
        self.scrub.parts.push_front(Part::Chain(chain));
    }

    fn scrub_records(&mut self, bucket: u64, since: Since, first: PageHead, pages: Vec<Bytes>) {
        let (whole, bad) = Bucket::check(pages, Vec::new(), self.binding);
        if let Some(unknown) = whole.unknown {
            return self.fail(&format!("slots: {unknown}"));
        }
        self.survey_records(&whole);
        if !bad.is_empty() {
            return self.suspect(bucket, since);
        }
        if first.batch < self.floor {
            return;
        }
        let cells = whole.entries().filter(|entry| entry.kind.class() == Kind::CELL).count();
        if let Some(asked) = &mut self.scrub.asked {
            asked.done.registers += cells as u64;
        }
        for entry in whole.entries() {
            let Some(reference) = entry.reference() else { continue };
            if reference.content_len() <= RECORD_LEN_MAX + KEY_LEN_MAX {
                self.scrub.parts.push_back(Part::Content(entry.identity(), reference));
            }
        }
    }

    /// The pages of a bucket failed. What memory holds of it is whole and is written again; else a second look decides.
    fn suspect(&mut self, bucket: u64, since: Since) {
        if !self.cache.has(bucket) {
            self.scrub.waiting += 1;
            return self.wait_for(bucket, Waiter::Scrub { was_still: self.is_still(since) });
        }
        self.survey_known(bucket);
        if self.is_still(since) {
            base::sometimes!("disk: a scrub finds damage under what is in memory");
            self.mend_bucket(bucket);
        }
    }

    /// A second look: the bucket is in memory now, and forgotten as far as it was damaged.
    pub(super) fn scrub_known(&mut self, bucket: u64, is_lost: bool, was_still: bool) {
        self.scrub.waiting -= 1;
        self.survey_known(bucket);
        if is_lost {
            base::sometimes!("disk: a scrub finds damage");
            self.survey_in_part();
        } else if was_still {
            base::sometimes!("disk: a scrub finds damage that a cache does not show");
            self.mend_bucket(bucket);
        }
    }

    /// What memory has of a bucket is written again.
    fn mend_bucket(&mut self, bucket: u64) {
        self.scrub.damaged += 1;
        self.remark(primary_place(bucket), "a bucket was damaged; it is repaired from memory");
        self.repair_after(bucket, 0);
    }

    fn scrub_content(&mut self, identity: Identity, reference: Reference, content: Option<Bytes>) {
        let opened = content.as_ref().and_then(|it| self.open_content(&identity, reference, it));
        if opened.is_some() {
            return;
        }
        // It counts only if the record still refers to it.
        self.scrub.waiting += 1;
        let content = content.map(|content| (reference, content));
        self.resolve(Ask { who: Who::Scrub, identity, content });
    }

    /// The record is looked up: forgotten, if its content was damaged.
    pub(super) fn scrub_answered(&mut self) {
        self.scrub.waiting -= 1;
    }

    /// A damaged map that is known is written again; one that is not closes its group. So is, and does, one that could not be
    /// read, which counts as no damage.
    fn scrub_map(&mut self, group: u64, since: Since, page: &[u8]) {
        // A write-back that is being built has reckoned with no more maps.
        if self.images_built() + self.extents.dirty() as u64 >= self.spare {
            self.scrub.next = Next::Map(group);
            return self.answer_scrub(false);
        }
        let is_read = !page.is_empty();
        let map = if is_read { Map::read(page, group, self.binding) } else { None };
        if map.is_none() && self.is_still(since) && self.extents.renew(group) {
            base::sometimes!("disk: a scrub finds a damaged map");
            self.scrub.damaged += u64::from(is_read);
            self.scrub.is_torn = true;
            self.remark_map(group);
        }
        self.judge_map(group, map);
    }
}
