//! The superblock: the few numbers that make the rest of the files mean something, kept twice.
//!
//! Both copies are written by every write-back, through the double-write images like every other
//! page; so they agree, and either is enough. Its checksum is bound to the copy's place but not to
//! the node: a foreign store must be recognised as foreign, not as damaged.

use base::checksum::checksum;
use types::key::SHARDS;
use types::limits::SPACES;
use types::{Database, Shard};

use super::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::directory::Directory;
use crate::disk::place::PAGE;

const MAGIC: u32 = u32::from_le_bytes(*b"PSUP");
/// The only format that this version reads and writes.
pub(super) const FORMAT: u16 = 3;
const FLAGS: usize = 128;
const FLAGS_LEN: usize = SPACES * SHARDS / 8;

/// One bit for each shard of each database.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Flags([u8; FLAGS_LEN]);

impl Flags {
    pub(super) fn none() -> Flags {
        Flags([0; FLAGS_LEN])
    }

    pub(super) fn has(&self, database: Database, shard: Shard) -> bool {
        let (byte, bit) = Flags::at(database, shard);
        self.0[byte] & bit != 0
    }

    pub(super) fn set(&mut self, database: Database, shard: Shard, value: bool) {
        let (byte, bit) = Flags::at(database, shard);
        if value {
            self.0[byte] |= bit;
        } else {
            self.0[byte] &= !bit;
        }
    }

    /// True if any shard of a database is in the set.
    pub(super) fn has_any(&self, database: Database) -> bool {
        let (first, _) = Flags::at(database, Shard(0));
        self.0[first..first + 32].iter().any(|&byte| byte != 0)
    }

    fn at(database: Database, shard: Shard) -> (usize, u8) {
        (usize::from(database.0) * 32 + usize::from(shard.0 / 8), 1 << (shard.0 % 8))
    }
}

impl std::fmt::Debug for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set: u32 = self.0.iter().map(|byte| byte.count_ones()).sum();
        write!(f, "{set} of {}", FLAGS_LEN * 8)
    }
}

/// The fields of the superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Superblock {
    /// Names the node and cluster whose store this is.
    pub(super) binding: u64,
    /// The write-back that wrote it.
    pub(super) batch: u64,
    pub(super) directory: Directory,
    /// Sectors of the ring.
    pub(super) ring: u64,
    /// Most page images of one write-back.
    pub(super) spare: u64,
    /// Position of the oldest ring batch that is still needed.
    pub(super) tail: u64,
    /// Pages of write-backs below this one are void.
    pub(super) floor: u64,
    /// Bytes that records take in pages; only steers growth.
    pub(super) used: u64,
    /// Groups of the extents file.
    pub(super) groups: u64,
    /// Forgotten shards, as of a ring batch at or behind `tail`.
    pub(super) flags: Flags,
}

/// Why a copy is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unusable {
    Zero,
    Damaged,
    Format(u16),
}

impl Superblock {
    pub(super) fn write(&self, copy: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        put_u32(&mut page, 8, MAGIC);
        put_u16(&mut page, 12, FORMAT);
        put_u64(&mut page, 16, self.binding);
        put_u64(&mut page, 24, self.batch);
        put_u64(&mut page, 32, u64::from(self.directory.level()));
        put_u64(&mut page, 40, self.directory.split());
        put_u64(&mut page, 48, self.ring);
        put_u64(&mut page, 56, self.spare);
        put_u64(&mut page, 64, self.tail);
        put_u64(&mut page, 72, self.floor);
        put_u64(&mut page, 80, self.used);
        put_u64(&mut page, 88, self.groups);
        page[FLAGS..FLAGS + FLAGS_LEN].copy_from_slice(&self.flags.0);
        let sum = checksum(copy, &page[8..]);
        put_u64(&mut page, 0, sum);
        page
    }

    pub(super) fn read(page: &[u8], copy: u64) -> Result<Superblock, Unusable> {
        if page.iter().all(|&byte| byte == 0) {
            return Err(Unusable::Zero);
        }
        if u32_at(page, 8) != MAGIC || u64_at(page, 0) != checksum(copy, &page[8..]) {
            return Err(Unusable::Damaged);
        }
        let format = u16_at(page, 12);
        if format != FORMAT {
            return Err(Unusable::Format(format));
        }
        let level = u32::try_from(u64_at(page, 32)).unwrap_or(0);
        let directory = Directory::new(level, u64_at(page, 40)).ok_or(Unusable::Damaged)?;
        let mut flags = Flags::none();
        flags.0.copy_from_slice(&page[FLAGS..FLAGS + FLAGS_LEN]);
        Ok(Superblock {
            binding: u64_at(page, 16),
            batch: u64_at(page, 24),
            directory,
            ring: u64_at(page, 48),
            spare: u64_at(page, 56),
            tail: u64_at(page, 64),
            floor: u64_at(page, 72),
            used: u64_at(page, 80),
            groups: u64_at(page, 88),
            flags,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let mut flags = Flags::none();
        flags.set(Database(3), Shard(200), true);
        Superblock {
            binding: 0x1122,
            batch: 7,
            directory: Directory::new(8, 3).expect("in range"),
            ring: 1024,
            spare: 64,
            tail: 5000,
            floor: 2,
            used: 99,
            groups: 1,
            flags,
        }
    }

    #[test]
    fn a_copy_comes_back_at_its_own_place_only_and_notices_any_flipped_byte() {
        let mut page = sample().write(1);
        assert_eq!(Superblock::read(&page, 1), Ok(sample()));
        assert_eq!(Superblock::read(&page, 0), Err(Unusable::Damaged));
        for at in 0..PAGE {
            page[at] ^= 4;
            assert_eq!(Superblock::read(&page, 1), Err(Unusable::Damaged), "byte {at}");
            page[at] ^= 4;
        }
        assert_eq!(Superblock::read(&[0; PAGE], 0), Err(Unusable::Zero));
    }

    #[test]
    fn copy_of_another_format_is_told_from_damage() {
        for format in [FORMAT - 1, FORMAT + 1] {
            let mut page = sample().write(0);
            put_u16(&mut page, 12, format);
            let sum = checksum(0, &page[8..]);
            put_u64(&mut page, 0, sum);
            assert_eq!(Superblock::read(&page, 0), Err(Unusable::Format(format)));
        }
    }

    #[test]
    fn the_bytes_of_a_superblock_are_these() {
        let page = sample().write(0);
        assert_eq!(&page[8..20], b"PSUP\x03\0\0\0\x22\x11\0\0");
        assert_eq!(page[128 + 3 * 32 + 25], 1, "database 3, shard 200");
        assert_eq!(base::checksum::hash(&page), GOLDEN);
    }

    const GOLDEN: u64 = 0xff03_3bca_a073_59aa;
}
