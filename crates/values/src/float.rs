//! Decimal fractions as Redis counts them: x87 extended precision, 64 bits of mantissa.
//!
//! `INCRBYFLOAT` and `HINCRBYFLOAT` of Redis 7 read with `strtold`, add `long double`s and print
//! `%.17Lf` without trailing zeros. On x86-64 that is IEEE 754 extended precision, which Rust
//! lacks. Whole numbers emulate it here, exactly rounded, so each machine prints the text of
//! redis-server. Only reading, adding and printing; as fast as a counter needs.

use crate::unsigned::Unsigned;

/// Bits of a mantissa.
const MANTISSA_BITS: i64 = 64;
/// Exponent of the smallest subnormal.
const EXPONENT_MIN: i64 = -16_445;
/// Numbers reach below two to this power.
const MAGNITUDE_BITS_MAX: i64 = 16_384;
/// Redis reads no longer text (`MAX_LONG_DOUBLE_CHARS`).
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;
/// Digits behind the point that Redis prints.
const FRACTION_DIGITS: usize = 17;
/// Decimal exponents beyond which a number is surely infinite or zero.
const DECIMAL_EXPONENT_MAX: i64 = 4_940;

/// A number of extended precision, or an infinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extended {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Magnitude {
    /// `mantissa * 2^exponent`, with `exponent >= EXPONENT_MIN`.
    Finite {
        mantissa: u64,
        exponent: i64,
    },
    Infinite,
}

impl Extended {
    pub const ZERO: Extended =
        Extended { negative: false, magnitude: Magnitude::Finite { mantissa: 0, exponent: 0 } };

    /// Reads the language of C's `strtold`: decimal or hexadecimal, with exponent, or `inf`. `None`
    /// for all other text, blanks, NaN, and numbers too large or too small.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Extended> {
        if text.len() > TEXT_LEN_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let magnitude = if [b"inf".as_slice(), b"infinity"].iter().any(|word| is(text, word)) {
            Magnitude::Infinite
        } else if let Some(hexadecimal) = strip_hex_mark(text) {
            parse_hexadecimal(hexadecimal)?
        } else {
            parse_decimal(text)?
        };
        Some(Extended { negative, magnitude })
    }

    #[must_use]
    pub fn is_finite(self) -> bool {
        self.finite().is_some()
    }

    /// The sum, `None` when it is no finite number.
    #[must_use]
    pub fn plus(self, other: Extended) -> Option<Extended> {
        let (a_mantissa, a_exponent) = self.finite()?;
        let (b_mantissa, b_exponent) = other.finite()?;
        let exponent = a_exponent.min(b_exponent);
        let aligned = |mantissa: u64, from: i64| {
            Unsigned::from(mantissa).shifted_left((from - exponent) as usize)
        };
        let (a, b) = (aligned(a_mantissa, a_exponent), aligned(b_mantissa, b_exponent));
        let (negative, sum) = if self.negative == other.negative {
            (self.negative, a.plus(&b))
        } else {
            let (negative, mut larger, smaller) =
                if a >= b { (self.negative, a, b) } else { (other.negative, b, a) };
            larger.subtract(&smaller);
            (negative, larger)
        };
        match round(&sum, exponent, false) {
            Magnitude::Infinite => None,
            magnitude => Some(Extended { negative, magnitude }),
        }
    }

    fn finite(self) -> Option<(u64, i64)> {
        match self.magnitude {
            Magnitude::Finite { mantissa, exponent } => Some((mantissa, exponent)),
            Magnitude::Infinite => None,
        }
    }
}

/// `%.17Lf` without trailing zeros, as Redis' `ld2string` in human mode.
impl std::fmt::Display for Extended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = match self.magnitude {
            Magnitude::Infinite => "inf".to_string(),
            Magnitude::Finite { mantissa, exponent: exponent @ 0.. } => {
                Unsigned::from(mantissa).shifted_left(exponent as usize).to_decimal()
            }
            Magnitude::Finite { mantissa, exponent } => fixed_point(mantissa, -exponent),
        };
        // Redis prints no minus zero.
        let sign = if self.negative && digits != "0" { "-" } else { "" };
        write!(f, "{sign}{digits}")
    }
}

