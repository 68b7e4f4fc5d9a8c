//! Bucket pages: the packed homes of records.
//!
//! A page is a head, a directory of entry heads that grows up, and bodies that grow down. One
//! checksum, bound to the page's place and node, covers head and directory; each body has its own.
//! So a damaged body costs one record whose database and shard are still known, and a damaged head
//! costs the interval of the bucket. A bucket that outgrows its page continues in overflow pages;
//! all pages of a bucket are always written together and say so.

use base::checksum::checksum;
use bytes::Bytes;
use smallvec::SmallVec;

use super::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::entry::{Entry, HEAD_LEN, Kind, PAGE_BODY_MAX, UnknownRecord};
use super::io::{Done, File, Io};
use crate::disk::place::{PAGE, PagePlace, overflow_place, units_for};
use crate::mutation::{self, Mutation};

/// Bytes of a page's head.
pub(super) const PAGE_HEAD_LEN: usize = 64;
/// Bytes of a page that directory and bodies share.
pub(super) const PAGE_ROOM: usize = PAGE - PAGE_HEAD_LEN;

const MAGIC: u32 = u32::from_le_bytes(*b"PBKT");
const FORMAT: u16 = 1;

/// The head of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageHead {
    pub(super) level: u32,
    pub(super) bucket: u64,
    /// The write-back that wrote this page; the same on all pages of a bucket.
    pub(super) batch: u64,
    /// Unit of the next overflow page, 0 for none.
    pub(super) next: u64,
    pub(super) index: u16,
    pub(super) pages: u16,
    pub(super) count: u16,
}

impl PageHead {
    /// Reads and checks head and directory; the error names their fault.
    pub(super) fn read(
        page: &[u8],
        place: PagePlace,
        binding: u64,
    ) -> Result<PageHead, &'static str> {
        let count = u16_at(page, 44);
        let end = PAGE_HEAD_LEN + usize::from(count) * HEAD_LEN;
        if u32_at(page, 8) != MAGIC || end > PAGE {
            return Err("is not a bucket page");
        }
        let is_whole = u64_at(page, 0) == checksum(place.seed(binding), &page[8..end]);
        if !is_whole && !mutation::is(Mutation::PageUnchecked) {
            return Err("head or directory fails its checksum");
        }
        if u16_at(page, 12) != FORMAT {
            return Err("has an unknown format");
        }
        Ok(PageHead {
            level: u32::from(page[15]),
            bucket: u64_at(page, 16),
            batch: u64_at(page, 24),
            next: u64_at(page, 32),
            index: u16_at(page, 40),
            pages: u16_at(page, 42),
            count,
        })
    }

    /// True for page number `index` of a bucket whose first page is `first`.
    pub(super) fn is_next_of(
        &self,
        bucket: u64,
        level: u32,
        index: usize,
        first: Option<PageHead>,
    ) -> bool {
        let first = first.unwrap_or(*self);
        let is_last = usize::from(self.index) + 1 == usize::from(self.pages);
        self.bucket == bucket
            && self.level == level
            && usize::from(self.index) == index
            && self.batch == first.batch
            && self.pages == first.pages
            && is_last == (self.next == 0)
    }

    /// Writes the head and seals the directory behind it.
    fn write(&self, page: &mut [u8], place: PagePlace, binding: u64) {
        put_u32(page, 8, MAGIC);
        put_u16(page, 12, FORMAT);
        page[15] = self.level as u8;
        put_u64(page, 16, self.bucket);
        put_u64(page, 24, self.batch);
        put_u64(page, 32, self.next);
        put_u16(page, 40, self.index);
        put_u16(page, 42, self.pages);
        put_u16(page, 44, self.count);
        let end = PAGE_HEAD_LEN + usize::from(self.count) * HEAD_LEN;
        let sum = checksum(place.seed(binding), &page[8..end]);
        put_u64(page, 0, sum);
    }
}

/// Number of entries in a page whose head is good.
fn count_of(page: &[u8]) -> usize {
    usize::from(u16_at(page, 44))
}

/// Where a row of the directory begins.
fn row_at(i: usize) -> usize {
    PAGE_HEAD_LEN + i * HEAD_LEN
}

