//! The device below a log, and where the ring's sectors stand on it.

use bytes::Bytes;

use crate::disk::stripe::SECTOR;

/// Where the ring begins: before it, a page for each superblock.
pub(super) const RING_AT: u64 = 8192;
/// Sectors of the shortest ring: the longest stripe is a sixteenth of it.
pub const SECTORS_MIN: u64 = 64;
/// Sectors of the longest ring: 64 GiB.
pub const SECTORS_MAX: u64 = 1 << 27;

/// Bytes for a place of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub offset: u64,
    pub bytes: Bytes,
}

/// Writes to make durable, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Store {
    pub writes: Vec<Write>,
}

/// A file or a like device. It keeps each sector whole or not at all, in any order, until `store`
/// has returned.
pub trait Device {
    /// Bytes.
    ///
    /// # Errors
    /// The system's reason.
    fn size(&mut self) -> Result<u64, String>;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// The system's reason, or that the device has too few bytes.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), String>;

    /// Makes these bytes durable.
    ///
    /// # Errors
    /// The system's reason. The bytes, and those of earlier failed stores, are then unknown.
    fn store(&mut self, store: &Store) -> Result<(), String>;
}

/// The offset of a position's sector.
pub(super) fn offset_of(position: u64, ring: u64) -> u64 {
    RING_AT + position % ring * SECTOR as u64
}

/// Sectors of the longest stripe of a ring.
pub(super) fn stripe_max(ring: u64) -> u64 {
    // The sectors of a stripe are counted in 16 bits.
    (ring / 16).min(1 << 14)
}
