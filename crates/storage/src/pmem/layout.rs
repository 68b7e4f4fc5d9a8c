//! Where every byte of the file is.
//!
//! ```text
//! superblock, twice        4 KiB each: magic, format, geometry; never changes
//! end of the allocated part 4 KiB
//! intents                  4 KiB per worker
//! shard roots              512 B per database and shard: directory, state, meta, heads of the slab chains
//! segments                 each: page words, chain words, then pages of 4 KiB
//! ```
//! Pages are given out in runs, to one shard each: a slab of slots of one class, a leaf of the directory, or an
//! array of pointers to leaves. A slot is two versions of its class's size, one behind the other. All words of
//! the structure are self-checking (`word`); offsets in them count granules of 64 bytes.

use types::key::SHARDS;
use types::limits::{KEY_LEN_MAX, RECORD_LEN_MAX, SPACES};
use types::{Database, Key, Shard};

/// Name of the file in the data directory.
pub const FILE: &str = "pmem";

/// Unit of allocation.
pub const PAGE: u64 = 4096;
/// Unit of the offsets in words, and alignment of every version.
pub const GRANULE: u64 = 64;
/// Bits of an offset in granules: 1 TiB.
pub const GRANULE_BITS: u32 = 34;
/// Bytes of a version's header.
pub const HEADER_LEN: usize = 24;
/// Slots that one turn's intent can name.
pub const INTENT_SLOTS_MAX: usize = 480;

/// Words of a shard's root, as offsets from its beginning.
pub const ROOT_DIRECTORY: u64 = 0;
pub const ROOT_STATE: u64 = 8;
/// Values of the state word.
pub(super) const STATE_KNOWN: u64 = 1;
pub(super) const STATE_FORGOTTEN: u64 = 2;
pub const ROOT_META: u64 = 16;
const ROOT_CHAINS: u64 = 64;
const ROOT_LEN: u64 = 512;

/// Offset of the word that says up to where pages have been given out.
pub const BUMP_AT: u64 = 2 * PAGE;
const INTENTS_AT: u64 = 3 * PAGE;
const HUGE: u64 = 2 << 20;

/// Sizes that are fixed when a file is created, and written in its superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Intents: how many workers may ever write at once.
    pub workers: u32,
    pub databases: u32,
    /// Bytes by which the file grows; a multiple of 4096. The largest slot must fit.
    pub segment_len: u64,
}

/// One shard of one database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ShardId {
    pub database: Database,
    pub shard: Shard,
}

/// The use of a run of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageKind {
    Slab(Class),
    Leaf,
    Pointers,
    /// None: it may be given out again.
    Free,
}

/// A size of slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(u8);

/// The content of a page word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageUse {
    pub kind: PageKind,
    pub shard: ShardId,
    /// Position of the page in its run.
    pub index: u64,
}

impl ShardId {
    #[must_use]
    pub fn of(database: Database, key: &Key) -> ShardId {
        ShardId { database, shard: key.shard() }
    }

    fn index(self) -> u64 {
        u64::from(self.database.0) * SHARDS as u64 + u64::from(self.shard.0)
    }
}

impl Geometry {
    /// The sizes that nodes use.
    pub const DEFAULT: Geometry =
        Geometry { workers: 64, databases: SPACES as u32, segment_len: 64 << 20 };

    /// False for numbers that cannot come from a file of ours.
    #[must_use]
    pub fn is_sensible(&self) -> bool {
        let segment_is = self.segment_len.is_multiple_of(PAGE)
            && (8 * PAGE..=1 << 32).contains(&self.segment_len);
        (1..=1024).contains(&self.workers)
            && (1..=SPACES as u32).contains(&self.databases)
            && segment_is
    }

    /// Start of a worker's page of intents.
    #[must_use]
    pub fn intent_at(&self, worker: u32) -> u64 {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        INTENTS_AT + u64::from(worker) * PAGE
    }

    #[must_use]
    pub fn root_at(&self, shard: ShardId) -> u64 {
        assert!(u32::from(shard.database.0) < self.databases, "no database {}", shard.database);
        self.roots_at() + shard.index() * ROOT_LEN
    }

    /// The word with the first run of a shard's slabs of this class.
    #[must_use]
    pub fn chain_at(&self, shard: ShardId, class: Class) -> u64 {
        self.root_at(shard) + ROOT_CHAINS + 8 * u64::from(class.0)
    }

    fn roots_at(&self) -> u64 {
        INTENTS_AT + u64::from(self.workers) * PAGE
    }

    /// Where the first segment begins; the length of a file without any.
    #[must_use]
    pub fn segments_at(&self) -> u64 {
        let roots_len = u64::from(self.databases) * SHARDS as u64 * ROOT_LEN;
        // Where segments are large their pages can be huge ones.
        let alignment = if self.segment_len.is_multiple_of(HUGE) { HUGE } else { PAGE };
        (self.roots_at() + roots_len).next_multiple_of(alignment)
    }

    /// Start of the segment that `at` lies in.
    #[must_use]
    pub fn segment_of(&self, at: u64) -> u64 {
        let first = self.segments_at();
        assert!(at >= first, "{at:#x} is before the first segment");
        at - (at - first) % self.segment_len
    }

    /// Bytes at a segment's start that hold its page words and chain words.
    #[must_use]
    pub fn segment_header_len(&self) -> u64 {
        (self.segment_len / PAGE * 16).next_multiple_of(PAGE)
    }

    /// The word that tells the use of the page of `at`.
    #[must_use]
    pub fn page_word_at(&self, at: u64) -> u64 {
        let segment = self.segment_of(at);
        segment + (at - segment) / PAGE * 8
    }

