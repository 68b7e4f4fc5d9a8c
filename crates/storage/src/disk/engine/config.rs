//! The shape of a store, and why it may not open.

use crate::disk::entry::UnknownRecord;
use crate::disk::spare;
use crate::disk::stripe::SECTOR;
use crate::disk::superblock::FORMAT;

/// The shape of a store. The first three are fixed when it is created; the others may differ at
/// every start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Bytes of the ring: how much may wait to go home, and how much a start reads. 64 KiB
    /// to 4 GiB.
    pub ring_bytes: u64,
    /// Most pages that go home together. 32 to 4096.
    pub spare_pages: u64,
    /// The store starts with two to the power of this many buckets. 1 to 16.
    pub initial_level: u32,
    /// Bytes of bucket pages kept in memory.
    pub cache_bytes: usize,
    /// How full pages are before buckets are added, in per cent. 20 to 90.
    pub fill_percent: u64,
    /// Large records go to the first free space instead of that behind the one before. It takes
    /// longer, and space that was freed too soon is written over at once: for tests.
    pub first_fit: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ring_bytes: 64 << 20,
            spare_pages: 1024,
            initial_level: 8,
            cache_bytes: 32 << 20,
            fill_percent: 60,
            first_fit: false,
        }
    }
}

impl Config {
    /// Says whether a store can have this shape.
    ///
    /// # Errors
    /// [`OpenError::Config`] where a size is out of range.
    pub fn check(&self) -> Result<(), OpenError> {
        let is_good = (64 << 10..=4 << 30).contains(&self.ring_bytes)
            && self.ring_bytes.is_multiple_of(SECTOR as u64)
            && (32..=spare::IMAGES_MAX).contains(&self.spare_pages)
            && (1..=16).contains(&self.initial_level)
            && (20..=90).contains(&self.fill_percent);
        if is_good { Ok(()) } else { Err(OpenError::Config) }
    }
}

/// Why a store could not be created or opened. Only `Io` may leave a change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the store was made for another data directory: put back the files that belong here, or reset the node"
    )]
    Foreign,
    #[error("there is no store")]
    Missing,
    #[error("there is a store already")]
    Exists,
    #[error("both superblocks are damaged: reset the node, so that it recovers from the others")]
    Damaged,
    #[error("slots has format {0}, this version knows {FORMAT}: run the version that wrote it")]
    Format(u16),
    #[error("ring: {0}")]
    Record(UnknownRecord),
    #[error("a size of the store is out of range")]
    Config,
    #[error("{0}")]
    Io(String),
}

impl From<String> for OpenError {
    fn from(reason: String) -> OpenError {
        OpenError::Io(reason)
    }
}
