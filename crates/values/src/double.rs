//! Doubles as Redis reads them (C's `strtod`) and prints them.

pub use base::double::{precise_text, text};

/// Bits of a double's mantissa.
const MANTISSA_BITS: i64 = 53;
/// Exponent of two of the greatest double.
const EXPONENT_MAX: i64 = 1_023;
/// Exponent of two of the smallest double with a whole mantissa.
const EXPONENT_MIN: i64 = -1_022;

/// Reads a score: decimal or hexadecimal, with exponent, or `inf`. `None` for all other text,
/// blanks, NaN, and numbers too large or too small.
#[must_use]
pub fn parse(text: &[u8]) -> Option<f64> {
    let value = read(text)?;
    let is_infinite = value.is_infinite() && !is_infinity(unsigned(text).1);
    let is_lost = value == 0.0 && has_digits(text);
    (!is_infinite && !is_lost).then_some(value)
}

/// Reads an end of a range of scores. As in Redis, blanks may stand in front, and a zero byte ends
/// the text. An empty text is 0, and numbers too large are infinite.
#[must_use]
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_blank(byte))?;
    read(&text[start..])
}

fn read(text: &[u8]) -> Option<f64> {
    let (is_negative, text) = unsigned(text);
    let magnitude = if is_infinity(text) {
        f64::INFINITY
    } else if let [b'0', b'x' | b'X', rest @ ..] = text {
        read_hexadecimal(rest)?
    } else {
        read_decimal(text)?
    };
    Some(if is_negative { -magnitude } else { magnitude })
}

/// The sign, and the text behind it.
fn unsigned(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

fn is_infinity(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity")
}

/// The mantissa is not zero.
fn has_digits(text: &[u8]) -> bool {
    let (_, text) = unsigned(text);
    let (mark, digits) = match text {
        [b'0', b'x' | b'X', rest @ ..] => (b'p', rest),
        rest => (b'e', rest),
    };
    let mantissa = digits.split(|byte| byte.to_ascii_lowercase() == mark).next();
    mantissa.unwrap_or_default().iter().any(|&byte| byte != b'0' && byte != b'.')
}

fn read_decimal(text: &[u8]) -> Option<f64> {
    // Rust reads the same numbers as C, and words besides.
    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E');
    let is_exponent = |at: usize| matches!(text.get(at), Some(b'e' | b'E'));
    let fits = |(at, byte): (usize, &u8)| {
        is_number(byte) || (matches!(byte, b'+' | b'-') && at > 0 && is_exponent(at - 1))
    };
    if !text.iter().enumerate().all(fits) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads the digits behind `0x`, rounded once: half to even.
fn read_hexadecimal(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
    let (digits, mut exponent) = match end {
        Some(end) => (&text[..end], read_exponent(&text[end + 1..])?),
        None => (text, 0),
    };
    let (mut mantissa, mut is_inexact, mut has_point, mut count) = (0_u64, false, false, 0);
    for &byte in digits {
        if byte == b'.' && !has_point {
            has_point = true;
            continue;
        }
        let digit = u64::from(char::from(byte).to_digit(16)?);
        count += 1;
        if mantissa < 1 << 60 {
            mantissa = mantissa << 4 | digit;
            exponent -= if has_point { 4 } else { 0 };
        } else {
            is_inexact |= digit > 0;
            exponent += if has_point { 0 } else { 4 };
        }
    }
    (count > 0).then(|| round(mantissa, is_inexact, exponent))
}

/// A decimal number; one that no double reaches stands for all greater ones.
fn read_exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = unsigned(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: i64, byte: &u8| (sum * 10 + i64::from(byte - b'0')).min(1 << 50);
    let magnitude = digits.iter().fold(0, add);
    Some(if is_negative { -magnitude } else { magnitude })
}

/// `mantissa * 2^exponent`, and a little more if it is inexact.
fn round(mantissa: u64, is_inexact: bool, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let bits = 64 - i64::from(mantissa.leading_zeros());
    let top = exponent + bits - 1;
    if top > EXPONENT_MAX {
        return f64::INFINITY;
    }
    let kept = MANTISSA_BITS.min(MANTISSA_BITS + top - EXPONENT_MIN);
    if kept < 0 {
        return 0.0;
    }
    let shift = bits - kept;
    if shift <= 0 {
        return scale(mantissa, exponent);
    }
    let wide = u128::from(mantissa);
    let (whole, rest, half) = (wide >> shift, wide & ((1 << shift) - 1), 1_u128 << (shift - 1));
    let is_above = rest > half || (rest == half && (is_inexact || whole & 1 == 1));
    scale(whole as u64 + u64::from(is_above), exponent + shift)
}

/// `whole * 2^exponent`, which is a double or infinite.
fn scale(whole: u64, exponent: i64) -> f64 {
    let power = |exponent: i64| 2_f64.powi(exponent as i32);
    // Two steps: a single power may be too small for a double.
    whole as f64 * power(exponent / 2) * power(exponent - exponent / 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scores_are_read_as_redis_reads_them() {
        for (text, value) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("+5", 5.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("1E-2", 0.01),
            ("0x10", 16.0),
            ("-0x.8p1", -1.0),
            ("0X1.8P+1", 3.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("+INF", f64::INFINITY),
            ("4e-324", 5e-324),
            ("0e-999", 0.0),
            ("0x0p-9999", 0.0),
            ("1.7976931348623157e308", f64::MAX),
            ("0x1.fffffffffffff7p1023", f64::MAX),
            ("0x0.0000000000001p-1022", 5e-324),
            ("0x1.0000000000000801p0", 1.000_000_000_000_000_2),
            ("0x1.00000000000008p0", 1.0),
        ] {
            assert_eq!(parse(text.as_bytes()).map(f64::to_bits), Some(value.to_bits()), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_scores() {
        for text in [
            "",
            " 1",
            "1 ",
            "1a",
            "nan",
            "-nan",
            "e5",
            ".",
            "-",
            "+",
            "1e",
            "1e+",
            "0x",
            "0xg",
            "0x1p",
            "--1",
            "1e400",
            "-1e400",
            "1e-400",
            "0x1p1024",
            "0x1p-1080",
            "1_0",
            "infin",
            "1\0",
            "0x1.8.1",
            "1e1.5",
            "+-1",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn bounds_are_read_with_less_care() {
        for (text, value) in [
            (&b""[..], Some(0.0)),
            (b" 5", Some(5.0)),
            (b"\t-1e400", Some(f64::NEG_INFINITY)),
            (b"1e-400", Some(0.0)),
            (b"2\0x", Some(2.0)),
            (b"\x002", Some(0.0)),
            (b" ", None),
            (b"5 ", None),
            (b"nan", None),
            (b"x", None),
        ] {
            assert_eq!(parse_bound(text), value, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn printed_scores_are_read(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            prop_assert_eq!(parse(text(value).as_bytes()).map(f64::to_bits), Some(bits));
        }

        #[test]
        fn hexadecimal_digits_are_exact(mantissa: u64, exponent in -1100..1000_i32) {
            let text = format!("0x{mantissa:x}p{exponent}");
            let expected = mantissa as f64 * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2);
            // Subnormal numbers would be rounded twice.
            prop_assume!(expected == 0.0 && mantissa == 0 || expected.is_normal());
            prop_assert_eq!(parse(text.as_bytes()), Some(expected));
        }

        #[test]
        fn noise_is_read_or_refused(text: Vec<u8>) {
            let _ = (parse(&text), parse_bound(&text));
        }
    }
}
