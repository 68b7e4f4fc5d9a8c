//! How a start comes by the digests of a ring: it finds the newest one, which tells where the ring ends, and has the others
//! read while nodes find each other. Until they have come nobody knows what the ring may have something of.

use std::ops::Range;

use bytes::Bytes;

use crate::disk::digest::{Digest, Shelf};
use crate::disk::outline::Extent;
use crate::disk::page::PAGE;
use crate::disk::stripe::SECTOR;

/// Reads bytes of the spare, given their offset and how many.
pub(super) type ReadSpare<'a> = dyn FnMut(u64, usize) -> Result<Bytes, String> + 'a;

/// The digest of a ring that ends last and can be read; `None` where there is none.
pub(super) fn newest(
    shelf: &Shelf,
    seed: u64,
    extent: &Extent,
    read: &mut ReadSpare<'_>,
) -> Option<Digest> {
    let Range { start, mut end } = shelf.segments(extent.tail, extent.end());
    loop {
        let last = last_beginning(shelf, start..end, read)?;
        let content = read(shelf.place(last), shelf.slot_len()).unwrap_or_default();
        if let Some(newest) = shelf.read(seed, last, content) {
            return (extent.tail < newest.end && newest.end <= extent.end()).then_some(newest);
        }
        // It was torn when power was lost.
        end = last;
    }
}

/// The last of some segments in which a digest begins, by what its first bytes say.
fn last_beginning(
    shelf: &Shelf,
    Range { start, mut end }: Range<u64>,
    read: &mut ReadSpare<'_>,
) -> Option<u64> {
    let last = end;
    let mut begins_in = |segment: u64| {
        let head = read(shelf.place(segment), SECTOR).unwrap_or_default();
        Digest::first_in(&head).is_some_and(|first| shelf.segment_of(first) == segment)
    };
    // A digest speaks of less than two segments: of two that follow each other, one has the beginning of one.
    let mut next = start;
    while next < end {
        let middle = next + (end - next) / 2;
        match begins_in(middle) || (middle + 1 < last && begins_in(middle + 1)) {
            true => next = middle + 1,
            false => end = middle,
        }
    }
    (next > start).then(|| next - 1)
}

/// What is to be read for one of them.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) number: usize,
    /// Offset in the spare.
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// The digests of a ring on their way.
#[derive(Debug)]
pub(super) struct Digests {
    shelf: Shelf,
    seed: u64,
    tail: u64,
    /// In which the first one may begin.
    first_segment: u64,
    /// By the segments that they begin in.
    found: Vec<Option<Digest>>,
    /// How many have not come.
    missing: usize,
    newest: Digest,
}

impl Digests {
    pub(super) fn new(shelf: Shelf, seed: u64, tail: u64, newest: Digest) -> Digests {
        let Range { start, .. } = shelf.segments(tail, newest.first);
        let missing = (shelf.segment_of(newest.first) - start) as usize;
        let found = vec![None; missing];
        Digests { shelf, seed, tail, first_segment: start, found, missing, newest }
    }

    /// Of each slot what is likely to be in use: those of one load are about as long as each other.
    pub(super) fn asks(&self) -> impl Iterator<Item = Ask> {
        let usual = self.newest.len() + self.newest.len() / 8;
        let len = usual.next_multiple_of(PAGE).min(self.shelf.slot_len());
        let offset = |number| self.shelf.place(self.first_segment + number as u64);
        (0..self.found.len()).map(move |number| Ask { number, offset: offset(number), len })
    }

    /// Takes what was read, or says what is to be read instead.
    pub(super) fn put(&mut self, number: usize, content: Bytes) -> Option<Ask> {
        let segment = self.first_segment + number as u64;
        let len = Digest::len_in(&content).map(|len| len.next_multiple_of(PAGE));
        if let Some(len) = len
            && content.len() < len
            && len <= self.shelf.slot_len()
        {
            return Some(Ask { number, offset: self.shelf.place(segment), len });
        }
        self.found[number] = self.shelf.read(self.seed, segment, content);
        self.missing -= 1;
        None
    }

    pub(super) fn have_come(&self) -> bool {
        self.missing == 0
    }

