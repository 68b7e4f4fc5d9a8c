//! One flush: header and value go out together, and a checksum over both says that all of it arrived.
//!
//! ```text
//! 0..8    checksum over the rest, bound to the place
//! 8..16   sequence, bytes of the value plus one (0: nothing)
//! 16..    value
//! ```
//! Two such versions, each on lines of its own, are written in turn.

use base::checksum::checksum;

use super::{Found, Header, Slot, Variant, Write, newest, whole_lines};
use crate::pmem::memory::Memory;
use crate::pmem::word::mix;

/// Bytes of the checksum, in front of what it covers.
pub const SUM_LEN: usize = 8;
const HEADER_LEN: usize = 16;

/// Fills in the checksum of `bytes`, its first eight, over the others.
pub fn seal(seed: u64, bytes: &mut [u8]) {
    let (sum, rest) = bytes.split_at_mut(SUM_LEN);
    sum.copy_from_slice(&checksum(seed, rest).to_le_bytes());
}

/// True where `bytes` are as they were sealed, with the same seed.
#[must_use]
pub fn is_sealed(seed: u64, bytes: &[u8]) -> bool {
    let (sum, rest) = bytes.split_at(SUM_LEN);
    sum == checksum(seed, rest).to_le_bytes()
}

/// Two versions under checksums.
#[derive(Clone, Copy, Debug)]
pub struct Checksum;

enum Version {
    Holding(Header),
    Void,
    Bad,
}

impl Checksum {
    fn version_at(slot: Slot, index: u64) -> u64 {
        slot.at + index * whole_lines(HEADER_LEN + slot.capacity)
    }

    fn read_version<M: Memory>(memory: &M, slot: Slot, index: u64, bytes: &mut Vec<u8>) -> Version {
        let at = Checksum::version_at(slot, index);
        let word = memory.load(at + SUM_LEN as u64);
        let header = Header::from_word(word, slot);
        let len = header.map_or(0, |header| header.len);
        super::read_value(memory, at, HEADER_LEN + len, bytes);
        match (is_sealed(mix(at), bytes), header) {
            (true, Some(header)) => Version::Holding(header),
            (true, None) => Version::Void,
            (false, _) => Version::Bad,
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
        for index in 0..2 {
            let at = Checksum::version_at(slot, index);
            let mut void = [0; HEADER_LEN];
            seal(mix(at), &mut void);
            memory.put(at, &void);
        }
    }

    #[inline]
    fn step<M: Memory>(memory: &M, slot: Slot, _: usize, write: Write<'_>, buffer: &mut Vec<u8>) {
        let at = Checksum::version_at(slot, write.sequence.index(2));
        let header = Header::of(&write, slot).word();
        buffer.clear();
        buffer.extend_from_slice(&[0; SUM_LEN]);
        buffer.extend_from_slice(&header.to_le_bytes());
        buffer.extend_from_slice(write.value);
        seal(mix(at), buffer);
        buffer.resize(whole_lines(buffer.len()) as usize, 0);
        memory.put(at, buffer);
    }

    fn read<M: Memory>(memory: &M, slot: Slot, value: &mut Vec<u8>) -> Found {
        let versions = [0, 1].map(|index| Checksum::read_version(memory, slot, index, value));
        let holding = (0..).zip(&versions).filter_map(|(index, version)| match version {
            Version::Holding(header) => Some((index, *header)),
            Version::Void | Version::Bad => None,
        });
        match newest(holding) {
            Some((index, header)) => {
                let at = Checksum::version_at(slot, index) + HEADER_LEN as u64;
                super::read_value(memory, at, header.len, value);
                Found::Value(header.sequence)
            }
            // The second version is first written when the first one holds something.
            None if matches!(versions[1], Version::Void) => Found::Nothing,
            None => Found::Damaged,
        }
    }
}
