//! How a start reads the digests of a ring: of each slot what is likely to be in use, all of which the device is told first.

use std::cell::RefCell;

use bytes::Bytes;

use crate::disk::digest::{Digest, Shelf};
use crate::disk::io::{Blocking, File};
use crate::disk::page::PAGE;

/// Digests that are handed over together.
const RUN: usize = 16;

/// Reads a shelf from one slot to the next.
pub(super) struct Digests<'r, 'm> {
    medium: &'r RefCell<&'r mut Blocking<'m>>,
    shelf: Shelf,
    seed: u64,
    /// Slots that have not been read, the last one first.
    left: Vec<u64>,
    /// Bytes of a slot to read before it is known that it has more.
    usual: usize,
}

impl<'r, 'm> Digests<'r, 'm> {
    /// Of a ring from `tail` on.
    pub(super) fn new(
        medium: &'r RefCell<&'r mut Blocking<'m>>,
        shelf: Shelf,
        seed: u64,
        tail: u64,
    ) -> Digests<'r, 'm> {
        let mut left: Vec<u64> = shelf.slots(tail).collect();
        left.reverse();
        Digests { medium, usual: shelf.slot_len(), shelf, seed, left }
    }

    /// Nothing depends on them: what cannot be read is not there.
    fn read(&self, slot: u64, len: usize) -> Bytes {
        let mut medium = self.medium.borrow_mut();
        medium.read(File::Spare, self.shelf.place(slot), len).unwrap_or_default()
    }

    fn read_slot(&mut self, slot: u64) -> Option<Digest> {
        let content = self.read(slot, self.usual);
        let len = Digest::len_in(&content)?;
        if len > self.usual {
            return Digest::read(self.seed ^ slot, &self.read(slot, self.shelf.slot_len()));
        }
        let digest = Digest::read(self.seed ^ slot, &content)?;
        if self.usual == self.shelf.slot_len() {
            // Those of one load are about as long as each other.
            self.usual = (len.next_multiple_of(PAGE) + PAGE).min(self.usual);
            for &slot in self.left.iter().rev() {
                let offset = self.shelf.place(slot);
                self.medium.borrow_mut().expect(File::Spare, offset, self.usual);
            }
        }
        Some(digest)
    }
}

impl Iterator for Digests<'_, '_> {
    type Item = Vec<Digest>;

    /// The digests of some slots, by position; `None` when there are no more slots.
    fn next(&mut self) -> Option<Vec<Digest>> {
        let mut digests = Vec::new();
        for run in 0..RUN {
            match self.left.pop() {
                Some(slot) => digests.extend(self.read_slot(slot)),
                None if run == 0 => return None,
                None => break,
            }
        }
        digests.sort_unstable_by_key(|digest| digest.first);
        Some(digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::io::{Done, Io, Medium};
    use crate::disk::metas::Metas;

    const BINDING: u64 = 3;

    /// A spare, and what was asked of it.
    #[derive(Default)]
    struct Spare {
        bytes: Vec<u8>,
        read: Vec<(u64, usize)>,
        expected: Vec<(u64, usize)>,
        done: Vec<Done>,
    }

    impl Medium for Spare {
        fn submit(&mut self, io: Io) {
            let Io::Read { id, file: File::Spare, offset, len } = io else { panic!("{io:?}") };
            self.read.push((offset, len));
            let bytes = Bytes::copy_from_slice(&self.bytes[offset as usize..][..len]);
            self.done.push(Done { id, result: Ok(bytes) });
        }

        fn expect(&mut self, _file: File, offset: u64, len: usize) {
            self.expected.push((offset, len));
        }

        fn poll(&mut self, done: &mut Vec<Done>) {
            done.append(&mut self.done);
        }

        fn wait(&mut self, done: &mut Vec<Done>) {
            done.append(&mut self.done);
        }
    }

    #[test]
    fn what_a_slot_has_beyond_the_usual_is_read_as_well() {
        let shelf = Shelf::new(131_072, 2_048, 0);
        let (seed, segment, tail) = (Shelf::seed(BINDING, 0), 2_048, 20 * 2_048);
        let mut spare = Spare { bytes: vec![0; shelf.len()], ..Spare::default() };
        let digest = |at: u64, hashes: usize| {
            let mut digest = Digest::begin(tail + at * segment);
            let hashes: Vec<u64> = (0..hashes as u64).map(|hash| hash << 40).collect();
            digest.add(&hashes, &Metas::default(), false, tail + (at + 1) * segment);
            digest
        };
        // The first of them comes after a slot that has none; one is long, and one was damaged.
        let lengths = [(0, 2_000), (1, 2_100), (2, 16_000), (3, 1), (4, 2_000), (30, 2_000)];
        let mut wanted: Vec<Digest> = lengths.map(|(at, hashes)| digest(at, hashes)).into();
        for digest in &wanted {
            let (offset, bytes) = shelf.write(seed, digest).expect("it has room");
            spare.bytes[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        spare.bytes[shelf.write(seed, &wanted[4]).expect("room").0 as usize + 33] ^= 0x80;
        wanted.remove(4);
        let mut blocking = Blocking::new(&mut spare);
        let medium = RefCell::new(&mut blocking);
        let found: Vec<Digest> = Digests::new(&medium, shelf, seed, tail).flatten().collect();
        assert!(found == wanted);
        let usual = 3 * PAGE;
        let whole = spare.read.iter().filter(|(_, len)| *len == shelf.slot_len()).count();
        assert_eq!(
            whole,
            3 + 2,
            "two slots before the first digest, and two that say they are long"
        );
        assert!(spare.expected.iter().all(|&(_, len)| len == usual));
        let expected: Vec<u64> = spare.expected.iter().map(|&(offset, _)| offset).collect();
        let mut read: Vec<u64> = spare.read.iter().skip(3).map(|&(offset, _)| offset).collect();
        read.dedup();
        assert_eq!(read, expected);
    }
}
