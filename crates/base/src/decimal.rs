//! Whole numbers in decimal, read as strictly as Redis reads them (`string2ll`, Redis 7).
//!
//! A number has one spelling, so text and number may stand for each other.
//! Plus signs, leading zeros, spaces and minus zero are errors.

/// Longest text of an `i64`: a sign and nineteen digits.
pub const TEXT_LEN_MAX: usize = 20;

/// The number that `text` spells; `None` unless `text` is the one spelling of an `i64`.
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if text.len() <= TEXT_LEN_MAX => {}
        _ => return None,
    }
    let mut magnitude = 0_u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_spelling() {
        for value in [0, 1, -1, 10, -90, i64::MAX, i64::MIN] {
            assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }
        for text in ["", "-", "+1", "01", "-0", "00", " 1", "1 ", "1a", "0x1", "1.0", "--1"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        for text in [
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }
}
