//! Where pages, units and maps stand in their files.

use super::io::File;

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;
/// Superblocks at the start of the slots file, one page each.
pub(super) const COPIES: u64 = 2;
/// Bytes of a unit of the extents file.
pub(super) const UNIT: u64 = 1024;
/// Units of a page.
pub(super) const PAGE_UNITS: u64 = PAGE as u64 / UNIT;
/// Bytes of a map's head.
pub(super) const MAP_HEAD_LEN: usize = 64;
/// Units of a group, its map included: as many as the map has bits.
pub(super) const GROUP_UNITS: u64 = (PAGE as u64 - MAP_HEAD_LEN as u64) * 8;

/// The place of a page. The page's checksum depends on it and on the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PagePlace {
    pub(super) file: File,
    pub(super) offset: u64,
}

impl PagePlace {
    pub(super) fn seed(self, binding: u64) -> u64 {
        binding ^ (self.offset << 3 | self.file as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }
}

/// The place of a bucket's primary page.
pub(super) fn primary_place(bucket: u64) -> PagePlace {
    PagePlace { file: File::Slots, offset: (COPIES + bucket) * PAGE as u64 }
}

/// The place of an overflow page.
pub(super) fn overflow_place(unit: u64) -> PagePlace {
    PagePlace { file: File::Extents, offset: unit * UNIT }
}

/// The place of a group's map.
pub(super) fn map_place(group: u64) -> PagePlace {
    overflow_place(group * GROUP_UNITS)
}

/// Units for so many bytes.
pub(super) fn units_for(len: usize) -> u64 {
    (len as u64).div_ceil(UNIT).max(1)
}
