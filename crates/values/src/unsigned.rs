//! Whole numbers of any size: only the arithmetic that [`float`](crate::float) needs.
//!
//! Callers bound sizes to a few hundred limbs.

use std::cmp::Ordering;

/// Largest power of ten in a limb, and its exponent.
const TEN_POWER: u64 = 10_000_000_000_000_000_000;
const TEN_POWER_DIGITS: usize = 19;

/// Little-endian limbs without leading zeros.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unsigned {
    limbs: Vec<u64>,
}

impl From<u64> for Unsigned {
    fn from(value: u64) -> Unsigned {
        Unsigned { limbs: vec![value] }.trimmed()
    }
}

impl Unsigned {
    /// `digits` are ASCII decimal digits.
    pub(crate) fn from_digits(digits: impl Iterator<Item = u8>) -> Unsigned {
        let mut number = Unsigned::default();
        let (mut chunk, mut power) = (0_u64, 1_u64);
        for digit in digits {
            chunk = chunk * 10 + u64::from(digit - b'0');
            power *= 10;
            if power == TEN_POWER {
                number.multiply_add(power, chunk);
                (chunk, power) = (0, 1);
            }
        }
        number.multiply_add(power, chunk);
        number
    }

    pub(crate) fn power_of_ten(exponent: usize) -> Unsigned {
        let mut number = Unsigned::from(1);
        number.multiply_power_of_ten(exponent);
        number
    }

    pub(crate) fn multiply_power_of_ten(&mut self, exponent: usize) {
        for _ in 0..exponent / TEN_POWER_DIGITS {
            self.multiply_add(TEN_POWER, 0);
        }
        self.multiply_add(10_u64.pow((exponent % TEN_POWER_DIGITS) as u32), 0);
    }

    /// `self * factor + term`.
    pub(crate) fn multiply_add(&mut self, factor: u64, term: u64) {
        let mut carry = u128::from(term);
        for limb in &mut self.limbs {
            let wide = u128::from(*limb) * u128::from(factor) + carry;
            *limb = wide as u64;
            carry = wide >> 64;
        }
        if carry != 0 {
            self.limbs.push(carry as u64);
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    /// Bits up to the highest that is set.
    pub(crate) fn bit_len(&self) -> i64 {
        let top = self.limbs.last().map_or(0, |limb| i64::from(limb.leading_zeros()));
        64 * self.limbs.len() as i64 - top
    }

    pub(crate) fn shifted_left(&self, bits: usize) -> Unsigned {
        if self.is_zero() {
            return Unsigned::default();
        }
        let (whole, part) = (bits / 64, bits % 64);
        let mut limbs = vec![0; whole];
        let mut carry = 0;
        for &limb in &self.limbs {
            limbs.push(limb << part | carry);
            carry = if part == 0 { 0 } else { limb >> (64 - part) };
        }
        limbs.push(carry);
        Unsigned { limbs }.trimmed()
    }

    pub(crate) fn halve(&mut self) {
        let mut carry = 0;
        for limb in self.limbs.iter_mut().rev() {
            let low = *limb << 63;
            *limb = *limb >> 1 | carry;
            carry = low;
        }
        self.trim();
    }

    pub(crate) fn plus(&self, other: &Unsigned) -> Unsigned {
        let len = self.limbs.len().max(other.limbs.len());
        let mut limbs = Vec::with_capacity(len + 1);
        let mut carry = 0_u128;
        for index in 0..len {
            let wide = u128::from(self.limb(index)) + u128::from(other.limb(index)) + carry;
            limbs.push(wide as u64);
            carry = wide >> 64;
        }
        limbs.push(carry as u64);
        Unsigned { limbs }.trimmed()
    }

    /// # Panics
    /// If `other` is larger.
    pub(crate) fn subtract(&mut self, other: &Unsigned) {
        let mut borrow = false;
        for index in 0..self.limbs.len() {
            let (rest, first) = self.limbs[index].overflowing_sub(other.limb(index));
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            self.limbs[index] = rest;
            borrow = first || second;
        }
        assert!(!borrow && other.limbs.len() <= self.limbs.len(), "a difference below zero");
        self.trim();
    }

    /// Bits `low..low + 64`.
    pub(crate) fn window(&self, low: usize) -> u64 {
        let (whole, part) = (low / 64, low % 64);
        let high = if part == 0 { 0 } else { self.limb(whole + 1) << (64 - part) };
        self.limb(whole) >> part | high
    }

    /// Whether a bit below `bit` is set.
    pub(crate) fn has_bits_below(&self, bit: usize) -> bool {
        let (whole, part) = (bit / 64, bit % 64);
        let low = self.limbs.iter().take(whole).any(|&limb| limb != 0);
        low || self.limb(whole) & ((1 << part) - 1) != 0
    }

    pub(crate) fn to_decimal(&self) -> String {
        let mut rest = self.clone();
        let mut chunks = Vec::new();
        while !rest.is_zero() {
            chunks.push(rest.divide_by_ten_power());
        }
        let Some(first) = chunks.pop() else { return "0".to_string() };
        let mut text = first.to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:019}"));
        }
        text
    }

