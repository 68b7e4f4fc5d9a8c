//! The parts of a batch in the ring that a start needs beside the contents of its entries.

use super::entry::{Entry, Mark, UnknownRecord};
use super::stripe::entries;

/// Hashes and marks of a batch.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Hashes of its entries.
    pub(super) hashes: Vec<u64>,
    pub(super) marks: Vec<Mark>,
    /// One of its entries is of a later version.
    pub(super) unknown: Option<UnknownRecord>,
}

impl Said {
    /// Checks every entry of a payload; `None` if one of them cannot be read or fails its checksum.
    pub(super) fn read(payload: &[u8], binding: u64) -> Option<Said> {
        let (bytes, count) = entries(payload)?;
        let mut said = Said::default();
        said.hashes.reserve_exact(count.min(bytes.len() as u32) as usize);
        let (mut at, mut seen) = (0, 0);
        for (raw, entry) in Entry::all(bytes) {
            if !entry.is_whole(binding) {
                return None;
            }
            said.unknown = said.unknown.or(entry.unknown());
            match entry.mark() {
                Some(mark) => said.marks.push(mark),
                None => said.hashes.push(entry.hash),
            }
            at += raw.len();
            seen += 1;
        }
        (at == bytes.len() && seen == count).then_some(said)
    }
}