/// `mantissa / 2^shift` with 17 digits behind the point, half to even, trailing zeros removed.
fn fixed_point(mantissa: u64, shift: i64) -> String {
    let unit = 10_u128.pow(FRACTION_DIGITS as u32);
    // Below 2^121, so a shift of 128 or more leaves less than half of the last digit.
    let scaled = u128::from(mantissa) * unit;
    let rounded = if shift >= 128 {
        0
    } else {
        let (quotient, remainder) = (scaled >> shift, scaled & ((1 << shift) - 1));
        let half = 1 << (shift - 1);
        let up = remainder > half || (remainder == half && quotient & 1 == 1);
        quotient + u128::from(up)
    };
    let text = format!("{}.{:017}", rounded / unit, rounded % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The number nearest to `number * 2^exponent`, half to even.
///
/// `sticky` marks a number that is slightly larger; it then has more bits than a mantissa.
fn round(number: &Unsigned, exponent: i64, sticky: bool) -> Magnitude {
    let dropped = (number.bit_len() - MANTISSA_BITS).max(EXPONENT_MIN - exponent).max(0);
    let (mut mantissa, mut exponent) = (number.window(dropped as usize), exponent + dropped);
    if dropped > 0 {
        let half_bit = dropped as usize - 1;
        let half = number.window(half_bit) & 1 == 1;
        let more = sticky || number.has_bits_below(half_bit);
        if half && (more || mantissa & 1 == 1) {
            mantissa = mantissa.wrapping_add(1);
            if mantissa == 0 {
                (mantissa, exponent) = (1 << 63, exponent + 1);
            }
        }
    }
    let bits = MANTISSA_BITS - i64::from(mantissa.leading_zeros());
    if bits + exponent > MAGNITUDE_BITS_MAX && mantissa != 0 {
        return Magnitude::Infinite;
    }
    Magnitude::Finite { mantissa, exponent }
}

/// Zero that was written as zero is a number; a number that became zero, or infinite, is none.
fn in_range(magnitude: Magnitude) -> Option<Magnitude> {
    match magnitude {
        Magnitude::Infinite | Magnitude::Finite { mantissa: 0, .. } => None,
        finite => Some(finite),
    }
}

fn parse_decimal(text: &[u8]) -> Option<Magnitude> {
    let parts = NumberParts::split(text, b'e', u8::is_ascii_digit)?;
    let digits = parts.significant();
    let count = digits.len() as i64;
    if count == 0 {
        return Some(Magnitude::Finite { mantissa: 0, exponent: 0 });
    }
    // The number is 0.digits * 10^place.
    let exponent = parts.exponent.saturating_sub(parts.fraction.len() as i64);
    let place = exponent.saturating_add(count);
    if place.abs() > DECIMAL_EXPONENT_MAX + MANTISSA_BITS {
        return None;
    }
    let mut number = Unsigned::from_digits(digits.into_iter());
    if exponent >= 0 {
        number.multiply_power_of_ten(exponent as usize);
        return in_range(round(&number, 0, false));
    }
    let (quotient, shift, sticky) = divide(number, Unsigned::power_of_ten(-exponent as usize));
    in_range(round(&quotient, shift, sticky))
}

/// `dividend / divisor` as `(quotient, shift, sticky)`: `quotient * 2^shift`, and a little more if
/// sticky. The quotient has 66 to 68 bits, so that it can be rounded to 64.
fn divide(dividend: Unsigned, divisor: Unsigned) -> (Unsigned, i64, bool) {
    const QUOTIENT_BITS: i64 = 67;
    let shift = dividend.bit_len() - divisor.bit_len() - QUOTIENT_BITS;
    let mut rest = dividend.shifted_left(usize::try_from(-shift).unwrap_or(0));
    let divisor = divisor.shifted_left(usize::try_from(shift).unwrap_or(0));
    let mut step = divisor.shifted_left(QUOTIENT_BITS as usize + 1);
    let mut quotient = 0_u128;
    for _ in 0..=QUOTIENT_BITS + 1 {
        quotient <<= 1;
        if rest >= step {
            rest.subtract(&step);
            quotient |= 1;
        }
        step.halve();
    }
    let high = Unsigned::from((quotient >> 64) as u64).shifted_left(64);
    (high.plus(&Unsigned::from(quotient as u64)), shift, !rest.is_zero())
}

fn parse_hexadecimal(text: &[u8]) -> Option<Magnitude> {
    let parts = NumberParts::split(text, b'p', u8::is_ascii_hexdigit)?;
    let digits = parts.significant();
    if digits.is_empty() {
        return Some(Magnitude::Finite { mantissa: 0, exponent: 0 });
    }
    let mut number = Unsigned::default();
    for digit in &digits {
        number.multiply_add(16, char::from(*digit).to_digit(16).map_or(0, u64::from));
    }
    let exponent = parts.exponent.saturating_sub(4 * parts.fraction.len() as i64);
    let bits = exponent.saturating_add(number.bit_len());
    if !(EXPONENT_MIN - 1..=MAGNITUDE_BITS_MAX).contains(&bits) {
        return None;
    }
    in_range(round(&number, exponent, false))
}

/// A written number, taken apart: `whole.fraction` and an exponent.
struct NumberParts<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> NumberParts<'a> {
    fn split(text: &'a [u8], mark: u8, is_digit: fn(&u8) -> bool) -> Option<NumberParts<'a>> {
        let (whole, rest) = take_while(text, is_digit);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => take_while(rest, is_digit),
            rest => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [letter, exponent @ ..] if letter.eq_ignore_ascii_case(&mark) => {
                parse_exponent(exponent)?
            }
            _ => return None,
        };
        Some(NumberParts { whole, fraction, exponent })
    }

    /// Digits without leading zeros.
    fn significant(&self) -> Vec<u8> {
        let digits = self.whole.iter().chain(self.fraction).copied();
        digits.skip_while(|&digit| digit == b'0').collect()
    }
}

fn take_while(text: &[u8], is_digit: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !is_digit(byte)).unwrap_or(text.len());
    text.split_at(end)
}

