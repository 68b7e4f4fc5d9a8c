//! One flush: header and value are written together over zeros, and the number of set bits proves
//! that all arrived. [PMIO 3, "Zero"]
//!
//! ```text
//! 0..8    sequence, bytes of the value plus one
//! 8..16   bits that are set in the word before and in the value
//! 16..    value
//! ```
//! A word that did not arrive is still zero, so a torn version has fewer bits than its count.
//! No torn write over zeros verifies. The zeros must be *persistent* before the write begins.
//! So three versions rotate: a write zeroes the stale one, and one fence covers both.
//! A value costs its length twice.
//!
//! It does not detect:
//!
//! - a torn write over other data than zeros, where old bits make up for missing ones;
//! - damage that sets as many bits as it clears;
//! - whole versions in the wrong place or of an earlier time.
#![allow(unsafe_code)]

use super::{Header, Slot, SlotContent, Variant, Write, newest, whole_lines};
use storage::pmem::memory::Memory;

const HEADER_LEN: usize = 16;
const VERSIONS: u32 = 3;

/// Three versions: the newest, one of zeros, and one that becomes zeros.
#[derive(Clone, Copy, Debug)]
pub struct PopCount;

/// How many bits are set.
#[inline]
fn bits(bytes: &[u8]) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: this CPU has the instruction.
        return unsafe { bits_by_instruction(bytes) };
    }
    bits_of(bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "popcnt")]
fn bits_by_instruction(bytes: &[u8]) -> u64 {
    bits_of(bytes)
}

#[inline(always)]
fn bits_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u32 = words.remainder().iter().map(|byte| byte.count_ones()).sum();
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("chunks of eight bytes"));
    words.map(|chunk| u64::from(word(chunk).count_ones())).sum::<u64>() + u64::from(rest)
}

impl PopCount {
    fn version_len(slot: Slot) -> u64 {
        whole_lines(HEADER_LEN + slot.capacity)
    }

    fn version_at(slot: Slot, index: u64) -> u64 {
        slot.at + index * PopCount::version_len(slot)
    }

    /// `None` for a version that does not verify.
    fn read_version<M: Memory>(
        memory: &M,
        slot: Slot,
        index: u64,
        value: &mut Vec<u8>,
    ) -> Option<Header> {
        let at = PopCount::version_at(slot, index);
        let word = memory.load(at);
        let header = Header::from_word(word, slot)?;
        super::read_value(memory, at + HEADER_LEN as u64, header.len, value);
        (memory.load(at + 8) == u64::from(word.count_ones()) + bits(value)).then_some(header)
    }

    fn newest<M: Memory>(memory: &M, slot: Slot, value: &mut Vec<u8>) -> Option<(u64, Header)> {
        let whole = (0..u64::from(VERSIONS))
            .filter_map(|index| Some((index, PopCount::read_version(memory, slot, index, value)?)));
        newest(whole)
    }
}

impl Variant for PopCount {
    const NAME: &'static str = "popcount";
    const STEPS: usize = 1;

    fn slot_len(capacity: usize) -> u64 {
        u64::from(VERSIONS) * whole_lines(HEADER_LEN + capacity)
    }

    fn clear<M: Memory>(memory: &M, slot: Slot) {
        super::zero(memory, slot.at, PopCount::slot_len(slot.capacity));
    }

    #[inline(always)]
    fn step<M: Memory>(memory: &M, slot: Slot, _: usize, write: Write<'_>) {
        let at = PopCount::version_at(slot, write.sequence.index(VERSIONS));
        memory.expect_put(at, (HEADER_LEN + write.value.len()) as u64);
        let header = Header::of(&write, slot).word();
        let count = u64::from(header.count_ones()) + bits(write.value);
        memory.put_headed(at, [header, count], write.value);
        // The version before the last is stale, and the next to be written.
        let stale = PopCount::version_at(slot, write.sequence.next().index(VERSIONS));
        let word = memory.load(stale);
        if word != 0 {
            let whole = PopCount::version_len(slot);
            let len = Header::from_word(word, slot).map(|old| (HEADER_LEN + old.len) as u64);
            super::zero(memory, stale, len.map_or(whole, |len| len.next_multiple_of(8)));
        }
    }

    fn read<M: Memory>(memory: &M, slot: Slot, value: &mut Vec<u8>) -> SlotContent {
        if let Some((index, header)) = PopCount::newest(memory, slot, value) {
            let at = PopCount::version_at(slot, index) + HEADER_LEN as u64;
            super::read_value(memory, at, header.len, value);
            return SlotContent::Value(header.sequence);
        }
        // Before the first value is whole, all but its own version must be zeros.
        let others = PopCount::version_at(slot, 1)..slot.at + PopCount::slot_len(slot.capacity);
        let are_zeros = others.step_by(8).all(|word| memory.load(word) == 0);
        if are_zeros { SlotContent::Nothing } else { SlotContent::Damaged }
    }

    /// Zeroes all but the newest version: others may be torn, or half zeroed.
    fn recover<M: Memory>(memory: &M, slot: Slot) {
        let newest = PopCount::newest(memory, slot, &mut Vec::new()).map(|(index, _)| index);
        for index in (0..u64::from(VERSIONS)).filter(|&index| Some(index) != newest) {
            let at = PopCount::version_at(slot, index);
            super::zero(memory, at, PopCount::version_len(slot));
        }
    }
}
