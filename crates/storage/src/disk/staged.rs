//! What a start finds in the stripes of a ring, on its way into the index.
//!
//! Entries are checked as their stripes come from the device, which costs nothing but time that is waited anyway. Only
//! where each entry is gets noted then; a part of the index is made of it when it is first touched. So a start does not
//! pay for what is not asked for, and the memory of an index is not touched all at once.

use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Entry, Mark};
use super::index::{PARTS, part_of};
use super::sizes::Sizes;
use super::stripe::{STRIPE_HEAD_LEN, entries};

const NONE: u32 = u32::MAX;

/// Where the entries of a ring are: for each part of the index the way from the newest to the oldest.
#[derive(Debug)]
pub(super) struct Staged {
    rows: Vec<Row>,
    /// The newest row of each part, or [`NONE`].
    newest: Vec<u32>,
    sizes: Sizes,
    has_references: bool,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Where in the payloads of all stripes: a ring is shorter than 4 GiB.
    at: u32,
    /// Which of the stripes that were found.
    found: u32,
    older: u32,
}

/// What a stripe says beside its entries' contents.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Hashes of its entries.
    pub(super) hashes: Vec<u64>,
    pub(super) marks: Vec<Mark>,
}

impl Default for Staged {
    fn default() -> Staged {
        Staged {
            rows: Vec::new(),
            newest: vec![NONE; PARTS],
            sizes: Sizes::default(),
            has_references: false,
        }
    }
}

impl Staged {
    /// Adds the entries of stripe number `found` of those found, whose payload begins at `start` of all payloads. `None`
    /// where not all of them can be read and verify; then some may have been added.
    pub(super) fn take_stripe(
        &mut self,
        payload: &[u8],
        start: usize,
        found: usize,
        binding: u64,
    ) -> Option<Said> {
        let (bytes, count) = entries(payload)?;
        let mut said = Said::default();
        said.hashes.reserve_exact(count.min(bytes.len() as u32) as usize);
        let (mut at, mut seen) = (0, 0);
        for (raw, entry) in Entry::all(bytes) {
            if !entry.is_whole(binding) {
                return None;
            }
            match entry.mark() {
                Some(mark) => said.marks.push(mark),
                None => {
                    said.hashes.push(entry.hash);
                    self.push(&entry, start + STRIPE_HEAD_LEN + at, found);
                }
            }
            at += raw.len();
            seen += 1;
        }
        (at == bytes.len() && seen == count).then_some(said)
    }

    /// Adds an entry of the newest stripe; `at` is where it is in all payloads.
    pub(super) fn push(&mut self, entry: &Entry<'_>, at: usize, found: usize) {
        let newest = &mut self.newest[part_of(entry.hash)];
        let older = std::mem::replace(newest, self.rows.len() as u32);
        self.rows.push(Row { at: at as u32, found: found as u32, older });
        self.sizes.add(entry);
        self.has_references |= entry.kind.is_in_extent();
    }

    /// Of the entries, the replaced ones included.
    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// True if an entry refers to an extent.
    pub(super) fn has_references(&self) -> bool {
        self.has_references
    }

    /// The rows of a part, newest first.
    fn rows(&self, part: usize) -> impl Iterator<Item = Row> {
        let row = |at: u32| self.rows.get(at as usize).copied();
        std::iter::successors(row(self.newest[part]), move |newer| row(newer.older))
    }
}

/// Entries that are not in the index yet.
#[derive(Debug)]
pub(super) struct Folded {
    staged: Staged,
    payloads: Arc<Bytes>,
    /// Number of the first stripe that was found.
    first: u64,
    /// Parts that have entries.
    parts: usize,
}

impl Folded {
    /// `None` where there are no entries.
    pub(super) fn new(staged: Staged, payloads: Bytes, first: u64) -> Option<Folded> {
        let parts = staged.newest.iter().filter(|&&newest| newest != NONE).count();
        (parts > 0).then(|| Folded { staged, payloads: Arc::new(payloads), first, parts })
    }

    /// True if it has entries of a part.
    pub(super) fn has(&self, part: usize) -> bool {
        self.staged.newest[part] != NONE
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// What the entries stand in.
    pub(super) fn payloads(&self) -> &Arc<Bytes> {
        &self.payloads
    }

    /// Gives away the entries of a part, oldest first: hash, stripe, and where in the payloads each begins.
    pub(super) fn take(&mut self, part: usize) -> Vec<(u64, u64, usize)> {
        if !self.has(part) {
            return Vec::new();
        }
        let entry = |row: Row| {
            let at = row.at as usize;
            let entry = Entry::read(&self.payloads[at..]);
            let entry = entry.expect("entries were checked when they were found");
            (entry.hash, self.first + u64::from(row.found), at)
        };
        let mut entries: Vec<_> = self.staged.rows(part).map(entry).collect();
        entries.reverse();
        self.staged.newest[part] = NONE;
        self.parts -= 1;
        entries
    }
}
