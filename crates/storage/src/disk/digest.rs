//! Which hashes the entries of a part of the ring have, written beside the ring.
//!
//! So a start can know what the ring may hold without reading all of it, and answer for everything else. Whenever enough
//! stripes have become durable, their hashes, shortened to their top bits, go to a slot of the spare behind its images.
//! Nobody waits for that and nothing depends on it: where a digest is missing or damaged, what the store may answer waits
//! until the ring has been read. A digest says nothing that could become wrong: what was durable is not
//! written again at the same position, unless the ring was damaged; then the floor of pages rises, and digests under
//! another floor are void.

use std::ops::Range;

use base::checksum::checksum;
use bytes::Bytes;

use super::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::metas::Metas;
use super::page::PAGE;
use super::stripe::SECTOR;
use crate::mutation::{self, Mutation};

const MAGIC: u32 = u32::from_le_bytes(*b"PDIG");
const FORMAT: u16 = 4;
const HEAD_LEN: usize = 48;
const PARTIAL: u8 = 2;
/// Bits of a hash in a digest: its top ones.
const TOP_BITS: u32 = 24;
/// Groups of hashes, one for each first byte.
const GROUPS: usize = 256;
/// Bytes of a hash in its group.
const REST_LEN: usize = 2;
/// Bytes that say where groups end.
const ENDS_LEN: usize = 2 * GROUPS;

/// Where the digests of a ring are in the spare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shelf {
    /// Offset of the first slot.
    start: u64,
    slots: u64,
    slot_len: usize,
    /// Sectors of the ring that a digest speaks of, at least: as many as the longest stripe has.
    segment: u64,
}

impl Shelf {
    /// For a ring of so many sectors, the longest stripe of which has `stripe_max`; slots begin at `start`.
    pub(super) fn new(ring: u64, stripe_max: u64, start: u64) -> Shelf {
        let segment = stripe_max;
        // Two digests that are needed at the same time begin less than a ring apart.
        let mut shelf = Shelf { start, slots: ring.div_ceil(segment) + 1, slot_len: 0, segment };
        // In the default ring there is room for all entries of 87 bytes and more.
        shelf.slot_len = (shelf.longest() as usize * SECTOR * 3 / 128).next_multiple_of(PAGE);
        shelf
    }

