//! Cursors of `SCAN`: the top 52 bits of a position in the hash space.
//!
//! Clients in JavaScript hold integers below 2^53 only, so a position of 64 bits cannot be a
//! cursor. A scan therefore ends only where these bits change: keys that share them come in one
//! reply.

use types::Key;

/// Low bits of a position that a cursor leaves out.
const HIDDEN_BITS: u32 = 12;

/// The cursor at which `position` is found again.
pub(crate) fn of(position: u64) -> u64 {
    position >> HIDDEN_BITS
}

/// The first position of a cursor; `None` behind the end of the hash space.
pub(crate) fn position(cursor: u64) -> Option<u64> {
    (cursor <= of(u64::MAX)).then_some(cursor << HIDDEN_BITS)
}

/// Parses a cursor as redis-server 7.0 does, by the rules of `strtoul`.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if text.is_empty() {
        return Some(0);
    }
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse::<u64>().ok()?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// Leaves about `len` of `keys`, which are in the order of the hash space, and returns the position
/// of the others. Keys of one cursor stay together, also with those of the cursor `last`, which
/// came before.
pub(crate) fn cut(keys: &mut Vec<Key>, len: usize, last: Option<u64>) -> Option<u64> {
    let last = match len.checked_sub(1) {
        Some(at) => Some(of(keys.get(at)?.hash())),
        None => last,
    };
    let end = len + keys[len..].iter().take_while(|key| Some(of(key.hash())) == last).count();
    let next = keys.get(end)?.hash();
    keys.truncate(end);
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of redis-server 7.0.15: 0 is a cursor, `None` is refused.
    #[test]
    fn cursors_parse_as_in_redis() {
        for (text, cursor) in [
            ("0", Some(0)),
            ("", Some(0)),
            ("007", Some(7)),
            ("+7", Some(7)),
            ("-0", Some(0)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-", None),
            ("+", None),
            ("--1", None),
            (" 1", None),
            ("1 ", None),
            ("0x10", None),
            ("1.0", None),
        ] {
            assert_eq!(parse(text.as_bytes()), cursor, "{text:?}");
        }
    }

    #[test]
    fn cursors_fit_a_double() {
        for position in [0, 1, 4_095, 4_096, 1 << 56, u64::MAX - 4_096, u64::MAX] {
            assert!(of(position) < 1 << 53);
            let again = super::position(of(position)).expect("it lies in the hash space");
            assert!(again <= position && position - again < 1 << HIDDEN_BITS);
        }
        assert_eq!(position(1 << 52), None);
        assert_eq!(position(u64::MAX), None);
    }

    #[test]
    fn keys_of_one_cursor_stay_together() {
        let key = |hash: u64| Key::at(hash, &hash.to_be_bytes());
        let keys: Vec<Key> = [0x1000, 0x1001, 0x1fff, 0x2000, 0x5000].map(key).to_vec();
        for (len, last, left, next) in [
            (0, Some(1), 3, Some(0x2000)),
            (0, Some(0), 0, Some(0x1000)),
            (0, None, 0, Some(0x1000)),
            (1, Some(1), 3, Some(0x2000)),
            (2, None, 3, Some(0x2000)),
            (3, None, 3, Some(0x2000)),
            (4, None, 4, Some(0x5000)),
            (5, None, 5, None),
            (9, None, 5, None),
        ] {
            let mut some = keys.clone();
            assert_eq!((cut(&mut some, len, last), some.len()), (next, left), "{len} of them");
        }
    }
}