    /// The word that names the run after the one that begins at `run`, in its chain.
    #[must_use]
    pub fn next_word_at(&self, run: u64) -> u64 {
        self.page_word_at(run) + self.segment_len / PAGE * 8
    }
}

const CLASSES: usize = 55;
const _: () = assert!(ROOT_CHAINS as usize + 8 * CLASSES <= ROOT_LEN as usize);
const CAPACITIES: [u64; CLASSES] = capacities();
const _: () = assert!(
    CAPACITIES[CLASSES - 1] as usize >= HEADER_LEN + KEY_LEN_MAX + RECORD_LEN_MAX,
    "the largest record fits"
);

/// Steps of 64 bytes to 512, then four per doubling to 512 KiB (none above a quarter of waste), then coarser.
const fn capacities() -> [u64; CLASSES] {
    let mut table = [0; CLASSES];
    let (mut index, mut capacity) = (0, 64_u64);
    while index < CLASSES {
        table[index] = capacity;
        index += 1;
        capacity += if capacity < 512 {
            64
        } else if capacity < 512 << 10 {
            (1 << capacity.ilog2()) / 4
        } else if capacity <= 1 << 20 {
            256 << 10
        } else {
            capacity
        };
    }
    table
}

impl Class {
    /// The smallest class whose versions hold `len` bytes, header included.
    #[must_use]
    pub fn holding(len: usize) -> Option<Class> {
        let index = CAPACITIES.partition_point(|&capacity| capacity < len as u64);
        (index < CLASSES).then_some(Class(index as u8))
    }

    /// Every class, smallest first.
    pub fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES as u8).map(Class)
    }

    /// Bytes of a version.
    #[must_use]
    pub fn capacity(self) -> u64 {
        CAPACITIES[usize::from(self.0)]
    }

    /// Bytes of a slot: two versions.
    #[must_use]
    pub fn slot_len(self) -> u64 {
        2 * self.capacity()
    }

    /// Pages of a run: 16 KiB, or more where that wastes less than a sixteenth, at most 64 KiB or one slot.
    #[must_use]
    pub fn run_pages(self) -> u64 {
        let slot_len = self.slot_len();
        if slot_len > 8 * PAGE {
            return slot_len.div_ceil(PAGE);
        }
        let wastes_little = |pages: &u64| (pages * PAGE) % slot_len * 16 <= pages * PAGE;
        (4..16).find(wastes_little).unwrap_or(16)
    }

    #[must_use]
    pub fn slots_per_run(self) -> u64 {
        self.run_pages() * PAGE / self.slot_len()
    }
}

const KIND_LEAF: u64 = 0x80;
const KIND_POINTERS: u64 = 0x81;
const KIND_FREE: u64 = 0x82;

impl PageUse {
    /// Of a page that never belonged to a shard.
    pub const FREE: PageUse = PageUse {
        kind: PageKind::Free,
        shard: ShardId { database: Database(0), shard: Shard(0) },
        index: 0,
    };

    /// The payload of a page word.
    #[must_use]
    pub fn payload(&self) -> u64 {
        let kind = match self.kind {
            PageKind::Slab(class) => u64::from(class.0),
            PageKind::Leaf => KIND_LEAF,
            PageKind::Pointers => KIND_POINTERS,
            PageKind::Free => KIND_FREE,
        };
        assert!(self.index < 1 << 16, "a run of more than {} pages", self.index);
        kind | self.shard.index() << 8 | self.index << 24
    }

    /// The content of a page word's payload; `None` if no such word is written.
    #[must_use]
    pub fn from_payload(payload: u64) -> Option<PageUse> {
        let kind = match payload & 0xff {
            KIND_LEAF => PageKind::Leaf,
            KIND_POINTERS => PageKind::Pointers,
            KIND_FREE => PageKind::Free,
            class if class < CLASSES as u64 => PageKind::Slab(Class(class as u8)),
            _ => return None,
        };
        let index = payload >> 24;
        let shard = Shard((payload >> 8) as u8);
        let database = Database((payload >> 16) as u8);
        let shard = ShardId { database, shard };
        (index < 1 << 16).then_some(PageUse { kind, shard, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_and_hold_what_they_are_chosen_for() {
        assert!(CAPACITIES.is_sorted() && CAPACITIES[0] == 64);
        for class in Class::all() {
            let capacity = class.capacity();
            assert!(capacity.is_multiple_of(64) && (capacity < 1024 || capacity % 256 == 0));
            assert_eq!(Class::holding(capacity as usize), Some(class));
            let used = class.slots_per_run() * class.slot_len();
            assert!(used * 9 >= class.run_pages() * PAGE * 8, "class {capacity} wastes its run");
        }
        assert_eq!(Class::holding(32 << 20), None);
    }

    #[test]
    fn page_words_come_back() {
        let shard = ShardId { database: Database(15), shard: Shard(255) };
        let class = Class::holding(70_000).expect("it fits");
        for kind in [PageKind::Leaf, PageKind::Pointers, PageKind::Free, PageKind::Slab(class)] {
            let word = PageUse { kind, shard, index: 16_000 };
            assert_eq!(PageUse::from_payload(word.payload()), Some(word));
        }
        assert_eq!(PageUse::from_payload(super::super::word::NONE), None);
    }

    #[test]
    fn the_default_geometry_has_room_for_the_largest_slot() {
        let geometry = Geometry::DEFAULT;
        assert!(geometry.is_sensible());
        let room = geometry.segment_len - geometry.segment_header_len();
        let largest = Class::all().last().expect("there are classes");
        assert!(largest.run_pages() * PAGE <= room);
        assert_eq!(geometry.segments_at() % HUGE, 0);
    }
}