/// The entry in this row of a page's directory; `None` where the row points outside the page.
fn row(page: &[u8], i: usize) -> Option<Entry<'_>> {
    let head = &page[row_at(i)..][..HEAD_LEN];
    let (offset, len) = (usize::from(u16_at(head, 16)), usize::from(u16_at(head, 18)));
    let entry = Entry {
        hash: u64_at(head, 0),
        checksum: u64_at(head, 8),
        kind: Kind(head[22]),
        database: head[23],
        key_len: usize::from(u16_at(head, 20)),
        body: page.get(offset..offset + len)?,
    };
    entry.is_well_formed(PAGE_BODY_MAX).then_some(entry)
}

/// The row of a checked page whose record an entry of the same length replaces.
fn find(page: &[u8], entry: &Entry<'_>) -> Option<usize> {
    let rows = page[PAGE_HEAD_LEN..].chunks_exact(HEAD_LEN).take(count_of(page));
    let mut same = rows.enumerate().filter(|(_, row)| u64_at(row, 0) == entry.hash);
    let (i, _) = same.find(|&(i, _)| {
        let known = row(page, i).expect("rows were checked when the page was taken in");
        known.has_identity_of(entry) && known.body.len() == entry.body.len()
    })?;
    Some(i)
}

/// Puts an entry where one of the same length is.
fn set_row(page: &mut [u8], i: usize, entry: &Entry<'_>) {
    let row = &mut page[row_at(i)..][..HEAD_LEN];
    let (top, len) = (u16_at(row, 16), u16_at(row, 18));
    row.copy_from_slice(&entry.row(top));
    page[usize::from(top)..][..usize::from(len)].copy_from_slice(entry.body);
}

/// The records of a bucket in memory: pages whose entries were all checked.
#[derive(Clone, Default, Debug)]
pub(super) struct Bucket {
    pages: Vec<Bytes>,
    /// Units of the overflow pages, in order.
    pub(super) overflow: Vec<u64>,
    /// Units and lengths of extents that belonged to dropped records.
    pub(super) garbage: Vec<(u64, u64)>,
    used: u64,
    has_references: bool,
    /// One of its records is of a later version.
    pub(super) unknown: Option<UnknownRecord>,
}

/// The database and shard of a damaged record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadRecord {
    pub(super) database: u8,
    pub(super) shard: u8,
}

impl Bucket {
    /// Takes pages whose heads are good, and drops the records that are not.
    pub(super) fn check(
        pages: Vec<Bytes>,
        overflow: Vec<u64>,
        binding: u64,
    ) -> (Bucket, Vec<BadRecord>) {
        let (mut bad, mut used, mut has_references) = (Vec::new(), 0, false);
        let mut unknown = None;
        for page in &pages {
            for i in 0..count_of(page) {
                match row(page, i).filter(|entry| entry.is_whole(binding)) {
                    Some(entry) => {
                        used += entry.len() as u64;
                        has_references |= entry.kind.is_in_extent();
                        unknown = unknown.or(entry.unknown());
                    }
                    None => {
                        let head = &page[row_at(i)..][..HEAD_LEN];
                        let shard = (u64_at(head, 0) >> 56) as u8;
                        bad.push(BadRecord { database: head[23], shard });
                    }
                }
            }
        }
        let mut bucket =
            Bucket { pages, overflow, used, has_references, unknown, ..Bucket::default() };
        if !bad.is_empty() {
            bucket.drop_bad(binding);
        }
        (bucket, bad)
    }

    fn drop_bad(&mut self, binding: u64) {
        let mut packer = Packer::default();
        for page in &self.pages {
            let rows = (0..count_of(page)).filter_map(|i| row(page, i));
            rows.filter(|entry| entry.is_whole(binding)).for_each(|entry| packer.push(entry));
        }
        self.pages = packer.pack().pages.into_iter().map(Bytes::from).collect();
    }

    /// The bucket where all its records may be too old: none of them counts, but their space comes
    /// back.
    pub(super) fn void(self) -> Bucket {
        let garbage = self.content_runs().chain(self.garbage.iter().copied()).collect();
        Bucket { overflow: self.overflow, garbage, ..Bucket::default() }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.pages.iter().flat_map(|page| {
            (0..count_of(page))
                .map(|i| row(page, i).expect("rows were checked when the page was taken in"))
        })
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of memory, about.
    pub(super) fn memory(&self) -> usize {
        self.pages.len() * (PAGE + 16) + 256
    }

    /// Bytes of a page's room that the records take.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Units of the extents that records refer to.
    pub(super) fn content_runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let entries = self.has_references.then(|| self.entries()).into_iter().flatten();
        let references = entries.filter_map(|entry| entry.reference());
        references.map(|it| (it.unit, units_for(it.content_len())))
    }

