//! Unsigned LEB128 numbers.

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off `rest`. `None` when it is cut, too large, or longer than needed.
pub fn take(rest: &mut &[u8]) -> Option<u64> {
    if let [byte @ 0..0x80, tail @ ..] = *rest {
        *rest = tail;
        return Some(u64::from(*byte));
    }
    let mut value = 0_u64;
    for (at, &byte) in rest.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if at == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * at);
        if byte < 0x80 {
            *rest = &rest[at + 1..];
            return (byte != 0).then_some(value);
        }
    }
    None
}

/// Bytes that a number takes.
#[must_use]
pub fn len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_form() {
        for bytes in [&b""[..], b"\x80", b"\x80\x00", &[0xff; 10], &[0xff; 11]] {
            assert_eq!(take(&mut &*bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn numbers_come_back() {
        let mut prng = crate::Prng::new(1);
        for shift in (0..64).cycle().take(10_000) {
            let (value, tail) = (prng.next_u64() >> shift, prng.next_u64() as u8);
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out.len(), len(value));
            out.push(tail);
            let mut rest = out.as_slice();
            assert_eq!((take(&mut rest), rest), (Some(value), &[tail][..]));
        }
    }
}