    /// Sectors that a digest speaks of, at most: less than a segment and one more stripe.
    fn longest(&self) -> u64 {
        2 * self.segment
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of all slots.
    pub(super) fn len(&self) -> usize {
        self.slots as usize * self.slot_len
    }

    /// What the checksums of digests are bound to, beside their slots.
    pub(super) fn seed(binding: u64, floor: u64) -> u64 {
        binding ^ floor.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Where positions are, by segments since the beginning of time.
    pub(super) fn segment_of(&self, position: u64) -> u64 {
        position / self.segment
    }

    /// Segments in which digests may begin that speak of a ring from `tail` to `end`.
    pub(super) fn segments(&self, tail: u64, end: u64) -> Range<u64> {
        // The digest of the tail may begin before it.
        self.segment_of(tail.saturating_sub(self.longest()))..self.segment_of(end) + 1
    }

    fn slot_of(&self, segment: u64) -> u64 {
        segment % self.slots
    }

    /// Bytes of a slot.
    pub(super) fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Offset of the slot for the digest that begins in a segment.
    pub(super) fn place(&self, segment: u64) -> u64 {
        self.start + self.slot_of(segment) * self.slot_len as u64
    }

    /// The digest that begins in a segment, if that is what these bytes of its slot are.
    pub(super) fn read(&self, seed: u64, segment: u64, bytes: Bytes) -> Option<Digest> {
        let digest = Digest::read(seed ^ self.slot_of(segment), bytes)?;
        (self.segment_of(digest.first) == segment).then_some(digest)
    }

    /// True if it is time for a digest to be written.
    pub(super) fn takes(&self, digest: &DigestWriter) -> bool {
        digest.end - digest.first >= self.segment || digest.len() > self.slot_len
    }

    /// Where a digest goes, and its bytes; `None` where it has no room.
    pub(super) fn write(&self, seed: u64, digest: DigestWriter) -> Option<(u64, Vec<u8>)> {
        if digest.len() > self.slot_len {
            return None;
        }
        let names = Names::of(&digest.tops)?;
        let (hashes, named) = (names.count(), HEAD_LEN + names.bytes.len());
        let are_partial = digest.metas.are_partial || named + digest.metas.len() > self.slot_len;
        let metas = if are_partial { 0 } else { digest.metas.len() };
        let len = named + metas;
        let segment = self.segment_of(digest.first);
        let mut bytes = Vec::with_capacity(len.next_multiple_of(SECTOR));
        bytes.resize(HEAD_LEN, 0);
        put_u32(&mut bytes, 8, MAGIC);
        put_u16(&mut bytes, 12, FORMAT);
        bytes[14] = u8::from(are_partial) * PARTIAL;
        put_u64(&mut bytes, 16, digest.first);
        put_u64(&mut bytes, 24, digest.end);
        put_u64(&mut bytes, 32, digest.marks_end);
        put_u32(&mut bytes, 40, hashes as u32);
        put_u32(&mut bytes, 44, metas as u32);
        bytes.extend_from_slice(&names.bytes);
        if !are_partial {
            digest.metas.append_to(&mut bytes);
        }
        bytes.resize(len.next_multiple_of(SECTOR), 0);
        let sum = checksum(seed ^ self.slot_of(segment), &bytes[8..len]);
        put_u64(&mut bytes, 0, sum);
        Some((self.place(segment), bytes))
    }
}

/// The hashes of the stripes of a part of the ring, on their way to a slot.
#[derive(Debug)]
pub(super) struct DigestWriter {
    /// Position of the first stripe.
    pub(super) first: u64,
    /// Position behind the last one.
    pub(super) end: u64,
    /// See [`Digest::marks_end`].
    pub(super) marks_end: u64,
    metas: Metas,
    tops: Vec<u32>,
}

impl DigestWriter {
    /// Of no stripe, up to this position; before it there are no marks behind `marks_end`.
    pub(super) fn begin(position: u64, marks_end: u64) -> DigestWriter {
        let (metas, tops) = (Metas::default(), Vec::new());
        DigestWriter { first: position, end: position, marks_end, metas, tops }
    }

    /// Adds the next stripe, which goes up to `end`.
    pub(super) fn add(&mut self, hashes: &[u64], metas: &Metas, has_marks: bool, end: u64) {
        let count = match mutation::is(Mutation::DigestShort) {
            true => hashes.len() / 2,
            false => hashes.len(),
        };
        self.tops.extend(hashes[..count].iter().map(|&hash| top_of(hash)));
        self.metas.add_all(metas);
        self.end = end;
        if has_marks {
            self.marks_end = end;
        }
    }

    /// Bytes without metas.
    fn len(&self) -> usize {
        HEAD_LEN + Names::len(self.tops.len())
    }
}

/// One that a start has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    /// Position of the first stripe.
    pub(super) first: u64,
    /// Position behind the last one.
    pub(super) end: u64,
    /// No stripe between this position and the end says anything of forgotten shards.
    pub(super) marks_end: u64,
    /// Where they had no room, there are none.
    pub(super) metas: Metas,
    pub(super) names: Names,
}

impl Digest {
    /// Bytes that a digest takes of its slot, by what it says itself, if this is the beginning of one.
    pub(super) fn len_in(bytes: &[u8]) -> Option<usize> {
        let head = bytes.get(..HEAD_LEN)?;
        let hashes = (u32_at(head, 40) as usize).checked_mul(REST_LEN)?;
        let len = hashes.checked_add(HEAD_LEN + ENDS_LEN)?.checked_add(u32_at(head, 44) as usize)?;
        (u32_at(head, 8) == MAGIC && u16_at(head, 12) == FORMAT).then_some(len)
    }

    /// Bytes that it takes of its slot.
    pub(super) fn len(&self) -> usize {
        HEAD_LEN + self.names.bytes.len() + self.metas.len()
    }

    /// Position of the first stripe, by what a digest says itself, if this is the beginning of one.
    pub(super) fn first_in(bytes: &[u8]) -> Option<u64> {
        Digest::len_in(bytes).map(|_| u64_at(bytes, 16))
    }

    /// The one that begins here, if it is whole; `seed` is that of its shelf and its slot. It keeps these bytes.
    fn read(seed: u64, bytes: Bytes) -> Option<Digest> {
        let len = Digest::len_in(&bytes)?;
        if u64_at(&bytes, 0) != checksum(seed, bytes.get(8..len)?) {
            return None;
        }
        let [first, end, marks_end] = [16, 24, 32].map(|at| u64_at(&bytes, at));
        let names_end = len - u32_at(&bytes, 44) as usize;
        let mut metas = Metas::read(&bytes[names_end..len]);
        metas.are_partial |= bytes[14] & PARTIAL != 0;
        let names = Names::read(bytes.slice(HEAD_LEN..names_end))?;
        Some(Digest { first, end, marks_end, metas, names })
    }
}

/// Hashes, shortened to their top bits: where those with each first byte end, then the rest of each, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Names {
    bytes: Bytes,
}

