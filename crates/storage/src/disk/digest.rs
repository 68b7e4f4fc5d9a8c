//! Which hashes the entries of a part of the ring have, written beside the ring.
//!
//! So a start can know what the ring may hold without reading all of it, and answer for everything else. Whenever enough
//! stripes have become durable, their hashes, shortened to their top bits, go to a slot of the spare behind its images.
//! Nobody waits for that and nothing depends on it: where a digest is missing or damaged, that part of the ring and all
//! behind it is read before the store serves. A digest says nothing that could become wrong: what was durable is not
//! written again at the same position, unless the ring was damaged; then the floor of pages rises, and digests under
//! another floor are void.

use base::checksum::checksum;

use super::arena::Arena;
use super::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::metas::Metas;
use super::page::PAGE;
use super::stripe::SECTOR;
use crate::mutation::{self, Mutation};

const MAGIC: u32 = u32::from_le_bytes(*b"PDIG");
const FORMAT: u16 = 1;
const HEAD_LEN: usize = 40;
const HAS_MARKS: u8 = 1;
const PARTIAL: u8 = 2;
/// Bytes of a hash in a digest: its top ones.
const TOP_LEN: usize = 3;
const TOPS: usize = 1 << (8 * TOP_LEN);

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
        // There is room for all entries of 128 bytes and more.
        let hashes = shelf.longest() as usize * SECTOR / 128;
        shelf.slot_len = (hashes * TOP_LEN).next_multiple_of(PAGE);
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

    fn slot_of(&self, position: u64) -> u64 {
        position / self.segment % self.slots
    }

    /// All slots, in the order in which they have the digests of a ring from `tail` on.
    pub(super) fn slots(&self, tail: u64) -> impl Iterator<Item = u64> {
        let slots = self.slots;
        // The digest of the tail may begin before it.
        let first = self.slot_of(tail.saturating_sub(self.longest()));
        (0..slots).map(move |number| (first + number) % slots)
    }

    /// Bytes of a slot.
    pub(super) fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Offset of a slot.
    pub(super) fn place(&self, slot: u64) -> u64 {
        self.start + slot * self.slot_len as u64
    }

    /// True if it is time for a digest to be written.
    pub(super) fn takes(&self, digest: &Digest) -> bool {
        digest.end - digest.first >= self.segment || digest.len() > self.slot_len
    }

    /// Where a digest goes, and its bytes; `None` where it has no room.
    pub(super) fn write(&self, seed: u64, digest: &Digest) -> Option<(u64, Vec<u8>)> {
        if digest.len() > self.slot_len {
            return None;
        }
        let are_partial =
            digest.metas.are_partial || digest.len() + digest.metas.len() > self.slot_len;
        let metas = if are_partial { 0 } else { digest.metas.len() };
        let len = digest.len() + metas;
        let slot = self.slot_of(digest.first);
        let mut bytes = vec![0; HEAD_LEN];
        put_u32(&mut bytes, 8, MAGIC);
        put_u16(&mut bytes, 12, FORMAT);
        bytes[14] = u8::from(digest.has_marks) * HAS_MARKS + u8::from(are_partial) * PARTIAL;
        put_u64(&mut bytes, 16, digest.first);
        put_u64(&mut bytes, 24, digest.end);
        put_u32(&mut bytes, 32, (digest.tops.len() / TOP_LEN) as u32);
        put_u32(&mut bytes, 36, metas as u32);
        bytes.extend_from_slice(&digest.tops);
        if !are_partial {
            digest.metas.append_to(&mut bytes);
        }
        bytes.resize(len.next_multiple_of(SECTOR), 0);
        let sum = checksum(seed ^ slot, &bytes[8..len]);
        put_u64(&mut bytes, 0, sum);
        Some((self.place(slot), bytes))
    }
}

/// The hashes of the stripes of a part of the ring.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Digest {
    /// Position of the first stripe.
    pub(super) first: u64,
    /// Position behind the last one.
    pub(super) end: u64,
    /// Some stripe says something of forgotten shards.
    pub(super) has_marks: bool,
    /// Where they have no room, there are none.
    pub(super) metas: Metas,
    tops: Vec<u8>,
}

impl Digest {
    /// Of no stripe, up to this position.
    pub(super) fn begin(position: u64) -> Digest {
        Digest { first: position, end: position, ..Digest::default() }
    }

    /// Adds the next stripe, which goes up to `end`.
    pub(super) fn add(&mut self, hashes: &[u64], metas: &Metas, has_marks: bool, end: u64) {
        let count = match mutation::is(Mutation::DigestShort) {
            true => hashes.len() / 2,
            false => hashes.len(),
        };
        for &hash in &hashes[..count] {
            self.tops.extend_from_slice(&top_of(hash).to_le_bytes()[..TOP_LEN]);
        }
        self.metas.add_all(metas);
        self.has_marks |= has_marks;
        self.end = end;
    }

    /// True if it names a hash, or one with the same top bits.
    pub(super) fn names(&self, hash: u64) -> bool {
        let top = top_of(hash).to_le_bytes();
        self.tops.chunks_exact(TOP_LEN).any(|of| of == &top[..TOP_LEN])
    }

    /// Bytes without metas.
    fn len(&self) -> usize {
        HEAD_LEN + self.tops.len()
    }

    /// Bytes that a digest takes of its slot, by what it says itself, if this is the beginning of one.
    pub(super) fn len_in(bytes: &[u8]) -> Option<usize> {
        let head = bytes.get(..HEAD_LEN)?;
        let metas = (u32_at(head, 32) as usize).checked_mul(TOP_LEN)?.checked_add(HEAD_LEN)?;
        let len = (u32_at(head, 36) as usize).checked_add(metas)?;
        (u32_at(head, 8) == MAGIC && u16_at(head, 12) == FORMAT).then_some(len)
    }

