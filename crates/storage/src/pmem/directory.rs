//! The directory: from a key's hash to its slot, one extendible hash table per shard, in the file
//! itself.
//!
//! A shard's root leads to a leaf, or to an array of pointers to leaves that is indexed by the hash
//! bits after the shard's. A leaf is a page: a head line, then 63 lines of four entries of 16
//! bytes, the whole hash and a self-checking word with the slot. A hash's entry is in its home line
//! or one of the three after it. A full neighbourhood divides the leaf, or, if that would not help,
//! chains a further page to it. [After CCEH: Nam et al., "Write-Optimized Dynamic Hashing for
//! Persistent Memory", FAST 2019.] Departure: entries are never moved within a leaf, and dividing
//! is redone from an intent after a crash.
//!
//! An entry changes by one 8-byte store. Absence is only ever concluded from words that are whole:
//! an empty place says under its check that it is empty. Damage is reported here and, once the
//! shard is durably forgotten, cleared away (see `repair`).

use std::io;

use super::intent::Split;
use super::layout::{GRANULE, GRANULE_BITS, PAGE, PageKind, ROOT_DIRECTORY, ShardId};
use super::memory::Memory;
use super::persist::LINE;
use super::shared::{Shared, offset_of};
use super::word::NONE;

const ENTRY_LEN: u64 = 16;
const LINES: u64 = PAGE / LINE - 1;
const PROBE_LINES: u64 = 4;
const ENTRIES: u64 = LINES * (LINE / ENTRY_LEN);
// A neighbourhood that fills up in an emptier leaf than this has got keys made to collide.
const ENTRIES_SPLIT_MIN: u64 = ENTRIES / 8;
/// Hash bits that pointers distinguish at most; fuller leaves are chained.
const DEPTH_MAX: u32 = 16;
/// Hash bits of the smallest array of pointers: one page.
const BITS_MIN: u32 = 9;
// Pages chained to one leaf. More than that is a cycle made by damage.
const CHAIN_MAX: usize = 1 << 20;
const CHAIN_WORD: u64 = 8;

// A root: offset, and above it the bits that its pointers distinguish.
const ROOT_OFFSET: u64 = (1 << 40) - 1;
const _: () = assert!(GRANULE_BITS <= 40);

const KIND_LEAF: u64 = 1;
const KIND_CHAINED: u64 = 2;

/// The outcome of a look at a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    Yes,
    /// Another key of the same hash.
    No,
    /// Not the register of the entry.
    Damaged,
}

/// An entry: where it is, and the slot that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub at: u64,
    pub hash: u64,
    pub slot: u64,
}

/// The way to a hash is damaged; the entry where it leads to something else than it promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged {
    pub entry: Option<u64>,
}

/// A leaf, and the way to it.
#[derive(Debug, Default)]
pub struct Survey {
    pub entries: Vec<Entry>,
    /// Offsets of damage: a word, an entry or a page.
    pub bad: Vec<u64>,
    /// Where the next leaf begins.
    pub next: Option<u64>,
}

const BROKEN: Damaged = Damaged { entry: None };

/// Why an entry could not be added.
#[derive(Debug)]
pub enum InsertError {
    Damaged,
    Io(io::Error),
}

impl From<Damaged> for InsertError {
    fn from(_: Damaged) -> InsertError {
        InsertError::Damaged
    }
}

