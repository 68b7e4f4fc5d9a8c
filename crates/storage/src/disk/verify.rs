//! Checks a closed store, slot by slot, without a change: every superblock, sector, page, record,
//! extent and map.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use bytes::Bytes;
use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX, SPACES};
use types::{Database, Shard};

use super::directory::Directory;
use super::engine::{OpenError, Superblocks, find_ring};
use super::entry::{Entry, Reference, content_checksum};
use super::extents::Map;
use super::files::FileMedium;
use super::index::Index;
use super::io::{Blocking, File, Medium};
use super::page::{Bucket, PageHead};
use super::recovery::Recovered;
use super::spare;
use super::stripe::SECTOR;
use super::superblock::Superblock;
use crate::disk::place::{
    COPIES, GROUP_UNITS, PAGE, PAGE_UNITS, PagePlace, UNIT, map_place, overflow_place,
    primary_place, units_for,
};
use crate::{Note, Progress};

/// Bad slots that a report names; further ones are only counted.
pub const BAD_NAMED_MAX: usize = 1_000;
/// Buckets between two reports of progress.
const PROGRESS_BUCKETS: u64 = 256;

/// One thing that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bad {
    pub file: File,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The bucket it belongs to, where it belongs to one.
    pub bucket: Option<u64>,
    pub reason: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.file.name(), self.offset)?;
        if let Some(bucket) = self.bucket {
            write!(f, " (bucket {bucket})")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// The outcome of a check.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    pub buckets: u64,
    /// Records in pages, those in extents included.
    pub records: u64,
    /// Records in extents.
    pub large_records: u64,
    /// Ring batches of the ring that are still needed.
    pub stripes: u64,
    /// Records in those ring batches, the newest of each place.
    pub staged_records: u64,
    /// Shards, of all databases, that are marked as forgotten. Not a fault: the node recovers them.
    pub forgotten_shards: u64,
    /// Units of 1 KiB that are marked as in use and are not: lost space only.
    pub leaked_units: u64,
    pub bad_count: u64,
    /// The first [`BAD_NAMED_MAX`] of them.
    pub bad: Vec<Bad>,
    /// Found and not told yet.
    fresh: Vec<Bad>,
}

impl Report {
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.bad_count == 0
    }
}