    /// True if no record stands in an extent.
    pub(super) fn is_plain(&self) -> bool {
        !self.has_references && self.garbage.is_empty()
    }

    /// The pages with entries in the places of records that they replace, each as long as the
    /// record was; `None` where that is not so for one of them. None of them refers to an extent.
    pub(super) fn replacing<'e>(&self, entries: impl Iterator<Item = Entry<'e>>) -> Option<Packed> {
        if self.pages.is_empty() {
            return None; // a void bucket gets a page of its own
        }
        let mut places = SmallVec::<[(usize, usize, Entry<'e>); 16]>::new();
        for entry in entries {
            let pages = self.pages.iter().enumerate();
            let mut found = pages.filter_map(|(at, page)| Some((at, find(page, &entry)?)));
            let (at, i) = found.next().filter(|_| !entry.kind.is_remove())?;
            places.push((at, i, entry));
        }
        let mut pages: Vec<Vec<u8>> = self.pages.iter().map(|page| page.to_vec()).collect();
        for (at, i, entry) in places {
            set_row(&mut pages[at], i, &entry);
        }
        Some(Packed { pages, used: self.used, has_references: self.has_references })
    }

    /// The pages as they are written, with their places.
    pub(super) fn images(&self, primary: PagePlace) -> impl Iterator<Item = (PagePlace, &[u8])> {
        let rest = self.overflow.iter().map(|&unit| overflow_place(unit));
        std::iter::once(primary).chain(rest).zip(self.pages.iter().map(|page| &page[..]))
    }
}

/// A page that was read, and its whole records.
#[derive(Debug)]
pub struct CheckedPage {
    pub(super) page: Bytes,
    /// `None` if the page is damaged.
    pub(super) head: Option<PageHead>,
    /// The bucket, where this is all of it.
    pub(super) bucket: Option<(Bucket, Vec<BadRecord>)>,
}

impl CheckedPage {
    pub(super) fn of(page: Bytes, place: PagePlace, binding: u64) -> CheckedPage {
        let head = PageHead::read(&page, place, binding).ok();
        let is_all = head.is_some_and(|head| head.pages == 1);
        let bucket = is_all.then(|| Bucket::check(vec![page.clone()], Vec::new(), binding));
        CheckedPage { page, head, bucket }
    }

    /// Of a read that is done, so that the engine need not check them; `None` for other requests.
    pub(super) fn of_read(io: &Io, done: &Done, binding: u64) -> Option<Vec<CheckedPage>> {
        let (Io::Read { file, offset, len, .. }, Ok(bytes)) = (io, &done.result) else {
            return None;
        };
        let is_run = *file == File::Slots && *len > PAGE;
        let place = PagePlace { file: *file, offset: *offset };
        is_run.then(|| CheckedPage::run(bytes, place, binding))
    }

    /// Of pages that were read together, from this place on.
    pub(super) fn run(bytes: &Bytes, place: PagePlace, binding: u64) -> Vec<CheckedPage> {
        let starts = (0..bytes.len()).step_by(PAGE);
        let page = |start| {
            let place = PagePlace { offset: place.offset + start as u64, ..place };
            CheckedPage::of(bytes.slice(start..start + PAGE), place, binding)
        };
        starts.map(page).collect()
    }
}

/// Packs records into as few pages as a single pass gives.
#[derive(Default, Debug)]
pub(super) struct Packer<'a> {
    pages: Vec<OpenPage<'a>>,
    used: u64,
    has_references: bool,
}

/// The records of a page to be.
#[derive(Debug)]
struct OpenPage<'a> {
    entries: Vec<Entry<'a>>,
    room: usize,
}

impl OpenPage<'_> {
    /// The page, but for its head.
    fn write(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE);
        page.resize(PAGE_HEAD_LEN, 0);
        put_u16(&mut page, 44, self.entries.len() as u16);
        let mut top = PAGE;
        for entry in &self.entries {
            top -= entry.body.len();
            page.extend_from_slice(&entry.row(top as u16));
        }
        page.resize(top, 0);
        for entry in self.entries.iter().rev() {
            page.extend_from_slice(entry.body);
        }
        page
    }
}

