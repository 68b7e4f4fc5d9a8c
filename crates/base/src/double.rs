//! Doubles as Redis 7.4 prints them (`d2string`, `%.17Lg`).
//!
//! Redis prints digits by Grisu2, which rarely misses the shortest text that reads back. Clients
//! compare texts, so this is Grisu2 too: Florian Loitsch, "Printing Floating-Point Numbers Quickly
//! and Accurately with Integers", 2010.

mod powers;

use powers::Scaled;

/// Redis prints whole numbers up to this magnitude digit by digit.
const WHOLE_MAX: f64 = (1_u64 << 62) as f64;
/// Zeros behind the digits that need no exponent.
const ZEROS_MAX: i32 = 7;
/// Digits of [`precise_text`].
const PRECISION: i32 = 17;

/// A short text that reads back as `value`, as Redis shows scores.
#[must_use]
pub fn text(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    if value.abs() <= WHOLE_MAX && value.fract() == 0.0 {
        return (value as i64).to_string();
    }
    let (digits, exponent) = digits(value.abs());
    let sign = if value.is_sign_negative() { "-" } else { "" };
    format!("{sign}{}", layout(&digits, exponent))
}

/// C's `%.17Lg`.
#[must_use]
pub fn precise_text(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let scientific = format!("{:.*e}", PRECISION as usize - 1, value.abs());
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = digits.replace('.', "");
    let digits = digits.trim_end_matches('0');
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let last = exponent + 1 - digits.len() as i32;
    if (-4..PRECISION).contains(&exponent) {
        return format!("{sign}{}", fixed(digits, last));
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{direction}{:02}", exponent.abs())
}

fn special(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_nan() => Some("nan"),
        f64::INFINITY => Some("inf"),
        f64::NEG_INFINITY => Some("-inf"),
        0.0 => Some(if value.is_sign_negative() { "-0" } else { "0" }),
        _ => None,
    }
}

/// `digits * 10^last`, with an exponent where Redis prints one.
fn layout(digits: &str, last: i32) -> String {
    let first = last + digits.len() as i32 - 1;
    let is_fixed = if last >= 0 { last <= ZEROS_MAX } else { last > -ZEROS_MAX || first.abs() < 4 };
    if is_fixed {
        return fixed(digits, last);
    }
    let (head, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let direction = if first < 0 { '-' } else { '+' };
    format!("{head}{point}{rest}e{direction}{}", first.abs())
}

/// `digits * 10^last` without an exponent.
fn fixed(digits: &str, last: i32) -> String {
    if let Ok(zeros) = usize::try_from(last) {
        return format!("{digits}{}", "0".repeat(zeros));
    }
    let fraction = last.unsigned_abs() as usize;
    match digits.len().checked_sub(fraction) {
        Some(whole @ 1..) => format!("{}.{}", &digits[..whole], &digits[whole..]),
        _ => format!("0.{}{digits}", "0".repeat(fraction - digits.len())),
    }
}

/// Digits of a positive number, and the power of ten of the last one: Grisu2.
fn digits(value: f64) -> (String, i32) {
    let exact = Scaled::of(value);
    let (lower, upper) = exact.boundaries();
    let (power, ten) = powers::for_exponent(upper.exponent);
    let scaled = exact.normalized().times(power);
    let (mut lower, mut upper) = (lower.times(power), upper.times(power));
    lower.mantissa += 1;
    upper.mantissa -= 1;
    let mut generator = Generator {
        digits: Vec::with_capacity(PRECISION as usize + 1),
        delta: upper.mantissa - lower.mantissa,
        distance: upper.mantissa - scaled.mantissa,
    };
    let last = generator.run(upper) - ten;
    let digits = generator.digits.iter().map(|&digit| char::from(b'0' + digit)).collect();
    (digits, last)
}

/// Prints the upper boundary until the rest is within the interval.
struct Generator {
    digits: Vec<u8>,
    /// Width of the interval.
    delta: u64,
    /// From the upper boundary down to the number.
    distance: u64,
}

impl Generator {
    /// The power of ten of the last digit.
    fn run(&mut self, upper: Scaled) -> i32 {
        // The chosen power of ten leaves an exponent of -60 to -32.
        let shift = upper.exponent.unsigned_abs();
        let one = 1_u64 << shift;
        let (mut whole, mut fraction) = (upper.mantissa >> shift, upper.mantissa & (one - 1));
        for power in (0..10).rev() {
            let unit = 10_u64.pow(power);
            self.push(whole / unit);
            whole %= unit;
            let rest = (whole << shift) + fraction;
            if rest <= self.delta {
                self.round(rest, unit << shift);
                return power.cast_signed();
            }
        }
        let mut power = 0;
        loop {
            fraction *= 10;
            self.delta *= 10;
            self.distance = self.distance.wrapping_mul(10);
            power -= 1;
            self.push(fraction >> shift);
            fraction &= one - 1;
            if fraction < self.delta {
                self.round(fraction, one);
                return power;
            }
        }
    }

    fn push(&mut self, digit: u64) {
        if digit > 0 || !self.digits.is_empty() {
            self.digits.push(digit as u8);
        }
    }

    /// Lowers the last digit while that comes closer to the number.
    fn round(&mut self, mut rest: u64, unit: u64) {
        let Some(last) = self.digits.last_mut() else { return };
        let distance = self.distance;
        while rest < distance
            && self.delta - rest >= unit
            && (rest + unit < distance || distance - rest > rest + unit - distance)
        {
            *last -= 1;
            rest += unit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    /// Texts that redis-server 7.4.1 answers.
    #[test]
    fn texts_are_those_of_redis() {
        for (value, expected) in [
            (0.1, "0.1"),
            (3.0, "3"),
            (-0.0, "-0"),
            (1e20, "1e+20"),
            (1e18, "1000000000000000000"),
            (1e19, "1e+19"),
            (1e-7, "1e-7"),
            (1.5e-6, "1.5e-6"),
            (1.25e-7, "1.25e-7"),
            (0.000_001, "0.000001"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            // Not the shortest text, but Redis'.
            (1e23, "99999999999999990000000"),
            (9_223_372_036_854_775_808.0, "9223372036854776000"),
            (1234.5678, "1234.5678"),
            (2.5e25, "2.5e+25"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn precise_texts_have_17_digits() {
        for (value, expected) in [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (1e20, "1e+20"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (0.0001, "0.0001"),
            (0.000_01, "1.0000000000000001e-05"),
            (1e-7, "9.9999999999999995e-08"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            assert_eq!(precise_text(value), expected);
        }
    }

    #[test]
    fn texts_read_back() {
        let mut prng = Prng::new(1);
        for _ in 0..100_000 {
            let value = f64::from_bits(prng.next_u64());
            if value.is_finite() {
                assert_eq!(text(value).parse::<f64>(), Ok(value));
                assert_eq!(precise_text(value).parse::<f64>(), Ok(value));
            }
        }
    }
}