impl Names {
    /// Bytes for so many hashes.
    fn len(count: usize) -> usize {
        ENDS_LEN + count * REST_LEN
    }

    /// `None` where there are more than can be counted.
    fn of(tops: &[u32]) -> Option<Names> {
        // Each group is sorted by itself: they are short.
        let group_of = |top: u32| (top >> (8 * REST_LEN)) as usize;
        let mut starts = [0; GROUPS];
        tops.iter().for_each(|&top| starts[group_of(top)] += 1);
        let mut sum = 0;
        starts.iter_mut().for_each(|count| sum += std::mem::replace(count, sum));
        let (mut rests, mut ends) = (vec![0; tops.len()], starts);
        for &top in tops {
            let end = &mut ends[group_of(top)];
            rests[*end] = top as u16;
            *end += 1;
        }
        let mut bytes = vec![0; ENDS_LEN];
        bytes.reserve_exact(REST_LEN * tops.len());
        let (mut count, mut last) = (0, None);
        for (group, (start, end)) in starts.into_iter().zip(ends).enumerate() {
            let rests = &mut rests[start..end];
            rests.sort_unstable();
            for &rest in &*rests {
                if last != Some((group, rest)) {
                    bytes.extend_from_slice(&rest.to_le_bytes());
                    count += 1;
                }
                last = Some((group, rest));
            }
            put_u16(&mut bytes, 2 * group, u16::try_from(count).ok()?);
        }
        Some(Names { bytes: bytes.into() })
    }

    /// Of any number of hashes.
    pub(super) fn of_all(hashes: impl Iterator<Item = u64>) -> Vec<Names> {
        let tops: Vec<u32> = hashes.map(top_of).collect();
        let parts = tops.chunks(usize::from(u16::MAX));
        parts.map(|part| Names::of(part).expect("it is no more than that")).collect()
    }

    fn read(bytes: Bytes) -> Option<Names> {
        let names = Names { bytes };
        let (ends, rests) = names.bytes.split_at_checked(ENDS_LEN)?;
        let mut ends = ends.chunks_exact(2).map(|end| usize::from(u16_at(end, 0)));
        let count = rests.len() / REST_LEN;
        (ends.clone().is_sorted() && ends.next_back() == Some(count)).then_some(names)
    }

    fn count(&self) -> usize {
        (self.bytes.len() - ENDS_LEN) / REST_LEN
    }

    /// True of a hash that is there, and of one with the same top bits.
    pub(super) fn have(&self, hash: u64) -> bool {
        let top = top_of(hash);
        let (group, rest) = ((top >> (8 * REST_LEN)) as usize, top as u16);
        let end_of = |group: usize| usize::from(u16_at(&self.bytes, 2 * group));
        let start = if group == 0 { 0 } else { end_of(group - 1) };
        let group = &self.bytes[Names::len(start)..Names::len(end_of(group))];
        let (group, _) = group.as_chunks::<REST_LEN>();
        group.binary_search_by_key(&rest, |one| u16::from_le_bytes(*one)).is_ok()
    }
}