    fn divide_by_ten_power(&mut self) -> u64 {
        let mut remainder = 0_u128;
        for limb in self.limbs.iter_mut().rev() {
            let wide = remainder << 64 | u128::from(*limb);
            *limb = (wide / u128::from(TEN_POWER)) as u64;
            remainder = wide % u128::from(TEN_POWER);
        }
        self.trim();
        remainder as u64
    }

    fn limb(&self, index: usize) -> u64 {
        self.limbs.get(index).copied().unwrap_or(0)
    }

    fn trimmed(mut self) -> Unsigned {
        self.trim();
        self
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }
}

impl PartialOrd for Unsigned {
    fn partial_cmp(&self, other: &Unsigned) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Unsigned {
    fn cmp(&self, other: &Unsigned) -> Ordering {
        let by_len = self.limbs.len().cmp(&other.limbs.len());
        by_len.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wide(value: u128) -> Unsigned {
        Unsigned { limbs: vec![value as u64, (value >> 64) as u64] }.trimmed()
    }

    proptest! {
        #[test]
        fn arithmetic_is_that_of_128_bits(a: u128, b: u128, shift in 0..128_usize) {
            let (a, b) = (a >> 1, b >> 1);
            prop_assert_eq!(wide(a).plus(&wide(b)), wide(a + b));
            prop_assert_eq!(wide(a).cmp(&wide(b)), a.cmp(&b));
            let mut difference = wide(a.max(b));
            difference.subtract(&wide(a.min(b)));
            prop_assert_eq!(difference, wide(a.abs_diff(b)));
            prop_assert_eq!(wide(a >> shift).shifted_left(shift), wide(a >> shift << shift));
            let mut half = wide(a);
            half.halve();
            prop_assert_eq!(half, wide(a >> 1));
            prop_assert_eq!(wide(a).bit_len(), i64::from(128 - a.leading_zeros()));
            prop_assert_eq!(wide(a).window(shift), (a >> shift) as u64);
            prop_assert_eq!(wide(a).has_bits_below(shift), a & ((1 << shift) - 1) != 0);
        }

        #[test]
        fn decimal_text_comes_back(digits in "[1-9][0-9]{0,120}") {
            let number = Unsigned::from_digits(digits.bytes());
            prop_assert_eq!(number.to_decimal(), digits);
        }
    }

    #[test]
    fn powers_of_ten_are_exact() {
        for exponent in [0, 1, 18, 19, 20, 100] {
            let text = Unsigned::power_of_ten(exponent).to_decimal();
            assert_eq!(text, format!("1{}", "0".repeat(exponent)));
        }
    }
}
