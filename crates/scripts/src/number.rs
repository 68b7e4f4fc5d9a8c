//! Numbers as text, in the manner of C.

/// `%.14g`, as Lua shows numbers.
pub(crate) const LUA_DIGITS: usize = 14;

/// `%.{digits}g`.
pub(crate) fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf".into() } else { "inf".into() };
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let mantissa = trimmed(mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

fn trimmed(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// The conversion of C on x86-64: a number beyond the limits becomes the least one.
pub(crate) fn to_i64(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}

/// The number at the front of a text, in the manner of `strtod`, and its length.
pub(crate) fn prefix(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let is_negative = text.first() == Some(&b'-');
    let rest = &text[sign..];
    let signed = |value: f64| if is_negative { -value } else { value };
    let starts =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word));
    for (word, value) in
        [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)]
    {
        if starts(word) {
            return Some((signed(value), sign + word.len()));
        }
    }
    if starts(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let (value, len) = hexadecimal(&rest[2..]);
        return Some((signed(value), sign + 2 + len));
    }
    let len = decimal_len(rest)?;
    let value: f64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((signed(value), sign + len))
}

fn hexadecimal(digits: &[u8]) -> (f64, usize) {
    let mut value = 0.0;
    let mut len = 0;
    while let Some(digit) = digits.get(len).and_then(|&byte| char::from(byte).to_digit(16)) {
        value = value * 16.0 + f64::from(digit);
        len += 1;
    }
    (value, len)
}

fn decimal_len(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| {
        text.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let whole = digits(0);
    let mut len = whole;
    let mut fraction = 0;
    if text.get(len) == Some(&b'.') {
        fraction = digits(len + 1);
        if whole + fraction > 0 {
            len += 1 + fraction;
        }
    }
    if whole + fraction == 0 {
        return None;
    }
    if matches!(text.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_form_is_that_of_c() {
        for (value, digits, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1.0, 14, "1"),
            (0.1, 14, "0.1"),
            (1e14, 14, "1e+14"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (1e-4, 14, "0.0001"),
            (1e-5, 14, "1e-05"),
            (123_456.789, 3, "1.23e+05"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (9.999_999_999_999_99, 14, "10"),
            (1e300, 14, "1e+300"),
            (f64::INFINITY, 14, "inf"),
        ] {
            assert_eq!(general(value, digits), text, "{value}");
        }
    }

    #[test]
    fn prefixes_end_where_the_number_ends() {
        for (text, value, len) in [
            ("1,", 1.0, 1),
            ("-1.5e3]", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            ("0x1F ", 31.0, 4),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            ("Infinityx", f64::INFINITY, 8),
        ] {
            assert_eq!(prefix(text.as_bytes()), Some((value, len)), "{text}");
        }
        for text in ["", "-", ".", "e5", "x"] {
            assert_eq!(prefix(text.as_bytes()), None, "{text}");
        }
    }
}
