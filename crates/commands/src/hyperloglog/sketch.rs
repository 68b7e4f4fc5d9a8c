//! A value: its header, and registers in one of two forms.

use super::estimate::Histogram;
use super::{CORRUPTED, HEADER_LEN, INVALID, REGISTERS, dense, sparse};
use crate::errors::ErrorReply;

const MAGIC: &[u8] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

/// The place of the form in the header.
const FORM: usize = 4;

/// The last count, in the header.
const COUNT: std::ops::Range<usize> = 8..16;

/// In the last byte of the count.
const IS_OLD: u8 = 0x80;

/// A value that has a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sketch<'a> {
    bytes: &'a [u8],
}

impl<'a> Sketch<'a> {
    /// # Errors
    /// The reply for a string without a header.
    pub(super) fn of(string: &'a [u8]) -> Result<Sketch<'a>, ErrorReply> {
        if string.len() < HEADER_LEN || !string.starts_with(MAGIC) {
            return Err(INVALID);
        }
        match string[FORM] {
            SPARSE => Ok(Sketch { bytes: string }),
            DENSE if string.len() == HEADER_LEN + dense::LEN => Ok(Sketch { bytes: string }),
            _ => Err(INVALID),
        }
    }

    pub(super) fn is_dense(self) -> bool {
        self.bytes[FORM] == DENSE
    }

    /// The last count if it is valid, else a new one.
    ///
    /// # Errors
    /// The reply for a value that was corrupted.
    pub(super) fn count(self) -> Result<i64, ErrorReply> {
        let last = &self.bytes[COUNT];
        if last[7] & IS_OLD == 0 {
            let bytes = last.try_into().unwrap_or_default();
            return Ok(i64::from_le_bytes(bytes));
        }
        let registers = &self.bytes[HEADER_LEN..];
        let histogram = if self.is_dense() {
            Histogram::of_dense(registers)
        } else {
            Histogram::of_sparse(registers).ok_or(CORRUPTED)?
        };
        Ok(histogram.estimate())
    }
}

/// The greatest ranks of several values.
pub(super) struct Union {
    registers: Vec<u8>,
}

impl Union {
    pub(super) fn new() -> Union {
        Union { registers: vec![0; REGISTERS] }
    }

    /// # Errors
    /// The reply for a value that was corrupted.
    pub(super) fn add(&mut self, sketch: Sketch<'_>) -> Result<(), ErrorReply> {
        let registers = &sketch.bytes[HEADER_LEN..];
        if sketch.is_dense() {
            for (max, rank) in self.registers.iter_mut().zip(dense::registers(registers)) {
                *max = rank.max(*max);
            }
            return Ok(());
        }
        let raise = |index: usize, rank: u8| {
            self.registers[index] = rank.max(self.registers[index]);
        };
        sparse::ranks(registers, raise).ok_or(CORRUPTED)
    }

    pub(super) fn count(&self) -> i64 {
        Histogram::of(self.registers.iter().copied()).estimate()
    }

    /// Indexes and ranks of registers that have one.
    pub(super) fn ranks(&self) -> impl Iterator<Item = (usize, u8)> {
        self.registers.iter().copied().enumerate().filter(|&(_, rank)| rank > 0)
    }
}

/// A value that changes.
pub(super) struct Draft {
    bytes: Vec<u8>,
}

impl Draft {
    /// A value without elements.
    pub(super) fn new() -> Draft {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(HEADER_LEN, 0);
        bytes[FORM] = SPARSE;
        bytes.extend(sparse::empty());
        Draft { bytes }
    }

    pub(super) fn of(sketch: Sketch<'_>) -> Draft {
        Draft { bytes: sketch.bytes.to_vec() }
    }

    /// Raises a register; false if it has such a rank, or a greater one.
    ///
    /// # Errors
    /// The reply for a value that was corrupted.
    pub(super) fn raise(&mut self, index: usize, rank: u8) -> Result<bool, ErrorReply> {
        if self.bytes[FORM] == SPARSE {
            match sparse::raise(&mut self.bytes, index, rank).ok_or(CORRUPTED)? {
                sparse::Raised::No => return Ok(false),
                sparse::Raised::Yes => return Ok(true),
                sparse::Raised::NoRoom => self.make_dense()?,
            }
        }
        Ok(dense::raise(&mut self.bytes[HEADER_LEN..], index, rank))
    }

    /// # Errors
    /// The reply for a value that was corrupted.
    pub(super) fn make_dense(&mut self) -> Result<(), ErrorReply> {
        if self.bytes[FORM] == DENSE {
            return Ok(());
        }
        let mut registers = vec![0; dense::LEN];
        let raise = |index: usize, rank: u8| {
            dense::raise(&mut registers, index, rank);
        };
        sparse::ranks(&self.bytes[HEADER_LEN..], raise).ok_or(CORRUPTED)?;
        self.bytes.truncate(HEADER_LEN);
        self.bytes[FORM] = DENSE;
        self.bytes.extend(registers);
        Ok(())
    }

    /// The string, whose last count is out of date.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes[HEADER_LEN - 1] |= IS_OLD;
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::element::{RANK_MAX, Raise};
    use super::*;

    fn draft(numbers: impl Iterator<Item = u32>) -> Draft {
        let mut draft = Draft::new();
        for number in numbers {
            let Raise { index, rank } = Raise::of(&number.to_le_bytes());
            draft.raise(index.into(), rank).unwrap();
        }
        draft
    }

    fn count(draft: Draft) -> i64 {
        Sketch::of(&draft.finish()).unwrap().count().unwrap()
    }

    #[test]
    fn counts_are_near() {
        for len in [0, 1, 10, 100, 1_000, 10_000, 100_000] {
            let found = count(draft(0..len));
            assert!(found.abs_diff(i64::from(len)) <= u64::from(len) / 40, "{found} of {len}");
        }
    }

    #[test]
    fn both_forms_count_alike() {
        for len in [0, 1, 5, 300, 900] {
            let (sparse, mut dense) = (draft(0..len), draft(0..len));
            dense.make_dense().unwrap();
            assert_eq!((sparse.bytes[FORM], dense.bytes[FORM]), (SPARSE, DENSE));
            let mut union = Union::new();
            union.add(Sketch::of(&sparse.bytes).unwrap()).unwrap();
            let counted = union.count();
            assert_eq!([count(sparse), count(dense)], [counted; 2]);
        }
    }

    proptest! {
        #[test]
        fn noise_is_read_without_panic(
            noise in prop::collection::vec(prop_oneof![Just(0x7f), Just(0xff), any::<u8>()], 0..40),
            raises in prop::collection::vec((0..REGISTERS, 1..=RANK_MAX), 0..20),
        ) {
            let mut bytes = Draft::new().finish();
            bytes.truncate(HEADER_LEN);
            bytes.extend(noise);
            let sketch = Sketch::of(&bytes).unwrap();
            let (counted, added) = (sketch.count(), Union::new().add(sketch));
            prop_assert!(counted.is_err() || added.is_ok());
            let mut draft = Draft::of(sketch);
            for (index, rank) in raises {
                if draft.raise(index, rank).is_ok() && counted.is_ok() {
                    prop_assert!(Sketch::of(&draft.bytes).unwrap().count().is_ok());
                }
            }
        }
    }
}
