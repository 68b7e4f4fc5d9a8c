//! Strings that redis-server compressed with LZF.

/// Most bytes that one compressed byte stands for: three bytes repeat up to 264.
const RATIO_MAX: usize = 264 / 3;
/// Literals have a first byte below this one.
const LITERALS_END: u8 = 1 << 5;
/// A repetition of this length has a byte that counts further ones.
const LONG: usize = 7;

/// The `len` bytes that `compressed` stands for; `None` when it stands for others.
pub(super) fn decompress(compressed: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > compressed.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    let mut rest = compressed;
    while let Some((&control, tail)) = rest.split_first() {
        rest = if control < LITERALS_END {
            let (literals, tail) = tail.split_at_checked(usize::from(control) + 1)?;
            out.extend_from_slice(literals);
            tail
        } else {
            repeat(&mut out, control, tail)?
        };
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// Appends a repetition of earlier bytes. Returns the bytes behind its description.
fn repeat<'a>(out: &mut Vec<u8>, control: u8, tail: &'a [u8]) -> Option<&'a [u8]> {
    let mut count = usize::from(control >> 5);
    let mut tail = tail;
    if count == LONG {
        let (&more, rest) = tail.split_first()?;
        count += usize::from(more);
        tail = rest;
    }
    let (&low, tail) = tail.split_first()?;
    let distance = (usize::from(control & (LITERALS_END - 1)) << 8 | usize::from(low)) + 1;
    let start = out.len().checked_sub(distance)?;
    // The repetition may overlap itself.
    for at in start..start + count + 2 {
        out.push(out[at]);
    }
    Some(tail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repetitions_overlap() {
        assert_eq!(decompress(b"\x00a\xe0\x0f\x00", 25).as_deref(), Some(&[b'a'; 25][..]));
        assert_eq!(decompress(b"\x02abc\x40\x02", 7).as_deref(), Some(&b"abcabca"[..]));
    }

    #[test]
    fn lengths_must_fit() {
        for len in [0, 24, 26, usize::MAX] {
            assert_eq!(decompress(b"\x00a\xe0\x0f\x00", len), None, "{len}");
        }
        for cut in [&b"\x00"[..], b"\x00a\xe0", b"\x00a\xe0\x0f", b"\x00a\x20\x01", b"\x20\x00"] {
            assert!((0..60).all(|len| len == 1 || decompress(cut, len).is_none()), "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn noise_has_the_wanted_length(bytes: Vec<u8>, len in 0..300_usize) {
            if let Some(out) = decompress(&bytes, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