    /// Those that speak of the ring from its tail to where the newest one ends, in order; `None` where one is missing.
    pub(super) fn speaking(self) -> Option<Vec<Digest>> {
        let (mut covered, mut speaking) = (self.tail, Vec::new());
        let end = self.newest.end;
        for digest in self.found.into_iter().flatten().chain([self.newest]) {
            if digest.first > covered {
                return None;
            }
            if digest.end > covered {
                covered = digest.end;
                speaking.push(digest);
            }
        }
        (covered >= end).then_some(speaking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::digest::DigestWriter;
    use crate::disk::metas::Metas;

    const SEGMENT: u64 = 2_048;
    const RING: u64 = 64 * SEGMENT;
    /// Where the oldest stripe stands that is needed.
    const TAIL: u64 = 3 * RING + 5 * SEGMENT + 700;

    fn shelf() -> Shelf {
        Shelf::new(RING, SEGMENT, 0)
    }

    fn seed() -> u64 {
        Shelf::seed(3, 0)
    }

    fn extent() -> Extent {
        Extent { binding: 3, ring: RING, stripe_max: SEGMENT, tail: TAIL }
    }

    /// What a spare holds, and offset and length of what was read of it.
    struct Spare {
        bytes: Vec<u8>,
        read: Vec<(u64, usize)>,
    }

    impl Spare {
        fn new() -> Spare {
            Spare { bytes: vec![0; shelf().len()], read: Vec::new() }
        }

        /// Writes a digest of these positions with so many hashes, as the store does.
        fn write(&mut self, positions: Range<u64>, hashes: usize, marks_end: u64) {
            let mut digest = DigestWriter::begin(positions.start, marks_end);
            let hashes: Vec<u64> = (0..hashes as u64).map(|hash| hash << 40).collect();
            digest.add(&hashes, &Metas::default(), false, positions.end);
            let (offset, bytes) = shelf().write(seed(), digest).expect("it has room");
            self.bytes[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }

        /// Digests that follow each other, each of so many sectors; returns where the last one ends.
        fn write_all(&mut self, from: u64, lengths: impl IntoIterator<Item = u64>) -> u64 {
            lengths.into_iter().fold(from, |first, len| {
                self.write(first..first + len, len as usize, 0);
                first + len
            })
        }

        fn content(&mut self, offset: u64, len: usize) -> Bytes {
            self.read.push((offset, len));
            Bytes::copy_from_slice(&self.bytes[offset as usize..][..len])
        }

        fn newest(&mut self) -> Option<Digest> {
            newest(&shelf(), seed(), &extent(), &mut |at, len| Ok(self.content(at, len)))
        }

        fn digests(&mut self, newest: Digest) -> Digests {
            let mut digests = Digests::new(shelf(), seed(), TAIL, newest);
            let mut asks: Vec<Ask> = digests.asks().collect();
            asks.reverse(); // they come in any order
            while let Some(Ask { number, offset, len }) = asks.pop() {
                assert!(!digests.have_come());
                let content = self.content(offset, len);
                asks.extend(digests.put(number, content));
            }
            digests
        }

        /// Where what is found begins and ends, each time.
        fn speaking(&mut self) -> Option<Vec<(u64, u64)>> {
            let newest = self.newest().expect("there is one");
            let digests = self.digests(newest);
            assert!(digests.have_come());
            let speaking = digests.speaking()?;
            Some(speaking.iter().map(|digest| (digest.first, digest.end)).collect())
        }
    }

    #[test]
    fn the_newest_is_found_wherever_the_ring_ends() {
        let longest = 2 * SEGMENT - 1;
        for lengths in [[SEGMENT; 2], [longest; 2], [SEGMENT, longest], [SEGMENT + 500; 2]] {
            for count in 1..64 {
                let mut spare = Spare::new();
                // Those of the lap before are still there.
                spare.write_all(TAIL - RING + 400, [SEGMENT; 64]);
                let lengths = lengths.into_iter().cycle().take(count);
                let end = spare.write_all(TAIL - 900, lengths.clone());
                if end > TAIL + RING - SEGMENT {
                    break;
                }
                spare.read.clear();
                let newest = spare.newest().expect("there is one");
                assert_eq!(newest.end, end, "{count}");
                assert!(spare.read.len() < 20, "{}", spare.read.len());
                let ends = lengths.scan(TAIL - 900, |end, len| {
                    *end += len;
                    Some((*end - len, *end))
                });
                assert_eq!(spare.speaking(), Some(ends.collect()), "{count}");
            }
        }
    }

    #[test]
    fn there_is_none_of_another_lap_or_beyond_the_ring() {
        let mut spare = Spare::new();
        assert_eq!(spare.newest(), None);
        spare.write_all(TAIL - RING + 400, [SEGMENT; 62]);
        assert_eq!(spare.newest(), None, "of the lap before");
        spare.write(TAIL - 1_000..TAIL, 5, 0);
        assert_eq!(spare.newest(), None, "it speaks of nothing that is needed");
        spare.write(TAIL + RING - 100..TAIL + RING + 1, 5, 0);
        assert_eq!(spare.newest(), None, "it ends beyond the ring");
        let end = spare.write_all(TAIL, [SEGMENT; 3]);
        assert_eq!(spare.newest().map(|newest| newest.end), Some(end));
        for place in [1, 2, 3].map(|back| shelf().place(shelf().segment_of(end - back * SEGMENT))) {
            let newest = spare.newest().expect("there is one before those that are damaged");
            spare.bytes[place as usize + 600] ^= 1;
            let before = spare.newest().map(|digest| digest.end);
            assert_eq!(before, (newest.first > TAIL).then_some(newest.first));
        }
    }

    #[test]
    fn of_each_slot_as_much_is_read_as_is_likely_and_the_rest_where_it_has_more() {
        let mut spare = Spare::new();
        let lengths = [16_000, 2_000, 2_200, 10, 15_900, 2_000];
        let mut first = TAIL;
        for hashes in lengths {
            spare.write(first..first + SEGMENT, hashes, 0);
            first += SEGMENT;
        }
        let newest = spare.newest().expect("there is one");
        spare.read.clear();
        let digests = spare.digests(newest);
        let speaking = digests.speaking().expect("none is missing");
        assert_eq!(speaking.len(), lengths.len());
        let long = spare.read.iter().filter(|&&(_, len)| len > 30_000);
        assert_eq!(long.count(), 2, "{:?}", spare.read);
        let usual = spare.read.iter().filter(|&&(_, len)| (5_000..9_000).contains(&len));
        assert_eq!(usual.count(), lengths.len() - 1 + 2, "two may have begun before the tail");
    }

    #[test]
    fn where_one_is_missing_none_speaks() {
        let mut spare = Spare::new();
        spare.write_all(TAIL - 500, [SEGMENT; 9]);
        assert!(spare.speaking().is_some());
        for missing in 0..8 {
            let first = TAIL - 500 + missing * SEGMENT;
            let at = shelf().place(shelf().segment_of(first)) as usize;
            for byte in [0, 20, 41, 45, 600] {
                spare.bytes[at + byte] ^= 1;
                assert_eq!(spare.speaking(), None, "{missing} is damaged at {byte}");
                spare.bytes[at + byte] ^= 1;
            }
        }
        let newest = spare.newest().expect("there is one");
        let mut digests = spare.digests(newest);
        digests.found[4] = None;
        assert_eq!(digests.speaking(), None, "it could not be read");
    }

    #[test]
    fn digests_that_begin_again_somewhere_else_speak_as_well() {
        let mut spare = Spare::new();
        // The process before had written these; the one that replayed the ring from its tail began again.
        spare.write_all(TAIL - 1_200, [SEGMENT + 300; 6]);
        let end = spare.write_all(TAIL, [SEGMENT; 9]);
        let speaking = spare.speaking().expect("none is missing");
        assert!(speaking[0].0 <= TAIL, "{speaking:?}");
        assert_eq!(speaking.last().expect("some").1, end);
        assert!(speaking.windows(2).all(|pair| pair[1].0 <= pair[0].1 && pair[0].1 < pair[1].1));
    }
}
