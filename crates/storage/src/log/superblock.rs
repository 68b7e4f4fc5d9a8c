//! The log's superblock: where the needed part of its ring begins, kept twice.
//!
//! Both copies are written before anything that only the older one needs is overwritten; so either is enough. Its
//! checksum is bound to the copy's place but not to the node: a foreign log must be recognised as foreign.

use base::checksum::checksum;

use crate::disk::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::disk::stripe::SECTOR;

/// Copies, each at the start of a page.
pub(super) const COPIES: u64 = 2;
const PAGE: u64 = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"PLOG");
pub(super) const FORMAT: u16 = 1;
const CHECKSUM_LEN: usize = 8;

/// The fields of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Superblock {
    /// Names the node and cluster whose log this is.
    pub(super) binding: u64,
    /// Sectors of the ring.
    pub(super) ring: u64,
    /// Position of the oldest stripe that is needed.
    pub(super) tail: u64,
    /// The first index that is kept.
    pub(super) first: u64,
}

/// The state of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copy {
    Whole(Superblock),
    Damaged,
    /// Whole, and of a format that this version does not know.
    Unknown(u16),
}

impl Superblock {
    pub(super) fn offset(copy: u64) -> u64 {
        copy * PAGE
    }

    pub(super) fn encode(&self, copy: u64) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR];
        put_u32(&mut bytes, 8, MAGIC);
        put_u16(&mut bytes, 12, FORMAT);
        put_u64(&mut bytes, 16, self.binding);
        put_u64(&mut bytes, 24, self.ring);
        put_u64(&mut bytes, 32, self.tail);
        put_u64(&mut bytes, 40, self.first);
        let sum = checksum(copy, &bytes[CHECKSUM_LEN..]);
        put_u64(&mut bytes, 0, sum);
        bytes
    }

    pub(super) fn decode(bytes: &[u8], copy: u64) -> Copy {
        let is_whole = bytes.len() == SECTOR
            && u64_at(bytes, 0) == checksum(copy, &bytes[CHECKSUM_LEN..])
            && u32_at(bytes, 8) == MAGIC;
        if !is_whole {
            return Copy::Damaged;
        }
        match u16_at(bytes, 12) {
            FORMAT => Copy::Whole(Superblock {
                binding: u64_at(bytes, 16),
                ring: u64_at(bytes, 24),
                tail: u64_at(bytes, 32),
                first: u64_at(bytes, 40),
            }),
            format => Copy::Unknown(format),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_what_was_written_and_is_bound_to_its_place() {
        let superblock = Superblock { binding: 1, ring: 64, tail: 99, first: 7 };
        let bytes = superblock.encode(1);
        assert_eq!(Superblock::decode(&bytes, 1), Copy::Whole(superblock));
        assert_eq!(Superblock::decode(&bytes, 0), Copy::Damaged);
        for at in 0..SECTOR {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Superblock::decode(&damaged, 1), Copy::Damaged, "byte {at}");
        }
    }

    #[test]
    fn the_bytes_of_a_superblock_are_these() {
        let bytes = Superblock { binding: 1, ring: 64, tail: 99, first: 7 }.encode(0);
        assert_eq!(bytes[8..48], *b"PLOG\x01\0\0\0\x01\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x63\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0");
        assert_eq!(u64_at(&bytes, 0), checksum(0, &bytes[8..]));
    }
}
