//! The state that the handles of all workers share: the memory, its geometry, and the allocator of
//! pages.
//!
//! Only the allocator is behind a lock, and it is asked for whole runs. Everything else in the file
//! belongs to one shard, and a shard to one worker.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

use types::Positions;
use types::positions::PUBLIC;

use super::layout::{
    BUMP_AT, FILE, GRANULE, GRANULE_BITS, Geometry, PAGE, PageKind, PageUse, ShardId,
};
use super::memory::Memory;
use super::word::{self, mix};

// Free runs that are remembered, rests of segments among them. Others are found again by looking at page words.
const HOLES_MAX: usize = 1024;
// Page words that are looked at before new pages are taken, and before the file grows: some milliseconds.
const PAGES_LOOKED_AT: u64 = 4096;
const PAGES_LOOKED_AT_TO_GROW: u64 = 1 << 20;

/// The opened medium.
#[derive(Debug)]
pub struct Shared<M> {
    pub memory: M,
    pub geometry: Geometry,
    // Ties every check in the file to one data directory.
    binding: u64,
    positions: OnceLock<Positions>,
    allocator: Mutex<Allocator>,
    // Which workers' intents are in use.
    taken: Box<[AtomicBool]>,
    // The kind of a whole record that a later version wrote; 0: none was found.
    unknown: AtomicU8,
}

/// A whole record that a later version wrote. It must not be taken for a damaged one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{FILE}: a record has kind {0:#04x}, this version knows kinds 1 to 3: run the version that wrote it"
)]
pub struct UnknownRecord(pub u8);

#[derive(Debug)]
struct Allocator {
    // Everything from here on is free.
    bump: u64,
    // Free runs below it: offset and pages.
    holes: Vec<(u64, u64)>,
    // From where on page words are looked at for free pages, and up to where: the end, or where it began.
    looking: Option<(u64, u64)>,
    // There may be free pages that are not remembered.
    has_more: bool,
}

impl<M: Memory> Shared<M> {
    /// Takes over memory whose superblock has been read.
    pub fn new(memory: M, geometry: Geometry, binding: u64) -> Shared<M> {
        let taken = (0..geometry.workers).map(|_| AtomicBool::new(false)).collect();
        let allocator = Allocator { bump: 0, holes: Vec::new(), looking: None, has_more: true };
        let allocator = Mutex::new(allocator);
        let positions = OnceLock::new();
        let shared = Shared {
            memory,
            geometry,
            binding,
            positions,
            allocator,
            taken,
            unknown: AtomicU8::new(0),
        };
        // A damaged word cannot hide pages that are in use: everything that exists counts as given out.
        let end = shared.memory.len().max(geometry.segments_at());
        let bump = shared.word(BUMP_AT).and_then(offset_of).filter(|&bump| bump <= end);
        shared.lock().bump = bump.unwrap_or(end);
        shared
    }

    pub fn note_unknown(&self, kind: u8) {
        self.unknown.store(kind, Ordering::Relaxed);
    }

    /// A record that this version does not know was found, by any worker: no byte may change.
    pub fn unknown(&self) -> Option<UnknownRecord> {
        let kind = self.unknown.load(Ordering::Relaxed);
        (kind != 0).then_some(UnknownRecord(kind))
    }

    /// The same, for one that looks for others.
    pub fn take_unknown(&self) -> Option<UnknownRecord> {
        let found = self.unknown();
        self.unknown.store(0, Ordering::Relaxed);
        found
    }

    /// # Panics
    /// If keys were found by other positions before.
    pub fn set_positions(&self, positions: &Positions) {
        assert_eq!(self.positions.get_or_init(|| positions.clone()), positions);
    }

