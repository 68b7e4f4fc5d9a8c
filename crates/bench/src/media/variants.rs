//! Ways to overwrite a value in its slot so that a crash leaves the value before or the value
//! after.
//!
//! All of them write beside the newest value and then make the new one valid.
//! They differ in fences, in bytes written besides the value, and in the damage that reads detect:
//!
//! | variant | fences per write | detected damage |
//! |---|---|---|
//! | [`Checksum`] | 1 | all of it, but for one case in 2^64 |
//! | [`PopCount`] | 1; writes the value's length twice | every torn write, every single bit |
//! | [`TwoStep`], one or more headers | 2 | none |
//!
//! A slot consists of whole cache lines, so no write of one register touches a line of another. The
//! caller knows the sequence of the newest value, from reading or writing the slot. The store's
//! slots are the checksum variant with a larger header (`storage::pmem`). There, batches say which
//! versions may be torn; here, a version that does not verify counts as interrupted. After a crash,
//! settle the memory before reading, as for the store.

mod checksum;
mod popcount;
mod two_step;

pub use checksum::Checksum;
pub use popcount::PopCount;
pub use two_step::TwoStep;

use storage::pmem::memory::Memory;
use storage::pmem::persist::LINE;

/// A place for one value at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The start of the slot: a multiple of 64.
    pub at: u64,
    /// The longest value, in bytes: at most 2^31.
    pub capacity: usize,
}

/// Numbers the values of a slot; wraps after 3 · 2^30.
///
/// Two close numbers keep their order across the wrap, and so does the rotation of places (two,
/// three or four).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence(u32);

const SEQUENCES: u32 = 3 << 30;

/// The result of reading a slot; the value is in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotContent {
    Value(Sequence),
    /// The slot is empty since it was cleared.
    Nothing,
    /// No write of this variant, even an interrupted one, can leave this content.
    Damaged,
}

/// A way to write and read slots.
pub trait Variant {
    /// On the command line and in tables.
    const NAME: &'static str;
    /// Parts of a write, each followed by a fence. A batch of slots does the first step of all, a
    /// fence, and so on.
    const STEPS: usize;

    /// Bytes that a slot takes: whole lines.
    fn slot_len(capacity: usize) -> u64;

    /// Empties a slot with any content; the caller fences.
    fn clear<M: Memory>(memory: &M, slot: Slot);

    /// Stores one part of a write, counted from 0, and starts writing it back.
    ///
    /// # Panics
    /// If the value is longer than the slot's capacity.
    fn step<M: Memory>(memory: &M, slot: Slot, step: usize, write: Write<'_>);

    /// Reads the newest value into `value`.
    fn read<M: Memory>(memory: &M, slot: Slot, value: &mut Vec<u8>) -> SlotContent;

    /// Prepares a slot for the next write after a crash; the caller fences.
    fn recover<M: Memory>(memory: &M, slot: Slot) {
        let _ = (memory, slot);
    }

    /// Writes one value: all steps, all fences.
    #[inline(always)]
    fn write<M: Memory>(memory: &M, slot: Slot, write: Write<'_>) {
        for step in 0..Self::STEPS {
            Self::step(memory, slot, step, write);
            memory.fence();
        }
    }
}

/// A value to be written, with its number: the one after the newest's.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub sequence: Sequence,
    pub value: &'a [u8],
}

impl Sequence {
    /// The first number of a cleared slot.
    pub const FIRST: Sequence = Sequence(0);
    /// The last number before the wrap.
    pub const LAST: Sequence = Sequence(SEQUENCES - 1);

    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(if self.0 + 1 == SEQUENCES { 0 } else { self.0 + 1 })
    }

    /// Its place of so many.
    fn index(self, places: u32) -> u64 {
        u64::from(self.0 % places)
    }

    /// `None` for an invalid sequence.
    fn from_bits(bits: u32) -> Option<Sequence> {
        (bits < SEQUENCES).then_some(Sequence(bits))
    }

    fn is_after(self, other: Sequence) -> bool {
        let ahead =
            (u64::from(self.0) + u64::from(SEQUENCES) - u64::from(other.0)) % u64::from(SEQUENCES);
        (1..u64::from(SEQUENCES) / 2).contains(&ahead)
    }
}

/// A sequence and the length of its value in the eight bytes that are stored whole; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    sequence: Sequence,
    len: usize,
}

const LEN_MAX: usize = 1 << 31;

impl Header {
    fn of(write: &Write<'_>, slot: Slot) -> Header {
        let len = write.value.len();
        assert!(len <= slot.capacity, "a value has room in its slot");
        Header { sequence: write.sequence, len }
    }

    fn word(self) -> u64 {
        assert!(self.len <= LEN_MAX, "no slot is for so long a value");
        u64::from(self.sequence.0) | (self.len as u64 + 1) << 32
    }

    /// `None` for an invalid header of this slot.
    fn from_word(word: u64, slot: Slot) -> Option<Header> {
        let len = usize::try_from((word >> 32).checked_sub(1)?).ok()?;
        let sequence = Sequence::from_bits(word as u32)?;
        (len <= slot.capacity).then_some(Header { sequence, len })
    }
}

/// The newest of the headers in a slot, with its place.
fn newest(headers: impl Iterator<Item = (u64, Header)>) -> Option<(u64, Header)> {
    headers.reduce(|best, next| if next.1.sequence.is_after(best.1.sequence) { next } else { best })
}

fn whole_lines(len: usize) -> u64 {
    (len as u64).next_multiple_of(LINE)
}

fn read_value<M: Memory>(memory: &M, at: u64, len: usize, value: &mut Vec<u8>) {
    value.clear();
    value.resize(len, 0);
    memory.read(at, value);
}

/// Puts zeros over `len` bytes, whole words of them, and starts writing them back.
fn zero<M: Memory>(memory: &M, at: u64, len: u64) {
    for word in (at..at + len).step_by(8) {
        memory.store(word, 0);
    }
    memory.write_back(at, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_keep_order_and_places_across_wrap() {
        let last = Sequence::LAST;
        assert_eq!(last.next(), Sequence::FIRST);
        assert!(Sequence::FIRST.is_after(last) && !last.is_after(Sequence::FIRST));
        assert!(!last.is_after(last));
        for places in 1..=4 {
            let (before, after) = (last.index(places), Sequence::FIRST.index(places));
            assert_eq!((before + 1) % u64::from(places), after, "{places} places");
        }
    }

    #[test]
    fn headers_come_back_and_are_never_zero() {
        let slot = Slot { at: 0, capacity: 100 };
        for (sequence, len) in [(Sequence::FIRST, 0), (Sequence::LAST, 100)] {
            let header = Header { sequence, len };
            assert_ne!(header.word(), 0);
            assert_eq!(Header::from_word(header.word(), slot), Some(header));
        }
        let long = Header { sequence: Sequence::FIRST, len: 101 };
        assert_eq!(Header::from_word(long.word(), slot), None);
        assert_eq!(Header::from_word(0, slot), None);
    }
}
