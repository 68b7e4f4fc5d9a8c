//! The copies of the superblock as they stand in the slots file.

use super::config::OpenError;
use crate::disk::io::{Blocking, File, Files, Write};
use crate::disk::place::{COPIES, PAGE};
use crate::disk::superblock::{Superblock, Unusable};

/// A crash may leave that, too.
pub(super) const SUPERBLOCK_UNUSABLE: &str =
    "one of two superblocks was damaged or half written; the other one is used and repairs it";

/// In the order of their places.
#[derive(Debug)]
pub(in crate::disk) struct Superblocks([Result<Superblock, Unusable>; COPIES as usize]);

impl Superblocks {
    pub(in crate::disk) fn read(medium: &mut Blocking<'_>) -> Result<Superblocks, String> {
        let reason = match medium.read(File::Slots, 0, COPIES as usize * PAGE) {
            Ok(pages) => return Ok(Superblocks::of(&pages)),
            Err(reason) => reason,
        };
        // The twin of one that cannot be read stands in for it, as for a damaged one.
        let mut read = |copy: usize| medium.read(File::Slots, (copy * PAGE) as u64, PAGE).ok();
        let pages: [_; COPIES as usize] = std::array::from_fn(&mut read);
        if pages.iter().all(Option::is_none) {
            return Err(reason);
        }
        let copy = |at: usize| match &pages[at] {
            Some(page) => Superblock::read(page, at as u64),
            None => Err(Unusable::Damaged),
        };
        Ok(Superblocks(std::array::from_fn(copy)))
    }

    pub(super) fn of(pages: &[u8]) -> Superblocks {
        let copy = |at: usize| Superblock::read(&pages[at * PAGE..][..PAGE], at as u64);
        Superblocks(std::array::from_fn(copy))
    }

    /// The newer of the copies. An unknown format in either is refused.
    pub(in crate::disk) fn newest(&self) -> Result<Superblock, OpenError> {
        let errors = || self.0.iter().filter_map(|copy| copy.as_ref().err());
        let of_format = |unusable: &Unusable| match unusable {
            Unusable::Format(format) => Some(OpenError::Format(*format)),
            Unusable::Zero | Unusable::Damaged => None,
        };
        // The other copy may be the older one.
        if let Some(error) = errors().find_map(of_format) {
            return Err(error);
        }
        // The first of two that are equal.
        let newest = self.0.iter().flatten().rev().max_by_key(|found| found.batch);
        newest.cloned().ok_or_else(|| match errors().all(|unusable| *unusable == Unusable::Zero) {
            true => OpenError::Missing,
            false => OpenError::Damaged,
        })
    }

    /// The copy that is written last, if it is whole: all else of its write-back was flushed
    /// before.
    pub(in crate::disk) fn last(&self) -> Option<&Superblock> {
        self.0.last().and_then(|copy| copy.as_ref().ok())
    }

    /// Bytes from the start of the file where copies stand that are of no use.
    pub(super) fn unusable(&self) -> impl Iterator<Item = u64> + '_ {
        let copies = self.0.iter().enumerate().filter(|(_, copy)| copy.is_err());
        copies.map(|(at, _)| (at * PAGE) as u64)
    }

    /// Rewrites a copy that differs, so that damage to one never waits for damage to the other.
    pub(super) fn mend(
        &self,
        medium: &mut Blocking<'_>,
        superblock: &Superblock,
    ) -> Result<(), String> {
        let differs = |copy: &u64| self.0[*copy as usize].as_ref() != Ok(superblock);
        (0..COPIES).filter(differs).try_for_each(|copy| write(medium, superblock, copy))
    }
}

/// Writes one copy after the other, so that a torn write never costs both.
pub(super) fn write_superblocks(
    medium: &mut Blocking<'_>,
    superblock: &Superblock,
) -> Result<(), String> {
    (0..COPIES).try_for_each(|copy| write(medium, superblock, copy))
}

fn write(medium: &mut Blocking<'_>, superblock: &Superblock, copy: u64) -> Result<(), String> {
    let (offset, bytes) = (copy * PAGE as u64, superblock.write(copy).into());
    let write = Write { file: File::Slots, offset, bytes };
    medium.store(vec![write], Files::of(File::Slots))
}