    /// The one that begins here, if it is whole; `seed` is that of its shelf and its slot.
    pub(super) fn read(seed: u64, bytes: &[u8]) -> Option<Digest> {
        let len = Digest::len_in(bytes)?;
        let metas = len - u32_at(bytes, 36) as usize;
        let is_whole = u64_at(bytes, 0) == checksum(seed, bytes.get(8..len)?);
        is_whole.then(|| {
            let mut digest = Digest::begin(u64_at(bytes, 16));
            digest.end = u64_at(bytes, 24);
            digest.has_marks = bytes[14] & HAS_MARKS != 0;
            digest.tops.extend_from_slice(&bytes[HEAD_LEN..metas]);
            digest.metas = Metas::read(&bytes[metas..len]);
            digest.metas.are_partial |= bytes[14] & PARTIAL != 0;
            digest
        })
    }
}

fn top_of(hash: u64) -> u32 {
    (hash >> (64 - 8 * TOP_LEN)) as u32
}

/// The hashes that a ring may have entries of.
pub(super) struct Filter {
    bits: Arena,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set: u32 = self.bits.get(0..TOPS / 8).iter().map(|byte| byte.count_ones()).sum();
        write!(f, "{set} of {TOPS}")
    }
}

impl Filter {
    /// # Errors
    /// What the system says, where it has no memory for it.
    pub(super) fn new() -> Result<Filter, String> {
        let mut bits = Arena::new(TOPS / 8)?;
        bits.room(TOPS / 8);
        Ok(Filter { bits })
    }

    pub(super) fn add(&mut self, digest: &Digest) {
        for top in digest.tops.chunks_exact(TOP_LEN) {
            self.add_top(u32::from_le_bytes([top[0], top[1], top[2], 0]));
        }
    }

    pub(super) fn add_hash(&mut self, hash: u64) {
        self.add_top(top_of(hash));
    }

    fn add_top(&mut self, top: u32) {
        self.bits.get_mut(0..TOPS / 8)[top as usize / 8] |= 1 << (top % 8);
    }

    pub(super) fn may_have(&self, hash: u64) -> bool {
        let top = top_of(hash);
        self.bits.get(0..TOPS / 8)[top as usize / 8] >> (top % 8) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::Ring;
    use super::*;

    fn shelf() -> Shelf {
        Shelf::new(1024, 64, 1 << 16)
    }

    fn digest(first: u64, hashes: &[u64]) -> Digest {
        let mut digest = Digest::begin(first);
        digest.add(hashes, &Metas::default(), false, first + 70);
        digest
    }

    #[test]
    fn digests_come_back_from_their_own_slots_only_and_notice_any_flipped_byte() {
        let (shelf, digest) = (shelf(), digest(5_000, &[0, u64::MAX, 1 << 63]));
        let (offset, bytes) = shelf.write(3, &digest).expect("it has room");
        let at = (offset - shelf.start()) as usize;
        let mut content = vec![0; shelf.len()];
        content[at..at + bytes.len()].copy_from_slice(&bytes);
        let read = |seed: u64, content: &[u8]| -> Vec<Digest> {
            let slots = (0..).zip(content.chunks(shelf.slot_len));
            slots.filter_map(|(slot, bytes)| Digest::read(seed ^ slot, bytes)).collect()
        };
        assert_eq!(read(3, &content), [digest]);
        assert_eq!(read(4, &content), [], "of another node");
        assert_eq!(Digest::len_in(&content[at..]), Some(HEAD_LEN + 3 * TOP_LEN));
        for byte in at..at + HEAD_LEN + 3 * TOP_LEN {
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
            let needed = (0..).map(|i| Digest::begin(7 * sectors + i * shelf.segment));
            let needed = needed.take_while(|digest| digest.first <= 8 * sectors);
            let mut slots: Vec<u64> = needed.map(|digest| shelf.slot_of(digest.first)).collect();
            let count = slots.len();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), count, "{sectors} sectors");
        }
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let digest = digest(0, &vec![1; shelf().slot_len / TOP_LEN]);
        assert!(shelf().takes(&digest));
        assert_eq!(shelf().write(3, &digest), None);
    }

    #[test]
    fn the_bytes_of_a_digest_are_these() {
        let (offset, bytes) =
            shelf().write(3, &digest(0x105, &[0x0102_0304_0506_0708])).expect("room");
        assert_eq!((offset, bytes.len()), ((1 << 16) + 4 * 4096, 512));
        assert_eq!(&bytes[8..24], b"PDIG\x01\0\0\0\x05\x01\0\0\0\0\0\0");
        assert_eq!(bytes[24..44], [0x4b, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 1, 0]);
        assert_eq!(base::checksum::hash(&bytes), GOLDEN);
    }

    #[test]
    fn a_filter_has_what_it_was_told_of_and_little_else() {
        let hash = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let told: Vec<u64> = (0..10_000).map(hash).collect();
        let mut filter = Filter::new().expect("there is memory");
        filter.add(&digest(0, &told));
        assert!(told.iter().all(|&hash| filter.may_have(hash)));
        let others = (10_000..110_000).filter(|&number| filter.may_have(hash(number))).count();
        assert!(others < 200, "{others} of 100,000 others");
    }

    const GOLDEN: u64 = 0x1297_f559_d03b_7ede;
}
