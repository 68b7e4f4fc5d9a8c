//! Bytes that the entries of a ring take in memory, and will take in pages.

use super::entry::Entry;

/// Sums over entries, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sizes {
    /// As batches and the ring hold them.
    pub(super) staged: usize,
    /// As pages will: where a record goes to an extent, of its reference.
    pub(super) at_home: usize,
}

impl Sizes {
    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        self.staged += entry.len();
        self.at_home += entry.home_len();
    }

    /// Takes out an entry that was added.
    pub(super) fn remove(&mut self, entry: &Entry<'_>) {
        self.staged -= entry.len();
        self.at_home -= entry.home_len();
    }
}