impl<'a> Packer<'a> {
    /// # Panics
    /// If it is longer than a page.
    pub(super) fn push(&mut self, entry: Entry<'a>) {
        self.used += entry.len() as u64;
        self.has_references |= entry.kind.is_in_extent();
        // Only the last few pages: looking through a long chain for every record would be
        // quadratic.
        let last = self.pages.len().saturating_sub(3);
        let mut fit = self.pages[last..].iter_mut();
        if let Some(page) = fit.find(|page| page.room >= entry.len()) {
            page.room -= entry.len();
            page.entries.push(entry);
            return;
        }
        let entries = Vec::with_capacity(PAGE_ROOM / entry.len());
        let room = PAGE_ROOM.checked_sub(entry.len()).expect("a page has room for a record");
        let mut page = OpenPage { entries, room };
        page.entries.push(entry);
        self.pages.push(page);
    }

    pub(super) fn pack(self) -> Packed {
        let mut pages: Vec<Vec<u8>> = self.pages.iter().map(OpenPage::write).collect();
        if pages.is_empty() {
            pages.push(vec![0; PAGE]);
        }
        Packed { pages, used: self.used, has_references: self.has_references }
    }
}

/// Pages that have no heads yet, one at least.
#[derive(Debug)]
pub(super) struct Packed {
    pages: Vec<Vec<u8>>,
    used: u64,
    has_references: bool,
}

