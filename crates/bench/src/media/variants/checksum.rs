//! One flush: header and value are written together, and a checksum over both proves that all
//! arrived.
//!
//! ```text
//! 0..8    checksum over the rest, bound to the place
//! 8..16   sequence, bytes of the value plus one (0: empty)
//! 16..    value
//! ```
//! Two such versions, each on lines of its own, are written in turn.

use base::checksum::checksum_at;

use super::{Header, Slot, SlotContent, Variant, Write, newest, whole_lines};
use crate::workload::scramble;
use storage::pmem::memory::Memory;

const HEADER_LEN: usize = 16;

/// Over a header and a value, bound to the place of their version.
#[inline]
fn sum(at: u64, header: u64, value: &[u8]) -> u64 {
    checksum_at(scramble(scramble(at) ^ header), value)
}

fn put_void<M: Memory>(memory: &M, slot: Slot, index: u64) {
    let at = Checksum::version_at(slot, index);
    memory.put_headed(at, [sum(at, VOID, &[]), VOID], &[]);
}

/// Two versions under checksums.
#[derive(Clone, Copy, Debug)]
pub struct Checksum;

/// The header of an empty version.
const VOID: u64 = 0;

enum StoredVersion {
    Holding(Header),
    Void,
    Bad,
}

impl Checksum {
    fn version_at(slot: Slot, index: u64) -> u64 {
        slot.at + index * whole_lines(HEADER_LEN + slot.capacity)
    }

    fn read_version<M: Memory>(
        memory: &M,
        slot: Slot,
        index: u64,
        value: &mut Vec<u8>,
    ) -> StoredVersion {
        let at = Checksum::version_at(slot, index);
        let word = memory.load(at + 8);
        let header = Header::from_word(word, slot);
        let len = header.map_or(0, |header| header.len);
        super::read_value(memory, at + HEADER_LEN as u64, len, value);
        match (memory.load(at) == sum(at, word, value), header) {
            (true, Some(header)) => StoredVersion::Holding(header),
            (true, None) if word == VOID => StoredVersion::Void,
            _ => StoredVersion::Bad,
        }
    }
}

impl Variant for Checksum {
    const NAME: &'static str = "checksum";
    const STEPS: usize = 1;

    fn slot_len(capacity: usize) -> u64 {
        2 * whole_lines(HEADER_LEN + capacity)
    }

    fn clear<M: Memory>(memory: &M, slot: Slot) {
        (0..2).for_each(|index| put_void(memory, slot, index));
    }

    #[inline(always)]
    fn step<M: Memory>(memory: &M, slot: Slot, _: usize, write: Write<'_>) {
        let at = Checksum::version_at(slot, write.sequence.index(2));
        memory.expect_put(at, (HEADER_LEN + write.value.len()) as u64);
        let header = Header::of(&write, slot).word();
        memory.put_headed(at, [sum(at, header, write.value), header], write.value);
    }

    /// Voids an interrupted version if the other one is whole.
    ///
    /// Otherwise the next write would have the same number. With an equal end, parts of both writes
    /// could verify as the first.
    fn recover<M: Memory>(memory: &M, slot: Slot) {
        let version = |index| Checksum::read_version(memory, slot, index, &mut Vec::new());
        match [0, 1].map(version) {
            [StoredVersion::Bad, StoredVersion::Holding(_) | StoredVersion::Void] => {
                put_void(memory, slot, 0)
            }
            [StoredVersion::Holding(_) | StoredVersion::Void, StoredVersion::Bad] => {
                put_void(memory, slot, 1)
            }
            _ => {}
        }
    }

    fn read<M: Memory>(memory: &M, slot: Slot, value: &mut Vec<u8>) -> SlotContent {
        let versions = [0, 1].map(|index| Checksum::read_version(memory, slot, index, value));
        let holding = (0..).zip(&versions).filter_map(|(index, version)| match version {
            StoredVersion::Holding(header) => Some((index, *header)),
            StoredVersion::Void | StoredVersion::Bad => None,
        });
        match newest(holding) {
            Some((index, header)) => {
                let at = Checksum::version_at(slot, index) + HEADER_LEN as u64;
                super::read_value(memory, at, header.len, value);
                SlotContent::Value(header.sequence)
            }
            // The second version is first written when the first one holds something.
            None if matches!(versions[1], StoredVersion::Void) => SlotContent::Nothing,
            None => SlotContent::Damaged,
        }
    }
}