fn top_of(hash: u64) -> u32 {
    (hash >> (u64::BITS - TOP_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use super::super::ring::Ring;
    use super::*;

    fn shelf() -> Shelf {
        Shelf::new(1024, 64, 1 << 16)
    }

    fn digest(first: u64, hashes: &[u64]) -> DigestWriter {
        let mut digest = DigestWriter::begin(first, 0);
        digest.add(hashes, &Metas::default(), false, first + 70);
        digest
    }

    fn names(hashes: &[u64]) -> Names {
        Names::of(&digest(0, hashes).tops).expect("they can be counted")
    }

    #[test]
    fn digests_come_back_from_their_own_slots_only_and_notice_any_flipped_byte() {
        let hashes = [u64::MAX, 0, 1 << 63];
        let shelf = shelf();
        let (offset, bytes) = shelf.write(3, digest(5_000, &hashes)).expect("it has room");
        let at = (offset - shelf.start()) as usize;
        let mut content = vec![0; shelf.len()];
        content[at..at + bytes.len()].copy_from_slice(&bytes);
        let read = |seed: u64, content: &[u8]| -> Vec<Digest> {
            let slots = (0..).zip(content.chunks(shelf.slot_len));
            let read = |(slot, bytes)| Digest::read(seed ^ slot, Bytes::copy_from_slice(bytes));
            slots.filter_map(read).collect()
        };
        let (metas, names) = (Metas::default(), names(&hashes));
        let digest = Digest { first: 5_000, end: 5_070, marks_end: 0, metas, names };
        assert_eq!(digest.len(), HEAD_LEN + ENDS_LEN + 3 * REST_LEN);
        assert_eq!(read(3, &content), [digest]);
        assert_eq!(read(4, &content), [], "of another node");
        let len = HEAD_LEN + ENDS_LEN + 3 * REST_LEN;
        assert_eq!(Digest::len_in(&content[at..]), Some(len));
        for byte in at..at + len {
            content[byte] ^= 1;
            assert_eq!(read(3, &content), [], "byte {byte}");
            content[byte] ^= 1;
        }
        content.copy_within(at..at + shelf.slot_len, 0);
        assert_eq!(read(3, &content).len(), 1, "misplaced");
    }

    #[test]
    fn digests_of_one_ring_do_not_share_slots() {
        for sectors in [128, 131_072, 100_001, 8 << 20] {
            let shelf = Shelf::new(sectors, Ring::stripe_max(sectors), 0);
            let needed = (0..).map(|i| 7 * sectors + i * shelf.segment);
            let needed = needed.take_while(|&first| first <= 8 * sectors);
            let mut slots: Vec<u64> =
                needed.map(|first| shelf.slot_of(shelf.segment_of(first))).collect();
            let count = slots.len();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), count, "{sectors} sectors");
        }
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let digest = digest(0, &vec![1; shelf().slot_len / REST_LEN]);
        assert!(shelf().takes(&digest));
        assert_eq!(shelf().write(3, digest), None);
    }

    #[test]
    fn more_than_can_be_counted_is_left_out() {
        let shelf = Shelf::new(1 << 20, 1 << 14, 0);
        let hashes: Vec<u64> = (0..=u64::from(u16::MAX)).map(|number| number << 42).collect();
        assert_eq!(shelf.write(3, digest(0, &hashes)), None);
        assert!(shelf.write(3, digest(0, &hashes[1..])).is_some());
        let parts = Names::of_all(hashes.iter().copied());
        assert_eq!(parts.iter().map(Names::count).collect::<Vec<_>>(), [hashes.len() - 1, 1]);
    }

    #[test]
    fn what_came_often_is_named_once() {
        let shelf = shelf();
        let (_, bytes) = shelf.write(3, digest(0, &[9 << 40; 1_000])).expect("it has room");
        assert_eq!(bytes.len(), 1024);
        assert_eq!(names(&[9 << 40, 9 << 40]).count(), 1);
    }

    #[test]
    fn the_bytes_of_a_digest_are_these() {
        let hashes = [0x0102_0304_0506_0708, 0x0002_0100_0000_0000, 0x01FF_FE00_0000_0000];
        let marked = DigestWriter { marks_end: 9, ..digest(0x105, &hashes) };
        let (offset, bytes) = shelf().write(3, marked).expect("room");
        assert_eq!((offset, bytes.len()), ((1 << 16) + 4 * 4096, 1024));
        assert_eq!(&bytes[8..24], b"PDIG\x04\0\0\0\x05\x01\0\0\0\0\0\0");
        assert_eq!(bytes[24..40], [0x4b, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[40..48], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[48..56], [1, 0, 3, 0, 3, 0, 3, 0]);
        assert_eq!(bytes[558..566], [3, 0, 1, 2, 3, 2, 0xFE, 0xFF]);
        assert_eq!(base::checksum::hash(&bytes), GOLDEN);
    }

    #[test]
    fn names_have_what_they_were_told_of_and_little_else() {
        let hash = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let told: Vec<u64> = (0..10_000).map(hash).chain([0, u64::MAX]).collect();
        assert!(!names(&[]).have(0));
        let names = names(&told);
        assert!(told.iter().all(|&hash| names.have(hash)));
        let others = (10_000..110_000).filter(|&number| names.have(hash(number))).count();
        assert!(others < 200, "{others} of 100,000 others");
    }

    #[test]
    fn groups_that_end_anywhere_else_are_no_names() {
        let whole = names(&[0, 1 << 56, 2 << 56]);
        assert_eq!(Names::read(whole.bytes.clone()), Some(whole.clone()));
        for (group, end) in [(0, 4), (1, 0), (255, 2), (255, 4)] {
            let mut bytes = whole.bytes.to_vec();
            put_u16(&mut bytes, 2 * group, end);
            assert_eq!(Names::read(bytes.into()), None, "group {group} ends at {end}");
        }
        assert_eq!(Names::read(whole.bytes.slice(..ENDS_LEN - 1)), None);
    }

    const GOLDEN: u64 = 0x834b_50e3_c03d_a1fc;
}
