//! Sizes and times as they are typed: a number with a unit, or a bare number in the option's own
//! unit.
//!
//! Sizes follow `redis.conf`: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` powers of 1024.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// The paragraph of `--help` on sizes and times.
pub(crate) const HELP: &str = "Sizes are bytes, or take a unit as in redis.conf: 64MB = 64MiB = 64 * 1024 * 1024, 64M = 64 * 1000 * 1000; \
    also K, KB, G, GB, T, TB, in any case.\n\
    Times take ms, s, m, h or d, as in 500ms, 2s or 1h 30m; a bare number has the unit that the option names.";

const SIZE_UNITS: [(&str, u64); 13] = [
    ("b", 1),
    ("k", 1_000),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1_000_000_000_000),
    ("tb", 1 << 40),
    ("tib", 1 << 40),
];

/// Digits behind the point of a size.
const FRACTION_LEN_MAX: usize = 6;

/// A number of bytes: `4096`, `64MB`, `1.5GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no size: write bytes, or a unit as in 64MB, 64MiB or 1GB");
    let trimmed = text.trim();
    let unit_at = trimmed.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = trimmed.split_at(unit_at.unwrap_or(trimmed.len()));
    let unit = unit.trim().to_ascii_lowercase();
    let scale = match unit.as_str() {
        "" => 1,
        unit => SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?.1,
    };
    scaled(number, scale).ok_or_else(bad)
}

/// `number` times `scale`; a fraction of a byte is cut off.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > FRACTION_LEN_MAX || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let part = match fraction {
        "" => 0,
        digits => {
            let part = digits.parse::<u128>().ok()? * u128::from(scale);
            u64::try_from(part / 10_u128.pow(digits.len() as u32)).ok()?
        }
    };
    whole.checked_add(part)
}

/// [`bytes`] that fit in memory.
pub(crate) fn memory(text: &str) -> Result<usize, String> {
    usize::try_from(bytes(text)?)
        .map_err(|_| format!("{text:?} is more than this machine can hold"))
}

/// Milliseconds: `1500`, `1500ms`, `2s`.
pub(crate) fn millis(text: &str) -> Result<u64, String> {
    time(text, Duration::from_millis(1)).map(|time| time.as_millis() as u64)
}

/// A time whose bare number counts seconds: `3`, `0.5`, `500ms`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_secs(1))
}

fn time(text: &str, unit: Duration) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no time: write a unit as in 500ms, 2s, 10m, 1h or 1d");
    let trimmed = text.trim();
    let is_bare = !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let time = if is_bare {
        let per_second = (Duration::from_secs(1).as_nanos() / unit.as_nanos()) as f64;
        let number = trimmed.parse::<f64>().map_err(|_| bad())?;
        Duration::try_from_secs_f64(number / per_second).map_err(|_| bad())?
    } else {
        // In this notation `M` is a month, and an upper-case letter is a slip more likely than
        // that.
        humantime::parse_duration(&trimmed.to_ascii_lowercase()).map_err(|_| bad())?
    };
    if time.as_millis() > u128::from(u64::MAX) { Err(bad()) } else { Ok(time) }
}

/// Bytes with the largest unit that leaves no remainder: `64MB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = [("TB", 1_u64 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];
    let exact = units.iter().find(|(_, scale)| bytes > 0 && bytes.is_multiple_of(*scale));
    exact.map_or_else(
        || format!("{bytes} bytes"),
        |(name, scale)| format!("{}{name}", bytes / scale),
    )
}

/// `10m`, `1s 500ms`.
pub(crate) fn show_millis(millis: u64) -> String {
    match millis {
        0 => "0ms".into(),
        _ => humantime::format_duration(Duration::from_millis(millis)).to_string(),
    }
}

/// The same values in the file: a number, or a text with a unit.
pub(crate) mod file {
    use super::{Deserializer, NumberOrText, bytes, memory, millis};

    pub(crate) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        from.deserialize_any(NumberOrText::new("a size such as \"64MB\"", bytes)).map(Some)
    }

    pub(crate) fn memory_size<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<usize>, D::Error> {
        from.deserialize_any(NumberOrText::new("a size such as \"64MB\"", memory)).map(Some)
    }

    pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        from.deserialize_any(NumberOrText::new("a time such as \"2s\"", millis)).map(Some)
    }
}

struct NumberOrText<T> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
    value: PhantomData<T>,
}

impl<T> NumberOrText<T> {
    fn new(expected: &'static str, parse: fn(&str) -> Result<T, String>) -> NumberOrText<T> {
        NumberOrText { expected, parse, value: PhantomData }
    }
}

impl<T> Visitor<'_> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number or {}", self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_the_units_of_redis() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("10b", 10),
            ("1k", 1_000),
            ("1kb", 1 << 10),
            ("1KiB", 1 << 10),
            ("64M", 64_000_000),
            ("64MB", 64 << 20),
            ("64 mb", 64 << 20),
            ("64MiB", 64 << 20),
            ("1GB", 1 << 30),
            ("1.5gb", 3 << 29),
            ("0.5k", 500),
            ("2TB", 2 << 40),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn sizes_that_mean_nothing_are_refused_with_an_example() {
        for text in ["", "MB", "-1", "1XB", "1.MB", ".5MB", "1..5MB", "1e3", "99999999999TB", "1 2"]
        {
            let why = bytes(text).expect_err(text);
            assert!(why.contains(&format!("{text:?}")) && why.contains("64MB"), "{why}");
        }
    }

    #[test]
    fn times_take_units_and_bare_numbers_keep_theirs() {
        for (text, expected) in [
            ("1500", 1_500),
            ("0", 0),
            ("500ms", 500),
            ("2s", 2_000),
            ("2S", 2_000),
            ("10m", 600_000),
            ("10M", 600_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1h 30m", 5_400_000),
        ] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        assert_eq!(seconds("3"), Ok(Duration::from_secs(3)));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("250ms"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn times_that_mean_nothing_are_refused_with_an_example() {
        for text in ["", "s", "-1", "2 parsecs", "1..5", "999999999999999999999999999999"] {
            let why = millis(text).expect_err(text);
            assert!(why.contains(&format!("{text:?}")) && why.contains("500ms"), "{why}");
        }
    }

    #[test]
    fn values_are_shown_as_they_can_be_typed() {
        for size in [1, 1_000, 12 << 20, 1 << 20, 64 << 20, 4 << 30, 1 << 40] {
            assert_eq!(bytes(show_bytes(size).trim_end_matches("ytes")), Ok(size));
        }
        for time in [0, 1, 1_500, 60_000, 86_400_000] {
            assert_eq!(millis(&show_millis(time)), Ok(time));
        }
    }
}
