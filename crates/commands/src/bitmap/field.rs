//! An integer of some bits within a string, most significant bit first.

use base::decimal::parse_i64;

use crate::errors::{self, ErrorReply};

const INVALID_TYPE: ErrorReply = errors::fixed(
    b"ERR Invalid bitfield type. Use something like i16 u8. \
Note that u64 is not supported but i64 is.",
);

/// `i1` to `i64` and `u1` to `u63`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    pub(super) is_signed: bool,
    pub(super) bits: u8,
}

/// The treatment of a value that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    pub(super) const ALL: [Overflow; 3] = [Overflow::Wrap, Overflow::Saturate, Overflow::Fail];
}

/// Bits that are read and written at once: eight bytes, and a ninth that an offset may need.
const WINDOW: usize = 16;

impl Field {
    pub(super) fn parse(text: &[u8]) -> Result<Field, ErrorReply> {
        let (is_signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(INVALID_TYPE),
        };
        let bits = parse_i64(digits).and_then(|bits| u8::try_from(bits).ok());
        bits.and_then(|bits| Field::new(is_signed, bits)).ok_or(INVALID_TYPE)
    }

    pub(super) fn new(is_signed: bool, bits: u8) -> Option<Field> {
        let max = if is_signed { 64 } else { 63 };
        (1..=max).contains(&bits).then_some(Field { is_signed, bits })
    }

    /// Bytes that a string needs to hold the field at this offset.
    pub(super) fn end(self, offset: u64) -> u64 {
        (offset + u64::from(self.bits)).div_ceil(8)
    }

    /// The field at an offset. The string continues with zeros.
    pub(super) fn read(self, string: &[u8], offset: u64) -> i128 {
        let window = window(string, offset);
        self.low_bits(window << (offset % 8) >> self.unused())
    }

    /// Writes the low bits of a value. The string holds the field.
    pub(super) fn write(self, string: &mut [u8], offset: u64, value: i128) {
        let shift = offset % 8;
        let mask = u128::MAX << self.unused() >> shift;
        let bits = value.cast_unsigned() << self.unused() >> shift;
        let window = window(string, offset) & !mask | bits;
        let start = (offset / 8) as usize;
        let end = string.len().min(start + WINDOW);
        string[start..end].copy_from_slice(&window.to_be_bytes()[..end - start]);
    }

    /// The number to set. redis-server takes one that is far below the limits for a great one: the
    /// distance to the upper limit exceeds its integers.
    pub(super) fn meant(self, value: i64) -> i128 {
        let (value, (min, max)) = (i128::from(value), self.limits());
        let is_far = if self.is_signed { max - value > i64::MAX.into() } else { value < 0 };
        if value < min && is_far { value + (1 << u64::BITS) } else { value }
    }

    /// A value as the field can hold it; `None` when it must not be written.
    pub(super) fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let (min, max) = self.limits();
        match overflow {
            _ if (min..=max).contains(&value) => Some(value),
            Overflow::Wrap => Some(self.low_bits(value.cast_unsigned())),
            Overflow::Saturate => Some(value.clamp(min, max)),
            Overflow::Fail => None,
        }
    }

    fn limits(self) -> (i128, i128) {
        let values = 1_i128 << self.bits;
        if self.is_signed { (-values / 2, values / 2 - 1) } else { (0, values - 1) }
    }

    /// The number that the low bits are.
    fn low_bits(self, bits: u128) -> i128 {
        let high = bits << self.unused();
        if self.is_signed {
            high.cast_signed() >> self.unused()
        } else {
            (high >> self.unused()).cast_signed()
        }
    }

    fn unused(self) -> u32 {
        u128::BITS - u32::from(self.bits)
    }
}

/// The bytes from an offset on.
fn window(string: &[u8], offset: u64) -> u128 {
    let bytes = string.get((offset / 8) as usize..).unwrap_or_default();
    let mut window = [0; WINDOW];
    let len = bytes.len().min(WINDOW);
    window[..len].copy_from_slice(&bytes[..len]);
    u128::from_be_bytes(window)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields() -> impl Strategy<Value = Field> {
        (any::<bool>(), 1..=64_u8)
            .prop_filter_map("u64 is none", |(is_signed, bits)| Field::new(is_signed, bits))
    }

    proptest! {
        #[test]
        fn fields_come_back_and_neighbours_stay(
            string in prop::collection::vec(any::<u8>(), 12..30),
            field in fields(), offset in 0..20_u64, value: i64,
        ) {
            let value = field.fit(value.into(), Overflow::Wrap).unwrap();
            let mut written = string.clone();
            field.write(&mut written, offset, value);
            prop_assert_eq!(field.read(&written, offset), value);
            let bit = |string: &[u8], at: u64| string[(at / 8) as usize] >> (7 - at % 8) & 1;
            for at in 0..string.len() as u64 * 8 {
                if !(offset..offset + u64::from(field.bits)).contains(&at) {
                    prop_assert_eq!(bit(&written, at), bit(&string, at));
                }
            }
        }

        #[test]
        fn fitting_values_are_within_limits(field in fields(), value: i64, by: i64) {
            let value = i128::from(value) + i128::from(by);
            let (min, max) = field.limits();
            for overflow in Overflow::ALL {
                match field.fit(value, overflow) {
                    Some(fitting) => {
                        prop_assert!((min..=max).contains(&fitting));
                        prop_assert!(fitting == value || !(min..=max).contains(&value));
                    }
                    None => prop_assert!(!(min..=max).contains(&value)),
                }
            }
        }
    }

    #[test]
    fn types_have_limits() {
        for text in ["i1", "i64", "u1", "u63"] {
            assert!(Field::parse(text.as_bytes()).is_ok(), "{text}");
        }
        for text in ["", "i", "u", "i0", "i65", "u64", "I8", "8", "u-1", "i08", "i8 ", "u256"] {
            assert_eq!(Field::parse(text.as_bytes()), Err(INVALID_TYPE), "{text}");
        }
    }
}