/// Receives reports during a check; progress is in buckets.
pub type Say<'s> = &'s mut dyn FnMut(Note<'_, Bad>);

/// Checks the store of a directory, which must not be open and belong to the owner of `binding`.
///
/// # Errors
/// See [`OpenError`]: only if there is no store, or no superblock can be read.
pub fn verify_at(dir: &Path, binding: u64, say: Say<'_>) -> Result<Report, OpenError> {
    if !FileMedium::is_there(dir)? {
        return Err(OpenError::Missing);
    }
    check(&mut FileMedium::open_read_only(dir)?, Some(binding), say)
}

/// Checks the store of a medium, which must not be open.
///
/// # Errors
/// See [`verify_at`].
pub fn verify(medium: &mut dyn Medium, say: Say<'_>) -> Result<Report, OpenError> {
    check(medium, None, say)
}

fn check(medium: &mut dyn Medium, binding: Option<u64>, say: Say<'_>) -> Result<Report, OpenError> {
    let mut medium = Blocking::new(medium);
    let copies = Superblocks::read(&mut medium)?;
    let in_place = copies.newest()?;
    if binding.is_some_and(|binding| binding != in_place.binding) {
        return Err(OpenError::Foreign);
    }
    let mut report = Report::default();
    let complete = copies.last().map(|superblock| superblock.batch);
    let overlay = overlay(&mut medium, &in_place, complete).unwrap_or_else(|reason| {
        report.add(PagePlace { file: File::Spare, offset: 0 }, None, reason);
        Overlay::new()
    });
    let superblock = check_superblocks(&mut medium, &overlay, &mut report)?;
    let mut check = Check { medium, overlay, superblock, report, used: BTreeMap::new() };
    check.ring();
    check.report.tell(say);
    let buckets = check.superblock.directory.buckets();
    for bucket in 0..buckets {
        if bucket % PROGRESS_BUCKETS == 0 {
            say(Note::Progress(Progress { done: bucket, total: buckets }));
        }
        check.bucket(bucket);
        check.report.tell(say);
    }
    for group in 0..check.superblock.groups {
        check.map(group);
        check.report.tell(say);
    }
    if let Some((&group, _)) = check.used.first_key_value() {
        check.report.add(map_place(group), None, "pages refer to a group that is not there");
    }
    check.report.tell(say);
    say(Note::Progress(Progress { done: buckets, total: buckets }));
    Ok(check.report)
}

/// Pages by their places.
type Overlay = BTreeMap<(File, u64), Bytes>;

/// The pages that the next start puts in place: those that they replace do not count.
fn overlay(
    medium: &mut Blocking<'_>,
    in_place: &Superblock,
    complete: Option<u64>,
) -> Result<Overlay, String> {
    let Some(images) = spare::read(medium, in_place.binding, complete)? else {
        return Ok(Overlay::new());
    };
    if !images.may_be_in_place(medium, in_place.binding, Some(in_place.batch))? {
        return Ok(Overlay::new());
    }
    let images = images.whole.into_iter();
    Ok(images.map(|image| ((image.file, image.offset), image.bytes)).collect())
}

fn read_page(
    medium: &mut Blocking<'_>,
    overlay: &Overlay,
    place: PagePlace,
) -> Result<Bytes, String> {
    match overlay.get(&(place.file, place.offset)) {
        Some(page) => Ok(page.clone()),
        None => medium.read(place.file, place.offset, PAGE),
    }
}

fn check_superblocks(
    medium: &mut Blocking<'_>,
    overlay: &Overlay,
    report: &mut Report,
) -> Result<Superblock, OpenError> {
    let mut best: Option<Superblock> = None;
    for copy in 0..COPIES {
        let place = PagePlace { file: File::Slots, offset: copy * PAGE as u64 };
        let page = match read_page(medium, overlay, place) {
            Ok(page) => page,
            Err(reason) => {
                report.add(place, None, reason);
                continue;
            }
        };
        match Superblock::read(&page, copy) {
            Ok(found) if best.as_ref().is_none_or(|best| best.batch < found.batch) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(_) => report.add(place, None, "a superblock is damaged; its twin stands in for it"),
        }
    }
    best.ok_or(OpenError::Damaged)
}

impl Report {
    fn add(&mut self, place: PagePlace, bucket: Option<u64>, reason: impl Into<String>) {
        self.bad_count += 1;
        let (file, offset) = (place.file, place.offset);
        let bad = Bad { file, offset, bucket, reason: reason.into() };
        if self.bad.len() < BAD_NAMED_MAX {
            self.bad.push(bad.clone());
        }
        self.fresh.push(bad);
    }

    /// Names the faults that were found since the last call.
    fn tell(&mut self, say: &mut dyn FnMut(Note<'_, Bad>)) {
        self.fresh.drain(..).for_each(|bad| say(Note::Bad(&bad)));
    }
}

/// A check under way.
struct Check<'m> {
    medium: Blocking<'m>,
    overlay: Overlay,
    superblock: Superblock,
    report: Report,
    /// Units that pages refer to, by group.
    used: BTreeMap<u64, Map>,
}

impl Check<'_> {
    fn ring(&mut self) {
        let ring = self.superblock.ring;
        let tail = self.superblock.tail % ring * SECTOR as u64;
        let tail = PagePlace { file: File::Ring, offset: tail };
        let found = match find_ring(&mut self.medium, &self.superblock, true) {
            Ok(found) => found,
            Err(reason) => return self.report.add(tail, None, reason),
        };
        let Recovered { stripes, head, damaged, .. } = found.recovered;
        for position in found.bad {
            let place = PagePlace { file: File::Ring, offset: position % ring * SECTOR as u64 };
            let reason = match (position < head, damaged) {
                (true, false) => "a sector is damaged; parity restores it",
                (true, true) => "a sector is damaged, and records are lost with it",
                (false, _) => "a sector that is not in use is damaged",
            };
            self.report.add(place, None, reason);
        }
        if damaged {
            self.report.add(tail, None, "acknowledged records behind this place are lost");
        }
        self.report.stripes = stripes.len() as u64;
        let mut flags = self.superblock.flags.clone();
        let mut index = Index::default();
        for stripe in &stripes {
            if let Some(unknown) = stripe.said.unknown {
                let offset = stripe.position % self.superblock.ring * SECTOR as u64;
                let place = PagePlace { file: File::Ring, offset };
                self.report.add(place, None, unknown.to_string());
            }
            for mark in &stripe.said.marks {
                for (database, shard) in mark.shards() {
                    flags.set(database, shard, mark.forgotten);
                }
            }
            index.insert_durable(&stripe.payload, 0, |_| ());
        }
        let all = (0..SPACES as u8).flat_map(|d| (0..=u8::MAX).map(move |s| (d, s)));
        let forgotten = all.filter(|&(d, s)| flags.has(Database(d), Shard(s))).count();
        self.report.forgotten_shards = forgotten as u64;
        for (_, slot) in index.range(0, u64::MAX) {
            self.report.staged_records += 1;
            let entry = slot.entry();
            if let Some(reference) = entry.reference() {
                self.content(&entry, reference, None);
            }
        }
    }

    fn bucket(&mut self, bucket: u64) {
        self.report.buckets += 1;
        let directory: Directory = self.superblock.directory;
        let level = directory.local_level(bucket);
        let binding = self.superblock.binding;
        let mut place = primary_place(bucket);
        let mut first: Option<PageHead> = None;
        for index in 0.. {
            let page = match read_page(&mut self.medium, &self.overlay, place) {
                Ok(page) => page,
                Err(reason) => return self.report.add(place, Some(bucket), reason),
            };
            let head = match PageHead::read(&page, place, binding) {
                Ok(head) if head.is_next_of(bucket, level, index, first) => head,
                Ok(_) => {
                    let reason = "the page is not the one that belongs here";
                    return self.report.add(place, Some(bucket), reason);
                }
                Err(reason) => {
                    return self.report.add(place, Some(bucket), format!("the page {reason}"));
                }
            };
            if head.batch >= self.superblock.floor {
                self.records(bucket, place, page);
            }
            first.get_or_insert(head);
            if head.next == 0 {
                return;
            }
            place = overflow_place(head.next);
            self.mark_used(head.next, PAGE_UNITS, place, bucket);
        }
    }

    fn records(&mut self, bucket: u64, place: PagePlace, page: Bytes) {
        let (whole, bad) = Bucket::check(vec![page], Vec::new(), self.superblock.binding);
        for bad in bad {
            let (database, shard) = (bad.database, bad.shard);
            let reason = format!("a record of database {database}, shard {shard} is damaged");
            self.report.add(place, Some(bucket), reason);
        }
        if let Some(unknown) = whole.unknown {
            self.report.add(place, Some(bucket), unknown.to_string());
        }
        let directory = self.superblock.directory;
        for entry in whole.entries() {
            self.report.records += 1;
            if directory.bucket_of(entry.hash) != bucket {
                self.report.add(place, Some(bucket), "a record belongs to another bucket");
            }
            if let Some(reference) = entry.reference() {
                self.report.large_records += 1;
                self.content(&entry, reference, Some(bucket));
                let at = overflow_place(reference.unit);
                let count = units_for(reference.content_len());
                self.mark_used(reference.unit, count, at, bucket);
            }
        }
    }

    fn content(&mut self, entry: &Entry<'_>, reference: Reference, bucket: Option<u64>) {
        let (len, offset) = (reference.content_len(), reference.unit * UNIT);
        let place = PagePlace { file: File::Extents, offset };
        let large_record = || {
            let (database, shard) = (entry.database, entry.hash >> 56);
            format!("a large record of database {database}, shard {shard}")
        };
        let is_whole = len <= RECORD_LEN_MAX + KEY_LEN_MAX && {
            let content = match self.medium.read(File::Extents, offset, len) {
                Ok(content) => content,
                Err(reason) => {
                    return self.report.add(place, bucket, format!("{}: {reason}", large_record()));
                }
            };
            content_checksum(self.superblock.binding, entry.hash, &content) == reference.checksum
        };
        if !is_whole {
            self.report.add(place, bucket, format!("{} is damaged", large_record()));
        }
    }

    /// Notes that a page refers to these units; no other reference may.
    fn mark_used(&mut self, unit: u64, count: u64, place: PagePlace, bucket: u64) {
        let map = self.used.entry(unit / GROUP_UNITS).or_insert_with(Map::fresh);
        let first = unit % GROUP_UNITS;
        if first + count > GROUP_UNITS {
            return self.report.add(place, Some(bucket), "a reference leaves its group");
        }
        if (first..first + count).any(|unit| map.has(unit)) {
            self.report.add(place, Some(bucket), "two references share a place");
        }
        map.set(first, count, true);
    }

    fn map(&mut self, group: u64) {
        let place = map_place(group);
        let page = match read_page(&mut self.medium, &self.overlay, place) {
            Ok(page) => page,
            Err(reason) => return self.report.add(place, None, reason),
        };
        let used = self.used.remove(&group).unwrap_or_else(Map::fresh);
        let Some(map) = Map::read(&page, group, self.superblock.binding) else {
            let reason = "the map of a group is damaged; its free space is lost";
            return self.report.add(place, None, reason);
        };
        let unmarked: BTreeSet<u64> =
            (0..GROUP_UNITS).filter(|&unit| used.has(unit) && !map.has(unit)).collect();
        if let Some(first) = unmarked.first() {
            let count = unmarked.len();
            let reason = format!("{count} units from unit {first} on are in use and not marked so");
            self.report.add(place, None, reason);
        }
        let leaked = (0..GROUP_UNITS).filter(|&unit| map.has(unit) && !used.has(unit)).count();
        self.report.leaked_units += leaked as u64;
    }
}
