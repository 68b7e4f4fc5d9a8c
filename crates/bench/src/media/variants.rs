//! Ways to overwrite a value in its slot so that a crash leaves the value before or the value after.
//!
//! All of them write beside the newest value and then let it count; they differ in how many fences that takes,
//! what is written besides the value, and what they notice when they read:
//!
//! | variant | fences per write | damage that shows |
//! |---|---|---|
//! | [`Checksum`] | 1 | all of it, but for one case in 2^64 |
//! | [`PopCount`] | 1, and the value's length is written twice | every torn write, every single bit |
//! | [`TwoStep`], one header or several that take turns | 2 | none |
//!
//! A slot begins on a cache line and is made of whole lines, so no write of one register touches a line of
//! another. The sequence of the newest value is the caller's to know: from reading the slot once, or from having
//! written it. The store's slots are the checksum variant with a larger header (`storage::pmem`), and its turns say which
//! versions may be torn; here a version that does not verify is taken for one that was interrupted. Who takes over
//! from a process that ended settles the memory before it reads, as for the store.

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
    /// Where it begins: a multiple of 64.
    pub at: u64,
    /// The longest value, in bytes: at most 2^31.
    pub capacity: usize,
}

/// Numbers the values of a slot. There are 3 · 2^30 of them, then they begin again: two that are close to each
/// other have an order for ever, and places that values take in turn (two, three or four) are left in that order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence(u32);

const SEQUENCES: u32 = 3 << 30;

/// What was found in a slot; the value is in the buffer that was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    Value(Sequence),
    /// Nothing was written since the slot was cleared.
    Nothing,
    /// What is there cannot be the work of this variant, interrupted or not.
    Damaged,
}

/// A way to write and read slots.
pub trait Variant {
    /// On the command line and in tables.
    const NAME: &'static str;
    /// Parts of a write, with a fence behind each. A turn of many slots takes the first step of all, a fence, and
    /// so on.
    const STEPS: usize;

    /// Bytes that a slot takes: whole lines.
    fn slot_len(capacity: usize) -> u64;

    /// Makes a slot hold nothing, whatever is there; to be fenced.
    fn clear<M: Memory>(memory: &M, slot: Slot);

    /// Stores one part of a write, counted from 0, and starts writing it back.
    ///
    /// # Panics
    /// If the value is longer than the slot's capacity.
    fn step<M: Memory>(memory: &M, slot: Slot, step: usize, write: Write<'_>);

    /// Reads the newest value into `value`.
    fn read<M: Memory>(memory: &M, slot: Slot, value: &mut Vec<u8>) -> Found;

    /// Prepares a slot for the next write after a crash; to be fenced.
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

/// A value to be written, with the number that it will have: the one after the newest's.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub sequence: Sequence,
    pub value: &'a [u8],
}

impl Sequence {
    /// Of the first value of a slot that was cleared.
    pub const FIRST: Sequence = Sequence(0);
    /// After which numbers begin again.
    pub const LAST: Sequence = Sequence(SEQUENCES - 1);

    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(if self.0 + 1 == SEQUENCES { 0 } else { self.0 + 1 })
    }

    /// Which of so many places it takes.
    fn index(self, places: u32) -> u64 {
        u64::from(self.0 % places)
    }

    /// None where no sequence is written that way.
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

    /// None where that is no header of this slot.
    fn from_word(word: u64, slot: Slot) -> Option<Header> {
        let len = usize::try_from((word >> 32).checked_sub(1)?).ok()?;
        let sequence = Sequence::from_bits(word as u32)?;
        (len <= slot.capacity).then_some(Header { sequence, len })
    }
}

/// The newest of some headers that are found in a slot, with where each was found.
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
    fn sequences_keep_their_order_and_their_places_when_they_begin_again() {
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
