//! A range of bits, as arguments name it.

use std::ops::Range;

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};

use crate::errors::{self, ErrorReply};
use crate::operation::{self, Sink};

/// The range includes both ends. Negative ones count from the end of the string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BitRange {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Byte,
    Bit,
}

impl Unit {
    const ALL: [Unit; 2] = [Unit::Byte, Unit::Bit];

    pub(super) fn parse(word: &[u8]) -> Result<Unit, ErrorReply> {
        match word.to_ascii_uppercase().as_slice() {
            b"BYTE" => Ok(Unit::Byte),
            b"BIT" => Ok(Unit::Bit),
            _ => Err(errors::SYNTAX),
        }
    }
}

impl BitRange {
    pub(super) const WHOLE: BitRange = BitRange { start: 0, end: -1, unit: Unit::Byte };

    pub(super) fn parse_end(text: &[u8]) -> Result<i64, ErrorReply> {
        parse_i64(text).ok_or(errors::NOT_AN_INTEGER)
    }

    pub(super) fn encode(&self, out: &mut impl Sink) {
        out.byte(self.unit as u8);
        out.integer(self.start);
        out.integer(self.end);
    }

    pub(super) fn decode(fields: &mut Reader<'_>) -> Result<BitRange, Malformed> {
        let unit = operation::variant(&Unit::ALL, fields.u8()?)?;
        let (start, end) = (operation::integer(fields)?, operation::integer(fields)?);
        Ok(BitRange { start, end, unit })
    }

    /// The bits of the range in a string of `len` bytes.
    pub(super) fn bits(&self, len: usize) -> Range<usize> {
        let width = if self.unit == Unit::Byte { 8 } else { 1 };
        let total = (len * 8 / width) as i64;
        let from_start = |index: i64| if index < 0 { (total + index).max(0) } else { index };
        let (start, end) = (from_start(self.start), from_start(self.end).min(total - 1));
        if start > end {
            return 0..0;
        }
        start as usize * width..(end as usize + 1) * width
    }
}

/// How many of the bits are set.
pub(super) fn count_ones(string: &[u8], bits: Range<usize>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let mut words = string[first..=last].chunks_exact(8);
    let ones_of = |word: &[u8]| {
        let word: [u8; 8] = word.try_into().unwrap_or_default();
        u64::from(u64::from_ne_bytes(word).count_ones())
    };
    let in_words: u64 = words.by_ref().map(ones_of).sum();
    let in_rest: u32 = words.remainder().iter().map(|byte| byte.count_ones()).sum();
    let before = string[first] & !from(bits.start);
    let behind = string[last] & !up_to(bits.end);
    in_words + u64::from(in_rest) - u64::from(before.count_ones() + behind.count_ones())
}

/// The first of the bits that is as wanted.
pub(super) fn find(string: &[u8], bits: Range<usize>, is_set: bool) -> Option<usize> {
    if bits.is_empty() {
        return None;
    }
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let without = if is_set { 0 } else { 0xff };
    let mut at = first;
    while at <= last {
        let mut found = string[at] ^ without;
        if at == first {
            found &= from(bits.start);
        }
        if at == last {
            found &= up_to(bits.end);
        }
        if found != 0 {
            return Some(at * 8 + found.leading_zeros() as usize);
        }
        at += 1 + string[at + 1..=last].iter().position(|&byte| byte != without)?;
    }
    None
}

/// The bits of a byte from `start` on.
fn from(start: usize) -> u8 {
    0xff >> (start % 8)
}

/// The bits of a byte before `end`, which is not its start.
fn up_to(end: usize) -> u8 {
    !(0x7f >> ((end - 1) % 8))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_set(string: &[u8], bit: usize) -> bool {
        string[bit / 8] >> (7 - bit % 8) & 1 == 1
    }

    proptest! {
        #[test]
        fn bits_are_counted_and_found_one_by_one(
            string in prop::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..40),
            start in -330..330_i64, end in -330..330_i64, is_bit: bool, wanted: bool,
        ) {
            let unit = if is_bit { Unit::Bit } else { Unit::Byte };
            let bits = BitRange { start, end, unit }.bits(string.len());
            let ones = bits.clone().filter(|&bit| is_set(&string, bit)).count();
            prop_assert_eq!(count_ones(&string, bits.clone()), ones as u64);
            let first = bits.clone().find(|&bit| is_set(&string, bit) == wanted);
            prop_assert_eq!(find(&string, bits, wanted), first);
        }
    }

    #[test]
    fn ends_are_clamped() {
        let bits = |start, end, unit| BitRange { start, end, unit }.bits(3);
        assert_eq!(BitRange::WHOLE.bits(3), 0..24);
        assert_eq!(BitRange::WHOLE.bits(0), 0..0);
        assert_eq!(bits(i64::MIN, i64::MAX, Unit::Byte), 0..24);
        assert_eq!(bits(i64::MIN, i64::MAX, Unit::Bit), 0..24);
        assert_eq!(bits(-2, -1, Unit::Byte), 8..24);
        assert_eq!(bits(-2, -1, Unit::Bit), 22..24);
        assert_eq!(bits(3, i64::MAX, Unit::Byte), 0..0);
        assert_eq!(bits(i64::MAX, i64::MIN, Unit::Bit), 0..0);
    }
}