impl Packed {
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Seals the pages of a bucket; `overflow` holds one unit for each page but the first.
    pub(super) fn finish(
        mut self,
        (bucket, level, batch): (u64, u32, u64),
        primary: PagePlace,
        overflow: Vec<u64>,
        binding: u64,
    ) -> Bucket {
        assert_eq!(overflow.len() + 1, self.pages.len(), "one unit for each overflow page");
        let pages = self.pages.len() as u16;
        for (i, page) in self.pages.iter_mut().enumerate() {
            let place = if i == 0 { primary } else { overflow_place(overflow[i - 1]) };
            let next = overflow.get(i).copied().unwrap_or(0);
            let count = count_of(page) as u16;
            let head = PageHead { level, bucket, batch, next, index: i as u16, pages, count };
            head.write(page, place, binding);
        }
        let Packed { pages, used, has_references } = self;
        let pages = pages.into_iter().map(Bytes::from).collect();
        Bucket { pages, overflow, used, has_references, ..Bucket::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::entry_checksum;
    use super::*;

    const PLACE: PagePlace = PagePlace { file: File::Slots, offset: 8 * PAGE as u64 };

    fn entry(hash: u64, body: &[u8]) -> Entry<'_> {
        let checksum = entry_checksum(9, hash, 1, Kind::CELL, body);
        Entry { hash, checksum, kind: Kind::CELL, database: 1, key_len: 2, body }
    }

    fn packed(bodies: &[Vec<u8>]) -> Bucket {
        let mut packer = Packer::default();
        for (i, body) in bodies.iter().enumerate() {
            packer.push(entry(i as u64, body));
        }
        let packed = packer.pack();
        let overflow = (1..packed.pages() as u64).map(|i| i * 4).collect();
        packed.finish((6, 3, 77), PLACE, overflow, 9)
    }

    #[test]
    fn records_come_back_from_as_many_pages_as_they_need() {
        let bodies: Vec<Vec<u8>> = (0..60).map(|i| vec![i as u8; 2 + i * 13]).collect();
        let bucket = packed(&bodies);
        assert!(bucket.overflow.len() > 3);
        let mut found: Vec<Vec<u8>> = bucket.entries().map(|entry| entry.body.to_vec()).collect();
        found.sort_by_key(Vec::len);
        assert_eq!(found, bodies);
        for (i, (place, page)) in bucket.images(PLACE).enumerate() {
            let head = PageHead::read(page, place, 9).expect("sealed");
            assert_eq!((head.bucket, head.level, head.batch), (6, 3, 77));
            assert_eq!(usize::from(head.index), i);
            assert_eq!(head.next, bucket.overflow.get(i).copied().unwrap_or(0));
            let elsewhere = PagePlace { file: File::Extents, offset: 40 };
            assert!(PageHead::read(page, elsewhere, 9).is_err(), "bound to its place");
            assert!(PageHead::read(page, place, 8).is_err(), "bound to its node");
        }
    }

    #[test]
    fn what_is_as_long_takes_the_place_of_a_record() {
        let bodies: Vec<Vec<u8>> = (0..120).map(|i| vec![i as u8; 60 + i % 7]).collect();
        let bucket = packed(&bodies);
        assert!(bucket.pages() > 1);
        let replacing = |news: &[(usize, Vec<u8>)], kind: Kind| {
            let news = news.iter().map(|(i, body)| Entry { kind, ..entry(*i as u64, body) });
            bucket.replacing(news)
        };
        // The first two bytes are the key.
        let new = |i: usize, len: usize| {
            let key = [i as u8; 2];
            (i, [&key[..], &vec![0xee; len - 2]].concat())
        };
        let news = [new(3, 63), new(77, 60), new(119, 60)];
        let mut wanted = bodies.clone();
        news.iter().for_each(|(i, body)| wanted[*i].clone_from(body));
        let pages = replacing(&news, Kind::CELL).expect("each is as long as the one before");
        let overflow: Vec<u64> = (1..pages.pages() as u64).collect();
        let new_bucket = pages.finish((6, 3, 78), PLACE, overflow.clone(), 9);
        assert_eq!(new_bucket.used(), bucket.used());
        for (i, (place, page)) in new_bucket.images(PLACE).enumerate() {
            let head = PageHead::read(page, place, 9).expect("sealed");
            assert_eq!((head.batch, usize::from(head.index)), (78, i));
        }
        let (checked, bad) = Bucket::check(new_bucket.pages.clone(), overflow, 9);
        let mut found: Vec<(u64, Vec<u8>)> =
            checked.entries().map(|entry| (entry.hash, entry.body.to_vec())).collect();
        found.sort();
        let wanted = wanted.into_iter().enumerate().map(|(i, body)| (i as u64, body));
        assert_eq!((found, bad), (wanted.collect(), Vec::new()));
        assert_eq!(packed(&bodies).pages, bucket.pages, "the old one is as it was");

        let none = |news: &[(usize, Vec<u8>)], kind| assert!(replacing(news, kind).is_none());
        none(&[new(3, 63), new(77, 61)], Kind::CELL);
        none(&[new(3, 63), (120, vec![120; 60])], Kind::CELL);
        none(&[(3, vec![4; 63])], Kind::CELL);
        none(&[new(3, 63)], Kind::CELL.removing());
        none(&[new(3, 63)], Kind::META);
        assert!(bucket.void().replacing(std::iter::empty()).is_none());
    }

    #[test]
    fn a_flipped_byte_costs_the_page_one_record_or_nothing() {
        let bodies: Vec<Vec<u8>> = (0..20).map(|i| vec![i as u8; 60]).collect();
        let bucket = packed(&bodies);
        for at in 0..PAGE {
            let mut page = bucket.pages[0].to_vec();
            page[at] ^= 0x10;
            let directory_end = PAGE_HEAD_LEN + 20 * HEAD_LEN;
            let Ok(_) = PageHead::read(&page, PLACE, 9) else {
                assert!(at < directory_end, "a body must not cost the page");
                continue;
            };
            assert!(at >= directory_end, "byte {at} of the head is not covered");
            let (left, bad) = Bucket::check(vec![page.into()], Vec::new(), 9);
            assert_eq!(left.entries().count() + bad.len(), 20);
            assert_eq!(bad.len(), usize::from(at >= PAGE - 20 * 60));
        }
    }

    #[test]
    fn the_bytes_of_a_page_are_these() {
        let bucket = packed(&[b"k1record".to_vec()]);
        let page = &bucket.pages[0];
        assert_eq!(&page[8..16], b"PBKT\x01\0\0\x03");
        assert_eq!(
            page[16..48],
            [
                6, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
                0, 1, 0, 0, 0
            ]
        );
        assert_eq!(&page[PAGE - 8..], b"k1record");
        assert_eq!(page[80..88], [0xf8, 0x0f, 8, 0, 2, 0, 1, 1]);
        assert_eq!(base::checksum::hash(page), GOLDEN);
    }

    const GOLDEN: u64 = 0xa522_1a0a_007b_20f9;
}
