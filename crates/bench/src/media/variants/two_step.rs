//! Two flushes: the persistent value first, then a header of eight bytes that is stored whole.
//!
//! ```text
//! HEADERS lines, each:  0..8  sequence, bytes of the value plus one
//! two values on lines of their own, written in turn
//! ```
//! With one header every write flushes the same line, which is slow on persistent memory.
//! Several headers rotate, and the newest one counts. [PMIO 3, "dancing"]
//! No check detects damage or a missing write of the medium.

use super::{Header, Slot, SlotContent, Variant, Write, newest, whole_lines};
use storage::pmem::memory::Memory;
use storage::pmem::persist::LINE;

/// A value, then one of so many headers: 1, 2, 3 or 4.
#[derive(Clone, Copy, Debug)]
pub struct TwoStep<const HEADERS: u32>;

impl<const HEADERS: u32> TwoStep<HEADERS> {
    // Headers must also rotate across the wrap of numbers after 3 · 2^30.
    const IS_SENSIBLE: () = assert!(matches!(HEADERS, 1..=4));

    fn value_at(slot: Slot, index: u64) -> u64 {
        slot.at + u64::from(HEADERS) * LINE + index * whole_lines(slot.capacity)
    }
}

impl<const HEADERS: u32> Variant for TwoStep<HEADERS> {
    const NAME: &'static str = match HEADERS {
        1 => "two-step",
        2 => "two headers",
        3 => "three headers",
        _ => "four headers",
    };
    const STEPS: usize = 2;

    fn slot_len(capacity: usize) -> u64 {
        const { Self::IS_SENSIBLE };
        u64::from(HEADERS) * LINE + 2 * whole_lines(capacity)
    }

    fn clear<M: Memory>(memory: &M, slot: Slot) {
        super::zero(memory, slot.at, u64::from(HEADERS) * LINE);
    }

    #[inline(always)]
    fn step<M: Memory>(memory: &M, slot: Slot, step: usize, write: Write<'_>) {
        let header = Header::of(&write, slot);
        if step == 0 {
            let at = Self::value_at(slot, write.sequence.index(2));
            memory.put(at, write.value);
        } else {
            let at = slot.at + write.sequence.index(HEADERS) * LINE;
            memory.store(at, header.word());
            memory.write_back(at, 8);
        }
    }

    fn read<M: Memory>(memory: &M, slot: Slot, value: &mut Vec<u8>) -> SlotContent {
        let words = (0..u64::from(HEADERS)).map(|index| memory.load(slot.at + index * LINE));
        let written = words.clone().filter(|&word| word != 0);
        let headers = written.clone().filter_map(|word| Header::from_word(word, slot));
        if headers.clone().count() != written.count() {
            return SlotContent::Damaged;
        }
        let Some((_, header)) = newest(headers.map(|header| (0, header))) else {
            return SlotContent::Nothing;
        };
        let at = Self::value_at(slot, header.sequence.index(2));
        super::read_value(memory, at, header.len, value);
        SlotContent::Value(header.sequence)
    }
}
