//! Intsets: ascending integers of one width.

/// The width and the number of the integers.
const HEADER_LEN: usize = 8;

/// The integers of an intset. `None` when it is malformed or empty.
pub(super) fn parse(bytes: &[u8]) -> Option<Vec<i64>> {
    let (width, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let width = u32::from_le_bytes(*width) as usize;
    let count = u32::from_le_bytes(*count) as usize;
    if !matches!(width, 2 | 4 | 8) || count == 0 || count.checked_mul(width)? != rest.len() {
        return None;
    }
    let unused = 64 - 8 * width as u32;
    let integer = |low: &[u8]| {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(low);
        i64::from_le_bytes(bytes) << unused >> unused
    };
    let integers: Vec<i64> = rest.chunks_exact(width).map(integer).collect();
    integers.is_sorted_by(|a, b| a < b).then_some(integers)
}

/// An intset of the least width that fits all of `integers`, which are ascending.
pub(super) fn write(integers: &[i64]) -> Vec<u8> {
    let fits = |width: u32| {
        let bits = 8 * width - 1;
        integers.iter().all(|&integer| integer >> bits == integer >> 63)
    };
    let width = [2, 4].into_iter().find(|&width| fits(width)).unwrap_or(8);
    let mut out = Vec::with_capacity(HEADER_LEN + width as usize * integers.len());
    out.extend_from_slice(&width.to_le_bytes());
    out.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    for integer in integers {
        out.extend_from_slice(&integer.to_le_bytes()[..width as usize]);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn width_is_the_least() {
        assert_eq!(write(&[-1, 32_767]), b"\x02\0\0\0\x02\0\0\0\xff\xff\xff\x7f");
        assert_eq!(write(&[32_768])[..4], *b"\x04\0\0\0");
        assert_eq!(write(&[i64::from(i32::MIN)])[..4], *b"\x04\0\0\0");
        assert_eq!(write(&[i64::from(i32::MIN) - 1])[..4], *b"\x08\0\0\0");
    }

    #[test]
    fn damage_is_refused() {
        for bytes in [
            &b"\x02\0\0\0\x00\0\0\0"[..],
            b"\x03\0\0\0\x01\0\0\0\x01\0\0",
            b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0",
            b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0",
            b"\x02\0\0\0\x02\0\0\0\x01\0",
            b"\x02\0\0\0\xff\xff\xff\xff\x01\0",
            b"\x02\0\0",
        ] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn integers_come_back(all in prop::collection::btree_set((any::<i64>(), 0..64_u32), 1..20)) {
            let all: std::collections::BTreeSet<i64> = all.iter().map(|&(n, shift)| n >> shift).collect();
            let all: Vec<i64> = all.into_iter().collect();
            prop_assert_eq!(parse(&write(&all)), Some(all));
        }
    }
}