/// Saturates: exponents that large are out of range whatever the digits.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0_i64, |exponent, &digit| {
        (exponent * 10 + i64::from(digit - b'0')).min(1_000_000_000)
    });
    Some(if negative { -magnitude } else { magnitude })
}

fn is(text: &[u8], word: &[u8]) -> bool {
    text.eq_ignore_ascii_case(word)
}

fn strip_hex_mark(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'0', b'x' | b'X', rest @ ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let (a, b) = (Extended::parse(a.as_bytes())?, Extended::parse(b.as_bytes())?);
        Some(a.plus(b)?.to_string())
    }

    fn check(a: &str, b: &str, expected: &str) {
        assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
    }

    #[test]
    fn sums_read_as_a_person_would_write_them() {
        check("10.5", "0.1", "10.6");
        check("5.0e3", "2.0e2", "5200");
        check("3.0", "1.1", "4.1");
        check("0.1", "0.2", "0.3");
        check("1.5", "-1.5", "0");
        check("-0", "0", "0");
        check("0", "-0.25", "-0.25");
        check("1e17", "0.5", "100000000000000000.5");
    }

    /// Replies of redis-server 7.0.15 on x86-64 to `INCRBYFLOAT`.
    #[test]
    fn sums_have_the_digits_of_extended_precision() {
        check("17179869184", "1.5", "17179869185.5");
        check("1", "1e-17", "1.00000000000000001");
        check("1e30", "0.5", "1000000000000000000024696061952");
        check("0.1", "1e10", "10000000000.09999999962747097");
        check("5.5e-18", "0", "0.00000000000000001");
        check("3.14159265358979323846", "2.71828182845904523536", "5.85987448204883847");
        check("0x1.8p3", "0", "12");
        check("1e-4950", "0", "0");
    }

    #[test]
    fn other_spellings_are_read_as_c_reads_them() {
        for (text, value) in [
            ("+5", "5"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1E+2", "100"),
            ("0X.8P1", "1"),
            ("0e9999", "0"),
        ] {
            check(text, "0", value);
        }
        assert!(Extended::parse(b"-Infinity").is_some());
    }

    #[test]
    fn other_words_are_no_numbers() {
        for text in [
            "",
            " 1",
            "1 ",
            "abc",
            ".",
            "+",
            "1e",
            "1e+",
            "0x",
            "0x.",
            "0x1p",
            "1.2.3",
            "--1",
            "nan",
            "infi",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "1_0",
            "1e999999999999999999999",
            "0x1p99999",
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Extended::parse(&[b'1'; TEXT_LEN_MAX + 1]), None);
    }

    #[test]
    fn infinities_have_no_sum() {
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1.1e4932", "1.1e4932"), None);
        assert_eq!(sum("1.1e4932", "-1.1e4932").as_deref(), Some("0"));
    }

    proptest! {
        #[test]
        fn whole_numbers_add_exactly(a: i32, b: i32) {
            let expected = (i64::from(a) + i64::from(b)).to_string();
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), Some(expected));
        }

        /// Below ten the error is far below the last printed digit. (435.779 + 4.602 ends in 1, in
        /// Redis too.)
        #[test]
        fn short_fractions_add_exactly(a in -9_999_i64..9_999, b in -9_999_i64..9_999) {
            let text = |n: i64| format!("{}{}.{:03}", if n < 0 { "-" } else { "" }, n.abs() / 1000, n.abs() % 1000);
            let trimmed = text(a + b);
            let trimmed = trimmed.trim_end_matches('0').trim_end_matches('.');
            let expected = if trimmed == "-0" { "0" } else { trimmed };
            prop_assert_eq!(sum(&text(a), &text(b)), Some(expected.to_string()));
        }

        #[test]
        fn doubles_are_read_as_doubles(value in 1.0..1e15_f64) {
            let exact = format!("{value:.60}");
            let printed = Extended::parse(exact.as_bytes()).map(|v| v.to_string());
            prop_assert_eq!(printed.and_then(|p| p.parse::<f64>().ok()), Some(value));
        }

        #[test]
        fn noise_panics_nowhere(text in "[-+]?(0x)?[0-9a-fA-F.]{0,30}([ep][-+]?[0-9]{0,6})?") {
            let _ = sum(&text, "1");
            let _ = sum("-1e4000", &text);
        }
    }
}
