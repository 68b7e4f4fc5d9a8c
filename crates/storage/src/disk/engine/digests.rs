//! How a start reads the digests of a ring: of each slot what is likely to be in use, of which the device is told ahead.

use std::cell::RefCell;

use bytes::Bytes;

use crate::disk::digest::{Digest, Shelf};
use crate::disk::io::{Blocking, File};
use crate::disk::stripe::SECTOR;

/// Slots that are handed over together.
const RUN: usize = 16;
/// Slots of which the device is told before they are read.
const AHEAD: usize = 2 * RUN;

/// Reads a shelf from one slot to the next.
pub(super) struct Digests<'r, 'm> {
    medium: &'r RefCell<&'r mut Blocking<'m>>,
    shelf: Shelf,
    seed: u64,
    /// In the order in which they are read.
    slots: Vec<u64>,
    /// How many of them have been read.
    read: usize,
    /// How many of them the device has been told of.
    told: usize,
    /// Bytes that are read of a slot before it is known whether it has more; of the first ones all.
    usual: Option<usize>,
}

impl<'r, 'm> Digests<'r, 'm> {
    /// Of a ring from `tail` on.
    pub(super) fn new(
        medium: &'r RefCell<&'r mut Blocking<'m>>,
        shelf: Shelf,
        seed: u64,
        tail: u64,
    ) -> Digests<'r, 'm> {
        let slots = shelf.slots(tail).collect();
        Digests { medium, shelf, seed, slots, read: 0, told: 0, usual: None }
    }

    /// Nothing depends on them: what cannot be read is not there.
    fn content(&self, slot: u64, from: usize, to: usize) -> Bytes {
        let offset = self.shelf.place(slot) + from as u64;
        self.medium.borrow_mut().read(File::Spare, offset, to - from).unwrap_or_default()
    }

    fn read_slot(&mut self, slot: u64) -> Option<Digest> {
        let slot_len = self.shelf.slot_len();
        let usual = self.usual.unwrap_or(slot_len);
        let mut content = self.content(slot, 0, usual);
        let len = Digest::len_in(&content).filter(|&len| len <= slot_len)?;
        if len > usual {
            let rest = self.content(slot, usual, len.next_multiple_of(SECTOR));
            content = [content, rest].concat().into();
        }
        let digest = Digest::read(self.seed ^ slot, content)?;
        if len > usual || self.usual.is_none() {
            // Those of one load are about as long as each other.
            self.usual = Some((len + len / 8).next_multiple_of(SECTOR).min(slot_len));
            self.told = self.read;
        }
        Some(digest)
    }

    fn tell_ahead(&mut self) {
        let Some(usual) = self.usual else { return };
        let end = self.slots.len().min(self.read + AHEAD);
        for &slot in &self.slots[self.told.max(self.read)..end] {
            self.medium.borrow_mut().announce(File::Spare, self.shelf.place(slot), usual);
        }
        self.told = end;
    }
}

impl Iterator for Digests<'_, '_> {
    type Item = Vec<Digest>;