impl From<io::Error> for InsertError {
    fn from(error: io::Error) -> InsertError {
        InsertError::Io(error)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Root {
    Empty,
    Leaf(u64),
    Pointers { at: u64, bits: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    depth: u32,
    // Position of the first hash of the leaf.
    first: u64,
    shard: ShardId,
    kind: u64,
}

/// The 16 hash bits after the shard's, which index pointers.
fn position(hash: u64) -> u64 {
    hash >> 40 & 0xffff
}

fn index_of(hash: u64, bits: u32) -> u64 {
    position(hash) >> (DEPTH_MAX - bits)
}

impl Head {
    fn payload(&self) -> u64 {
        let shard = u64::from(self.shard.database.0) << 8 | u64::from(self.shard.shard.0) << 16;
        u64::from(self.depth) | shard | self.kind << 24 | self.first << 32
    }

    fn covers(&self, hash: u64) -> bool {
        (position(hash) ^ self.first) >> (DEPTH_MAX - self.depth) == 0
    }
}

/// Offsets of the entries that a hash may have in a page.
fn neighbourhood(page: u64, hash: u64) -> impl Iterator<Item = u64> {
    let home = ((hash & 0xffff_ffff) * LINES) >> 32;
    (0..PROBE_LINES).flat_map(move |step| {
        let line = page + LINE * (1 + (home + step) % LINES);
        (0..LINE / ENTRY_LEN).map(move |index| line + index * ENTRY_LEN)
    })
}

fn entries(page: u64) -> impl Iterator<Item = u64> {
    (0..ENTRIES).map(move |index| page + LINE + index * ENTRY_LEN)
}

impl<M: Memory> Shared<M> {
    /// The entry of `hash` whose slot `is_it`. `None` is said only where everything that could have held it is
    /// whole.
    pub fn search(
        &self,
        shard: ShardId,
        hash: u64,
        mut is_it: impl FnMut(u64) -> Match,
    ) -> Result<Option<Entry>, Damaged> {
        let Some(first) = self.pointed_to(shard, hash)? else { return Ok(None) };
        for page in self.pages(first) {
            for at in neighbourhood(page?, hash) {
                if self.memory.load(at) != hash {
                    continue;
                }
                let Some(slot) = self.entry_slot(at)? else { continue };
                match is_it(slot) {
                    Match::Yes => return Ok(Some(Entry { at, hash, slot })),
                    Match::No => {}
                    Match::Damaged => return Err(Damaged { entry: Some(at) }),
                }
            }
        }
        // An entry proves itself; that there is none needs the right leaf and every word in it whole.
        self.check_leaf(first, shard, hash)?;
        for page in self.pages(first) {
            for at in neighbourhood(page?, hash) {
                self.entry_slot(at)?;
            }
        }
        Ok(None)
    }

    /// Adds an entry; `worker` is whose intents a division may use. Written back, not fenced.
    pub fn insert(
        &self,
        worker: u32,
        shard: ShardId,
        hash: u64,
        slot: u64,
    ) -> Result<(), InsertError> {
        // Every round but the last divides the leaf that the hash lies in.
        for _ in 0..=2 * DEPTH_MAX {
            let Some(leaf) = self.leaf_of(shard, hash)? else {
                self.plant(shard, hash)?;
                continue;
            };
            let mut last = leaf;
            for page in self.pages(leaf) {
                last = page?;
                for at in neighbourhood(last, hash) {
                    if self.entry_slot(at)?.is_none() {
                        self.fill(at, hash, slot);
                        return Ok(());
                    }
                }
            }
            if !self.divide(worker, shard, leaf, hash)? {
                self.chain(shard, leaf, last)?;
            }
        }
        unreachable!("a leaf divides at most {DEPTH_MAX} times, and a chained page is empty")
    }

    /// Lets an entry lead to another slot of the same key. Written back, not fenced.
    pub fn redirect(&self, entry: &Entry, slot: u64) {
        self.set_word_beside(entry.at + 8, entry.hash, slot / GRANULE);
        self.memory.write_back(entry.at, ENTRY_LEN);
    }

    /// Takes an entry away. Written back, not fenced.
    pub fn clear(&self, at: u64) {
        self.set_word(at + 8, NONE);
        self.memory.write_back(at, ENTRY_LEN);
    }

    /// Appends the entries of the leaf of `hash`, from that hash on, and says where the next leaf begins.
    pub fn list(
        &self,
        shard: ShardId,
        hash: u64,
        found: &mut Vec<Entry>,
    ) -> Result<Option<u64>, Damaged> {
        let (leaf, positions) = match self.root(shard)? {
            Root::Empty => return Ok(None),
            Root::Leaf(leaf) => (Some(leaf), 0..1 << DEPTH_MAX),
            Root::Pointers { at, bits } => {
                let index = index_of(hash, bits);
                let leaf = self.pointer(at + 8 * index)?;
                let same = |&next: &u64| self.pointer(at + 8 * next) == Ok(leaf);
                let end = (index + 1..1 << bits).take_while(same).last().unwrap_or(index) + 1;
                (leaf, index << (DEPTH_MAX - bits)..end << (DEPTH_MAX - bits))
            }
        };
        if let Some(leaf) = leaf {
            self.check_leaf(leaf, shard, hash)?;
            for page in self.pages(leaf) {
                for at in entries(page?) {
                    let Some(slot) = self.entry_slot(at)? else { continue };
                    let entry = Entry { at, hash: self.memory.load(at), slot };
                    // A leaf may hold remains that the pointers no longer lead to.
                    if entry.hash >= hash && positions.contains(&position(entry.hash)) {
                        found.push(entry);
                    }
                }
            }
        }
        let has_next = positions.end < 1 << DEPTH_MAX;
        Ok(has_next.then(|| shard.shard.first_hash() + (positions.end << 40)))
    }

    /// As `list`, for an offline check: damage is named, and the entries that it hides are passed
    /// over.
    pub fn survey(&self, shard: ShardId, hash: u64) -> Survey {
        let root_at = self.geometry.root_at(shard) + ROOT_DIRECTORY;
        let mut found = Survey::default();
        let (leaf, positions) = match self.root(shard) {
            Err(_) => {
                found.bad.push(root_at);
                return found;
            }
            Ok(Root::Empty) => return found,
            Ok(Root::Leaf(leaf)) => (Some(leaf), 0..1 << DEPTH_MAX),
            Ok(Root::Pointers { at, bits }) => {
                let index = index_of(hash, bits);
                let pointer = self.pointer(at + 8 * index);
                let end = match pointer {
                    Err(_) => {
                        found.bad.push(at + 8 * index);
                        index + 1
                    }
                    Ok(_) => {
                        let same = |&next: &u64| self.pointer(at + 8 * next) == pointer;
                        (index + 1..1 << bits).take_while(same).last().unwrap_or(index) + 1
                    }
                };
                let positions = index << (DEPTH_MAX - bits)..end << (DEPTH_MAX - bits);
                (pointer.unwrap_or(None), positions)
            }
        };
        let has_next = positions.end < 1 << DEPTH_MAX;
        found.next = has_next.then(|| shard.shard.first_hash() + (positions.end << 40));
        let Some(leaf) = leaf else { return found };
        if self.check_leaf(leaf, shard, hash).is_err() {
            found.bad.push(leaf);
            return found;
        }
        self.survey_leaf(leaf, |hash| positions.contains(&position(hash)), &mut found);
        found
    }

    fn survey_leaf(&self, leaf: u64, is_led_to: impl Fn(u64) -> bool, found: &mut Survey) {
        let mut last = leaf;
        for page in self.pages(leaf) {
            let Ok(page) = page else {
                found.bad.push(last + CHAIN_WORD);
                return;
            };
            for at in entries(page) {
                match self.entry_slot(at) {
                    Err(_) => found.bad.push(at),
                    Ok(Some(slot)) if is_led_to(self.memory.load(at)) => {
                        found.entries.push(Entry { at, hash: self.memory.load(at), slot });
                    }
                    Ok(_) => {}
                }
            }
            last = page;
        }
    }

    /// Clears away damage on the way to `hash`, and a wrong entry. The entries behind are
    /// forgotten: only for a shard that is durably marked so.
    pub fn repair(&self, shard: ShardId, hash: u64, entry: Option<u64>) {
        if let Some(at) = entry {
            self.clear(at);
        }
        let root_at = self.geometry.root_at(shard) + ROOT_DIRECTORY;
        let way = match self.root(shard) {
            Ok(Root::Empty) => return self.memory.fence(),
            Ok(Root::Leaf(_)) => root_at,
            Ok(Root::Pointers { at, bits }) => {
                for word in (0..1 << bits).map(|index| at + 8 * index) {
                    if self.pointer(word).is_err() {
                        self.put_word(word, NONE);
                    }
                }
                at + 8 * index_of(hash, bits)
            }
            Err(_) => {
                self.put_word(root_at, NONE);
                return self.memory.fence();
            }
        };
        match self.leaf_of(shard, hash) {
            Ok(Some(leaf)) => self.repair_leaf(leaf),
            Ok(None) => {}
            Err(_) => {
                self.drop_leaf(shard, hash);
                self.put_word(way, NONE);
            }
        }
        self.memory.fence();
    }

    /// Cuts the link to a leaf that is not the right one for `hash`: for this hash, and for all
    /// others for which it is not the right one either.
    fn drop_leaf(&self, shard: ShardId, hash: u64) {
        let Ok(Root::Pointers { at, bits }) = self.root(shard) else { return };
        let Ok(Some(leaf)) = self.pointer(at + 8 * index_of(hash, bits)) else { return };
        for index in 0..1 << bits {
            let first = shard.shard.first_hash() + (index << (DEPTH_MAX - bits) << 40);
            let word = at + 8 * index;
            if self.pointer(word) == Ok(Some(leaf)) && self.check_leaf(leaf, shard, first).is_err()
            {
                self.put_word(word, NONE);
            }
        }
    }

    fn repair_leaf(&self, leaf: u64) {
        let mut last = leaf;
        for page in self.pages(leaf) {
            let Ok(page) = page else {
                self.put_word(last + CHAIN_WORD, NONE);
                break;
            };
            for at in entries(page).filter(|&at| self.entry_slot(at).is_err()) {
                self.clear(at);
            }
            last = page;
        }
    }

    fn root(&self, shard: ShardId) -> Result<Root, Damaged> {
        let at = self.geometry.root_at(shard) + ROOT_DIRECTORY;
        let payload = self.word(at).ok_or(BROKEN)?;
        if payload == NONE {
            return Ok(Root::Empty);
        }
        let bits = (payload >> 40) as u32;
        let at = self.page_at(payload & ROOT_OFFSET).ok_or(BROKEN)?;
        match bits {
            0 => Ok(Root::Leaf(at)),
            BITS_MIN..=DEPTH_MAX if self.contains(at, 8 << bits) => Ok(Root::Pointers { at, bits }),
            _ => Err(BROKEN),
        }
    }

    fn set_root(&self, shard: ShardId, at: u64, bits: u32) {
        let payload = (at / GRANULE) | (u64::from(bits) << 40);
        self.put_word(self.geometry.root_at(shard) + ROOT_DIRECTORY, payload);
    }

    fn page_at(&self, payload: u64) -> Option<u64> {
        let first = self.geometry.segments_at();
        offset_of(payload)
            .filter(|&at| at >= first && at.is_multiple_of(PAGE) && self.contains(at, PAGE))
    }

    fn pointer(&self, at: u64) -> Result<Option<u64>, Damaged> {
        match self.word(at).ok_or(BROKEN)? {
            NONE => Ok(None),
            payload => self.page_at(payload).map(Some).ok_or(BROKEN),
        }
    }

    /// Where the root and the pointers lead for `hash`; the page is not looked at.
    fn pointed_to(&self, shard: ShardId, hash: u64) -> Result<Option<u64>, Damaged> {
        match self.root(shard)? {
            Root::Empty => Ok(None),
            Root::Leaf(leaf) => Ok(Some(leaf)),
            Root::Pointers { at, bits } => self.pointer(at + 8 * index_of(hash, bits)),
        }
    }

    fn leaf_of(&self, shard: ShardId, hash: u64) -> Result<Option<u64>, Damaged> {
        let leaf = self.pointed_to(shard, hash)?;
        if let Some(leaf) = leaf {
            self.check_leaf(leaf, shard, hash)?;
        }
        Ok(leaf)
    }

    fn check_leaf(&self, leaf: u64, shard: ShardId, hash: u64) -> Result<(), Damaged> {
        let head = self.head(leaf).ok_or(BROKEN)?;
        let is_right = head.shard == shard && head.kind == KIND_LEAF && head.covers(hash);
        if is_right { Ok(()) } else { Err(BROKEN) }
    }

    fn head(&self, page: u64) -> Option<Head> {
        let payload = self.word(page)?;
        let database = types::Database((payload >> 8) as u8);
        let shard = ShardId { database, shard: types::Shard((payload >> 16) as u8) };
        let (depth, kind) = ((payload & 0xff) as u32, payload >> 24 & 0xff);
        let head = Head { depth, first: payload >> 32, shard, kind };
        (depth <= DEPTH_MAX).then_some(head)
    }

    /// The pages of a leaf: itself and those chained to it.
    fn pages(&self, leaf: u64) -> impl Iterator<Item = Result<u64, Damaged>> + '_ {
        let mut last = None;
        let mut count = 0;
        std::iter::from_fn(move || {
            let page = match last {
                None if count == 0 => Ok(Some(leaf)),
                None => return None,
                Some(last) => self.chained_to(last, count),
            };
            count += 1;
            last = page.unwrap_or(None);
            page.transpose()
        })
    }

    fn chained_to(&self, page: u64, count: usize) -> Result<Option<u64>, Damaged> {
        let Some(chained) = self.pointer(page + CHAIN_WORD)? else { return Ok(None) };
        let is_right = self.head(chained).is_some_and(|head| head.kind == KIND_CHAINED);
        if is_right && count < CHAIN_MAX { Ok(Some(chained)) } else { Err(BROKEN) }
    }

    /// The slot of the entry at `at`; `None` where it is empty.
    #[inline]
    fn entry_slot(&self, at: u64) -> Result<Option<u64>, Damaged> {
        let word = at + 8;
        let is_empty = self.memory.load(word) & NONE == NONE;
        let beside = if is_empty { 0 } else { self.memory.load(at) };
        match self.word_beside(word, beside).ok_or(BROKEN)? {
            NONE => Ok(None),
            payload => offset_of(payload).map(Some).ok_or(BROKEN),
        }
    }

    fn fill(&self, at: u64, hash: u64, slot: u64) {
        // In this order: the lines of a cache persist as a prefix of the stores to them.
        self.memory.store(at, hash);
        self.set_word_beside(at + 8, hash, slot / GRANULE);
        self.memory.write_back(at, ENTRY_LEN);
    }

    fn new_page(&self, head: Head) -> io::Result<u64> {
        let page = self.allocate(PageKind::Leaf, head.shard, 1)?;
        self.set_word(page, head.payload());
        self.set_word(page + CHAIN_WORD, NONE);
        for at in entries(page) {
            self.memory.store(at, 0);
            self.set_word(at + 8, NONE);
        }
        self.memory.write_back(page, PAGE);
        Ok(page)
    }

    /// Gives a hash without a leaf an empty one.
    fn plant(&self, shard: ShardId, hash: u64) -> Result<(), InsertError> {
        let (depth, first) = match self.root(shard)? {
            Root::Pointers { bits, .. } => (bits, index_of(hash, bits) << (DEPTH_MAX - bits)),
            Root::Empty | Root::Leaf(_) => (0, 0),
        };
        let leaf = self.new_page(Head { depth, first, shard, kind: KIND_LEAF })?;
        self.memory.fence();
        match self.root(shard)? {
            Root::Pointers { at, bits } => {
                self.put_word(at + 8 * index_of(hash, bits), leaf / GRANULE);
            }
            Root::Empty | Root::Leaf(_) => self.set_root(shard, leaf, 0),
        }
        self.memory.fence();
        Ok(())
    }

    /// Chains an empty page to a leaf whose pages end with `last`.
    fn chain(&self, shard: ShardId, leaf: u64, last: u64) -> Result<(), InsertError> {
        base::sometimes!("pmem: a page is chained to a leaf");
        let head = self.head(leaf).ok_or(BROKEN)?;
        let page = self.new_page(Head { kind: KIND_CHAINED, shard, ..head })?;
        self.memory.fence();
        self.put_word(last + CHAIN_WORD, page / GRANULE);
        self.memory.fence();
        Ok(())
    }

    /// Divides the leaf of `hash` by its next bit. False where that is not done and a page is to be chained.
    fn divide(
        &self,
        worker: u32,
        shard: ShardId,
        old: u64,
        hash: u64,
    ) -> Result<bool, InsertError> {
        let head = self.head(old).ok_or(BROKEN)?;
        let mut count = 0;
        for at in entries(old) {
            count += u64::from(self.entry_slot(at)?.is_some());
        }
        let is_chained = self.pointer(old + CHAIN_WORD)?.is_some();
        if is_chained || head.depth == DEPTH_MAX || count < ENTRIES_SPLIT_MIN {
            return Ok(false);
        }
        self.reach(shard, head.depth + 1)?;
        let first = head.first | 1 << (DEPTH_MAX - head.depth - 1);
        let half = Head { depth: head.depth + 1, first, ..head };
        let new = self.new_page(half)?;
        for at in entries(old) {
            let moved = self.memory.load(at);
            if let Some(slot) = self.entry_slot(at)?.filter(|_| half.covers(moved)) {
                self.fill(at - old + new, moved, slot);
            }
        }
        self.memory.fence();
        let split = Split { shard, old, new, depth: head.depth };
        self.write_split(worker, &split);
        self.memory.fence();
        assert!(head.covers(hash), "the leaf at {old:#x} does not cover {hash:#x}");
        self.redo(&split);
        Ok(true)
    }

    /// Does, or finishes, a division: the new half is persistent. All of it can be done twice.
    pub fn redo(&self, split: &Split) {
        let Some(half) = self.page_at(split.new / GRANULE).and_then(|new| self.head(new)) else {
            return;
        };
        let Some(head) = self.page_at(split.old / GRANULE).and_then(|old| self.head(old)) else {
            return;
        };
        let fits = head.shard == split.shard && half.shard == split.shard;
        if !fits || half.depth <= split.depth {
            return;
        }
        let first = half.first & !0 << (DEPTH_MAX - split.depth - 1);
        let moved = Head { depth: split.depth + 1, first, ..half };
        self.point_to_half(split, moved);
        if head.depth == split.depth {
            self.put_word(split.old, Head { depth: split.depth + 1, ..head }.payload());
        }
        // Entries go only once the old leaf is unlinked for them, whatever becomes of the new one.
        self.memory.fence();
        for at in entries(split.old) {
            if moved.covers(self.memory.load(at)) && matches!(self.entry_slot(at), Ok(Some(_))) {
                self.clear(at);
            }
        }
        self.memory.fence();
    }

    fn point_to_half(&self, split: &Split, half: Head) {
        let Ok(Root::Pointers { at, bits }) = self.root(split.shard) else { return };
        if bits < half.depth {
            return;
        }
        let from = at + 8 * (half.first >> (DEPTH_MAX - bits));
        for word in (0..1_u64 << (bits - half.depth)).map(|index| from + 8 * index) {
            if self.pointer(word) == Ok(Some(split.old)) {
                self.put_word(word, split.new / GRANULE);
            }
        }
    }

    /// Makes the pointers distinguish at least `depth` bits.
    fn reach(&self, shard: ShardId, depth: u32) -> Result<(), InsertError> {
        let (bits, new_bits) = match self.root(shard)? {
            Root::Pointers { bits, .. } if bits >= depth => return Ok(()),
            Root::Pointers { bits, .. } => (bits, bits + 1),
            Root::Empty | Root::Leaf(_) => (0, BITS_MIN),
        };
        let pages = (8_u64 << new_bits) / PAGE;
        let new = self.allocate(PageKind::Pointers, shard, pages)?;
        for index in 0..1_u64 << new_bits {
            let leaf = match self.root(shard)? {
                Root::Pointers { at, .. } => self.pointer(at + 8 * (index >> (new_bits - bits)))?,
                Root::Leaf(leaf) => Some(leaf),
                Root::Empty => None,
            };
            self.set_word(new + 8 * index, leaf.map_or(NONE, |leaf| leaf / GRANULE));
        }
        self.memory.write_back(new, pages * PAGE);
        self.memory.fence();
        self.set_root(shard, new, new_bits);
        self.memory.fence();
        Ok(())
    }
}