    /// Where keys lie; where anyone would find them unless told otherwise.
    pub fn positions(&self) -> &Positions {
        self.positions.get_or_init(|| PUBLIC.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Allocator> {
        self.allocator.lock().expect("nothing panics while it holds the allocator")
    }

    /// The payload of the self-checking word at `at`; `None` where it is damaged or beyond the file.
    #[inline]
    pub fn word(&self, at: u64) -> Option<u64> {
        self.word_beside(at, 0)
    }

    /// As `word`, for one that vouches for `beside` as well.
    #[inline]
    pub fn word_beside(&self, at: u64, beside: u64) -> Option<u64> {
        if !self.contains(at, 8) {
            return None;
        }
        word::open(self.place(at), beside, self.memory.load(at))
    }

    /// Stores a word, without a write-back.
    #[inline]
    pub fn set_word(&self, at: u64, payload: u64) {
        self.memory.store(at, word::seal(self.place(at), 0, payload));
    }

    /// As `set_word`, for one that vouches for `beside` as well.
    #[inline]
    pub fn set_word_beside(&self, at: u64, beside: u64, payload: u64) {
        self.memory.store(at, word::seal(self.place(at), beside, payload));
    }

    /// Stores a word and starts writing it back.
    #[inline]
    pub fn put_word(&self, at: u64, payload: u64) {
        self.set_word(at, payload);
        self.memory.write_back(at, 8);
    }

    /// Seed of a checksum over bytes at `at`.
    #[inline]
    pub fn seed(&self, at: u64) -> u64 {
        mix(self.binding ^ at)
    }

    #[inline]
    fn place(&self, at: u64) -> u64 {
        self.binding ^ at
    }

    /// True where `len` bytes from `at` on are in the file.
    #[inline]
    pub fn contains(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.memory.len())
    }

    /// The use of the page of `at`; `None` if that is damaged, or `at` is not in a page.
    #[inline]
    pub fn page_use(&self, at: u64) -> Option<PageUse> {
        if at < self.geometry.segments_at() {
            return None;
        }
        self.word(self.geometry.page_word_at(at)).and_then(PageUse::from_payload)
    }

    /// A run of zeroed or used pages for `shard`. Its page words are written back, not fenced.
    ///
    /// # Errors
    /// When the file cannot grow, or a segment cannot hold so many pages.
    pub fn allocate(&self, kind: PageKind, shard: ShardId, pages: u64) -> io::Result<u64> {
        let header_len = self.geometry.segment_header_len();
        if pages * PAGE > self.geometry.segment_len - header_len {
            return Err(io::Error::other("a record is larger than a segment"));
        }
        let mut allocator = self.lock();
        let run = match self.take_free(&mut allocator, pages) {
            Some(run) => run,
            None => match self.take_new(&mut allocator, pages) {
                Ok(run) => run,
                Err(error) => self.take_any(&mut allocator, pages).ok_or(error)?,
            },
        };
        // Under the lock: a search for free pages must not find these.
        self.put_page_words(run, pages, |index| PageUse { kind, shard, index });
        Ok(run)
    }

    /// Gives back a run of pages that is unlinked, durably.
    pub fn free(&self, shard: ShardId, run: u64, pages: u64) {
        let mut allocator = self.lock();
        self.put_page_words(run, pages, |_| PageUse { kind: PageKind::Free, shard, index: 0 });
        // Else a crash might bring back the words of now, after another worker was given these
        // pages.
        self.memory.fence();
        allocator.put_hole(run, pages);
    }

    fn put_page_words(&self, run: u64, pages: u64, page_use: impl Fn(u64) -> PageUse) {
        for index in 0..pages {
            let word = self.geometry.page_word_at(run + index * PAGE);
            self.put_word(word, page_use(index).payload());
        }
    }

    /// Pages that were given out before and are free.
    fn take_free(&self, allocator: &mut Allocator, pages: u64) -> Option<u64> {
        if let Some(run) = allocator.take_hole(pages) {
            return Some(run);
        }
        let segment_end = self.geometry.segment_of(allocator.bump) + self.geometry.segment_len;
        let has_room = allocator.bump + pages * PAGE <= segment_end.min(self.memory.len());
        let count = if has_room { PAGES_LOOKED_AT } else { PAGES_LOOKED_AT_TO_GROW };
        self.look_for_holes(allocator, count);
        allocator.take_hole(pages)
    }

    /// As `take_free`, however long that takes.
    fn take_any(&self, allocator: &mut Allocator, pages: u64) -> Option<u64> {
        // The second look finds shards that were forgotten since the first began.
        (0..2).find_map(|_| {
            self.look_for_holes(allocator, u64::MAX);
            allocator.take_hole(pages)
        })
    }

    /// Behind everything that was ever given out.
    fn take_new(&self, allocator: &mut Allocator, pages: u64) -> io::Result<u64> {
        let header_len = self.geometry.segment_header_len();
        let segment = self.geometry.segment_of(allocator.bump);
        let mut run = allocator.bump.max(segment + header_len);
        let mut segment_end = segment + self.geometry.segment_len;
        let mut rest = None;
        if run + pages * PAGE > segment_end {
            rest = Some((run, (segment_end - run) / PAGE));
            run = segment_end + header_len;
            segment_end += self.geometry.segment_len;
        }
        self.memory.grow(segment_end)?;
        let rest = rest.filter(|&(_, pages)| pages > 0);
        if let Some((run, pages)) = rest {
            // Before they count as given out, or a crash would cost them.
            self.put_page_words(run, pages, |_| PageUse::FREE);
            self.memory.fence();
        }
        allocator.bump = run + pages * PAGE;
        // Written back here, fenced by the worker before it links the run.
        self.put_word(BUMP_AT, allocator.bump / GRANULE);
        if let Some((run, pages)) = rest {
            // Another worker may link pages of the rest before this one has fenced.
            self.memory.fence();
            allocator.put_hole(run, pages);
        }
        Ok(run)
    }

    /// Looks at some page words for free pages that are not remembered.
    fn look_for_holes(&self, allocator: &mut Allocator, count: u64) {
        if allocator.looking.is_none() && std::mem::take(&mut allocator.has_more) {
            allocator.looking = Some((self.geometry.segments_at(), allocator.bump));
        }
        let Some((mut at, end)) = allocator.looking.take() else { return };
        let mut found: Option<(u64, u64)> = None;
        for _ in 0..count {
            if at >= end {
                break;
            }
            let segment = self.geometry.segment_of(at);
            if at == segment {
                at += self.geometry.segment_header_len();
                continue;
            }
            let is_free = self.page_use(at).is_some_and(|page| page.kind == PageKind::Free)
                && !allocator.has_hole(at);
            match &mut found {
                Some((run, pages)) if is_free && *run + *pages * PAGE == at => *pages += 1,
                _ if is_free => {
                    found.replace((at, 1)).into_iter().for_each(|(run, pages)| {
                        allocator.put_hole(run, pages);
                    });
                }
                _ => {}
            }
            at += PAGE;
        }
        if let Some((run, pages)) = found {
            allocator.put_hole(run, pages);
        }
        allocator.looking = (at < end).then_some((at, end));
    }

    /// Reserves a worker's intents.
    ///
    /// # Panics
    /// If they are in use: two writers would overwrite each other's.
    pub fn take_worker(&self, worker: u32) {
        let was_taken = self.taken[worker as usize].swap(true, Ordering::AcqRel);
        assert!(!was_taken, "worker {worker} has a store already");
    }

    /// Gives a worker's intents back.
    pub fn return_worker(&self, worker: u32) {
        self.taken[worker as usize].store(false, Ordering::Release);
    }
}

impl Allocator {
    /// Remembers a free run, with those beside it as one. Where there are too many the shortest is forgotten.
    fn put_hole(&mut self, run: u64, pages: u64) {
        let (mut run, mut pages) = (run, pages);
        self.holes.retain(|&(other, count)| {
            let is_beside = other + count * PAGE == run || run + pages * PAGE == other;
            if is_beside {
                run = run.min(other);
                pages += count;
            }
            !is_beside
        });
        self.holes.push((run, pages));
        if self.holes.len() > HOLES_MAX
            && let Some(shortest) = (0..self.holes.len()).min_by_key(|&index| self.holes[index].1)
        {
            self.holes.swap_remove(shortest);
            self.has_more = true;
        }
    }

    fn has_hole(&self, at: u64) -> bool {
        self.holes.iter().any(|&(run, pages)| (run..run + pages * PAGE).contains(&at))
    }

    /// Of the shortest that is long enough.
    fn take_hole(&mut self, pages: u64) -> Option<u64> {
        let fits = (0..self.holes.len()).filter(|&index| self.holes[index].1 >= pages);
        let index = fits.min_by_key(|&index| self.holes[index].1)?;
        let (run, free) = self.holes[index];
        if free == pages {
            self.holes.swap_remove(index);
        } else {
            self.holes[index] = (run + pages * PAGE, free - pages);
        }
        Some(run)
    }
}

/// The offset that a payload names; `None` if it names none.
#[inline]
pub fn offset_of(payload: u64) -> Option<u64> {
    (payload < 1 << GRANULE_BITS).then_some(payload * GRANULE)
}