    /// The digests of the next slots, by position but for those of an earlier lap; `None` when all have been read.
    fn next(&mut self) -> Option<Vec<Digest>> {
        let end = self.slots.len().min(self.read + RUN);
        let mut digests = Vec::new();
        if self.read == end {
            return None;
        }
        while self.read < end {
            let slot = self.slots[self.read];
            self.read += 1;
            digests.extend(self.read_slot(slot));
            self.tell_ahead();
        }
        Some(digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::digest::DigestWriter;
    use crate::disk::io::{Done, Io, Medium};
    use crate::disk::metas::Metas;

    const SEGMENT: u64 = 2_048;
    const SLOTS: u64 = 65;

    fn shelf() -> Shelf {
        Shelf::new(64 * SEGMENT, SEGMENT, 0)
    }

    fn seed() -> u64 {
        Shelf::seed(3, 0)
    }

    /// Where it stands, and its bytes.
    fn written(at: u64, hashes: usize) -> (u64, Vec<u8>) {
        let mut digest = DigestWriter::begin(at * SEGMENT);
        let hashes: Vec<u64> = (0..hashes as u64).map(|hash| hash << 40).collect();
        digest.add(&hashes, &Metas::default(), false, (at + 1) * SEGMENT);
        shelf().write(seed(), digest).expect("it has room")
    }

    fn digest(&(at, hashes): &(u64, usize)) -> Digest {
        let (_, bytes) = written(at, hashes);
        Digest::read(seed() ^ (at % SLOTS), bytes.into()).expect("it is whole")
    }

    /// A spare, and what was asked of it: offset and length.
    struct Spare {
        bytes: Vec<u8>,
        unreadable: Option<u64>,
        read: Vec<(u64, usize)>,
        announced: Vec<(u64, usize)>,
        done: Vec<Done>,
    }

    impl Spare {
        /// With digests of these segments, which name so many hashes.
        fn of(digests: &[(u64, usize)]) -> Spare {
            let mut bytes = vec![0; shelf().len()];
            for &(at, hashes) in digests {
                let (offset, content) = written(at, hashes);
                bytes[offset as usize..][..content.len()].copy_from_slice(&content);
            }
            let (read, announced) = (Vec::new(), Vec::new());
            Spare { bytes, unreadable: None, read, announced, done: Vec::new() }
        }

        /// What a start finds from a segment on, if it asks for so many groups.
        fn find(&mut self, from: u64, seed: u64, groups: usize) -> Vec<Digest> {
            let mut blocking = Blocking::new(self);
            let medium = RefCell::new(&mut blocking);
            let digests = Digests::new(&medium, shelf(), seed, from * SEGMENT);
            digests.take(groups).flatten().collect()
        }
    }

    impl Medium for Spare {
        fn submit(&mut self, io: Io) {
            let Io::Read { id, file: File::Spare, offset, len } = io else { panic!("{io:?}") };
            self.read.push((offset, len));
            let result = match self.unreadable {
                Some(at) if (offset..offset + len as u64).contains(&at) => Err("lost".to_owned()),
                _ => Ok(Bytes::copy_from_slice(&self.bytes[offset as usize..][..len])),
            };
            self.done.push(Done { id, result });
        }

        fn announce(&mut self, _file: File, offset: u64, len: usize) {
            self.announced.push((offset, len));
        }

        fn poll(&mut self, done: &mut Vec<Done>) {
            done.append(&mut self.done);
        }

        fn wait(&mut self, done: &mut Vec<Done>) {
            done.append(&mut self.done);
        }
    }

    #[test]
    fn digests_of_any_length_come_in_order_wherever_the_shelf_wraps() {
        let slot_len = shelf().slot_len();
        for from in [20, 64, 100, 129] {
            let lengths = [2_000, 2_100, 16_000, 1, 0, 15_900, 2_000, 9_000];
            let written: Vec<_> = (from..).zip(lengths).collect();
            let known: Vec<Digest> = written.iter().map(digest).collect();
            let mut spare = Spare::of(&written);
            assert!(spare.find(from, seed(), usize::MAX) == known, "from {from}");
            let rests = spare.read.iter().filter(|&&(offset, _)| offset % slot_len as u64 > 0);
            assert_eq!(rests.count(), 1, "one is longer than any before");
            let short = spare.read.iter().filter(|&&(_, len)| len < slot_len / 4).count();
            assert!(short >= 2, "{short} as long as the first");
            assert_eq!(spare.find(from, Shelf::seed(3, 1), usize::MAX), [], "of another floor");
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let written: Vec<_> = (20..24).map(|at| (at, 10_000 * (at as usize % 2))).collect();
        let known: Vec<Digest> = written.iter().map(digest).collect();
        for byte in [0, 600, 20_000] {
            let mut spare = Spare::of(&written);
            spare.unreadable = Some(shelf().place(23) + byte);
            assert!(spare.find(20, seed(), usize::MAX) == known[..3], "byte {byte}");
        }
    }

    #[test]
    fn what_is_damaged_is_left_out() {
        let written: Vec<_> = (20..24).map(|at| (at, 2_000)).collect();
        let known: Vec<Digest> = written.iter().map(digest).collect();
        // Its length becomes too long, nearly as long as a slot, and a little longer; its hashes become others.
        for (byte, bit) in [(35, 1), (33, 0x40), (32, 0x20), (500, 1)] {
            let mut spare = Spare::of(&written);
            spare.bytes[shelf().place(22) as usize + byte] ^= bit;
            let found = spare.find(20, seed(), usize::MAX);
            assert!(found[..2] == known[..2] && found[2..] == known[3..], "byte {byte}");
        }
    }

    #[test]
    fn the_device_is_told_once_and_of_nothing_far_away() {
        for hashes in [10, 3_000, 16_000] {
            let written: Vec<_> = (20..80).map(|at| (at, hashes)).collect();
            let known: Vec<Digest> = written.iter().map(digest).collect();
            let mut spare = Spare::of(&written);
            assert!(spare.find(20, seed(), usize::MAX) == known);
            let len = spare.announced[0].1;
            assert!((2 * hashes..3 * hashes + 1_536).contains(&len), "{len}");
            // Of all but the two slots that may have something from before, and the first digest's.
            let slots = (21..18 + SLOTS).map(|at| (shelf().place(at % SLOTS), len));
            assert!(spare.announced.iter().copied().eq(slots), "{:?}", spare.announced);
            let mut spare = Spare::of(&written);
            assert_eq!(spare.find(20, seed(), 1).len(), RUN - 2);
            assert_eq!(spare.announced.len(), RUN - 3 + AHEAD);
        }
    }
}
